"""Half-precision products with operands or results that TMA cannot move: rows not aligned to 16 bytes."""

import itertools
import math

import pytest
import torch
from common import ACTIVATIONS, check_replays, poison, randn, runs_hopper_kernels
from test_matmul import HALVES, TENSOR_TILES, assert_special_as, check, forced, matmul

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not runs_hopper_kernels(), reason="needs a Hopper GPU")]
LAYOUTS = ["nn", "nt", "tn", "tt"]
FEW_ROWS = "wgmma_few_rows"
EDGES = [(257, 513, 300), (129, 1025, 1023), (1023, 1025, 1023), (1023, 513, 2049), (2049, 2049, 520), (4097, 4097, 72)]


def put(x: torch.Tensor, order: str, offset: int = 0, pad: int = 0) -> torch.Tensor:
    """x at `offset` elements in a storage of NaN, lines padded by `pad` elements; t: columns are contiguous."""
    if order == "t":
        return put(x.mT, "n", offset, pad).mT
    line = x.shape[-1] + pad
    lines = x.numel() // x.shape[-1]
    storage = torch.full((offset + lines * line - pad,), math.nan, dtype=x.dtype, device=x.device)  # ends with x
    strides = [line]
    for size in reversed(x.shape[1:-1]):
        strides.insert(0, strides[0] * size)
    return storage.as_strided(x.shape, (*strides, 1), offset).copy_(x)


def pair(m: int, n: int, k: int, dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, torch.Tensor]:
    return randn(m, k, dtype=dtype, device="cuda"), randn(k, n, dtype=dtype, device="cuda")


def copied(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product by way of aligned copies of the operands."""
    with forced("wgmma"):
        return matmul(a, b)


@pytest.mark.sanitize
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel", ["", FEW_ROWS])
def test_small_cases(layout: str, kernel: str) -> None:
    # Among them a split K, and more k-steps than pipeline slots.
    for m, n, k in [(5, 37, 67), (70, 65, 263), (3, 129, 1539), (40, 43, 128), (20, 140, 1100)]:
        a, b = pair(m, n, k)
        with forced(kernel):
            check(put(a, layout[0], 3), put(b, layout[1], 1, 2))
    a, b = pair(257, 513, 67)
    check(put(a, layout[0]), put(b, layout[1]))


@pytest.mark.usefixtures("batch_invariant")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", HALVES)
def test_few_rows_by_a_b_of_any_address_and_stride(dtype: torch.dtype, layout: str) -> None:
    shapes = [(1, 255, 131), (16, 1001, 515), (64, 64, 1025), (65, 4097, 300), (128, 2055, 129)]
    for m, n, k in [*shapes, (9, 4261, 1409), (33, 4300, 900)]:  # the last two: more tiles than SMs
        a, b = pair(m, n, k, dtype)
        expected = check(a, b)
        assert torch.equal(copied(a, b), expected)
        with forced(FEW_ROWS):
            for offset in range(8):
                out = matmul(put(a, layout[0], 7 - offset, 1), put(b, layout[1], offset, offset % 3))
                assert torch.equal(out, expected), (m, n, k, offset)


@pytest.mark.usefixtures("batch_invariant")
@pytest.mark.parametrize("n, k", [(4095, 4097), (513, 2049), (129, 8191), (3001, 8193), (77, 17001)])
def test_a_rows_bits_are_the_same_alone(n: int, k: int) -> None:
    """Few rows read B in place, more rows a copy of it; splits of K are added in the same order."""
    a, b = pair(300, n, k)
    for order in "nt":
        w = put(b, order, 3)
        out = check(a, w)
        for rows in (1, 2, 16, 64, 65, 128, 129):
            assert torch.equal(matmul(a[:rows], w), out[:rows]), rows
            with forced(FEW_ROWS):
                assert torch.equal(matmul(a[:rows], w), out[:rows]), rows
        assert torch.equal(matmul(put(a[7:8], "n", 5), w), out[7:8])


@pytest.mark.usefixtures("batch_invariant")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", EDGES, ids=str)
def test_sizes_just_over_a_tile(shape: tuple[int, int, int], layout: str) -> None:
    a, b = pair(*shape)
    out = check(put(a, layout[0], 1), put(b, layout[1], 2))
    assert torch.equal(copied(a, b), out)


@pytest.mark.usefixtures("batch_invariant")
@pytest.mark.sanitize
@pytest.mark.parametrize("tile", [tile for tile in TENSOR_TILES if not tile.endswith(("x32", "x16"))])
def test_every_tile_where_rows_of_c_start_anywhere(tile: str) -> None:
    """One to five TMA boxes of C, the last one column wide or one short; rows of C at any multiple of 2 bytes."""
    bias = randn(700, dtype=torch.bfloat16, device="cuda")
    for m, n, k in [(129, 67, 72), (70, 255, 67), (17, 257, 264), (130, 603, 40)]:
        a, b = pair(m, n, k)
        w = put(b, "t")
        with forced("wgmma_128x128"):
            expected = check(a, w)
        with forced(tile):
            poison("cuda", megabytes=1)
            assert torch.equal(matmul(put(a, "n", 1), w), expected)
            out = torch.ops.xgemm.linear(a, w.mT, bias[:n])
        exact = a.double() @ w.double() + bias[:n].double()
        assert ((out.double() - exact).abs() <= 2**-8 * exact.abs() + 2**-10).all(), (m, n, k)


@pytest.mark.usefixtures("batch_invariant")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_that_straddle_lines_of_l2(layout: str) -> None:
    """Operands are copied where that pays; the bits are those of aligned rows."""

    def padded(x: torch.Tensor, order: str) -> torch.Tensor:
        return put(x, order, 0, -x.shape[-1 if order == "n" else -2] % 64)

    for m, n, k in [(2056, 2056, 2056), (1000, 1000, 1000), (520, 3000, 1032)]:
        a, b = pair(m, n, k)
        out = check(put(a, layout[0]), put(b, layout[1]))
        assert torch.equal(matmul(padded(a, layout[0]), padded(b, layout[1])), out)


@pytest.mark.parametrize("n", [65, 67, 255, 257, 1021, 1026, 4097])
def test_every_epilogue_where_rows_start_anywhere(n: int) -> None:
    linear = torch.ops.xgemm.linear
    for m, k, kernel in [(3, 72, ""), (129, 264, ""), (300, 515, ""), (5, 264, FEW_ROWS), (100, 515, FEW_ROWS)]:
        x, w = randn(m, k, dtype=torch.bfloat16, device="cuda"), randn(n, k, dtype=torch.bfloat16, device="cuda")
        bias, residual = randn(n, dtype=x.dtype, device="cuda"), put(randn(m, n, dtype=x.dtype, device="cuda"), "n", 1)
        activations = ["none", "relu", "gelu", "silu"]
        for activation, add, extra in itertools.product(activations, [None, bias], [None, residual]):
            poison("cuda", megabytes=1)
            with forced(kernel):
                y = linear(x, w, add, activation=activation, residual=extra, precision="highest")
            product = x.double() @ w.double().mT + (0 if add is None else add.double())
            exact = ACTIVATIONS[activation](product) + (0 if extra is None else extra.double())
            assert ((y.double() - exact).abs() <= 2**-8 * exact.abs() + 2**-10).all(), (m, k, kernel, activation)


@pytest.mark.parametrize("shape", [(5, 131, 67), (130, 131, 259), (257, 513, 131)], ids=str)
def test_special_values(shape: tuple[int, int, int]) -> None:
    a, b = pair(*shape)
    a[0, -1], a[1, 0], a[2, 3] = math.inf, math.nan, -math.inf
    b[-1, -1], b[0, 5], b[2, 0] = math.inf, -math.inf, math.nan
    exact = a.double() @ b.double()
    for layout, kernel in itertools.product(LAYOUTS, ["", FEW_ROWS]):
        with forced(kernel):
            assert_special_as(matmul(put(a, layout[0], 3), put(b, layout[1], 5)), exact)


@pytest.mark.sanitize
def test_batches_of_long_lines() -> None:
    """Each warp copies a piece of a line: two batch dims that do not fold into one, an operand broadcast along one."""
    a = put(randn(2, 3, 70, 515, dtype=torch.bfloat16, device="cuda"), "n", 1)
    b = put(randn(3, 2, 515, 301, dtype=torch.bfloat16, device="cuda"), "n", 3).transpose(0, 1)
    check(a, b)
    check(a, b[:1])
    check(a[:, :1], b.mT.contiguous().mT)
    check(a, put(b[0, 0], "t", 5))


@pytest.mark.parametrize("kernel", ["", FEW_ROWS])
def test_batches(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XGEMM_MATMUL_PLAN", kernel)
    for m in (5, 100):
        a, b = randn(3, m, 67, dtype=torch.float16, device="cuda"), randn(3, 67, 45, dtype=torch.float16, device="cuda")
        check(put(a, "n", 1), put(b, "n", 3))
        check(put(a, "t", 1), put(b, "t", 3, 2))
        check(put(a, "n", 1), put(b[0], "n", 3))
        check(a[0], put(b, "t", 3))
        x, w = randn(3, m, 64, dtype=torch.float16, device="cuda"), randn(3, 64, 45, dtype=torch.float16, device="cuda")
        check(put(x, "n", 1), put(w, "n", 3))  # all matrices of B are equally misaligned
        check(x[0], put(w[0], "n", 3)[:1].expand(64, 45))  # lines that overlap
        four = randn(2, 3, m, 67, dtype=torch.float16, device="cuda")
        check(four.transpose(0, 1), put(b, "n", 3)[:, None])


def test_graphs_repeat() -> None:
    problems = [pair(16, 4095, 1025), pair(257, 513, 300), pair(128, 65, 3077)]
    for a, b in problems:
        check(a, b)
    check_replays(lambda: tuple(matmul(a, b) for a, b in problems * 2), *sum(problems, ()), replays=3)


@pytest.mark.sanitize
@pytest.mark.parametrize(
    ("m", "n", "k", "layout"),
    [(407, 469, 7352, "nt"), (610, 584, 6608, "nn"), (529, 296, 6260, "nn"), (661, 296, 8743, "tn")],
)
def test_splits_of_pairs_that_meet_in_memory(m: int, n: int, k: int, layout: str) -> None:
    # An odd number of rows of tiles: the last pair's second tile lies below C. Four splits, in the last case two.
    a, b = pair(m, n, k)
    check(put(a, layout[0]), put(b, layout[1]))

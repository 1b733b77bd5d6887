"""Products by mma.sync (mma_*), for every GPU from sm_80 on; in TF32: test_matmul.py.

On Hopper half precision has the bits of the wgmma_* kernels.
"""

import math

import pytest
import torch
from common import misaligned, poison, randn, sliced, tile_names, transposed
from matmul_tiles import check_batches, check_graph, check_nan_and_inf, small_cases
from test_matmul import HALVES, TF32_BOUND, check, forced, has_wgmma, matmul, reference

import torch_ext

TWO_PARTS = [name for name in tile_names("mma") if "_x2_" in name]
TILES = [name for name in tile_names("mma") if "tf32" not in name and name not in TWO_PARTS]
EDGES = [(1, 1, 1), (31, 33, 15), (32, 32, 16), (33, 31, 17), (63, 64, 64), (65, 8, 65), (64, 65, 320), (129, 63, 385)]
EDGES += [(127, 127, 127), (129, 127, 65), (200, 136, 1000), (300, 24, 72), (257, 300, 1000), (16, 512, 4096)]
LAYOUTS = ["same", "misaligned", "sliced", "transposed", "padded"]

pytestmark = pytest.mark.cuda
hopper = pytest.mark.skipif(not has_wgmma(), reason="needs a Hopper GPU")


def layout(x: torch.Tensor, name: str) -> torch.Tensor:
    if name == "padded":  # rows at odd addresses, NaN after each
        return torch.full((x.shape[0], x.shape[1] + 3), math.nan, dtype=x.dtype, device=x.device)[
            :, : x.shape[1]
        ].copy_(x)
    return {"same": lambda: x, "misaligned": lambda: misaligned(x), "sliced": lambda: sliced(x)}.get(
        name, lambda: transposed(x)
    )()


@pytest.mark.sanitize
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("dtype", HALVES)
def test_small_case_of_every_tile(tile: str, dtype: torch.dtype) -> None:
    with forced(tile):
        for a, b in small_cases(dtype):
            check(misaligned(a), layout(b, "padded"))
            check(a, sliced(b))  # no contiguous dim: a copy


@pytest.mark.sanitize
@pytest.mark.parametrize("tile", TWO_PARTS)
def test_small_case_of_two_parts(tile: str) -> None:
    with forced(tile):
        for a, b in small_cases(torch.float32):
            check(a, misaligned(b))


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize(("shape", "splits"), [((70, 67, 601), 2), ((130, 72, 601), 10), ((7, 200, 4001), 63)], ids=str)
def test_k_split(dtype: torch.dtype, tile: str, shape: tuple[int, int, int], splits: int) -> None:
    m, n, k = shape
    a, b = randn(m, k, dtype=dtype, device="cuda"), randn(k, n, dtype=dtype, device="cuda")
    with forced(f"{tile}/{splits}"):
        out = check(a, b)
        for x, y in ((transposed(a), b), (a, transposed(b)), (misaligned(a), misaligned(b))):
            assert torch.equal(matmul(x, y), out), (x.stride(), y.stride())
        assert torch.equal(matmul(a.expand(3, m, k), b), out.expand(3, m, n))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shape", EDGES, ids=str)
def test_all_tiles_give_the_same_bits_in_batch_invariant_mode(
    dtype: torch.dtype, shape: tuple[int, int, int], batch_invariant: None
) -> None:
    m, n, k = shape
    a, b = randn(m, k, dtype=dtype, device="cuda"), randn(k, n, dtype=dtype, device="cuda")
    with forced(TILES[0]):
        out = check(a, b)
    for tile in TILES[1:]:
        with forced(tile):
            for x, y in ((a, b), (transposed(a), b), (a, transposed(b)), (misaligned(a), transposed(b))):
                poison("cuda", megabytes=2)
                assert torch.equal(matmul(x, y), out), (tile, x.stride(), y.stride())


@hopper
@pytest.mark.usefixtures("batch_invariant")
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shape", [shape for shape in EDGES if shape[2] < 1536], ids=str)  # a longer K is split
def test_every_layout_has_the_bits_of_wgmma(dtype: torch.dtype, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = randn(m, k, dtype=dtype, device="cuda"), randn(k, n, dtype=dtype, device="cuda")
    with forced("wgmma"):
        out = check(a, b)
    operands = [[layout(x, name) for name in LAYOUTS] for x in (a, b)]
    pairs = [(x, y) for x in operands[0] for y in operands[1] if 1 in x.stride() and 1 in y.stride()]
    for tile in TILES:
        with forced(tile):
            for x, y in pairs:
                poison("cuda", megabytes=2)
                assert torch.equal(matmul(x, y), out), (tile, x.stride(), y.stride())


@hopper
@pytest.mark.usefixtures("batch_invariant")
@pytest.mark.parametrize("dtype", HALVES)
def test_the_sums_themselves_have_the_bits_of_wgmma(dtype: torch.dtype) -> None:
    """Subtracting the rounded result shows the bits that half precision rounds off; scales of many decades cancel."""
    for k in (16, 64, 128, 1000, 1535):
        for decades in (0, 2, 4):
            a, b = (randn(*shape, device="cuda") for shape in ((256, k), (k, 128)))
            for x in (a, b):
                x *= 10 ** ((torch.rand_like(x) - 0.5) * decades)
            a, b = a.to(dtype), b.to(dtype)
            with forced("wgmma"):
                rounded = matmul(a, b)
                rest = torch.ops.xgemm.addmm(-rounded, a, b)
            for tile in TILES:
                with forced(tile):
                    assert torch.equal(torch.ops.xgemm.addmm(-rounded, a, b), rest), (tile, k, decades)


@hopper
@pytest.mark.usefixtures("batch_invariant")
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("n", [64, 67])
def test_what_is_fused_has_the_bits_of_wgmma(dtype: torch.dtype, n: int) -> None:
    x, w, bias = (randn(*shape, dtype=dtype, device="cuda") for shape in ((3, 70, 130), (n, 130), (n,)))
    residual, c = randn(3, 70, n, dtype=dtype, device="cuda"), randn(n, 70, dtype=dtype, device="cuda").mT

    def all_of_them() -> list[torch.Tensor]:
        linear, addmm = torch.ops.xgemm.linear, torch.ops.xgemm.addmm
        activations = ("none", "relu", "gelu", "gelu_tanh", "silu")
        outs = [linear(x, w, bias, activation=name, residual=residual) for name in activations]
        outs += [linear(x, w, bias), linear(x, w, activation="gelu"), linear(x.mT.contiguous().mT, w)]
        return [
            *outs,
            addmm(c, x[0], w.mT, beta=0.5, alpha=2.0),
            addmm(c, x[0], w.mT, beta=0.0),
            addmm(bias, x[1], w.mT),
        ]

    with forced("wgmma"):
        wanted = all_of_them()
    for tile in TILES:
        with forced(tile):
            for i, (ours, theirs) in enumerate(zip(all_of_them(), wanted, strict=True)):
                assert torch.equal(ours, theirs), (tile, i)


@pytest.mark.parametrize("tile", TWO_PARTS)
@pytest.mark.parametrize("shape", EDGES, ids=str)
def test_two_parts_have_sgemms_error(tile: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    with forced(tile):
        for scale in (1.0, 1e-30, 1e30):
            check(randn(m, k, device="cuda") * scale, randn(k, n, device="cuda") / scale)
        a = randn(m, k, device="cuda") * 10 ** (12 * torch.rand(m, k, device="cuda") - 6)  # some elements are lossy
        check(a, transposed(randn(k, n, device="cuda")))
        whole = torch.randint(-8, 9, (m, k), device="cuda").float(), torch.randint(-8, 9, (k, n), device="cuda").float()
        assert torch.equal(matmul(*whole), (whole[0].double() @ whole[1].double()).float())


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("shape", EDGES, ids=str)
def test_one_part_is_as_good_as_tf32(tile: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = randn(m, k, device="cuda") * 1e-20, randn(k, n, device="cuda") * 1e25
    with forced(tile):
        out = torch_ext.matmul(a, b, precision="high")
    exact, scale = reference(a, b)
    assert ((out.double() - exact).abs() <= TF32_BOUND * scale).all()


@pytest.mark.parametrize("tile", TILES + TWO_PARTS)
def test_batches_graphs_and_special_values(tile: str) -> None:
    for dtype in [torch.float32] if tile in TWO_PARTS else HALVES:
        with forced(tile):
            check_batches(dtype, ((5, 40, 70), (70, 90)))
            check_graph(dtype)
            check_nan_and_inf(dtype, 1000)


@pytest.mark.parametrize("tile", TILES + TWO_PARTS)
@pytest.mark.parametrize("n", [64, 67])
def test_what_is_fused(tile: str, n: int) -> None:
    """Against the parts in fp32: bias, activation, residual, C; a gated product by two launches."""
    dtype = torch.float32 if tile in TWO_PARTS else torch.float16
    x, w, up = (randn(*shape, dtype=dtype, device="cuda") for shape in ((3, 70, 136), (n, 136), (n, 136)))
    bias, residual = randn(n, dtype=dtype, device="cuda"), randn(3, 70, n, dtype=dtype, device="cuda")
    c = randn(n, 210, dtype=dtype, device="cuda").mT
    error = {torch.float32: 1e-4, torch.float16: 3e-2}[dtype]
    functional = torch.nn.functional
    with forced(tile):
        fused = torch.ops.xgemm.linear(x, w, bias, activation="gelu", residual=residual)
        added = torch.ops.xgemm.addmm(c, x.flatten(0, 1), w.mT, beta=0.5, alpha=-2)
        gated = torch.ops.xgemm.gated_linear(x, w, up, activation="silu")
    x, w, up, bias, residual, c = (t.double() for t in (x, w, up, bias, residual, c))
    wanted = functional.gelu(x @ w.mT + bias) + residual
    torch.testing.assert_close(fused.double(), wanted, rtol=error, atol=error)
    torch.testing.assert_close(added.double(), 0.5 * c - 2 * (x.flatten(0, 1) @ w.mT), rtol=error, atol=error)
    torch.testing.assert_close(gated.double(), functional.silu(x @ w.mT) * (x @ up.mT), rtol=error, atol=30 * error)


def test_half_precision_without_a_unit_stride_or_a_k() -> None:
    """No family but this one takes them."""
    for dtype in HALVES:
        a, b = (
            randn(60, 2 * 70, dtype=dtype, device="cuda")[:, ::2],
            randn(2 * 90, 70, dtype=dtype, device="cuda")[::2].mT,
        )
        check(a, b)
        assert not matmul(a[:, :0], b[:0]).any()
        check(randn(2000, 9, dtype=dtype, device="cuda")[:, ::3], randn(3, 5, dtype=dtype, device="cuda"))


@hopper
@pytest.mark.usefixtures("batch_invariant")
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("n", "k"), [(64, 64), (32, 256), (128, 128), (127, 127), (512, 512), (1000, 1000), (65536, 128), (384, 384)]
)
def test_the_choice_between_kernels_does_not_show(dtype: torch.dtype, n: int, k: int) -> None:
    rows = 70000 if n <= 64 else 3000 if n < 2000 else 300
    a, b = randn(rows, k, dtype=dtype, device="cuda"), randn(k, n, dtype=dtype, device="cuda")
    with forced("wgmma"):
        full = matmul(a, b)
    assert torch.equal(matmul(a, b), full)
    for m in (1, 2, 4, 5, 16, 17, 32, 64, 65, 127, 128, 129, 255, 256, 300):
        assert torch.equal(matmul(a[:m], b), full[:m]), m
        assert torch.equal(matmul(a[1 : m + 1], transposed(b)), full[1 : m + 1]), m
    batched = matmul(a[:300].view(20, 15, k), b.expand(20, k, n))
    assert torch.equal(batched.view(300, n), full[:300])

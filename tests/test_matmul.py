"""torch.ops.xgemm.matmul: torch.matmul's semantics, SGEMM's accuracy, and a row's bits that no other row changes."""

import functools
import itertools
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
import torch
from common import (
    ACTIVATIONS,
    FLOATING,
    LAYOUTS,
    assert_as_good_as,
    assert_product,
    check_replays,
    check_side_stream,
    componentwise_error,
    kernels_of,
    misaligned,
    on_hopper,
    on_streams,
    poison,
    randn,
    runs_hopper_kernels,
    sliced,
    tile_names,
    torch_in_tf32,
    transposed,
)

matmul = torch.ops.xgemm.matmul

# Every kernel, and sizes just below, at and above the tiles of each. The kernels of CUDA cores share one order of
# additions, those of Hopper's tensor cores another.
TILES = tile_names("simt")
TENSOR_TILES = tile_names("wgmma")  # Hopper; not fp64
DIRECT_TILES = tile_names("bf16x3")  # Hopper; fp32 only
TF32_MMA_TILES = [name for name in tile_names("mma") if "tf32" in name]  # Hopper; fp32 "high" and "medium" only
TF32_TILES = [*tile_names("tf32"), *TF32_MMA_TILES]
TF32_BOUND = 2**-10  # two roundings to 11 bits, componentwise
KERNELS = ["", *TILES, "wgmma", "bf16x3"]
HALVES = [torch.float16, torch.bfloat16]
EDGES = [(127, 129, 31), (128, 128, 32), (129, 127, 33), (63, 65, 15), (64, 64, 16), (65, 63, 17), (15, 129, 8)]
EDGES += [(17, 127, 7)]


@contextmanager
def forced(kernel: str) -> Iterator[None]:
    """Forces `kernel` where it can do the problem; "" leaves the choice to the plan."""
    os.environ["XGEMM_MATMUL_PLAN"] = kernel
    try:
        yield
    finally:
        del os.environ["XGEMM_MATMUL_PLAN"]


@pytest.mark.cuda
def test_unknown_forced_name() -> None:
    x, line = randn(4, 4, device="cuda"), "XGEMM_MATMUL_PLAN.*simt_128x128.*got sgemm_128x128"
    with forced("sgemm_128x128"), pytest.raises(RuntimeError, match=line):
        matmul(x, x)


def reference(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The product in float64, and |A||B|, which SGEMM's error bound is relative to."""
    return a.double() @ b.double(), a.double().abs() @ b.double().abs()


def assert_special_as(ours: torch.Tensor, exact: torch.Tensor) -> None:
    """NaN, Inf and -Inf where the product in float64 has them."""
    assert torch.equal(ours.isnan(), exact.isnan())
    assert torch.equal(ours == math.inf, exact == math.inf)
    assert torch.equal(ours == -math.inf, exact == -math.inf)


def check(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """matmul(a, b) against float64, within the bound of its dtype. Returns it."""
    poison(a.device, megabytes=1)
    out = matmul(a, b)
    exact, scale = reference(a, b)
    assert (out.shape, out.dtype, out.device) == (exact.shape, a.dtype, a.device) and out.is_contiguous()
    if out.numel() == 0 or a.shape[-1] == 0:
        assert not out.any()
    else:
        assert_product(out, lambda: torch.matmul(a, b), exact, scale, a.shape[-1])
    return out


def replay_two(a: torch.Tensor, b: torch.Tensor, **precision: str) -> None:
    """Two products in a CUDA graph: the second reads the first's result and may be launched before it ends."""

    def both() -> tuple[torch.Tensor, torch.Tensor]:
        first = matmul(a, b, **precision)
        return first, matmul(first.mT, first, **precision)

    check_replays(both, a, b, replays=5)


SHAPES = [
    *(((5,), (5,)), ((5,), (5, 7)), ((3, 5), (5,)), ((3, 5), (5, 7)), ((1, 1), (1, 1)), ((2, 3, 5), (5,))),
    *(((5,), (2, 5, 7)), ((2, 3, 5), (5, 7)), ((3, 5), (2, 5, 7)), ((2, 1, 3, 5), (4, 5, 7))),
    ((1, 4, 1, 5), (3, 1, 5, 2)),
    ((2, 3, 2, 3, 2, 3, 4), (2, 1, 2, 1, 2, 4, 5)),  # more batch dims than a kernel takes
    *(((7, 1, 5), (5, 3)), ((64, 1, 33), (33, 1))),  # one row a batch, folded
]
EMPTY = [((0,), (0,)), ((0, 5), (5, 3)), ((5, 3), (3, 0)), ((3, 0), (0, 4)), ((2, 3, 0), (0, 4)), ((0, 3, 4), (4, 5))]
EMPTY += [((4, 5), (0, 5, 2)), ((1, 0), (0,))]


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("shapes", SHAPES + EMPTY, ids=str)
def test_shapes(device: torch.device, dtype: torch.dtype, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (randn(*shape, dtype=dtype, device=device) for shape in shapes)
    assert matmul(a, b).shape == torch.matmul(a, b).shape
    check(a, b)


@pytest.mark.parametrize("dtype", FLOATING)
def test_more_batch_dims_than_a_kernel_takes_at_odd_steps(device: torch.device, dtype: torch.dtype) -> None:
    """The outermost dim has an odd stride: its first matrices allow vector loads, the next ones do not."""
    a = randn(2, 2**4 * 8 * 8 + 1, dtype=dtype, device=device)[:, :-1].unflatten(1, (2, 2, 2, 2, 8, 8))
    check(a, randn(2, 1, 2, 1, 2, 8, 8, dtype=dtype, device=device))


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("layout_b", LAYOUTS)
@pytest.mark.parametrize("layout_a", LAYOUTS)
def test_layouts(device: torch.device, dtype: torch.dtype, layout_a: str, layout_b: str) -> None:
    for m, n, k in [(33, 20, 12), (1, 40, 64), (40, 1, 64), (3, 36, 300), (2, 31, 33)]:
        a, b = randn(m, k, dtype=dtype, device=device), randn(k, n, dtype=dtype, device=device)
        check(LAYOUTS[layout_a](a), LAYOUTS[layout_b](b))


def test_strides_of_every_kind(device: torch.device) -> None:
    x, w = randn(6, 4, 8, 10, device=device), randn(10, 9, device=device)
    check(x.permute(1, 2, 0, 3), w)  # rows of all batches, not in memory order
    check(x[::2, 1:3], w)
    check(x.expand(3, 6, 4, 8, 10), w)
    check(x[:1].expand(5, 4, 8, 10), w.expand(5, 1, 10, 9))
    check(randn(1, 10, device=device).expand(7, 10), w)  # a row that repeats
    check(randn(7, 1, device=device).expand(7, 10), w)
    check(randn(40, device=device).as_strided((5, 10), (3, 2)), w)  # rows that overlap
    check(x[..., :0], w[:0])
    check(x.transpose(0, 3), randn(6, 3, device=device))
    check(w.t(), randn(10, 11, device=device))


@pytest.mark.parametrize("dtype", FLOATING)
def test_nan_and_inf_where_torch_has_them(device: torch.device, dtype: torch.dtype) -> None:
    for m, n, k in [(7, 9, 13), (1, 9, 13), (9, 2, 300), (40, 70, 33)]:
        a, b = randn(m, k, dtype=dtype, device=device), randn(k, n, dtype=dtype, device=device)
        a[0, 0], b[k - 1, n - 1] = math.inf, math.nan
        a[m - 1, k // 2] = -math.inf
        b[0, 0] = 0  # 0 * Inf
        ours, exact = matmul(a, b), a.double() @ b.double()
        assert_special_as(ours, exact)
        kept = exact.isfinite()
        torch.testing.assert_close(ours[kept].double(), exact[kept], rtol=0.05, atol=0.05 * math.sqrt(k))


def test_denormals_are_kept(device: torch.device) -> None:
    tiny = torch.finfo(torch.float32).tiny
    a = torch.full((5, 1), tiny / 4, device=device)
    out = matmul(a, torch.ones(1, 6, device=device))
    assert torch.equal(out, torch.full((5, 6), tiny / 4, device=device))


def test_overflow_goes_to_inf_where_the_sum_does(device: torch.device) -> None:
    big = torch.full((2, 4), 3e38, device=device)
    assert (matmul(big, torch.ones(4, 3, device=device)) == math.inf).all()
    half = torch.full((2, 4), 6e4, device=device, dtype=torch.float16)
    signs = torch.tensor([1, -1, 1, -1], device=device, dtype=torch.float16)
    assert not matmul(half, signs).any()  # sums in fp32: no overflow on the way


@pytest.mark.parametrize("precision", ["highest", "ieee", "high", "medium"])
def test_precisions_are_at_least_what_they_say(device: torch.device, precision: str) -> None:
    a, b = randn(40, 300, device=device), randn(300, 50, device=device)
    exact, scale = reference(a, b)
    bound = {"high": 2**-10, "medium": 2**-7}.get(precision, 2 * math.sqrt(300) * 2**-24)
    assert componentwise_error(matmul(a, b, precision=precision), exact, scale) <= bound


@pytest.mark.usefixtures("batch_invariant")
@pytest.mark.cuda
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("shape", EDGES, ids=str)
def test_ragged_tiles_in_every_layout_give_the_same_bits(kernel: str, dtype: torch.dtype, shape: tuple) -> None:
    m, n, k = shape
    a, b = randn(m, k, dtype=dtype, device="cuda"), randn(k, n, dtype=dtype, device="cuda")
    with forced(kernel):
        out = check(a, b)
        for layout_a, layout_b in itertools.product(LAYOUTS.values(), repeat=2):
            poison("cuda", megabytes=1)
            assert torch.equal(matmul(layout_a(a), layout_b(b)), out)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 31, 256, 257, 384, 1000, 4096, 5000, 14336])
def test_every_kernel_and_split_of_cuda_cores_gives_the_same_bits(batch_invariant, dtype: torch.dtype, k: int) -> None:
    """The order of additions depends on N and K alone; one row takes the gemv kernel or splits K, 129 rows do not.

    (Without batch_invariant, fp32's gemv adds in another, more exact order.)
    """
    a, b = randn(129, k, dtype=dtype, device="cuda"), randn(k, 132, dtype=dtype, device="cuda")
    with forced(TILES[0]):
        out = matmul(a, b)
    for kernel in [*TILES, "gemv"]:
        for rows in (1, 2, 3, 4) if kernel == "gemv" else (1, 2, 3, 4, 5, 16, 17, 64, 128, 129):
            with forced(kernel):
                assert torch.equal(matmul(a[:rows], b), out[:rows]), (kernel, rows)
                assert torch.equal(matmul(a[:rows], transposed(b)), out[:rows]), (kernel, rows)


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("n", "k"), [(1, 1), (3, 7), (768, 768), (37, 4099), (1000, 1024), (131, 14336), (5, 100000), (4096, 512)]
)
def test_dot_adds_in_one_order(n: int, k: int) -> None:
    """1 to 4 rows or columns, in any layout; of unaligned lines of the large operand in another order."""
    a, w = randn(4, k, device="cuda"), randn(n, k, device="cuda")
    apart = torch.full((n, 2 * k + 3), math.nan, device="cuda")[:, 3 : k + 3].copy_(w)  # contiguous along k alone
    with forced("dot"):
        aligned = check(a, w.mT)
        staged = k < 12000  # x is copied to shared memory where it is unaligned, else both are loaded by element
        for y in (w, misaligned(w), apart):
            for x in (a, misaligned(a), sliced(a), transposed(a)) if staged else (a, misaligned(a)):
                out = aligned if y is w and staged else check(x, y.mT)
                for m in (1, 2, 3, 4):
                    assert torch.equal(matmul(x[:m], y.mT), out[:m]), m
                    assert torch.equal(matmul(y, x[:m].mT), out[:m].mT), m
                assert torch.equal(matmul(x[3], y.mT), out[3])
                assert torch.equal(matmul(y, x[3]), out[3])
        for x in (sliced(a), transposed(a)):
            check(x, w.mT), check(x, apart.mT)
        batched = matmul(a.expand(3, 4, k), torch.stack([w, 2 * w, apart]).mT)
        assert torch.equal(batched, torch.stack([aligned, 2 * aligned, aligned]))


@pytest.mark.cuda
@pytest.mark.parametrize("rows", [1, 3])
def test_dot_has_nan_and_inf_where_torch_has_them(rows: int) -> None:
    a, b = randn(rows, 700, device="cuda"), transposed(randn(700, 200, device="cuda"))
    a[0, 5], b[5, 2], b[0, 199], b[300, 77], b[699, 5] = math.inf, 0.0, -math.inf, math.inf, math.nan
    with forced("dot"):
        assert_special_as(matmul(a, b), a.double() @ b.double())


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["highest", "ieee", "high", "medium"])
def test_dot_is_taken_for_few_rows_of_any_precision(precision: str) -> None:
    a, w = randn(4, 1024, device="cuda"), randn(1000, 1024, device="cuda")
    with forced("dot"):
        out = matmul(a, w.mT)
    for m in (1, 2, 3, 4):
        assert torch.equal(matmul(a[:m], w.mT, precision=precision), out[:m])
        assert torch.equal(matmul(w, a[:m].mT, precision=precision), out[:m].mT)


@pytest.mark.usefixtures("batch_invariant")
@on_hopper
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("n", "k"),
    [
        *((8, 16), (260, 320), (1000, 64), (768, 3072), (100, 4100), (512, 16384), (64, 65536), (2049, 2051)),
        *((129, 16390), (320, 33000), (2104, 8200)),
    ],
)
def test_every_tensor_tile_and_split_gives_the_same_bits(dtype: torch.dtype, n: int, k: int) -> None:
    rows = 300
    a, b = randn(rows, k, dtype=dtype, device="cuda"), randn(k, n, dtype=dtype, device="cuda")
    out = check(a, b)
    assert torch.equal(matmul(a, transposed(b)), out)
    assert torch.equal(matmul(transposed(a), b), out)
    assert torch.equal(matmul(misaligned(a), sliced(b)), out)
    for m in (1, 2, 8, 9, 16, 33, 63, 64, 65, 127, 128, 129, 257):
        assert torch.equal(matmul(a[:m], b), out[:m]), m
        assert torch.equal(matmul(a[:m], transposed(b)), out[:m]), m
        for tile in TENSOR_TILES:  # one that cannot do the problem leaves the choice to the plan
            with forced(tile):
                assert torch.equal(matmul(a[:m], b), out[:m]), (tile, m)
                assert torch.equal(matmul(a[:m], transposed(b)), out[:m]), (tile, m)


@pytest.mark.usefixtures("batch_invariant")
@on_hopper
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("n", [24, 1000, 2304, 4096, 6144, 13824])
def test_tiles_of_any_width_give_the_same_bits(dtype: torch.dtype, n: int) -> None:
    """For few rows the plan picks the tiles' width that loads all SMs equally."""
    a, w = randn(200, 264, dtype=dtype, device="cuda"), randn(n, 264, dtype=dtype, device="cuda")
    bias, residual = randn(n, dtype=dtype, device="cuda"), randn(200, n, dtype=dtype, device="cuda")
    out = check(a, w.mT)
    linear = torch.ops.xgemm.linear
    full = linear(a, w, bias, activation="gelu", residual=residual)
    for m in (1, 5, 16, 33, 64, 65, 128, 129):
        poison("cuda", megabytes=8)
        assert torch.equal(matmul(a[:m], w.mT), out[:m]), m
        assert torch.equal(linear(a[:m], w, bias), linear(a, w, bias)[:m]), m
        assert torch.equal(linear(a[:m], w, bias, activation="gelu", residual=residual[:m]), full[:m]), m


@pytest.mark.cuda
def test_shared_tiles_repeat_in_graphs_and_on_several_streams() -> None:
    """Tiles whose K is split between CTAs, which reduce in memory: half precision with long K, and fp32."""
    sizes = [(64, 64, 65536, torch.bfloat16), (300, 512, 16384, torch.float16), (64, 64, 65536, torch.float32)]
    operands = [
        (randn(m, k, dtype=dtype, device="cuda"), randn(k, n, dtype=dtype, device="cuda"))
        for m, n, k, dtype in [*sizes, (128, 128, 8192, torch.float32)]
    ]
    outs = [matmul(*pair) for pair in operands]
    for _ in range(20):
        for pair, out in zip(operands, outs, strict=True):
            assert torch.equal(matmul(*pair), out)
    check_replays(lambda: tuple(matmul(*pair) for pair in operands * 2), replays=5)
    results = on_streams([functools.partial(matmul, *pair) for pair in operands] * 2, times=20)
    for i, result in enumerate(results):
        assert torch.equal(result, outs[i % len(outs)])


@pytest.mark.usefixtures("batch_invariant")
@on_hopper
@pytest.mark.parametrize(
    ("batch", "m", "n", "k"),
    [pytest.param(17, 20, 40, 12416, marks=pytest.mark.sanitize), (3, 64, 512, 12288), (5, 1, 256, 8192)],
)
def test_clusters_add_one_tile_after_another(batch: int, m: int, n: int, k: int) -> None:
    """More tiles than resident clusters: a cluster reduces in the shared memory that the next tile is loaded into."""
    a, b = (randn(batch, *size, dtype=torch.bfloat16, device="cuda") for size in [(m, k), (k, n)])
    bias = randn(n, dtype=torch.bfloat16, device="cuda")
    for layout in (b, transposed(b)):
        out = check(a, layout)
        for i in range(batch):
            assert torch.equal(matmul(a[i], layout[i]), out[i])
        linear = torch.ops.xgemm.linear(a[0], b[0].mT.contiguous(), bias, activation="silu")
        expected = torch.nn.functional.silu(a[0].double() @ b[0].double() + bias.double())
        assert torch.allclose(linear.double(), expected, rtol=2.0**-7, atol=0.05)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_number_of_rows_to_4096(batch_invariant: None, dtype: torch.dtype) -> None:
    a, b = randn(4096, 320, dtype=dtype, device="cuda"), randn(320, 260, dtype=dtype, device="cuda")
    full = matmul(a, b)
    different = torch.zeros((), dtype=torch.int64, device="cuda")
    for m in range(1, 4097):
        different += (matmul(a[:m], b) != full[:m]).sum()
    assert different.item() == 0


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", FLOATING)
def test_bits_repeat(dtype: torch.dtype) -> None:
    for m, n, k in [(512, 512, 4096), (1, 4096, 4096), (1000, 1000, 1000), (16, 128, 9000)]:
        a, b = randn(m, k, dtype=dtype, device="cuda"), randn(k, n, dtype=dtype, device="cuda")
        out = matmul(a, b)
        for _ in range(3):
            poison("cuda", megabytes=32)
            assert torch.equal(matmul(a, b), out)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("shape", [(512, 768, 1024), (1, 4096, 4096), (300, 200, 9001), (4097, 65, 129)], ids=str)
def test_error_beside_torch(dtype: torch.dtype, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    for make in (randn, lambda *s, **kw: torch.rand(*s, dtype=torch.float64, device=kw["device"]).to(kw["dtype"])):
        a, b = make(m, k, dtype=dtype, device="cuda"), make(k, n, dtype=dtype, device="cuda")
        with torch_in_tf32(False):
            theirs = torch.matmul(a, b)
        exact, scale = reference(a, b)
        if dtype in (torch.float16, torch.bfloat16):
            assert_as_good_as(matmul(a, b), theirs, exact)
            continue
        ours, torchs = (componentwise_error(x, exact, scale) for x in (matmul(a, b), theirs))
        print(f"{dtype} {shape}: ours {ours:.2e}, torch {torchs:.2e}")
        assert ours <= (2 * math.sqrt(k) + 8) * torch.finfo(dtype).eps / 2
        if dtype is not torch.float64:  # torch's fp64 product is the reference itself
            assert ours <= 2 * torchs + 4 * torch.finfo(dtype).eps


def wide(*shape: int, decades: float) -> torch.Tensor:
    """Magnitudes spread evenly over +- `decades`, random signs."""
    return 10.0 ** torch.empty(shape, device="cuda").uniform_(-decades, decades) * randn(*shape, device="cuda").sign()


def data_classes(m: int, n: int, k: int) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Data that is hard for kernels that split fp32 numbers into parts."""

    def normal(*shape: int) -> torch.Tensor:
        return randn(*shape, device="cuda")

    yield "normal", normal(m, k), normal(k, n)
    yield "uniform", torch.rand(m, k, device="cuda"), torch.rand(k, n, device="cuda")
    yield "lognormal", normal(m, k).exp(), normal(k, n).exp()
    yield "relu", normal(m, k).relu(), normal(k, n)
    yield "wide 4", wide(m, k, decades=4), wide(k, n, decades=4)
    yield "wide 12", wide(m, k, decades=12), wide(k, n, decades=12)
    yield "rows 15", normal(m, k) * wide(m, 1, decades=15), normal(k, n) * wide(1, n, decades=15)
    scales = wide(1, k, decades=8).abs()
    yield "k scales", normal(m, k) * scales, normal(k, n)
    yield "k scales cancel", normal(m, k) * scales, normal(k, n) / scales.mT
    yield "tiny", normal(m, k) * 1e-35, normal(k, n)
    yield "denormal", normal(m, k) * 1e-40, normal(k, n)
    yield "huge", normal(m, k) * 1e30 * min(1.0, (1024 / k) ** 0.5), normal(k, n) * 1e6  # no sum overflows
    outlier = torch.ones(m, k, device="cuda")
    outlier[m // 2, k // 3] = 1e20
    yield "outlier", outlier, torch.ones(k, n, device="cuda") + 0.1 * normal(k, n)
    sparse = [torch.rand(s, device="cuda") < 0.05 for s in ((m, k), (k, n))]
    yield "sparse", normal(m, k) * sparse[0], normal(k, n) * sparse[1]
    yield "one hot", torch.eye(k, device="cuda")[torch.randint(k, (m,), device="cuda")], normal(k, n)
    i, j = torch.arange(m, device="cuda").view(-1, 1), torch.arange(k, device="cuda").view(1, -1)
    yield "hilbert", 1.0 / (i + j + 1.0), 1.0 / (j.mT + torch.arange(n, device="cuda").view(1, -1) + 1.0)


Factors = Mapping[str, float]
NONE: Factors = {}


def worse_than_sgemm(
    kernel: str, m: int, n: int, k: int, layout: str = "nn", allowed: Factors = NONE, allowed_largest: Factors = NONE
) -> list[tuple[str, list[float], list[float]]]:
    """The data classes for which `kernel`'s error is larger than SGEMM's, with three errors each: ours, SGEMM's, and
    that of the exact product rounded once, the least possible.

    Errors are Frobenius norms, which must not exceed SGEMM's, and largest errors, which may be 1.5 times SGEMM's;
    `allowed` and `allowed_largest` are factors for single classes. 1.05 times the least possible norm always passes:
    where a single term is the sum, SGEMM rounds only once, too. Two draws count as one: a few elements dominate wide
    data. Denormal sums round each product to the same grid, so that all errors agree to 1e-4.
    """
    allowed = {"denormal": 1.01, **allowed}
    squares: dict[str, torch.Tensor] = {}
    largest: dict[str, list[float]] = {}
    for name, a, b in itertools.chain(data_classes(m, n, k), data_classes(m, n, k)):
        poison("cuda", megabytes=8)
        x, y = (transposed(z) if order == "t" else z for z, order in zip((a, b), layout, strict=True))
        with forced(kernel):
            ours = matmul(x, y)
        exact, scale = reference(a, b)
        with torch_in_tf32(False):
            theirs = torch.matmul(a if m > 4 else a.repeat(32, 1), b)[:m]  # SGEMM, not cuBLAS's gemv
        three = (ours, theirs, exact.float())
        of = torch.tensor([(z.double() - exact).norm().item() ** 2 for z in three], dtype=torch.float64)
        squares[name] = squares.get(name, 0) + of / max(exact.norm().item(), 1e-300) ** 2
        errors = [componentwise_error(z, exact, scale) for z in three]
        largest[name] = [max(pair) for pair in zip(errors, largest.get(name, errors), strict=True)]
    failed = []
    for name, of in squares.items():
        norms, errors = of.sqrt().tolist(), largest[name]
        norm, error = allowed.get(name, 1.0) * norms[1], allowed_largest.get(name, 1.5) * max(errors[1:])
        if norms[0] > max(norm, 1.05 * norms[2]) or errors[0] > error:
            failed.append((name, norms, errors))
    return failed


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("kernel", "k"),
    [*(("dot", k) for k in (1, 16, 64, 256, 1024, 8192, 28672)), *(("gemv", k) for k in (1, 16, 64, 255))],
)
def test_few_rows_are_as_good_as_sgemm_on_any_data(kernel: str, k: int) -> None:
    # Each lane of dot rounds its own first product, which shows in sums of one or two products: 1.04 measured at 256.
    allowed = {"rows 15": 1.05, **({"sparse": 1.1} if kernel == "dot" and k >= 256 else {})}  # few columns are its norm
    assert not worse_than_sgemm(kernel, 4, 3000, k, "nt" if kernel == "dot" else "nn", allowed)
    assert not worse_than_sgemm(kernel, 1, 3000, k + 1, "nt" if kernel == "dot" else "tn", allowed)


@pytest.mark.cuda
@pytest.mark.parametrize("kernel", ["simt_64x64", "wgmma"])  # direct, sliced, sweep: test_matmul_small.py
@pytest.mark.parametrize("k", [96, 128, 256, 1024, 8192])
def test_fp32_is_as_good_as_sgemm_on_any_data(kernel: str, k: int) -> None:
    if kernel == "wgmma" and not runs_hopper_kernels():
        pytest.skip("needs a Hopper GPU")
    if kernel == "wgmma":  # fp16 parts drop a tenth of an ulp of a product, which shows where one product is the sum
        few = {"hilbert": 1.35, "wide 12": 1.1} if k < 256 else {}  # tensor cores truncate what is small beside it
        few |= {"sparse": 1.05} if k < 128 else {}  # 1.00 measured
        assert not worse_than_sgemm(kernel, 1024, 1000, k, allowed={"outlier": 1.1, **few})
    else:  # each chunk of K rounds its own first product, which shows in sparse sums (measured 1.29, largest 1.76)
        assert not worse_than_sgemm(kernel, 1024, 1000, k, allowed={"sparse": 1.5}, allowed_largest={"sparse": 2.0})


@pytest.mark.cuda
def test_batches_beyond_a_grid_dimension() -> None:
    a, b = randn(70000, 3, 5, device="cuda"), randn(70000, 5, 2, device="cuda")
    check(a, b)
    check(a[:, :1], b)
    check(a.transpose(0, 1), randn(5, 6, device="cuda"))


@pytest.mark.usefixtures("batch_invariant")
@pytest.mark.cuda
@pytest.mark.parametrize("which", ["a", "b", "out", "wide_a"])
def test_more_than_2_31_elements(which: str) -> None:
    free = torch.cuda.mem_get_info()[0]
    if free < 30 << 30:
        pytest.skip("needs 30 GiB of GPU memory")
    half, rows = torch.float16, (1 << 31) // 64 + 7
    if which == "out":  # M * N > 2^31: compare the last rows
        a, b = randn(50000, 8, dtype=half, device="cuda"), randn(8, 43008, dtype=half, device="cuda")
        out = matmul(a, b)
        assert out.numel() > 1 << 31
        for part in (slice(0, 3), slice(49900, 50000)):
            assert torch.equal(out[part], matmul(a[part], b))
            assert_as_good_as(out[part], a[part] @ b, a[part].double() @ b.double())
        return
    big = torch.empty(rows, 64, dtype=half, device="cuda").normal_()
    if which == "a":
        for n in (2, 24):
            small = randn(64, n, dtype=half, device="cuda")
            out = matmul(big, small)
            assert_as_good_as(out[-1000:], big[-1000:] @ small, big[-1000:].double() @ small.double())
    elif which == "b":
        for m in (3, 20):
            small = randn(m, 64, dtype=half, device="cuda")
            out = matmul(small, big.t())
            assert_as_good_as(out[:, -1000:], small @ big[-1000:].t(), small.double() @ big[-1000:].double().t())
    else:  # a row stride above 2^31
        a = big.view(-1).as_strided((2, 100), ((1 << 31) + 64, 1))
        b = randn(100, 30, dtype=half, device="cuda")
        assert_as_good_as(matmul(a, b), a.contiguous() @ b, a.double() @ b.double())  # torch refuses the stride
        b = b.expand(6, 100, 30)
        a = big.view(-1).as_strided((6, 20, 100), (1 << 28, 100, 1))
        assert_as_good_as(matmul(a, b), a @ b, a.double() @ b.double())


@pytest.mark.cuda
def test_cuda_graph() -> None:
    for m, n, k in [(64, 96, 128), (1, 512, 4096), (128, 128, 8192)]:  # plain; gemv; split K through a workspace
        a, b = randn(m, k, device="cuda"), randn(k, n, device="cuda")
        check_replays(lambda: matmul(a, b), a, b, replays=2)  # noqa: B023


@pytest.mark.cuda
def test_runs_on_the_current_stream() -> None:
    check_side_stream(matmul, randn(256, 256, device="cuda"), randn(256, 256, device="cuda"))


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", FLOATING)
def test_only_our_kernels_run(dtype: torch.dtype) -> None:
    cases = [(64, 64, 64), (1, 512, 512), (512, 1, 512), (129, 131, 133), (64, 64, 8192), (999, 999, 999)]
    cases.append((16, 512, 4096))
    operands = [(randn(m, k, dtype=dtype, device="cuda"), randn(k, n, dtype=dtype, device="cuda")) for m, n, k in cases]
    operands += [(transposed(a), misaligned(b)) for a, b in operands]
    names = kernels_of(lambda: [matmul(a, b) for a, b in operands])
    assert names and all("xgemm" in name for name in names), names


# Pairs that share B: two rows of tiles and a long K. Pairs whose rows straddle cache lines: an odd count's last one is
# half out of bounds; the plan multicasts there (test_matmul_plan.py).
PAIRS = [
    *((tile, torch.float16, (m, n, 2056)) for tile in TENSOR_TILES if tile.startswith("wgmma_64x")
      for m, n in ((65, 40), (100, 328), (128, 200))),
    *((f"wgmma_{tile}", torch.bfloat16, (m, n, 1000)) for tile in ("128x256", "128x128", "64x128", "64x64", "64x32")
      for m, n in ((264, 392), (392, 264))),
]  # fmt: skip


@pytest.mark.usefixtures("batch_invariant")
@pytest.mark.cuda
@pytest.mark.sanitize
@pytest.mark.parametrize(("tile", "dtype", "shape"), PAIRS, ids=str)
def test_pairs_of_ctas_that_multicast(tile: str, dtype: torch.dtype, shape: tuple[int, int, int]) -> None:
    """A or B goes to both CTAs of a pair: the bits are those of any other tile, and of copies of unaligned rows."""
    m, n, k = shape
    a, w = randn(m, k, dtype=dtype, device="cuda"), randn(n, k, dtype=dtype, device="cuda")
    with forced("wgmma_128x128"):
        expected = matmul(misaligned(a), misaligned(w).mT) if k == 1000 else matmul(a, w.mT)
    with forced(tile):
        for layout_a in (a, transposed(a)):
            for layout_b in (w.mT, w.mT.contiguous()):
                assert torch.equal(check(layout_a, layout_b), expected)
        bias, residual = randn(n, dtype=dtype, device="cuda"), randn(m, n, dtype=dtype, device="cuda")
        out = torch.ops.xgemm.linear(a, w, bias, residual=residual)
        exact = a.double() @ w.double().mT + bias.double() + residual.double()
        assert_as_good_as(out, torch.nn.functional.linear(a, w, bias) + residual, exact)


@pytest.mark.cuda
@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("tile", ["wgmma_128x256", "wgmma_128x128", "wgmma_64x128"])
def test_a_transposed_tile_has_the_same_bits(tile: str, dtype: torch.dtype) -> None:
    for m, n, k in [(2, 72, 64), (65, 136, 200), (333, 264, 250), (600, 968, 72)]:
        a, w = (randn(*shape, dtype=dtype, device="cuda") for shape in ((m, k), (n, k)))
        bias = randn(n, dtype=dtype, device="cuda")
        for x, y in itertools.product((a, misaligned(a), transposed(a)), (w.mT, w.mT.contiguous())):
            with forced(tile):
                expected = matmul(x, y)
            with forced(f"{tile}/swapped"):
                assert torch.equal(check(x, y), expected)
        for activation in ACTIVATIONS:
            with forced(tile):
                expected = torch.ops.xgemm.linear(a, w, bias, activation=activation)
            with forced(f"{tile}/swapped"):
                assert torch.equal(torch.ops.xgemm.linear(a, w, bias, activation=activation), expected)
    a, b = (randn(*shape, dtype=dtype, device="cuda") for shape in ((5, 133, 264), (5, 264, 136)))
    with forced(f"{tile}/swapped"):
        check(a, b), check(a[:1].expand(5, -1, -1), transposed(b))


@pytest.mark.cuda
@pytest.mark.sanitize
@pytest.mark.parametrize("tile", DIRECT_TILES)
def test_direct_tiles_of_tiny_numbers_and_of_many_k_blocks(tile: str) -> None:
    with forced(tile):
        # Too small for the parts: computed with FMAs.
        check(randn(70, 1100, device="cuda") * 1e-40, randn(1100, 132, device="cuda"))
        # At least seven k-blocks per CTA: slots that cp.async filled are refilled.
        check(randn(700, 440, device="cuda"), randn(440, 1530, device="cuda"))


@pytest.mark.cuda
@pytest.mark.parametrize("tile", DIRECT_TILES)
@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1), (31, 127, 63), (33, 129, 65), (64, 256, 64), (65, 130, 4097), (300, 1030, 2000), (16, 4096, 4096)],
    ids=str,
)
def test_direct_tiles(tile: str, precision: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = randn(m, k, device="cuda"), randn(k, n, device="cuda")
    exact, scale = reference(a, b)
    bound = (2 * math.sqrt(k) + 8) * 2**-24
    with forced(tile):
        out = matmul(a, b, precision=precision)
        assert componentwise_error(out, exact, scale) <= bound
        for layout_a, layout_b in [(a, transposed(b)), (transposed(a), b), (misaligned(a), sliced(b))]:
            for _ in range(3):  # also on repeat, whichever CTA comes last
                poison("cuda", megabytes=64)
                assert torch.equal(matmul(layout_a, layout_b, precision=precision), out)


@pytest.mark.cuda
@pytest.mark.parametrize("tile", DIRECT_TILES)
def test_direct_tiles_do_not_overflow_before_the_sum_does(tile: str) -> None:
    """A hi part that is rounded up may overflow a product that the number itself does not."""
    a, b = torch.full((3, 4), 3.40e38, device="cuda"), torch.zeros(4, 130, device="cuda")
    b[0] = 1 - torch.rand(130, device="cuda") * 1e-3
    with forced(tile):
        out = matmul(a, b)
    torch.testing.assert_close(out.double(), a.double() @ b.double(), rtol=1e-6, atol=0)
    a[1, 1] = math.inf
    with forced(tile):
        assert torch.equal(matmul(a, b).isnan(), torch.matmul(a, b).isnan())


def check_tf32(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    poison("cuda", megabytes=8)
    out = matmul(a, b, precision="high")
    assert componentwise_error(out, *reference(a, b)) <= TF32_BOUND
    return out


@pytest.mark.cuda
@pytest.mark.sanitize
@pytest.mark.parametrize("tile", TF32_TILES)
def test_small_case_of_every_tf32_tile(tile: str) -> None:
    with forced(tile):
        for m, n, k in [(40, 136, 136), (140, 132, 1100)]:  # the second splits K
            a, b = randn(m, k, device="cuda"), randn(k, n, device="cuda")
            check_tf32(a, b)  # B through registers, C^T
            check_tf32(transposed(a), transposed(b))  # A through registers
            check_tf32(a, transposed(b))  # neither
            check_tf32(transposed(b).mT, a.mT)  # neither, M and N exchanged


@on_hopper
@pytest.mark.parametrize("tile", TF32_TILES)
@pytest.mark.parametrize(
    "shape",
    [(4, 4, 4), (1, 132, 36), (63, 252, 60), (65, 260, 68), (128, 256, 64), (332, 1032, 2004), (16, 4096, 4096)],
    ids=str,
)
def test_tf32_tiles(tile: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = randn(m, k, device="cuda"), randn(k, n, device="cuda")
    layouts = [(a, b), (a, transposed(b))] + ([(transposed(a), transposed(b))] if m % 4 == 0 else [])
    layouts += [(transposed(a), b)] if tile in TF32_MMA_TILES else []
    with forced(tile):
        for layout_a, layout_b in layouts:
            out = check_tf32(layout_a, layout_b)
            for _ in range(3):  # also on repeat, whichever CTA comes last
                assert torch.equal(check_tf32(layout_a, layout_b), out)


@on_hopper
@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1), (5, 7, 31), (63, 65, 33), (64, 64, 32), (129, 127, 97), (130, 67, 601), (257, 300, 100)],
    ids=str,
)
def test_tf32_by_mma_has_the_same_bits_in_every_tile_and_layout(shape: tuple[int, int, int]) -> None:
    """K uncut. Any alignment, a batch, few rows of many: k goes through one accumulator in order."""
    m, n, k = shape
    a, b = randn(m, k, device="cuda"), randn(k, n, device="cuda")
    with forced(f"{TF32_MMA_TILES[0]}/1"):
        out = check_tf32(a, b)
    for tile in TF32_MMA_TILES:
        with forced(f"{tile}/1"):
            check_layouts_and_batches(a, b, out)
            assert torch.equal(matmul(a[m // 2 :], b, precision="high"), out[m // 2 :])


def check_layouts_and_batches(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Operands along k or lines, broadcast and in batches, have the bits of `out`."""
    for x, y in itertools.product(*([x, transposed(x), misaligned(x), sliced(transposed(x))] for x in (a, b))):
        if 1 in x.stride() and 1 in y.stride():
            assert torch.equal(check_tf32(x, y), out), (x.stride(), y.stride())
    assert torch.equal(matmul(a.expand(3, *a.shape), b, precision="high"), out.expand(3, *out.shape))
    batch = torch.stack([a, 2 * a]), torch.stack([b, b])
    assert torch.equal(matmul(*batch, precision="high"), torch.stack([out, 2 * out]))


@on_hopper
@pytest.mark.sanitize
@pytest.mark.parametrize("tile", TF32_MMA_TILES)
@pytest.mark.parametrize(
    ("shape", "splits"),
    [((130, 67, 601), 2), ((130, 67, 601), 19), ((64, 64, 64), 2), ((7, 200, 4001), 63), ((1, 1, 97), 4)],
    ids=str,
)
def test_tf32_by_mma_with_k_split(tile: str, shape: tuple[int, int, int], splits: int) -> None:
    """CTAs meet and add their sums: the same bits in every layout, in batches and again."""
    m, n, k = shape
    a, b = randn(m, k, device="cuda"), randn(k, n, device="cuda")
    with forced(f"{tile}/{splits}"):
        out = check_tf32(a, b)
        check_layouts_and_batches(a, b, out)
        c = randn(m, n, device="cuda")
        added = torch.ops.xgemm.addmm(c, a, b, beta=0.5, alpha=2, precision="high")
        torch.testing.assert_close(added, torch.addcmul(2 * out, c, c.new_tensor(0.5)))
        small = torch.randint(-8, 9, (m, k), device="cuda").float(), torch.randint(-8, 9, (k, n), device="cuda").float()
        assert torch.equal(matmul(*small, precision="high").double(), small[0].double() @ small[1].double())
        a[0, 0], a[m // 2, k - 1], b[k // 2, n - 1] = math.nan, math.inf, -math.inf
        assert_special_as(matmul(a, b, precision="high"), a.double() @ b.double())


@on_hopper
def test_tf32_by_mma_with_k_split_on_streams_and_in_graphs() -> None:
    """Products on three streams wait for their own CTAs only; in a graph one follows the other at once."""
    a, b = randn(100, 20000, device="cuda"), randn(20000, 150, device="cuda")
    with forced("mma_tf32_64x64/60"):
        out = check_tf32(a, b)
        results = on_streams([lambda: matmul(a, b, precision="high")] * 3, times=20)
        assert all(torch.equal(result, out) for result in results)
        replay_two(a, b, precision="high")
        check_tf32(out.mT, out)


@pytest.mark.cuda
@pytest.mark.parametrize("tile", TF32_TILES)
def test_what_tf32_tiles_cannot_load(tile: str) -> None:
    a, b = randn(64, 68, device="cuda"), randn(68, 72, device="cuda")
    with forced(tile):
        for layout_a, layout_b in [(misaligned(a), b), (a, misaligned(b)), (sliced(a), b), (transposed(a), b)]:
            check_tf32(layout_a, layout_b)
        check_tf32(a[:, 1:], b[1:])
        check_tf32(randn(2, 3, 40, 72, device="cuda"), randn(3, 72, 36, device="cuda"))


@pytest.mark.cuda
@pytest.mark.parametrize("tile", TF32_TILES)
def test_tf32_tiles_batches_and_graphs(tile: str) -> None:
    with forced(tile):
        for shape_a, shape_b in [((5, 40, 72), (5, 72, 96)), ((5, 40, 72), (72, 96)), ((40, 72), (5, 72, 96))]:
            a, b = randn(*shape_a, device="cuda"), randn(*shape_b, device="cuda")
            check_tf32(a, b)
            check_tf32(transposed(a), transposed(b))
        a, b = randn(48, 3000, device="cuda"), randn(3000, 200, device="cuda")
        check_tf32(a, b)
        check_replays(lambda: tuple(matmul(a, b, precision="high") for _ in range(2)), a, b, replays=3)


def check_special_values(kernel: str, layouts: str, rtol: float, atol: float, **precision: str) -> None:
    """NaN and Inf in the first and the last k-blocks of fp32 operands; what they leave finite is as close as always."""
    a, b = randn(152, 700, device="cuda"), randn(700, 200, device="cuda")
    a[3, 5], a[7, 1], a[100, 650] = math.inf, math.nan, -math.inf
    b[5, 2], b[0, 199], b[300, 77] = 0.0, -math.inf, math.inf
    if precision:  # NaN below tf32's bits
        bits_a, bits_b = a.view(torch.int32), b.view(torch.int32)
        bits_a[20, 9], bits_a[140, 699], bits_b[600, 30] = 0x7F800001, -0x7FFFFF, 0x7F801FFF
    with forced(kernel):
        ours = matmul(*(transposed(x) if t == "t" else x for x, t in zip((a, b), layouts, strict=True)), **precision)
    exact = a.double() @ b.double()
    assert_special_as(ours, exact)
    kept = exact.isfinite()
    torch.testing.assert_close(ours[kept].double(), exact[kept], rtol=rtol, atol=atol)


@pytest.mark.cuda
@pytest.mark.parametrize("kernel", ["simt_64x64", "wgmma", *DIRECT_TILES])
def test_fp32_nan_and_inf_where_torch_has_them_in_every_kernel(kernel: str) -> None:
    check_special_values(kernel, "nn", 1e-4, 1e-4)


@on_hopper
@pytest.mark.parametrize("tile", ["", *TF32_TILES])
@pytest.mark.parametrize("layouts", ["nn", "nt", "tt"])
def test_tf32_nan_and_inf_where_torch_has_them(tile: str, layouts: str) -> None:
    check_special_values(tile, layouts, 2**-10, 0.2, precision="high")


@on_hopper
@pytest.mark.parametrize("k", [64, 1024, 8192])
def test_tf32_is_as_good_as_torchs_tf32(k: int) -> None:
    """Numbers are rounded to nearest; truncation would make the error 2.6 times as large."""
    a, b = randn(128, k, device="cuda"), randn(k, 256, device="cuda")
    exact, _ = reference(a, b)
    with torch_in_tf32(True):
        theirs = (torch.matmul(a, b).double() - exact).norm()
    for tile, layout_b in itertools.product(TF32_TILES, (b, transposed(b))):
        with forced(tile):
            assert (matmul(a, layout_b, precision="high").double() - exact).norm() <= 1.05 * theirs


@pytest.mark.cuda
@pytest.mark.parametrize("tile", TF32_TILES)
def test_tf32_tiles_epilogues(tile: str) -> None:
    addmm, linear = torch.ops.xgemm.addmm, torch.ops.xgemm.linear
    with forced(tile):
        for m, n, k in [(70, 132, 264), (20, 95, 64), (300, 53, 100)]:
            x, w, c = randn(m, k, device="cuda"), randn(n, k, device="cuda"), randn(m, n, device="cuda")
            bias = randn(n, device="cuda")
            one = bias[:1].expand(n) if m == 70 else bias
            product, scale = reference(x, w.mT)
            for weight in (w, transposed(w)):
                poison("cuda", megabytes=1)
                out = linear(x, weight, bias, activation="silu", residual=c, precision="high")
                exact = torch.nn.functional.silu(product + bias.double()) + c.double()
                assert componentwise_error(out, exact, scale + 1) <= 2 * TF32_BOUND
                out = linear(x, weight, one, precision="high")
                assert componentwise_error(out, product + one.double(), scale + 1) <= 2 * TF32_BOUND
                out = addmm(c, x, weight.mT, beta=0.5, alpha=-2, precision="high")
                exact = 0.5 * c.double() - 2 * product
                assert componentwise_error(out, exact, 2 * scale + 1) <= 2 * TF32_BOUND


@pytest.mark.cuda
@pytest.mark.sanitize
def test_small_case_of_the_fallback() -> None:
    a, b = randn(40, 300, device="cuda"), randn(300, 50, device="cuda")
    scales = wide(1, 300, decades=8).abs()
    with forced("wgmma"):
        check(a * scales, b / scales.mT)
        check(a * 1e-40, b)

"""Half-precision kernel for small and for narrow products (mma_*): its bits are those of the wgmma_* kernels."""

import pytest
import torch
from common import randn, runs_hopper_kernels
from matmul_tiles import MMA_TILES, check_rows_alone, check_same_bits, layouts
from test_matmul import HALVES, check, forced, matmul

EDGES = [(1, 1, 1), (31, 33, 15), (32, 32, 16), (33, 31, 17), (63, 64, 64), (65, 8, 65), (64, 65, 320), (129, 63, 385)]
EDGES += [(127, 127, 127), (200, 136, 1000), (300, 24, 72)]

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not runs_hopper_kernels(), reason="needs a Hopper GPU")]


@pytest.mark.usefixtures("batch_invariant")
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shape", [shape for shape in EDGES if shape[2] < 1536], ids=str)  # a longer K is split
def test_every_layout_has_the_bits_of_wgmma(dtype: torch.dtype, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = randn(m, k, dtype=dtype, device="cuda"), randn(k, n, dtype=dtype, device="cuda")
    with forced("wgmma"):
        out = check(a, b)
    pairs = [(x, y) for x in layouts(a) for y in layouts(b) if 1 in x.stride() and 1 in y.stride()]
    check_same_bits(out, MMA_TILES, pairs)


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
            for tile in MMA_TILES:
                with forced(tile):
                    assert torch.equal(torch.ops.xgemm.addmm(-rounded, a, b), rest), (tile, k, decades)


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
        outs += [addmm(c, x[0], w.mT, beta=0.5, alpha=2.0), addmm(c, x[0], w.mT, beta=0.0), addmm(bias, x[1], w.mT)]
        return outs

    with forced("wgmma"):
        wanted = all_of_them()
    for tile in MMA_TILES:
        with forced(tile):
            for i, (ours, theirs) in enumerate(zip(all_of_them(), wanted, strict=True)):
                assert torch.equal(ours, theirs), (tile, i)


@pytest.mark.usefixtures("batch_invariant")
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("n", "k"),
    [
        *((64, 64), (32, 256), (128, 128), (127, 127), (512, 512), (1000, 1000), (65536, 128), (384, 384)),
        *((4096, 4096), (133, 777), (768, 8192), (14336, 512)),
    ],
)
def test_the_choice_between_kernels_does_not_show(dtype: torch.dtype, n: int, k: int) -> None:
    rows = 70000 if n <= 64 else 4096 if n < 20000 else 302
    a, b = randn(rows, k, dtype=dtype, device="cuda"), randn(k, n, dtype=dtype, device="cuda")
    full = matmul(a, b)
    if k <= 1000:  # a longer K is split
        with forced("wgmma"):
            assert torch.equal(matmul(a, b), full)
    counts = (1, 2, 4, 5, 16, 17, 32, 64, 65, 127, 128, 129, 255, 256, 300, 2000, 3000)
    check_rows_alone(a, b, full, (m for m in counts if m < rows))

"""fp64 on tensor cores (fp64_*): every tile, layout and split, with the same bits."""

import math

import pytest
import torch
from common import misaligned, poison, randn, sliced, transposed
from test_matmul import assert_special_as, check, forced, has_wgmma, matmul

TILES = ["fp64_128x128", "fp64_128x64", "fp64_64x64", "fp64_32x64", "fp64_16x64"]
EDGES = [(1, 5, 1), (31, 33, 15), (16, 64, 16), (65, 63, 17), (129, 127, 130), (200, 136, 1000), (300, 24, 513)]
F64 = torch.float64

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not has_wgmma(), reason="needs a Hopper GPU")]


@pytest.mark.sanitize
@pytest.mark.parametrize("tile", TILES)
def test_small_case_of_every_tile(tile: str) -> None:
    with forced(tile):
        for m, n, k in [(40, 72, 136), (133, 33, 601)]:
            a, b = randn(m, k, dtype=F64, device="cuda"), randn(k, n, dtype=F64, device="cuda")
            for x in (a, transposed(a)):
                for y in (b, transposed(b)):
                    check(x, y)
            check(misaligned(a), sliced(b))
            check(a.expand(3, m, k), transposed(randn(3, k, n, dtype=F64, device="cuda")))


@pytest.mark.parametrize("shape", EDGES, ids=str)
def test_every_tile_and_layout_has_the_same_bits(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = randn(m, k, dtype=F64, device="cuda"), randn(k, n, dtype=F64, device="cuda")
    out = check(a, b)
    for tile in TILES:
        with forced(tile):
            for x in (a, misaligned(a), sliced(a), transposed(a)):
                for y in (b, misaligned(b), sliced(b), transposed(b)):
                    poison("cuda", megabytes=2)
                    assert torch.equal(matmul(x, y), out), (tile, x.stride(), y.stride())


@pytest.mark.parametrize(("m", "n", "k"), [(70, 90, 5000), (64, 64, 65536), (200, 1000, 3000), (300, 4096, 1024)])
def test_every_split_has_the_same_bits(m: int, n: int, k: int) -> None:
    a, b = randn(m, k, dtype=F64, device="cuda"), randn(k, n, dtype=F64, device="cuda")
    out = check(a, b)
    for tile in TILES:
        for splits in (1, 2, 3, 4, 8, 16, 32, 64, 128):
            with forced(f"{tile}/{splits}"):  # where there is no such plan: CUDA cores, whose bits are others
                ours = matmul(a, b)
            with forced("simt"):
                simt = matmul(a, b)
            assert torch.equal(ours, out) or torch.equal(ours, simt), (tile, splits)


@pytest.mark.parametrize("n", [64, 67])
@pytest.mark.parametrize("tile", TILES)
def test_what_is_fused(tile: str, n: int) -> None:
    x, w, bias = (randn(*shape, dtype=F64, device="cuda") for shape in ((3, 70, 600), (n, 600), (n,)))
    residual, c = randn(3, 70, n, dtype=F64, device="cuda"), randn(n, 70, dtype=F64, device="cuda").mT
    ops, product = torch.ops.xgemm, x @ w.mT
    with forced(tile):
        for name, torchs in (
            ("none", lambda t: t),
            ("relu", torch.relu),
            ("gelu", torch.nn.functional.gelu),
            ("gelu_tanh", lambda t: torch.nn.functional.gelu(t, approximate="tanh")),
            ("silu", torch.nn.functional.silu),
        ):
            out = ops.linear(x, w, bias, activation=name, residual=residual)
            torch.testing.assert_close(out, torchs(product + bias) + residual, rtol=1e-12, atol=1e-11)
        out = ops.addmm(c, x[0], w.mT, beta=0.5, alpha=2.0)
        torch.testing.assert_close(out, 0.5 * c + 2 * product[0], rtol=1e-12, atol=1e-11)
        out = ops.gated_linear(x, w, -w, activation="silu")
        torch.testing.assert_close(out, torch.nn.functional.silu(product) * -product, rtol=1e-12, atol=1e-9)


def test_rows_do_not_depend_on_the_batch() -> None:
    for n, k in [(64, 64), (1000, 1000), (4096, 600), (96, 20000)]:
        a, b = randn(3000, k, dtype=F64, device="cuda"), randn(k, n, dtype=F64, device="cuda")
        full = matmul(a, b)
        for m in (1, 2, 5, 16, 17, 33, 65, 129, 1000):
            assert torch.equal(matmul(a[:m], b), full[:m]), (n, k, m)
            assert torch.equal(matmul(a[1 : m + 1], transposed(b)), full[1 : m + 1]), (n, k, m)
        assert torch.equal(matmul(a[:300].view(20, 15, k), b.expand(20, k, n)).view(300, n), full[:300])


@pytest.mark.parametrize("tile", TILES)
def test_batches_and_graphs(tile: str) -> None:
    with forced(tile):
        for shape_a, shape_b in [
            ((5, 40, 70), (5, 70, 90)),
            ((2, 3, 40, 72), (3, 72, 88)),
            ((9, 1, 33, 65), (1, 4, 65, 31)),
            ((2, 3, 2, 3, 2, 3, 4), (2, 1, 2, 1, 2, 4, 5)),  # more batch dims than a kernel takes
        ]:
            check(randn(*shape_a, dtype=F64, device="cuda"), randn(*shape_b, dtype=F64, device="cuda"))
        a, b = randn(200, 1000, dtype=F64, device="cuda"), randn(1000, 48, dtype=F64, device="cuda")
        out = matmul(a, b)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            first = matmul(a, b)
            second = matmul(first.mT, first)  # may begin while the first ends, and reads what it wrote
        wanted = matmul(out.mT, out)
    for _ in range(5):
        first.fill_(math.nan), second.fill_(math.nan)
        graph.replay()
        assert torch.equal(first, out)
        assert torch.equal(second, wanted)


@pytest.mark.parametrize("tile", TILES)
def test_nan_and_inf_where_torch_has_them(tile: str) -> None:
    a, b = randn(150, 900, dtype=F64, device="cuda"), randn(900, 60, dtype=F64, device="cuda")
    a[3, 5], a[7, 1], a[100, 850] = math.inf, math.nan, -math.inf
    b[5, 2], b[0, 59], b[300, 17] = 0.0, -math.inf, math.inf
    with forced(tile):
        ours, odd = matmul(a, b), matmul(a[:, :899], b[:899])
    assert_special_as(ours, a @ b)
    assert_special_as(odd, a[:, :899] @ b[:899])


def test_integers_are_exact() -> None:
    a, b = (torch.randint(-1000, 1000, shape, device="cuda").double() for shape in ((700, 3000), (3000, 300)))
    assert torch.equal(matmul(a, b), a @ b)

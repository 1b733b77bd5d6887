"""fp64 on tensor cores (fp64_*): every tile, layout and split, with the same bits."""

import pytest
import torch
from common import LAYOUTS, randn, transposed
from matmul_tiles import FP64_TILES, FP64_UNITS, check_rows_alone, check_same_bits
from test_matmul import check, forced, matmul

EDGES = [(1, 5, 1), (31, 33, 15), (16, 64, 16), (65, 63, 17), (129, 127, 130), (200, 136, 1000), (300, 24, 513)]
F64 = torch.float64

pytestmark = [pytest.mark.cuda, FP64_UNITS]


@pytest.mark.parametrize("shape", EDGES, ids=str)
def test_every_tile_and_layout_has_the_same_bits(batch_invariant: None, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = randn(m, k, dtype=F64, device="cuda"), randn(k, n, dtype=F64, device="cuda")
    out = check(a, b)
    pairs = [(x(a), y(b)) for x in LAYOUTS.values() for y in LAYOUTS.values()]
    check_same_bits(out, FP64_TILES[1:], pairs)  # the first has no room for totals


@pytest.mark.parametrize(("m", "n", "k"), [(70, 90, 5000), (64, 64, 65536), (200, 1000, 3000), (300, 4096, 1024)])
def test_every_split_has_the_same_bits(batch_invariant: None, m: int, n: int, k: int) -> None:
    a, b = randn(m, k, dtype=F64, device="cuda"), randn(k, n, dtype=F64, device="cuda")
    out = check(a, b)
    for tile in FP64_TILES:
        for splits in (1, 2, 3, 4, 8, 16, 32, 64, 128):
            with forced(f"{tile}/{splits}"):  # no such plan: CUDA cores, with other bits
                ours = matmul(a, b)
            with forced("simt"):
                simt = matmul(a, b)
            assert torch.equal(ours, out) or torch.equal(ours, simt), (tile, splits)


@pytest.mark.parametrize(("m", "n", "k"), [(70, 90, 5000), (2631, 1, 1024), (1000, 2, 777), (293, 768, 3072)])
def test_free_splits(m: int, n: int, k: int) -> None:
    """Without batch_invariant any number of CTAs shares a tile's k, and one column is a row."""
    a, b = randn(m, k, dtype=F64, device="cuda"), randn(k, n, dtype=F64, device="cuda")
    check(a, b)
    for tile in FP64_TILES:
        for splits in (1, 2, 3, 7, 33):
            with forced(f"{tile}/{splits}"):
                for x in (a, transposed(a)):
                    check(x, b)


def test_rows_do_not_depend_on_the_batch(batch_invariant: None) -> None:
    for n, k in [(64, 64), (1000, 1000), (4096, 600), (96, 20000)]:
        a, b = randn(3000, k, dtype=F64, device="cuda"), randn(k, n, dtype=F64, device="cuda")
        check_rows_alone(a, b, matmul(a, b), (1, 2, 5, 16, 17, 33, 65, 129, 1000))


def test_integers_are_exact() -> None:
    a, b = (torch.randint(-1000, 1000, shape, device="cuda").double() for shape in ((700, 3000), (3000, 300)))
    assert torch.equal(matmul(a, b), a @ b)

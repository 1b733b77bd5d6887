"""Products on 16-bit operands by mma.sync (large_*), for every GPU from sm_80 on; on Hopper where they are named."""

import pytest
import torch
from common import misaligned, randn, transposed
from matmul_tiles import LARGE_TILES, TWO_PARTS, check_same_bits
from test_matmul import HALVES, TF32_BOUND, check, forced, matmul, reference

import torch_ext

ALL = [*LARGE_TILES, *TWO_PARTS]
EDGES = [(1, 1, 1), (63, 65, 63), (127, 129, 64), (129, 127, 65), (128, 256, 128), (257, 300, 1000), (16, 512, 4096)]

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shape", EDGES, ids=str)
def test_all_tiles_give_the_same_bits_in_batch_invariant_mode(
    dtype: torch.dtype, shape: tuple[int, int, int], batch_invariant: None
) -> None:
    m, n, k = shape
    a, b = randn(m, k, dtype=dtype, device="cuda"), randn(k, n, dtype=dtype, device="cuda")
    with forced(LARGE_TILES[0]):
        out = check(a, b)
    pairs = ((a, b), (transposed(a), b), (a, transposed(b)), (misaligned(a), transposed(b)))
    check_same_bits(out, LARGE_TILES[1:], pairs)


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


@pytest.mark.parametrize("tile", LARGE_TILES)
@pytest.mark.parametrize("shape", EDGES, ids=str)
def test_one_part_is_as_good_as_tf32(tile: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = randn(m, k, device="cuda") * 1e-20, randn(k, n, device="cuda") * 1e25
    with forced(tile):
        out = torch_ext.matmul(a, b, precision="high")
    exact, scale = reference(a, b)
    assert ((out.double() - exact).abs() <= TF32_BOUND * scale).all()


def test_half_precision_without_a_unit_stride_or_a_k() -> None:
    """No family but this one takes them."""
    for dtype in HALVES:
        a = randn(60, 2 * 70, dtype=dtype, device="cuda")[:, ::2]
        b = randn(2 * 90, 70, dtype=dtype, device="cuda")[::2].mT
        check(a, b)
        assert not matmul(a[:, :0], b[:0]).any()
        check(randn(2000, 9, dtype=dtype, device="cuda")[:, ::3], randn(3, 5, dtype=dtype, device="cuda"))

"""The plan of matmul/mma/kernel.cuh, without a GPU."""

from common import tile_names
from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_plans import BF16, F16, F32, F64, HIGH, HIGHEST, MEDIUM, NOT_FP32_ON_TENSOR_CORES, Ask, plan_fixture

TILES = [name for name in tile_names("mma") if "tf32" not in name]
TF32_TILES = [name for name in tile_names("mma") if "tf32" in name]
plan = plan_fixture("mma")
wgmma = plan_fixture("wgmma")
tf32 = plan_fixture("mma", usually=HIGH)
choice = plan_fixture("choice", usually=HIGH)


def test_small_and_narrow_products_take_it(plan: Ask) -> None:
    for dtype in (F16, BF16):
        for size in [(64, 64, 64), (128, 128, 128), (127, 127, 127), (256, 256, 256), (4096, 128, 64)]:
            assert plan(*size, dtype=dtype) is not None, size
        assert plan(65536, 64, 64, dtype=dtype)["name"] == "mma_64x64"


def test_large_products_and_long_sums_do_not(choice: Ask) -> None:
    for size in [(4096, 4096, 4096), (1024, 1024, 1024), (2048, 2048, 256), (300, 300, 1400)]:
        assert not choice(*size, dtype=BF16).startswith("mma"), size
    for size in [(1, 4096, 4096), (16, 4096, 4096), (128, 14336, 4096), (8192, 8192, 128)]:
        assert not choice(*size, dtype=BF16, layout="nt").startswith("mma"), size
    for rows in (1, 4, 16, 32):  # memory-bound
        assert not choice(rows, 14336, 4096, dtype=BF16, layout="nt").startswith("mma"), rows
        assert not choice(rows, 4096, 4096, dtype=BF16).startswith("mma"), rows


def test_batch_invariant_products_too_small_for_wgmma(choice: Ask) -> None:
    """By one order of additions at any M."""
    for size in [(1, 7, 64), (100, 7, 64), (5000, 7, 64), (100, 64, 15), (5000, 64, 15)]:
        assert choice(*size, dtype=BF16, batch_invariant=True).startswith(("mma_", "wgmma_")), size


def test_batch_invariant_products_whose_k_is_split_do_not(wgmma: Ask, choice: Ask) -> None:
    assert wgmma(128, 512, 8192, dtype=BF16, batch_invariant=True)["splits"] > 1
    assert choice(128, 512, 8192, dtype=BF16, batch_invariant=True).startswith("wgmma")


def test_half_precision_only_where_it_applies(plan: Ask) -> None:
    for other in (
        *({"dtype": F32, "precision": HIGHEST}, {"dtype": F64}, {"gated": True}, {"forced": "wgmma"}),
        *({"forced": "simt_64x64"}, {"forced": "mma_16x16"}),
    ):
        assert plan(128, 128, 128, **({"dtype": BF16} | other)) is None, other
    for tile in TILES:
        assert plan(4096, 4096, 4096, dtype=BF16, forced=tile)["name"] == tile
    assert plan(4096, 4096, 4096, dtype=BF16, forced="mma")["name"] in TILES


def test_batches_of_few_unaligned_rows_take_the_flat_tile(plan: Ask) -> None:
    assert plan(1, 87, 431, 497, dtype=BF16)["name"] == "mma_16x64"
    assert plan(2, 536, 110, 63, dtype=BF16)["name"] == "mma_16x64"
    assert plan(234, 62, 64, 204, dtype=BF16, layout="tn")["name"] == "mma_64x64"


def test_pieces_are_as_wide_as_rows_allow(plan: Ask) -> None:
    def pieces(*size: int, **how: object) -> tuple[int, int]:
        p = plan(*size, dtype=BF16, forced="mma", **how)
        return int(p["bytes_a"]), int(p["bytes_b"])

    assert pieces(100, 104, 96) == (16, 16)
    assert pieces(100, 104, 97) == (2, 16)
    assert pieces(100, 104, 98) == (4, 16)
    assert pieces(1, 104, 96, layout="tn") == (16, 16)  # one row has no stride
    assert pieces(100, 104, 97, ld=104) == (2, 16)  # a row ends in part of a word
    assert pieces(100, 104, 96, offset=2) == (2, 16)
    assert pieces(100, 104, 96, offset=4) == (4, 16)
    assert pieces(100, 104, 96, offset_b=8) == (16, 4)
    assert pieces(100, 100, 96) == (16, 4)
    assert pieces(100, 100, 96, layout="nt") == (16, 16)
    assert pieces(104, 104, 97, layout="tn") == (16, 16)
    assert pieces(100, 104, 96, layout="tn", ld=104) == (4, 16)  # a row ends in part of a vector


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_time_is_at_least_that_of_the_bytes(plan: Ask, data: st.DataObject) -> None:
    tile = data.draw(st.sampled_from(TILES))
    m, n, k, batch = (data.draw(st.integers(1, most)) for most in (1 << 17, 5000, 1000, 9))
    p = plan(m, n, k, batch, dtype=BF16, forced=tile)
    assert 1e6 * p["seconds"] > 1 + 2 * batch * (m * k + k * n + m * n) / 4e6
    assert p["seconds"] <= plan(2 * m, n, k, batch, dtype=BF16, forced=tile)["seconds"]


def test_fp32_in_tf32_only_where_it_applies(tf32: Ask) -> None:
    assert tf32(64, 256, 256)["name"] in TF32_TILES
    assert tf32(64, 256, 256, precision=MEDIUM) is not None
    for other in (*NOT_FP32_ON_TENSOR_CORES, {"precision": HIGHEST}, {"prepared": True}):
        found = tf32(64, 256, 256, **other)
        assert found is None or found["name"] in TILES, other  # half precision has tiles of its own
    for tile in TF32_TILES:
        assert tf32(64, 256, 256, forced=tile)["name"] == tile
        assert tf32(64, 256, 256, dtype=BF16, forced=tile) is None
    for tile in TILES:
        assert tf32(64, 256, 256, forced=tile) is None


def test_fp32_pieces_are_quads_pairs_or_single(tf32: Ask) -> None:
    def pieces(*size: int, **how: object) -> tuple[int, int]:
        p = tf32(*size, **how)
        return int(p["bytes_a"]), int(p["bytes_b"])

    assert pieces(100, 104, 96) == (16, 16)
    assert pieces(100, 104, 98) == (8, 16)
    assert pieces(100, 104, 97) == (4, 16)
    assert pieces(100, 105, 96) == (16, 4)
    assert pieces(100, 106, 96, offset=8) == (8, 8)
    assert pieces(100, 104, 96, offset=4) == (4, 16)


def test_fp32_splits_k_among_ctas_that_run_at_once(tf32: Ask) -> None:
    """Few tiles of a long K are split, many tiles are not; no split is empty."""
    for m, n, k in [(12, 34, 10752), (39, 1264, 8593), (130, 67, 601), (300, 500, 5000)]:
        p = tf32(m, n, k)
        rows, columns = map(int, p["name"].removeprefix("mma_tf32_").split("x"))
        tiles, blocks = -(-m // rows) * -(-n // columns), -(-k // 32)
        assert 1 < p["splits"] <= blocks and tiles * p["splits"] <= 3 * 132
        assert (p["splits"] - 1) * p["split_blocks"] < blocks <= p["splits"] * p["split_blocks"]
        assert p["partials"] == 4 * tiles * p["splits"] * rows * columns and p["counters"] == 8 * tiles
    for m, n, k in [(4096, 4096, 4096), (1000, 1000, 64), (8, 8, 32)]:
        assert "splits" not in tf32(m, n, k)


def test_fp32_number_of_splits_can_be_forced(tf32: Ask) -> None:
    for splits in (2, 3, 10, 19):
        p = tf32(130, 67, 601, forced=f"mma_tf32_64x64/{splits}")
        assert p["name"] == "mma_tf32_64x64" and p["splits"] == splits
    assert "splits" not in tf32(130, 67, 601, forced="mma_tf32_64x64/1")
    for splits in (0, 11, 20):  # 19 blocks cannot be cut in 11 parts of one length
        assert tf32(130, 67, 601, forced=f"mma_tf32_64x64/{splits}") is None
    assert tf32(130, 67, 601, dtype=BF16, forced="mma_64x64/2") is None


def test_fp32_takes_it_where_others_copy_or_transpose(choice: Ask) -> None:
    """Measured: docs/log/matmul.md."""
    for m, n, k, batch, layout in [
        *((234, 62, 64, 204, "tn"), (535, 40, 94, 552, "tn"), (310, 57, 384, 41, "tt"), (859, 176, 112, 2, "tn")),
        *((12, 34, 10752, 1, "nn"), (39, 1264, 8593, 1, "tt"), (67, 4159, 7360, 1, "nn")),
    ]:
        assert choice(m, n, k, batch, layout=layout).startswith("mma_tf32"), (m, n, k)
    for m, n, k in [(4096, 4096, 4096), (1024, 1024, 1024), (8192, 512, 4096)]:
        assert not choice(m, n, k, layout="nt").startswith("mma_tf32"), (m, n, k)

"""csrc/attention/simt, without a GPU: tiles of rows and splits of keys."""

import itertools

import pytest
from attention_plans import Answer, Ask, plan_fixture

HEAD_SIZES = [0, 1, 31, 32, 33, 64, 65, 128, 129, 256]
H200_SMS = 132
SPLIT_KEYS = 1024


plan = plan_fixture("simt")
tile = plan_fixture("simt_tile")


@pytest.fixture(scope="module")
def tiles(tile: Ask) -> list[Answer]:
    index = itertools.count()
    return list(iter(lambda: tile(next(index)), None))


def test_tiles_fit_the_gpu(tiles: list[Answer]) -> None:
    """An H200's SM has shared memory for each tile's number of blocks, an A100's for one block."""
    for tile in tiles:
        assert tile["blocks"] * (tile["shared_bytes"] + 1024) <= 228 * 1024, tile
        assert tile["shared_bytes"] <= 163 * 1024, tile
        assert SPLIT_KEYS % tile["keys"] == 0


@pytest.mark.parametrize("fp64", [False, True])
def test_the_tile_holds_the_head_and_bits_depend_on_neither_rows_nor_batch(plan: Ask, tiles: list, fp64: bool) -> None:
    """A row's order of additions (keys per step, splits) is the same for every number of rows and batches."""
    for d, dv, sk in itertools.product(HEAD_SIZES, HEAD_SIZES, (1, 1024, 1025, 70_000)):
        orders = set()
        for rows, batches in ((1, 1), (8, 1), (24, 7), (25, 1), (64, 4096), (10**6, 3)):
            p = plan(rows=rows, batches=batches, sk=sk, d=d, dv=dv, fp64=fp64)
            tile = tiles[p["tile"]]
            assert tile["fp64"] == fp64 and max(d, dv) <= tile["head_size"]
            orders.add((tile["keys"], p["splits"]))
        assert len(orders) == 1, (d, dv, sk, orders)


def test_splits_cover_the_keys(plan: Ask) -> None:
    assert plan(rows=1, sk=1, d=64)["split_keys"] == SPLIT_KEYS
    for sk in (0, 1, 1023, 1024, 1025, 2048, 2**31 - 2000):
        p = plan(rows=1, sk=sk, d=64)
        assert p["splits"] == max(1, -(-sk // SPLIT_KEYS))


def test_few_rows_fill_the_gpu_many_need_no_workspace(plan: Ask) -> None:
    decode = plan(rows=1, batches=8, sk=65536, d=128)
    assert decode["parallel"] and decode["blocks"] == 8 * 64 and decode["partials"] == 64
    prefill = plan(rows=8192, batches=32, sk=8192, d=128)
    assert not prefill["parallel"] and prefill["blocks"] == 128 * 32 and prefill["partials"] == 1
    assert plan(rows=8192, batches=32, sk=1024, d=128)["partials"] == 0


def test_workspace_is_linear(plan: Ask) -> None:
    """Partial results: at most one per row, or splits of rows too few to fill the GPU."""
    for rows, batches, sk in itertools.product((1, 64, 4096, 16384, 10**6), (1, 16, 512), (1024, 10**4, 10**6)):
        p = plan(rows=rows, batches=batches, sk=sk, d=128)
        if p["partials"] > 1:
            assert p["row_tiles"] * batches < 3 * H200_SMS
        assert p["blocks"] == p["row_tiles"] * batches * (p["splits"] if p["parallel"] else 1)

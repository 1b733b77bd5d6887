"""The plan of matmul/fp64_mma/kernel.cu, without a GPU."""

import pytest
from common import tile_names
from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_plans import BF16, F32, F64, Ask, plan_fixture

TILES = tile_names("fp64")
plan = plan_fixture("fp64")


def test_only_fp64_and_batch_invariant_with_more_than_four_columns(plan: Ask) -> None:
    for major in (8, 9, 10):  # of GeForce cards (12.0) the tensor cores have no units for it
        assert plan(4096, 4096, 4096, dtype=F64, major=major)["name"] == "fp64_64x128"
    for other in ({"dtype": F32}, {"dtype": BF16}, {"major": 12}, {"forced": "simt"}, {"forced": "simt_64x64"}):
        assert plan(4096, 4096, 4096, **({"dtype": F64} | other)) is None, other
    for n in (1, 4):
        assert plan(4096, n, 4096, dtype=F64)
        assert plan(4096, n, 4096, dtype=F64, batch_invariant=True) is None
    assert plan(1, 5, 1, dtype=F64)
    assert plan(64, 64, 64, dtype=F64, gated=True)


def test_forced_tiles_and_splits(plan: Ask) -> None:
    for tile in TILES:
        assert plan(4096, 8192, 4096, dtype=F64, forced=tile)["name"] == tile
    for splits in (1, 2, 4, 8):
        for invariant in (False, True):
            p = plan(64, 1024, 4096, dtype=F64, forced=f"fp64_64x64/{splits}", batch_invariant=invariant)
            assert p["splits"] == splits
    assert plan(64, 1024, 4096, dtype=F64, forced="fp64_64x64/7")["splits"] == 7
    assert plan(64, 1024, 4096, dtype=F64, forced="fp64_64x64/7", batch_invariant=True) is None
    assert plan(64, 64, 64, dtype=F64, forced="fp64_63x64") is None


def test_one_column_is_a_row(plan: Ask) -> None:
    p = plan(2631, 1, 1024, dtype=F64, layout="nt")
    assert (p["name"], p["splits"] > 1) == ("fp64_16x64", True)


@pytest.mark.parametrize(("m", "n", "k"), [(293, 768, 3072), (26, 3584, 4096), (177, 3584, 18944)])
def test_k_is_split_where_tiles_are_few(plan: Ask, m: int, n: int, k: int) -> None:
    """By as many as fill the GPU's SMs."""
    p = plan(m, n, k, dtype=F64, layout="nt")
    rows, columns = map(int, p["name"].removeprefix("fp64_").split("x"))
    assert p["splits"] > 1 and -(-m // rows) * -(-n // columns) * p["splits"] > 0.75 * 132


def test_few_rows_share_a_column_of_tiles(plan: Ask) -> None:
    for rows in (1, 16):
        assert plan(rows, 4096, 4096, dtype=F64, layout="nt")["name"] == "fp64_16x64"
    assert plan(64, 64, 65536, dtype=F64)["splits"] > 32
    assert plan(8192, 8192, 8192, dtype=F64)["splits"] == 1


def test_what_is_copied_16_bytes_at_a_time(plan: Ask) -> None:
    def vectors(*size: int, **how: object) -> tuple[bool, bool]:
        p = plan(*size, dtype=F64, **how)
        return bool(p["vectors_a"]), bool(p["vectors_b"])

    assert vectors(100, 102, 96) == (True, True)
    assert vectors(100, 101, 96) == (True, False)
    assert vectors(100, 102, 97) == (False, True)
    assert vectors(100, 102, 97, ld=98) == (False, True)  # a row ends in half a vector
    assert vectors(100, 102, 97, layout="tt") == (True, False)
    assert vectors(100, 102, 96, offset=8) == (False, True)
    assert vectors(100, 102, 96, offset_b=8) == (True, False)
    assert vectors(100, 102, 96, strides=((192, 2), (102, 1))) == (False, True)


sizes = st.tuples(st.integers(1, 1 << 15), st.integers(5, 1 << 15), st.integers(0, 1 << 17))


@settings(max_examples=300, deadline=None)
@given(
    sizes,
    st.integers(1, 9),
    st.sampled_from(["-", *TILES]),
    st.integers(1, 1 << 15),
    st.sampled_from([114, 132]),
    st.booleans(),
)
def test_batch_invariant_segments_depend_on_n_and_k_alone(
    plan: Ask, size: tuple[int, int, int], batch: int, tile: str, other_rows: int, sm_count: int, invariant: bool
) -> None:
    m, n, k = size
    p = plan(m, n, k, batch, dtype=F64, forced=tile, sm_count=sm_count, batch_invariant=invariant)
    if p is None:  # no room for a total beside the sums
        assert invariant and tile == "fp64_64x128" and plan(m, n, k, dtype=F64, batch_invariant=True)
        return
    assert p["blocks"] == max(1, -(-k // 16))
    segments = -(-p["blocks"] // p["segment"])
    if invariant:
        assert p["segment"] == plan(other_rows, n, k, dtype=F64, batch_invariant=True)["segment"]
        assert segments <= 128
        assert p["segment"] >= min(p["blocks"], 8 if n <= 1024 else 16)
    else:
        assert p["segment"] == p["split_blocks"]
    if p["splits"] == 1:
        assert p["split_blocks"] == p["blocks"]
        assert p["workspace"] == 0
    else:
        assert p["split_blocks"] % p["segment"] == 0
        assert p["splits"] == -(-p["blocks"] // p["split_blocks"])
        assert p["workspace"] == 8 * segments * batch * m * n


@settings(max_examples=200, deadline=None)
@given(sizes, st.integers(1, 9))
def test_time_is_at_least_that_of_the_products_and_bytes(plan: Ask, size: tuple[int, int, int], batch: int) -> None:
    m, n, k = size
    p = plan(m, n, k, batch, dtype=F64)
    assert 1e6 * p["seconds"] > 2 * batch * m * n * k / 67e6
    assert 1e6 * p["seconds"] > 8 * batch * (m * k + k * n + m * n) / 4.8e6


@pytest.mark.parametrize(
    ("n", "k", "segment"),
    [
        *((8192, 8192, 128), (8192, 3072, 96), (8192, 3056, 191), (4824, 5980, 125), (4096, 4096, 128)),
        *((64, 65536, 32), (512, 200, 13), (248, 459, 10)),
    ],
)
def test_segments(plan: Ask, n: int, k: int, segment: int) -> None:
    assert plan(100, n, k, dtype=F64, batch_invariant=True)["segment"] == segment

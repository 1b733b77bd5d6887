"""The plan of matmul/presplit/kernel.cuh, without a GPU."""

from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_plans import HIGH, NOT_FP32_ON_TENSOR_CORES, Ask, plan_fixture

plan = plan_fixture("presplit")
choice = plan_fixture("choice")


def test_only_where_it_applies(plan: Ask) -> None:
    assert plan(512, 512, 512)["name"].startswith("presplit_")
    for other in (*NOT_FP32_ON_TENSOR_CORES, {"major": 8}, {"prepared": 1}, {"precision": HIGH}):
        assert plan(512, 512, 512, **other) is None, other
    assert plan(512, 512, 512, precision=HIGH, forced="presplit")["name"].startswith("presplit_")
    # Short K: SGEMM rounds less than the tensor cores truncate.
    for forced in ("-", "presplit"):
        assert plan(8192, 8192, 128, forced=forced) is None
        assert plan(8192, 8192, 129, forced=forced)["blocks"] == 3


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_splits_cover_k_and_have_memory(plan: Ask, data: st.DataObject) -> None:
    m, n, k = data.draw(st.integers(1, 9000)), data.draw(st.integers(1, 9000)), data.draw(st.integers(129, 9000))
    batch, sm_count = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 140))
    p = plan(m, n, k, batch, sm_count=sm_count)
    columns = int(p["name"].rpartition("x")[2])
    tiles = -(-m // 128) * -(-n // columns) * batch
    assert p["blocks"] == -(-k // 64)
    assert (p["splits"] - 1) * p["split_blocks"] < p["blocks"] <= p["splits"] * p["split_blocks"]
    assert p["ctas"] == min(sm_count, tiles * p["splits"])
    shares = p["splits"] > 1
    assert not shares or (p["ctas"] == tiles * p["splits"] and p["splits"] <= 8 and p["split_blocks"] >= 4)
    assert p["partials"] == shares * p["ctas"] * 128 * columns * 8  # a sum and its rounding error
    assert p["counters"] == shares * p["ctas"] * 2 * 4
    ld = -(-k // 64) * 64
    assert p["workspace"] >= 6 * ld * (m + n) * batch


def test_alignment_and_layout_change_nothing(plan: Ask) -> None:
    wanted = plan(1344, 1632, 504)
    for layout in ("nt", "tn", "tt"):
        assert plan(1344, 1632, 504, layout=layout) == wanted
    assert plan(1344, 1632, 504, offset=4, offset_b=4) == wanted


def test_medium_k_by_many_rows_and_columns_takes_it(choice: Ask) -> None:
    """Fewer rows, a longer or a shorter K have faster kernels."""
    assert choice(4833, 1180, 146, layout="tt").startswith("presplit_")
    for m, n, k in [(4096, 4096, 4096), (16, 4096, 4096), (4096, 4096, 64)]:
        assert "presplit" not in choice(m, n, k), (m, n, k)

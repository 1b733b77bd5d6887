"""The plan of matmul/bf16x3/kernel.cu, without a GPU."""

from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_plans import HIGH, NOT_FP32_ON_TENSOR_CORES, Ask, plan_fixture

plan = plan_fixture("bf16x3")


def test_only_where_it_applies(plan: Ask) -> None:
    assert plan(64, 256, 256)["name"].startswith("bf16x3_")
    for other in (*NOT_FP32_ON_TENSOR_CORES, {"major": 8}):
        assert plan(64, 256, 256, **other) is None, other
    assert plan(64, 256, 256, precision=HIGH) == plan(64, 256, 256)  # three parts at any precision
    # Short K: SGEMM rounds less than the tensor cores truncate.
    assert plan(8192, 8192, 63) is None
    for where in ({"k": 64}, {"k": 63, "precision": HIGH}, {"k": 16, "forced": "bf16x3"}):
        assert plan(8192, 8192, **where)["name"].startswith("bf16x3_"), where


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_every_unit_has_one_owner_and_shared_tiles_have_memory(plan: Ask, data: st.DataObject) -> None:
    m, n, k = data.draw(st.integers(1, 9000)), data.draw(st.integers(1, 9000)), data.draw(st.integers(64, 9000))
    batch, sm_count = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 140))
    p = plan(m, n, k, batch, sm_count=sm_count)
    assert p["tiles"] == -(-m // p["rows"]) * -(-n // 128) * batch
    assert p["blocks"] == -(-k // 64)
    assert p["units"] == -(-p["blocks"] // p["granule"])
    total = p["tiles"] * p["units"]
    assert 1 <= p["ctas"] <= min(sm_count, total)  # no CTA without work
    assert p["units"] == 1 or p["blocks"] > 2  # the more exact kernel for short K does not split tiles
    starts = [cta * total // p["ctas"] for cta in range(p["ctas"] + 1)]
    shares = any(start % p["units"] for start in starts)
    assert not shares or p["partials"] == 2 * p["ctas"] * p["rows"] * 128 * 4


def test_few_tiles_share_and_alignment_changes_no_tile(plan: Ask) -> None:
    few = plan(16, 4096, 4096)  # 32 tiles for 132 SMs
    assert few["ctas"] > 100
    assert few["partials"] > 0
    aligned, odd = plan(100, 1000, 3000), plan(100, 1000, 3000, offset_b=4)
    assert aligned["tma"]
    assert not odd["tma"]
    assert aligned | {"tma": False, "seconds": odd["seconds"]} == odd
    assert odd["seconds"] > aligned["seconds"]

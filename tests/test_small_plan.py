"""The plan of matmul/sliced/kernel.cuh, without a GPU."""

from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_plans import HIGH, MEDIUM, NOT_FP32_ON_TENSOR_CORES, Ask, plan_fixture

TILES = {"sliced_32x32": (32, 32), "sliced_32x64": (32, 64)}
plan = plan_fixture("sliced")


def test_only_where_it_applies(plan: Ask) -> None:
    assert plan(128, 128, 128)["name"].startswith("sliced")
    for other in (*NOT_FP32_ON_TENSOR_CORES, {"prepared": True}, {"forced": "bf16x3"}):
        assert plan(128, 128, 128, **other) is None, other
    for tile in TILES:
        assert plan(512, 512, 512, forced=tile)["name"] == tile
    for precision in (HIGH, MEDIUM):
        assert plan(128, 128, 128, precision=precision)["name"].startswith("sliced")
    for major in (8, 10):  # no clusters; fp64 may run at a fraction of fp32's rate
        assert plan(128, 128, 128, major=major) is None


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_tiles_cover_and_every_split_has_work(plan: Ask, data: st.DataObject) -> None:
    m, n, k = (data.draw(st.integers(1, 5000)) for _ in range(3))
    batch, layout = data.draw(st.integers(1, 9)), data.draw(st.sampled_from(["nn", "nt", "tn", "tt"]))
    tile = data.draw(st.sampled_from(list(TILES)))
    p = plan(m, n, k, batch, layout=layout, forced=tile)
    rows, columns = TILES[tile]
    assert p["tiles"] == -(-m // rows) * -(-n // columns) * batch
    assert p["splits"] in range(1, 9)
    assert plan(m, n, k, batch, layout=layout, forced=f"{tile}_apart")["splits"] == 1
    assert p["splits"] == 1 or -(-k // 16) >= 8 * p["splits"]


def test_alignment_changes_no_split(plan: Ask) -> None:
    for m, n, k in [(16, 768, 3072), (256, 256, 256), (509, 509, 509), (64, 64, 4096)]:
        assert plan(m, n, k) == plan(m, n, k, offset=4, offset_b=4)

"""The plans of matmul/sliced/sliced.cu, gemv/sweep.cu and gemv/outputs.cu, without a GPU."""

from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_plans import BF16, F32, F64, HIGH, HIGHEST, IEEE, MEDIUM, NOT_FP32_ON_TENSOR_CORES, Ask, plan_fixture

TILES = {"sliced_32x32": (32, 32), "sliced_32x64": (32, 64)}
plan, cuda_cores, choice = plan_fixture("sliced"), plan_fixture("cuda_cores"), plan_fixture("choice")


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


def test_sweep_only_where_it_applies(cuda_cores: Ask) -> None:
    for precision in (HIGHEST, HIGH, MEDIUM):
        assert cuda_cores(1, 4096, 4096, precision=precision)["name"] == "sweep"
        assert cuda_cores(4096, 1, 4096, layout="tn", precision=precision)["name"] == "sweep"
    others = ({"layout": "nt"}, {"major": 8}, {"major": 10}, *NOT_FP32_ON_TENSOR_CORES, {"prepared": True})
    for other in others:
        taken = cuda_cores(1, 4096, 4096, **other)
        assert taken is None or taken["name"] != "sweep", other
    for m, n, k in ((5, 4096, 4096), (1, 31, 4096)):
        assert cuda_cores(m, n, k, forced="sweep")["name"] == "simt_64x64", (m, n, k)


@settings(max_examples=100, deadline=None)
@given(st.integers(32, 60000), st.integers(1, 20000))
def test_sweep_splits_depend_on_lines_and_k_alone(cuda_cores: Ask, n: int, k: int) -> None:
    asked = [
        cuda_cores(m, n, k, forced="sweep", offset=offset, offset_b=offset) for m in (1, 2, 4) for offset in (0, 4)
    ]
    asked += [cuda_cores(n, m, k, layout="tn", forced="sweep") for m in (1, 3)]
    assert {p["name"] for p in asked} == {"sweep"}
    (splits,) = {p["splits"] for p in asked}
    assert splits == 1 or splits * 128 <= k


def test_alignment_changes_no_split(plan: Ask) -> None:
    for m, n, k in [(16, 768, 3072), (256, 256, 256), (509, 509, 509), (64, 64, 4096)]:
        assert plan(m, n, k) == plan(m, n, k, offset=4, offset_b=4)


def test_few_outputs_of_long_sums(choice: Ask) -> None:
    for dtype in (F32, BF16, F64):
        for m, n, k in ((1, 5, 8192), (3, 1, 2048), (12, 5, 1024)):
            taken = choice(m, n, k, layout="tn", dtype=dtype)
            assert taken.startswith("outputs"), (m, n, k, dtype, taken)
        others = ({"batch_invariant": True}, {"gated": True}, {"precision": IEEE, "dtype": F32}, {"prepared": True})
        for other in others:
            assert not choice(3, 5, 8192, **{"dtype": dtype, **other}).startswith("outputs"), other
        assert not choice(500, 500, 8192, dtype=dtype).startswith("outputs")
    assert choice(1, 5, 8192, major=8).split() == ["outputs", "splits=1"]  # no clusters
    assert not choice(1, 5, 8192, major=12).startswith("outputs")  # fp64 at a fraction of fp32's rate
    clusters = choice(1, 5, 1 << 15, dtype=BF16).split()
    assert clusters == ["outputs", "splits=8"]

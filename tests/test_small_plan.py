"""The plan of matmul/sliced/kernel.cuh and sweep.cuh, and of mirrored direct products: it is compiled and asked."""

from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_plans import HIGH, IEEE, MEDIUM, Ask, plan_fixture

PROGRAM = r"""
#include "matmul/bf16x3/plan.h"
#include "matmul/gemv/plan.h"
int main() {
  for (Question q; read(q);) {
    const auto s = plan_small(q.p, q.gpu, q.forced);
    if (s)
      std::cout << name(s->kernel) << ' ' << s->tiles << ' ' << s->splits << ' ' << s->seconds << ' ';
    else
      std::cout << "- 0 0 0 ";
    const auto d = plan_bf16x3(q.p, q.gpu, q.forced), t = plan_bf16x3(swap_ab(q.p), q.gpu, q.forced);
    std::cout << (d ? d->seconds : 0) << ' ' << (t ? t->seconds : 0) << ' ' << (t ? t->tiles : 0) << std::endl;
  }
}
"""
FIELDS = ["name", "tiles", "splits", "seconds", "bf16x3", "mirrored", "mirrored_tiles"]
TILES = {"sliced_32x32": (32, 32), "sliced_32x64": (32, 64)}
plan = plan_fixture(PROGRAM, FIELDS)


def test_only_where_it_applies(plan: Ask) -> None:
    assert plan(128, 128, 128)["name"].startswith("sliced")
    assert plan(1, 4096, 4096)["name"] == "sweep"
    assert plan(4096, 1, 4096, layout="tn")["name"] == "sweep"
    for other in (
        {"dtype": 1},
        {"dtype": 3},
        {"precision": IEEE},
        {"batch_invariant": True},
        {"gated": True},
        {"prepared": True},
        {"forced": "simt_64x64"},
        {"forced": "bf16x3"},
    ):
        assert plan(128, 128, 128, **other)["name"] == "-", other
    for tile in TILES:
        assert plan(512, 512, 512, forced=tile)["name"] == tile
    for precision in (HIGH, MEDIUM):  # TF32, but for few rows
        assert plan(128, 128, 128, precision=precision)["name"] == "-"
        assert plan(1, 4096, 4096, precision=precision)["name"] == "sweep"
    assert plan(1, 4096, 4096, layout="nt")["name"] == "-"  # along k: dot
    for major in (8, 10):  # no clusters; fp64 that may be a fraction of fp32's rate
        for m, n, k in ((1, 4096, 4096), (128, 128, 128)):
            assert plan(m, n, k, major=major)["name"] == "-"
    assert plan(5, 4096, 4096, forced="sweep")["name"] == "-"


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


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 60000), st.integers(1, 20000))
def test_sweep_splits_depend_on_lines_and_k_alone(plan: Ask, n: int, k: int) -> None:
    asked = [plan(m, n, k, forced="sweep", offset=offset, offset_b=offset) for m in (1, 2, 4) for offset in (0, 4)]
    asked += [plan(n, m, k, layout="tn", forced="sweep") for m in (1, 3)]
    assert len({(p["name"], p["splits"]) for p in asked}) == 1
    if asked[0]["name"] == "sweep":
        assert asked[0]["splits"] == 1 or asked[0]["splits"] * 128 <= k


def test_alignment_changes_no_share(plan: Ask) -> None:
    for m, n, k in [(16, 768, 3072), (256, 256, 256), (509, 509, 509), (64, 64, 4096)]:
        aligned = plan(m, n, k)
        of_direct = {key: aligned[key] for key in ("bf16x3", "mirrored", "mirrored_tiles")}  # these do
        assert aligned == plan(m, n, k, offset=4, offset_b=4) | of_direct


def test_tall_and_narrow_products_are_mirrored(plan: Ask) -> None:
    for shape in [(262144, 32, 256), (65536, 64, 64)]:
        p = plan(*shape)
        assert 0 < p["mirrored"] < p["bf16x3"]
        assert p["mirrored_tiles"] == shape[0] / 128
    assert plan(262144, 32, 256, layout="tn")["mirrored"] == 0  # A's rows have to be contiguous,
    assert plan(262144, 32, 256, offset=4, offset_b=4)["mirrored"] == 0  # and TMA has to load them
    assert plan(262144, 32, 255)["mirrored"] == 0
    assert plan(64, 4096, 4096)["bf16x3"] < plan(64, 4096, 4096)["mirrored"]
    long = plan(64, 64, 65536)  # measured: 190 us mirrored, where one CTA adds 132 pieces, 27 us else
    assert long["bf16x3"] < long["mirrored"]

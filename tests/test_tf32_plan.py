"""The plan of matmul/tf32/kernel.cu, without a GPU."""

from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_plans import HIGH, HIGHEST, MEDIUM, NOT_FP32_ON_TENSOR_CORES, Ask, plan_fixture

from tools.plan_costs.planner import MEMORY

plan = plan_fixture("tf32", usually=HIGH)
wgmma = plan_fixture("wgmma", usually=HIGH)
choice = plan_fixture("choice", usually=HIGH)


def test_only_where_it_applies(plan: Ask) -> None:
    assert plan(64, 256, 256)["name"].startswith("tf32_")
    assert plan(64, 256, 256, precision=MEDIUM) is not None
    for other in (*NOT_FP32_ON_TENSOR_CORES, {"precision": HIGHEST}, {"prepared": True}, {"major": 8}):
        assert plan(64, 256, 256, **other) is None, other
    assert plan(64, 256, 256, forced="tf32_128x256x32")["y"] == 256


def test_what_tma_cannot_load_is_copied(plan: Ask) -> None:
    def copied(*sizes: int, **options) -> int:
        return plan(*sizes, **options)["workspace"]

    assert copied(64, 256, 256) == 0
    for offset in (4, 8, 12):
        assert copied(64, 256, 256, offset=offset) == 4 * 64 * 256  # A
    assert copied(64, 256, 256, offset=16) == 0
    assert copied(64, 256, 255) == 4 * 64 * 256  # A, its rows of 256
    assert copied(64, 255, 256) == 4 * 256 * 256  # B
    assert copied(64, 255, 256, layout="nt") == 0
    assert copied(63, 256, 256) == 0
    assert copied(63, 256, 256, layout="tt") == 4 * 64 * 256
    assert copied(64, 256, 256, ld=258) > 0
    assert copied(64, 256, 256, ld=260) == 0
    assert copied(1, 256, 255) == 0  # one row, and B's rows are aligned
    assert copied(3, 256, 255) > 0
    assert plan(65, 255, 257)["seconds"] > plan(68, 256, 260)["seconds"]


def test_operands_that_are_not_k_major_go_through_registers(plan: Ask) -> None:
    assert plan(512, 512, 512, layout="nn")["swap_ab"]
    assert not plan(512, 512, 512, layout="tt")["swap_ab"]


def test_one_of_two_operands_that_are_not_k_major_is_copied(plan: Ask) -> None:
    def copied(*size: int, **how: int) -> tuple[bool, bool, bool]:
        p = plan(*size, layout="tn", **how)
        return "copied_a" in p, "copied_b" in p, bool(p["swap_ab"])

    assert copied(512, 256, 512) == (False, True, False)  # the smaller one; the other is read in place
    assert copied(256, 512, 512) == (True, False, True)
    assert copied(514, 256, 512) == copied(514, 254, 512) == (True, True, False)  # the smaller one


def test_large_products_take_the_widest_tile(plan: Ask) -> None:
    for layout in ("nn", "nt", "tt"):
        p = plan(4096, 4096, 4096, layout=layout)
        assert (p["name"], p["ctas"]) == ("tf32_128x256x32", 132)


def test_few_tiles_split_k(plan: Ask) -> None:
    p = plan(64, 64, 65536)
    assert p["splits"] > 4
    assert plan(4096, 4096, 4096)["splits"] == 1


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_every_split_has_a_cta_and_memory(plan: Ask, data: st.DataObject) -> None:
    m, n, k = (4 * data.draw(st.integers(1, 2500)) for _ in range(3))
    batch, sm_count = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 140))
    p = plan(m, n, k, batch, layout=data.draw(st.sampled_from(["nn", "nt", "tt"])), sm_count=sm_count)
    lines = (n, m) if p["swap_ab"] else (m, n)
    assert (p["tiles_x"], p["tiles_y"]) == (-(-lines[0] // p["x"]), -(-lines[1] // p["y"]))
    assert p["blocks"] == -(-k // (32 * p["slot"]))
    assert (p["splits"] - 1) * p["split_blocks"] < p["blocks"] <= p["splits"] * p["split_blocks"]  # no empty split
    items = p["tiles_x"] * p["tiles_y"] * batch * p["splits"]
    assert p["ctas"] == min(items, sm_count)
    assert p["splits"] == 1 or p["ctas"] == items  # all splits are resident
    meetings = items // p["splits"] * (p["x"] // 64)  # of a tile's warpgroups
    assert p["counters"] == (8 * meetings if p["splits"] > 1 else 0)
    assert p["counters"] <= 1 << 16  # the size of a stream's counters
    assert p["partials"] == (p["ctas"] * p["x"] * p["y"] * 4 if p["splits"] > 1 else 0)


def test_another_gpus_memory_counts(plan: Ask) -> None:
    h200, h100 = MEMORY.values()
    seconds = lambda shape, **gpu: plan(*shape, **gpu)["seconds"]  # noqa: E731
    tall, small = (1 << 18, 64, 64), (64, 64, 64)  # bound by memory; by the launch
    assert seconds(tall, memory=h200) == seconds(tall) and seconds(small, memory=h200) == seconds(small)
    assert seconds(tall, memory=h100) > 1.3 * seconds(tall)
    assert seconds(small, memory=h100) < 1.01 * seconds(small)


def test_passes_over_operands_and_a_large_c_count_on_another_gpu(wgmma: Ask, choice: Ask) -> None:
    """Measured on an H100: docs/log/matmul.md, "The memory of passes"."""
    h100 = MEMORY["NVIDIA H100 80GB HBM3"]
    for *sizes, layout in [(280, 648, 80, 121, "nn"), (265, 416, 11614, 1, "tn"), (39, 1264, 8593, 1, "tt")]:
        for memory in MEMORY.values():
            assert choice(*sizes, layout=layout, memory=memory).startswith(("tf32_", "mma_tf32_")), (sizes, memory)
    for *sizes, layout, more in [(10756, 13304, 152, 1, "nt", 1.3), (265, 416, 11614, 1, "tn", 1.05)]:
        seconds = wgmma(*sizes, layout=layout)["seconds"]
        assert wgmma(*sizes, layout=layout, memory=h100)["seconds"] > more * seconds, sizes
    assert wgmma(10756, 13304, 152, layout="nt")["seconds"] > 4 * 10756 * 13304 / 3.4e12  # C alone

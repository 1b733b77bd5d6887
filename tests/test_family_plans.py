"""The plans of csrc/matmul's families (not of CUDA cores and wgmma: test_matmul_plan.py), without a GPU."""

import pytest
from common import tile_names
from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_plans import BF16, F16, F32, F64, HIGH, HIGHEST, IEEE, MEDIUM, NOT_FP32_ON_TENSOR_CORES, Ask, plan_fixture

from tools.plan_costs.planner import MEMORY

HALF_TILES = [name for name in tile_names("mma") if "tf32" not in name]
TF32_TILES = [name for name in tile_names("mma") if "tf32" in name]
SLICED_TILES = [name for name in tile_names("sliced") if "apart" not in name]
mma, fp64, bf16x3, sliced = (plan_fixture(family) for family in ("mma", "fp64", "bf16x3", "sliced"))
mma_tf32, tf32, wgmma, choice = (plan_fixture(family, usually=HIGH) for family in ("mma", "tf32", "wgmma", "choice"))
cuda_cores = plan_fixture("cuda_cores")

# Of each fixture: a product that the family takes, its tiles, and changes with which it does not take it.
APPLIES = {
    "mma": (
        *((128, 128, 128), {"dtype": BF16}, HALF_TILES),
        [
            *({"dtype": F32}, {"dtype": F64}, {"gated": True}, {"forced": "wgmma"}, {"forced": "simt"}),
            {"forced": "mma_16x16"},
        ],
    ),
    "mma_tf32": (
        *((64, 256, 256), {}, TF32_TILES),
        [*NOT_FP32_ON_TENSOR_CORES[1:], {"precision": HIGHEST}, {"prepared": True}],  # of fp16 it has other tiles
    ),
    "fp64": (
        *((4096, 4096, 4096), {"dtype": F64}, tile_names("fp64")),
        [{"dtype": F32}, {"dtype": BF16}, {"major": 12}, {"forced": "simt"}, {"forced": "simt_64x64"}],
    ),
    "tf32": (
        *((64, 256, 256), {}, tile_names("tf32")),
        [*NOT_FP32_ON_TENSOR_CORES, {"precision": HIGHEST}, {"prepared": True}, {"major": 8}],
    ),
    "bf16x3": ((64, 256, 256), {}, tile_names("bf16x3"), [*NOT_FP32_ON_TENSOR_CORES, {"major": 8}]),
    "sliced": (  # no clusters, or fp64 may run at a fraction of fp32's rate, on other GPUs than Hopper
        *((128, 128, 128), {}, SLICED_TILES),
        [*NOT_FP32_ON_TENSOR_CORES, {"prepared": True}, {"forced": "bf16x3"}, {"major": 8}, {"major": 10}],
    ),
}


@pytest.mark.parametrize("family", APPLIES)
def test_only_where_it_applies(family: str, request: pytest.FixtureRequest) -> None:
    plan, (sizes, usual, tiles, others) = request.getfixturevalue(family), APPLIES[family]
    assert plan(*sizes, **usual)["name"] in tiles
    if family in ("mma_tf32", "tf32", "sliced"):
        assert plan(*sizes, precision=MEDIUM)["name"] in tiles
    for other in others:
        assert plan(*sizes, **usual | other) is None, other
    for tile in tiles:
        assert plan(*sizes, **usual, forced=tile)["name"] == tile


# Bytes of A and of B that are loaded at a time: the product, how it lies, and what follows. fp64 says whether it is 16.
WIDTHS = {
    "mma": [
        *(((100, 104, 96), {}, (16, 16)), ((100, 104, 97), {}, (2, 16)), ((100, 104, 98), {}, (4, 16))),
        ((1, 104, 96), {"layout": "tn"}, (16, 16)),  # one row has no stride
        ((100, 104, 97), {"ld": 104}, (2, 16)),  # a row ends in part of a word
        *(((100, 104, 96), {"offset": 2}, (2, 16)), ((100, 104, 96), {"offset": 4}, (4, 16))),
        *(((100, 104, 96), {"offset_b": 8}, (16, 4)), ((100, 100, 96), {}, (16, 4))),
        *(((100, 100, 96), {"layout": "nt"}, (16, 16)), ((104, 104, 97), {"layout": "tn"}, (16, 16))),
        ((100, 104, 96), {"layout": "tn", "ld": 104}, (4, 16)),  # a row ends in part of a vector
    ],
    "mma_tf32": [
        *(((100, 104, 96), {}, (16, 16)), ((100, 104, 98), {}, (8, 16)), ((100, 104, 97), {}, (4, 16))),
        *(((100, 105, 96), {}, (16, 4)), ((100, 106, 96), {"offset": 8}, (8, 8))),
        ((100, 104, 96), {"offset": 4}, (4, 16)),
    ],
    "fp64": [
        *(((100, 102, 96), {}, (1, 1)), ((100, 101, 96), {}, (1, 0)), ((100, 102, 97), {}, (0, 1))),
        ((100, 102, 97), {"ld": 98}, (0, 1)),  # a row ends in half a vector
        *(((100, 102, 97), {"layout": "tt"}, (1, 0)), ((100, 102, 96), {"offset": 8}, (0, 1))),
        *(((100, 102, 96), {"offset_b": 8}, (1, 0)), ((100, 102, 96), {"strides": ((192, 2), (102, 1))}, (0, 1))),
    ],
}


@pytest.mark.parametrize("family", WIDTHS)
def test_loads_are_as_wide_as_rows_allow(family: str, request: pytest.FixtureRequest) -> None:
    plan, field = request.getfixturevalue(family), "vectors" if family == "fp64" else "bytes"
    for size, how, expected in WIDTHS[family]:
        p = plan(*size, **{**APPLIES[family][1], **({"forced": "mma"} if family == "mma" else {}), **how})
        assert (p[f"{field}_a"], p[f"{field}_b"]) == expected, (size, how)


# ---- mma.sync (mma/kernel.cuh) ---------------------------------------------------------------------------------------


def test_batch_invariant_products_whose_k_is_split_do_not(wgmma: Ask, choice: Ask) -> None:
    assert wgmma(128, 512, 8192, dtype=BF16, batch_invariant=True)["splits"] > 1
    assert choice(128, 512, 8192, dtype=BF16, batch_invariant=True).startswith("wgmma")


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_time_is_at_least_that_of_the_bytes(mma: Ask, data: st.DataObject) -> None:
    tile = data.draw(st.sampled_from(HALF_TILES))
    m, n, k, batch = (data.draw(st.integers(1, most)) for most in (1 << 17, 5000, 1000, 9))
    p = mma(m, n, k, batch, dtype=BF16, forced=tile)
    assert 1e6 * p["seconds"] > 1 + 2 * batch * (m * k + k * n + m * n) / 4e6
    assert p["seconds"] <= mma(2 * m, n, k, batch, dtype=BF16, forced=tile)["seconds"]


def test_fp32_and_half_precision_have_tiles_of_their_own(mma: Ask, mma_tf32: Ask) -> None:
    assert mma(4096, 4096, 4096, dtype=BF16, forced="mma")["name"] in HALF_TILES
    assert mma_tf32(64, 256, 256, dtype=F16)["name"] in HALF_TILES
    for tile in TF32_TILES:
        assert mma_tf32(64, 256, 256, dtype=BF16, forced=tile) is None
    for tile in HALF_TILES:
        assert mma_tf32(64, 256, 256, forced=tile) is None


def test_fp32_splits_k_among_ctas_that_run_at_once(mma_tf32: Ask) -> None:
    """Few tiles of a long K are split, many tiles are not; no split is empty."""
    for m, n, k in [(12, 34, 10752), (39, 1264, 8593), (130, 67, 601), (300, 500, 5000)]:
        p = mma_tf32(m, n, k)
        rows, columns = map(int, p["name"].removeprefix("mma_tf32_").split("x"))
        tiles, blocks = -(-m // rows) * -(-n // columns), -(-k // 32)
        assert 1 < p["splits"] <= blocks and tiles * p["splits"] <= 3 * 132
        assert (p["splits"] - 1) * p["split_blocks"] < blocks <= p["splits"] * p["split_blocks"]
        assert p["partials"] == 4 * tiles * p["splits"] * rows * columns and p["counters"] == 8 * tiles
    for m, n, k in [(4096, 4096, 4096), (1000, 1000, 64), (8, 8, 32)]:
        assert "splits" not in mma_tf32(m, n, k)


def test_fp32_number_of_splits_can_be_forced(mma_tf32: Ask) -> None:
    for splits in (2, 3, 10, 19):
        p = mma_tf32(130, 67, 601, forced=f"mma_tf32_64x64/{splits}")
        assert p["name"] == "mma_tf32_64x64" and p["splits"] == splits
    assert "splits" not in mma_tf32(130, 67, 601, forced="mma_tf32_64x64/1")
    for splits in (0, 11, 20):  # 19 blocks cannot be cut in 11 parts of one length
        assert mma_tf32(130, 67, 601, forced=f"mma_tf32_64x64/{splits}") is None
    assert mma_tf32(130, 67, 601, dtype=BF16, forced="mma_64x64/2") is None


def test_fp32_takes_it_where_others_copy_or_transpose(choice: Ask) -> None:
    """Measured: docs/log/matmul.md."""
    for m, n, k, batch, layout in [
        *((234, 62, 64, 204, "tn"), (535, 40, 94, 552, "tn"), (310, 57, 384, 41, "tt"), (859, 176, 112, 2, "tn")),
        *((12, 34, 10752, 1, "nn"), (39, 1264, 8593, 1, "tt"), (67, 4159, 7360, 1, "nn")),
    ]:
        assert choice(m, n, k, batch, layout=layout).startswith("mma_tf32"), (m, n, k)


# ---- fp64 (fp64_mma/kernel.cu) ---------------------------------------------------------------------------------------


def test_fp64_by_architecture_and_columns(fp64: Ask) -> None:
    for major in (8, 9, 10):  # of GeForce cards (12.0) the tensor cores have no units for it
        assert fp64(4096, 4096, 4096, dtype=F64, major=major)["name"] == "fp64_64x128"
    for n in (1, 4):
        assert fp64(4096, n, 4096, dtype=F64)
        assert fp64(4096, n, 4096, dtype=F64, batch_invariant=True) is None
    assert fp64(1, 5, 1, dtype=F64)
    assert fp64(64, 64, 64, dtype=F64, gated=True)


def test_forced_splits(fp64: Ask) -> None:
    for splits in (1, 2, 4, 7, 8):
        name = f"fp64_64x64/{splits}"
        assert fp64(64, 1024, 4096, dtype=F64, forced=name)["splits"] == splits
        invariant = fp64(64, 1024, 4096, dtype=F64, forced=name, batch_invariant=True)
        assert invariant is None if splits == 7 else invariant["splits"] == splits
    assert fp64(64, 64, 64, dtype=F64, forced="fp64_63x64") is None


def test_one_column_is_a_row(fp64: Ask) -> None:
    p = fp64(2631, 1, 1024, dtype=F64, layout="nt")
    assert (p["name"], p["splits"] > 1) == ("fp64_16x64", True)


sizes = st.tuples(st.integers(1, 1 << 15), st.integers(5, 1 << 15), st.integers(0, 1 << 17))


@settings(max_examples=300, deadline=None)
@given(sizes, st.integers(1, 9), st.sampled_from(["-", *tile_names("fp64")]), st.booleans(), st.data())
def test_batch_invariant_segments_depend_on_n_and_k_alone(
    fp64: Ask, size: tuple[int, int, int], batch: int, tile: str, invariant: bool, data: st.DataObject
) -> None:
    (m, n, k), other_rows, sm_count = size, data.draw(st.integers(1, 1 << 15)), data.draw(st.sampled_from([114, 132]))
    p = fp64(m, n, k, batch, dtype=F64, forced=tile, sm_count=sm_count, batch_invariant=invariant)
    if p is None:  # no room for a total beside the sums
        assert invariant and tile == "fp64_64x128" and fp64(m, n, k, dtype=F64, batch_invariant=True)
        return
    assert p["blocks"] == max(1, -(-k // 16))
    segments = -(-p["blocks"] // p["segment"])
    if invariant:
        assert p["segment"] == fp64(other_rows, n, k, dtype=F64, batch_invariant=True)["segment"]
        assert segments <= 128
        assert p["segment"] >= min(p["blocks"], 8 if n <= 1024 else 16)
    else:
        assert p["segment"] == p["split_blocks"]
    if p["splits"] == 1:
        assert (p["split_blocks"], p["workspace"]) == (p["blocks"], 0)
    else:
        assert p["split_blocks"] % p["segment"] == 0
        assert p["splits"] == -(-p["blocks"] // p["split_blocks"])
        assert p["workspace"] == 8 * segments * batch * m * n


@settings(max_examples=200, deadline=None)
@given(sizes, st.integers(1, 9))
def test_fp64_takes_at_least_the_time_of_its_products_and_bytes(fp64: Ask, size: tuple, batch: int) -> None:
    m, n, k = size
    seconds = fp64(m, n, k, batch, dtype=F64)["seconds"]
    assert seconds > batch * max(2 * m * n * k / 67e12, 8 * (m * k + k * n + m * n) / 4.8e12)


def test_segments(fp64: Ask) -> None:
    for n, k, segment in [
        *((8192, 8192, 128), (8192, 3072, 96), (8192, 3056, 191), (4824, 5980, 125), (4096, 4096, 128)),
        *((64, 65536, 32), (512, 200, 13), (248, 459, 10)),
    ]:
        assert fp64(100, n, k, dtype=F64, batch_invariant=True)["segment"] == segment, (n, k)


# ---- tf32 (tf32/kernel.cu) -------------------------------------------------------------------------------------------


def test_what_tma_cannot_load_is_copied(tf32: Ask) -> None:
    a, b = 4 * 64 * 256, 4 * 256 * 256  # of A's rows, also of 255 elements; of B
    for size, how, copied in [
        *(((64, 256, 256), {"offset": offset}, a) for offset in (4, 8, 12)),
        *(((64, 256, 256), how, 0) for how in ({}, {"offset": 16}, {"ld": 260})),
        *(((64, 256, 255), {}, a), ((64, 255, 256), {}, b), ((64, 255, 256), {"layout": "nt"}, 0)),
        *(((63, 256, 256), {}, 0), ((63, 256, 256), {"layout": "tt"}, a)),
        ((1, 256, 255), {}, 0),  # one row, and B's rows are aligned
    ]:
        assert tf32(*size, **how)["workspace"] == copied, (size, how)
    assert tf32(64, 256, 256, ld=258)["workspace"] > 0 < tf32(3, 256, 255)["workspace"]
    assert tf32(65, 255, 257)["seconds"] > tf32(68, 256, 260)["seconds"]


def test_one_of_two_operands_that_are_not_k_major_is_copied(tf32: Ask) -> None:
    def copied(*size: int, **how: int) -> tuple[bool, bool, bool]:
        p = tf32(*size, layout="tn", **how)
        return "copied_a" in p, "copied_b" in p, bool(p["swap_ab"])

    assert copied(512, 256, 512) == (False, True, False)  # the smaller one; the other is read in place
    assert copied(256, 512, 512) == (True, False, True)
    assert copied(514, 256, 512) == copied(514, 254, 512) == (True, True, False)  # the smaller one


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_every_split_has_a_cta_and_memory(tf32: Ask, data: st.DataObject) -> None:
    m, n, k = (4 * data.draw(st.integers(1, 2500)) for _ in range(3))
    batch, sm_count = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 140))
    p = tf32(m, n, k, batch, layout=data.draw(st.sampled_from(["nn", "nt", "tt"])), sm_count=sm_count)
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


def test_another_gpus_memory_counts(tf32: Ask) -> None:
    h200, h100 = MEMORY.values()
    seconds = lambda shape, **gpu: tf32(*shape, **gpu)["seconds"]  # noqa: E731
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


# ---- bf16x3 (bf16x3/kernel.cu) ---------------------------------------------------------------------------------------


def test_bf16x3_in_precisions_and_for_short_k(bf16x3: Ask) -> None:
    assert bf16x3(64, 256, 256, precision=HIGH) == bf16x3(64, 256, 256)  # three parts at any precision
    # Short K: SGEMM rounds less than the tensor cores truncate.
    assert bf16x3(8192, 8192, 63) is None
    for where in ({"k": 64}, {"k": 63, "precision": HIGH}, {"k": 16, "forced": "bf16x3"}):
        assert bf16x3(8192, 8192, **where)["name"].startswith("bf16x3_"), where


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_every_unit_has_one_owner_and_shared_tiles_have_memory(bf16x3: Ask, data: st.DataObject) -> None:
    m, n, k = data.draw(st.integers(1, 9000)), data.draw(st.integers(1, 9000)), data.draw(st.integers(64, 9000))
    batch, sm_count = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 140))
    p = bf16x3(m, n, k, batch, sm_count=sm_count)
    assert p["tiles"] == -(-m // p["rows"]) * -(-n // 128) * batch
    assert p["blocks"] == -(-k // 64)
    assert p["units"] == -(-p["blocks"] // p["granule"])
    total = p["tiles"] * p["units"]
    assert 1 <= p["ctas"] <= min(sm_count, total)  # no CTA without work
    assert p["units"] == 1 or p["blocks"] > 2  # the more exact kernel for short K does not split tiles
    starts = [cta * total // p["ctas"] for cta in range(p["ctas"] + 1)]
    shares = any(start % p["units"] for start in starts)
    assert not shares or p["partials"] == 2 * p["ctas"] * p["rows"] * 128 * 4


def test_few_tiles_share_and_alignment_changes_no_tile(bf16x3: Ask) -> None:
    few = bf16x3(16, 4096, 4096)  # 32 tiles for 132 SMs
    assert few["ctas"] > 100 and few["partials"] > 0
    aligned, odd = bf16x3(100, 1000, 3000), bf16x3(100, 1000, 3000, offset_b=4)
    assert aligned["tma"] and odd["seconds"] > aligned["seconds"]
    assert aligned | {"tma": False, "seconds": odd["seconds"]} == odd


# ---- few rows, columns and outputs (sliced/sliced.cu, gemv/sweep.cu, gemv/outputs.cu) --------------------------------


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_tiles_cover_and_every_split_has_work(sliced: Ask, data: st.DataObject) -> None:
    m, n, k = (data.draw(st.integers(1, 5000)) for _ in range(3))
    batch, layout = data.draw(st.integers(1, 9)), data.draw(st.sampled_from(["nn", "nt", "tn", "tt"]))
    tile = data.draw(st.sampled_from(SLICED_TILES))
    p = sliced(m, n, k, batch, layout=layout, forced=tile)
    rows, columns = map(int, tile.removeprefix("sliced_").split("x"))
    assert p["tiles"] == -(-m // rows) * -(-n // columns) * batch
    assert p["splits"] in range(1, 9)
    assert sliced(m, n, k, batch, layout=layout, forced=f"{tile}_apart")["splits"] == 1
    assert p["splits"] == 1 or -(-k // 16) >= 8 * p["splits"]


def test_sweep_only_where_it_applies(cuda_cores: Ask) -> None:
    for precision in (HIGHEST, HIGH, MEDIUM):
        assert cuda_cores(1, 4096, 4096, precision=precision)["name"] == "sweep"
        assert cuda_cores(4096, 1, 4096, layout="tn", precision=precision)["name"] == "sweep"
    for other in ({"layout": "nt"}, {"major": 8}, {"major": 10}, *NOT_FP32_ON_TENSOR_CORES, {"prepared": True}):
        taken = cuda_cores(1, 4096, 4096, **other)
        assert taken is None or taken["name"] != "sweep", other
    for m, n, k in ((5, 4096, 4096), (1, 31, 4096)):
        assert cuda_cores(m, n, k, forced="sweep")["name"] == "simt_64x64", (m, n, k)


@settings(max_examples=100, deadline=None)
@given(st.integers(32, 60000), st.integers(1, 20000))
def test_sweep_splits_depend_on_lines_and_k_alone(cuda_cores: Ask, n: int, k: int) -> None:
    asked = [cuda_cores(m, n, k, forced="sweep", offset=at, offset_b=at) for m in (1, 2, 4) for at in (0, 4)]
    asked += [cuda_cores(n, m, k, layout="tn", forced="sweep") for m in (1, 3)]
    assert {p["name"] for p in asked} == {"sweep"}
    (splits,) = {p["splits"] for p in asked}
    assert splits == 1 or splits * 128 <= k


def test_alignment_changes_no_split(sliced: Ask) -> None:
    for m, n, k in [(16, 768, 3072), (256, 256, 256), (509, 509, 509), (64, 64, 4096)]:
        assert sliced(m, n, k) == sliced(m, n, k, offset=4, offset_b=4)


def test_few_outputs_of_long_sums(choice: Ask) -> None:
    for dtype in (F32, BF16, F64):
        for m, n, k in ((1, 5, 8192), (3, 1, 2048), (12, 5, 1024)):
            taken = choice(m, n, k, layout="tn", dtype=dtype, precision=HIGHEST)
            assert taken.startswith("outputs"), (m, n, k, dtype, taken)
        others = ({"batch_invariant": True}, {"gated": True}, {"precision": IEEE, "dtype": F32}, {"prepared": True})
        for other in others:
            assert not choice(3, 5, 8192, **{"dtype": dtype, **other}).startswith("outputs"), other
        assert not choice(500, 500, 8192, dtype=dtype).startswith("outputs")
    assert choice(1, 5, 8192, major=8).split() == ["outputs", "splits=1"]  # no clusters
    assert not choice(1, 5, 8192, major=12).startswith("outputs")  # fp64 at a fraction of fp32's rate
    assert choice(1, 5, 1 << 15, dtype=BF16).split() == ["outputs", "splits=8"]

"""The calculators against the seeds' numbers and the table verified with cuda_occupancy.h (seed catalogue, part D)."""

import math

import pytest
import torch

from torch_ext import device as d

H200, A100, T4 = d.KNOWN["H200"], d.KNOWN["A100"], d.KNOWN["T4"]


@pytest.mark.parametrize(
    ("gpu", "threads", "registers", "blocks", "fraction"),
    [
        *[("A100", t, 16, b, f) for t, b, f in [(1024, 2, 1), (512, 4, 1), (256, 8, 1), (64, 32, 1), (32, 32, 0.5)]],
        ("A100", 700, 16, 2, 44 / 64),
        ("A100", 768, 16, 2, 0.75),
        *[("A100", 512, r, b, f) for r, b, f in [(31, 4, 1), (32, 4, 1), (33, 3, 0.75), (40, 3, 0.75), (64, 2, 0.5)]],
        *[
            ("H200", 512, r, b, f)
            for r, b, f in [(31, 4, 1), (33, 3, 0.75), (41, 2, 0.5), (65, 1, 0.25), (128, 1, 0.25)]
        ],
        ("H200", 512, 168, 0, 0),
        ("T4", 1024, 16, 1, 1),
        ("RTX 4090", 768, 16, 2, 1),
        ("RTX 4090", 1024, 16, 1, 2 / 3),
        ("RTX 4090", 128, 16, 12, 1),
        ("RTX 3090", 256, 128, 2, 1 / 3),
    ],
)
def test_occupancy_table(gpu: str, threads: int, registers: int, blocks: int, fraction: float) -> None:
    got = d.occupancy(d.KNOWN[gpu], threads, registers)
    assert got.blocks == blocks
    assert got.fraction == pytest.approx(fraction)


def test_padded_warps_show_in_the_thread_fraction() -> None:
    got = d.occupancy(A100, 700)
    assert got.thread_fraction == pytest.approx(0.68359375)
    assert got.fraction == pytest.approx(0.6875)


@pytest.mark.parametrize(("side", "blocks"), [(8, 32), (16, 8), (32, 2)])
def test_tiles_fill_an_h200(side: int, blocks: int) -> None:
    got = d.occupancy(H200, side * side, 32, d.tile_shared_memory(side * side))
    assert (got.blocks, got.fraction) == (blocks, 1)


def test_shared_memory_limits() -> None:
    got = d.occupancy(d.KNOWN["RTX 3090"], 1024, 37, 8192)
    assert (got.blocks, got.limited_by) == (1, "threads")
    assert d.occupancy(H200, 128, 32, 100 * d.KIB).limited_by == "shared memory"


@pytest.mark.parametrize(
    ("gpu", "registers", "expected"),
    [("T4", 16, (1024, 40)), ("RTX 4090", 16, (768, 256)), ("H200", 16, (1024, 264)), ("H200", 32, (1024, 264)),
     ("H200", 40, (768, 264))],
)  # fmt: skip
def test_max_potential_block_size(gpu: str, registers: int, expected: tuple[int, int]) -> None:
    assert d.max_potential_block_size(d.KNOWN[gpu], registers) == expected


def test_variable_shared_memory_changes_the_choice() -> None:
    assert d.max_potential_block_size(H200, 32, d.tile_shared_memory)[0] == 1024
    assert d.max_potential_block_size(H200, 32, lambda n: 228 * n)[0] < 1024


def test_largest_power_of_four() -> None:
    for n in range(1, 4097):
        assert d.largest_power_of_four(n) == 4 ** math.floor(math.log2(n) / 2)
    assert [d.largest_power_of_four(n) for n in (1024, 768, 512, 64)] == [1024, 256, 256, 64]
    with pytest.raises(ValueError, match="n >= 1"):
        d.largest_power_of_four(0)


def test_seed_figures() -> None:
    assert [d.tile_shared_memory(s * s) for s in (8, 16, 32)] == [512, 2048, 8192]
    assert d.matmul_intensity(4096, 4096, 4096, 1) == pytest.approx(2730.67, abs=0.01)
    assert d.matmul_intensity(4096, 4096, 4096) == pytest.approx(682.67, abs=0.01)
    assert d.pointwise_intensity(1, 2, 1, 2) == pytest.approx(1 / 6)
    assert d.pointwise_intensity(1, 1, 1, 2) == 0.25
    assert d.pointwise_intensity(1, 1, 1, 4) == 0.125
    assert d.naive_matmul_traffic(4096, 4096, 4096) / 2**30 == pytest.approx(512.06, abs=0.01)
    assert A100.oversubscription == 32
    assert H200.oversubscription == 16
    assert d.littles_law(20, 32) == 640
    assert d.littles_law(800 / 1.3e9, 177e9) / 1024 == pytest.approx(106, abs=1)
    assert H200.balance == pytest.approx(13.96, abs=0.01)


def test_roofline_bends_at_the_balance() -> None:
    assert d.attainable(H200, H200.balance / 2) == pytest.approx(H200.fp32_flops / 2)
    assert d.attainable(H200, H200.balance * 2) == H200.fp32_flops
    assert d.floor_seconds(2.0, 8.0, 1.0, 8.0) == 2.0


def test_quantisation() -> None:
    assert d.tile_utilisation(128, 128, 128, 128) == 1
    assert d.tile_utilisation(129, 128, 128, 128) == pytest.approx(129 / 256)
    assert d.wave_utilisation(132, 132) == 1
    assert d.wave_utilisation(133, 132) == pytest.approx(133 / 264)


@pytest.mark.parametrize("threads", [0, 1025])
def test_bad_block_size(threads: int) -> None:
    with pytest.raises(ValueError, match="threads_per_block"):
        d.occupancy(H200, threads)


@pytest.mark.cuda
def test_limits_of_this_gpu() -> None:
    gpu = d.limits()
    assert gpu.multiprocessors == torch.cuda.get_device_properties().multi_processor_count
    assert d.occupancy(gpu, 256, 32).fraction == 1

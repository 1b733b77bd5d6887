"""The calculators against a table verified with cuda_occupancy.h; the documents' numbers: tests/test_lab.py."""

import ctypes
import math
from types import SimpleNamespace

import pytest
import torch

from torch_ext import device as d

H200, A100, T4 = d.KNOWN["H200"], d.KNOWN["A100"], d.KNOWN["T4"]


@pytest.mark.parametrize(
    ("gpu", "threads", "registers", "blocks", "fraction"),
    [
        *[("A100", t, 16, b, f) for t, b, f in [(1024, 2, 1), (512, 4, 1), (256, 8, 1), (64, 32, 1), (32, 32, 0.5)]],
        *(("A100", 700, 16, 2, 44 / 64), ("A100", 768, 16, 2, 0.75)),
        *[("A100", 512, r, b, b / 4) for r, b in [(31, 4), (32, 4), (33, 3), (40, 3), (64, 2)]],
        *[("H200", 512, r, b, b / 4) for r, b in [(31, 4), (33, 3), (41, 2), (65, 1), (128, 1), (168, 0)]],
        *(("T4", 1024, 16, 1, 1), ("RTX 4090", 768, 16, 2, 1)),
        *(("RTX 4090", 1024, 16, 1, 2 / 3), ("RTX 4090", 128, 16, 12, 1), ("RTX 3090", 256, 128, 2, 1 / 3)),
    ],
)
def test_occupancy_table(gpu: str, threads: int, registers: int, blocks: int, fraction: float) -> None:
    got = d.occupancy(d.KNOWN[gpu], threads, registers)
    assert (got.blocks, got.fraction) == (blocks, pytest.approx(fraction))


def test_shared_memory_limits() -> None:
    for side, blocks in (8, 32), (16, 8), (32, 2):
        got = d.occupancy(H200, side * side, 32, d.tile_shared_memory(side * side))
        assert (got.blocks, got.fraction) == (blocks, 1)
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


def test_roofline_bends_at_the_balance() -> None:
    assert d.attainable(H200, H200.balance / 2) == pytest.approx(H200.fp32_flops / 2)
    assert d.attainable(H200, H200.balance * 2) == H200.fp32_flops
    assert d.floor_seconds(2.0, 8.0, 1.0, 8.0) == 2.0


def test_quantisation() -> None:
    assert d.boundary_share(1024) == 0  # a grid without a boundary
    assert d.occupancy_bound(A100, 32) == d.occupancy(A100, 32).fraction == 0.5
    assert d.tile_utilisation(128, 128, 128, 128) == d.wave_utilisation(132, 132) == 1
    assert d.tile_utilisation(129, 128, 128, 128) == pytest.approx(129 / 256)
    assert d.wave_utilisation(133, 132) == pytest.approx(133 / 264)


@pytest.mark.parametrize("threads", [0, 1025])
def test_bad_block_size(threads: int) -> None:
    with pytest.raises(ValueError, match="threads_per_block"):
        d.occupancy(H200, threads)


def properties(name: str, **more: int) -> SimpleNamespace:
    """What torch says of a GPU; usually a Hopper one."""
    usual = {"major": 9, "minor": 0, "warp_size": 32, "max_threads_per_block": 1024}
    usual |= {"max_threads_per_multi_processor": 2048, "regs_per_multiprocessor": 65536}
    usual |= {"shared_memory_per_multiprocessor": 233472, "shared_memory_per_block_optin": 232448}
    usual |= {"L2_cache_size": 50 << 20, "memory_clock_rate": 3201000, "memory_bus_width": 6144}
    return SimpleNamespace(name=name, **usual | more)


@pytest.mark.parametrize(
    ("name", "sms", "clock", "memory", "bus", "fp32", "bandwidth"),
    [
        ("NVIDIA H200", 132, 1980, 3201, 6144, 67e12, 4800e9),
        ("NVIDIA H100 80GB HBM3", 132, 1980, 2619, 5120, 67e12, 3350e9),
        ("NVIDIA H100 PCIe", 114, 1755, 1593, 5120, 51.2e12, 2039e9),
        ("NVIDIA A100-SXM4-80GB", 108, 1410, 1593, 5120, 19.5e12, 2039e9),
        ("NVIDIA GH200 480GB", 132, 1980, 2619, 6144, 67e12, 4022e9),
        ("NVIDIA H200 without clocks", 132, 0, 0, 0, 67e12, 4800e9),
        ("NVIDIA L40S", 142, 2520, 9001, 384, 91.6e12, 864e9),  # not in the table
    ],
)
def test_rates(monkeypatch: pytest.MonkeyPatch, name: str, sms, clock, memory, bus, fp32, bandwidth) -> None:
    """Of kinds with several members, by their clocks."""
    more = {"major": 8, "minor": 9, "max_threads_per_multi_processor": 1536} if "L40S" in name else {}
    more |= {"major": 8} if "A100" in name else {}
    more |= {"clock_rate": clock * 1000, "memory_clock_rate": memory * 1000, "memory_bus_width": bus}
    there = properties(name, multi_processor_count=sms, **more)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: there)
    gpu = d.limits()
    assert (gpu.multiprocessors, gpu.threads) == (sms, there.max_threads_per_multi_processor)
    assert gpu.fp32_flops == pytest.approx(fp32, rel=1e-3) and gpu.bandwidth == pytest.approx(bandwidth, rel=1e-3)
    if "L40S" not in name:
        assert gpu.fp64_flops == pytest.approx(fp32 / 2, rel=0.01)
    assert all(known.fp64_flops and known.tensor_flops for known in d.KNOWN.values())


def test_device_query(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    sizes = ("small", 10, 2000, 8), ("large", 132, 1980, 8), ("integrated", 999, 1980, 99), ("roomy", 132, 1980, 9)
    gpus = [
        properties(name, is_integrated=sms > 132, multi_processor_count=sms, clock_rate=mhz * 1000, total_memory=gb)
        for name, sms, mhz, gb in sizes
    ]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(gpus))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: gpus[index])

    def attribute(value: "ctypes._Pointer", number: int, handle: ctypes.c_int) -> int:
        value._obj.value = 100 * number
        return 0

    driver = SimpleNamespace(cuInit=lambda _: 0, cuDeviceGet=lambda *_: 0, cuDeviceGetAttribute=attribute)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: {"libcuda.so.1": driver}[name])
    assert d.describe(0)["block dimensions"] == (200, 300, 400) and d.describe(0)["grid dimensions"] == (500, 600, 700)
    assert d.best() == 3 and d.describe(1)["clock, MHz"] == 1980 and d.describe(2)["integrated"]
    assert d.main() == 0
    text = capsys.readouterr().out
    assert text.startswith("4 GPUs\n\n0: small\n") and "registers per multiprocessor      65,536" in text
    assert text.endswith("The most resources: 3\n")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="no NVIDIA GPU"):
        d.best()
    assert d.main() == 0 and capsys.readouterr().out == "0 GPUs\n"


@pytest.mark.cuda
def test_device_query_of_this_gpu(capsys: pytest.CaptureFixture) -> None:
    found = d.describe(d.best())
    assert found["threads per block"] == 1024 and found["block dimensions"] == (1024, 1024, 64)
    assert d.main() == 0 and torch.cuda.get_device_name(0) in capsys.readouterr().out


@pytest.mark.cuda
def test_limits_of_this_gpu() -> None:
    gpu = d.limits()
    assert gpu.multiprocessors == torch.cuda.get_device_properties().multi_processor_count
    assert d.occupancy(gpu, 256, 32).fraction == 1

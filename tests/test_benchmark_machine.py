"""The benchmarks' readings of clock and power, from a stand-in for NVML and one for nvidia-smi."""

import sys
import time
import types
from pathlib import Path

import pytest
import torch
from torch.utils.benchmark import Measurement
from torch.utils.benchmark.utils.common import TaskSpec

from benchmarks import common
from benchmarks.common.machine import Gpu, Reading

DEVICE = torch.device("cuda", 0)


def read_for_a_while(gpu: Gpu) -> list[Reading]:
    started = time.monotonic()
    gpu.watch()
    while not gpu.readings(started + gpu.SETTLE_S, time.monotonic()):
        assert time.monotonic() < started + 20
        time.sleep(0.01)
    return gpu.readings(started - gpu.SETTLE_S, time.monotonic())


def test_readings_from_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = types.ModuleType("pynvml")
    nvml.NVMLError, nvml.NVML_CLOCK_SM = RuntimeError, 1
    nvml.nvmlInit = lambda: None
    nvml.nvmlDeviceGetHandleByUUID = lambda uuid: {"GPU-abc": "handle"}[uuid]
    nvml.nvmlSystemGetDriverVersion = lambda: "580.1"
    nvml.nvmlDeviceGetClockInfo = lambda handle, kind: {("handle", 1): 1650}[handle, kind]
    milliwatts = types.SimpleNamespace(nvmlReturn=0, value=types.SimpleNamespace(uiVal=690500))
    nvml.nvmlDeviceGetFieldValues = lambda handle, fields: [milliwatts for field in fields if field == 186]
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: types.SimpleNamespace(uuid="abc"))
    gpu = Gpu(DEVICE)
    assert gpu.driver == "580.1"
    found = read_for_a_while(gpu)
    assert {(reading.clock_mhz, reading.watts) for reading in found} == {(1650, 690.5)}


SMI = """#!/bin/sh
case "$*" in
*driver_version*) echo 580.2 ;;
*clocks.sm,power.draw.instant*-lms*) echo "[N/A], 1"; while :; do echo "1700, $POWER"; sleep 0.02; done ;;
esac
"""


@pytest.mark.parametrize(("power", "watts"), [("650.25", 650.25), ("[N/A]", None)])
def test_readings_from_nvidia_smi(
    power: str, watts: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(SMI)
    program.chmod(0o755)
    monkeypatch.setitem(sys.modules, "pynvml", None)  # not importable
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("POWER", power)
    gpu = Gpu(DEVICE)
    assert gpu.driver == "580.2"
    assert {(reading.clock_mhz, reading.watts) for reading in read_for_a_while(gpu)} == {(1700, watts)}


def test_without_either_there_are_no_readings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    gpu = Gpu(DEVICE)
    gpu.watch()
    assert gpu.driver == "unknown" and gpu.readings(0.0, time.monotonic()) == []


def test_power_is_of_the_block_itself() -> None:
    """Early in a block, the averaged power still includes the block before."""
    gpu = Gpu(DEVICE)
    gpu._readings += [Reading(t, 1600, 700.0) for t in (9.99, 10.01, 10.024, 10.026, 10.1, 10.2)]
    found = gpu.readings(10.0, 10.15)
    assert [(reading.time, reading.watts) for reading in found] == [
        *((10.01, None), (10.024, None), (10.026, 700.0), (10.1, 700.0))
    ]


def test_a_contender_gets_the_readings_of_its_blocks() -> None:
    class Still:
        def timeit(self, number: int) -> Measurement:
            time.sleep(0.002)
            return Measurement(number, [1e-3 * number], TaskSpec("pass", ""))

    class Counting:
        """Reads another clock for every block, and power only for half of them."""

        blocks = 0

        def readings(self, since: float, until: float) -> list[Reading]:
            assert until - since >= 0.002
            self.blocks += 1
            return [Reading(since, 1000 + self.blocks, None if self.blocks > 3 else 600.0)]

    runners = [common.Runner(common.Contender(name, lambda: None), Still()) for name in "ab"]
    common.interleave(runners, 0.0, 3, Counting())  # a b, b a, a b
    assert [[reading.clock_mhz - 1000 for reading in runner.readings] for runner in runners] == [[1, 4, 5], [2, 3, 6]]
    assert runners[0].condition() == {"clock_mhz": 1004, "watts": 600.0}
    assert common.Runner(runners[0].contender, Still()).condition() == {"clock_mhz": None, "watts": None}

"""The benchmarks' readings of clock and power, from a stand-in for NVML and one for nvidia-smi."""

import time

import torch
from torch.utils.benchmark import Measurement
from torch.utils.benchmark.utils.common import TaskSpec

from benchmarks import common
from benchmarks.common.machine import Gpu, Reading

DEVICE = torch.device("cuda", 0)


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

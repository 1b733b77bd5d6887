"""The benchmarks' readings of clock and power, from a stand-in for NVML and one for nvidia-smi."""

import torch

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

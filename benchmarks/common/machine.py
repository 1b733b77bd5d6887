"""What a run runs on: driver, SM clock, measured bandwidths, and the floors that follow from them."""

import contextlib
import math
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.common.cases import Case
from benchmarks.results import cpu_name

# Dense rates of an H200 by its datasheet, in TFLOP/s: what floors divide operations by. "highest" is three products in
# half precision (the fp32 split on tensor cores), "ieee" the CUDA cores.
TFLOPS = {
    (torch.float32, "highest"): 990.0 / 3,
    (torch.float32, "ieee"): 67.0,
    (torch.float32, "high"): 495.0,
    (torch.float32, "medium"): 990.0,
    (torch.float32, None): 67.0,
    (torch.bfloat16, None): 990.0,
    (torch.float16, None): 990.0,
    (torch.float64, None): 67.0,
}


class Gpu:
    """Driver version and SM clock, from NVML where its Python binding is there, else from nvidia-smi."""

    def __init__(self, device: torch.device) -> None:
        self.clocks: list[int] = []
        self._handle = self._nvml = None
        self._index = str(device.index or 0)
        self._asked = -math.inf
        try:
            import pynvml

            pynvml.nvmlInit()
            uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
            self._handle, self._nvml = pynvml.nvmlDeviceGetHandleByUUID(uuid), pynvml
            version = pynvml.nvmlSystemGetDriverVersion()
            self.driver = version.decode() if isinstance(version, bytes) else version
        except Exception:  # no binding, no library, or a container that hides NVML: figures matter more than the clock
            self.driver = self._smi("driver_version") or "unknown"

    def _smi(self, field_name: str) -> str:
        command = ["nvidia-smi", f"--query-gpu={field_name}", "--format=csv,noheader,nounits", "-i", self._index]
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
        return ""

    def sample_clock(self) -> None:
        """Notes the SM clock; to be called right after a block of work, outside every timing."""
        if self._nvml is not None:
            with contextlib.suppress(self._nvml.NVMLError):
                self.clocks.append(self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM))
        elif time.monotonic() - self._asked > 5:  # a process each time: seldom
            self._asked = time.monotonic()
            if (value := self._smi("clocks.sm")).isdigit():
                self.clocks.append(int(value))


@dataclass
class Machine:
    """What the run runs on, with its measured bandwidths: one for all ops of a process."""

    name: str
    l2: int
    copy_gbps: float | None = None
    read_gbps: float | None = None
    gpu: Gpu | None = None

    def floor_us(self, case: Case) -> float | None:
        """The larger of bytes over measured bandwidth and operations over the stated rate; None where not measured."""
        if case.host or self.copy_gbps is None or self.read_gbps is None:
            return None
        # A stream of reads is faster than a copy: the copy's figure holds once writes are a good part of the traffic.
        gbps = self.copy_gbps if 8 * case.written >= case.read else self.read_gbps
        return max((case.read + case.written) / gbps / 1e3, case.flops / TFLOPS[case.dtype, case.mode] / 1e6)

    def memory_bound(self, case: Case) -> bool:
        """Whether the bytes are the larger term of the floor."""
        if self.copy_gbps is None:
            return False
        return (case.read + case.written) / self.copy_gbps / 1e3 >= case.flops / TFLOPS[case.dtype, case.mode] / 1e6


def machine(device: torch.device) -> Machine:
    """Describes the device; on a GPU also warms it up and measures copy and read bandwidth (about 0.2 s)."""
    if device.type != "cuda":
        return Machine(cpu_name(), 0)
    properties = torch.cuda.get_device_properties(device)
    size = min(4 << 30, properties.total_memory // 4) // 4

    def best(call: Callable[[], object], repeats: int) -> float:
        """Seconds of one call, the least of several: a ceiling."""
        times = []
        for _ in range(repeats):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            call()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / 1e3)
        return min(times)

    source = torch.randn(2, size // 2, device=device)
    read = 4 * source.numel() / best(source.sum, 20) / 1e9
    copy = 4 * source.numel() / best(partial(source[0].copy_, source[1]), 20) / 1e9
    del source
    torch.cuda.empty_cache()
    return Machine(properties.name, properties.L2_cache_size, copy, read, Gpu(device))

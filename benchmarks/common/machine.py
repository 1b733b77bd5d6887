"""What a run runs on: driver, SM clock and power, measured bandwidths, and the floors that follow from them."""

import atexit
import contextlib
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import torch

from benchmarks.common.cases import Case
from benchmarks.results import cpu_name

# Dense rates of an H200 by its datasheet, in TFLOP/s, of the fastest way to an accuracy: what floors divide operations
# by. fp32 "highest", attention's too (None), is three products of fp16 parts, "high" and "medium" one, "ieee" the CUDA
# cores.
TFLOPS = {
    (torch.float32, "highest"): 990.0 / 3,
    (torch.float32, "ieee"): 67.0,
    (torch.float32, "high"): 990.0,
    (torch.float32, "medium"): 990.0,
    (torch.float32, None): 990.0 / 3,
    (torch.bfloat16, None): 990.0,
    (torch.float16, None): 990.0,
    (torch.float64, None): 67.0,
}


@dataclass(frozen=True)
class Reading:
    """What the GPU ran at, at a time of the monotonic clock; None where the power reading mixes neighbouring blocks."""

    time: float
    clock_mhz: int
    watts: float | None


class Gpu:
    """Driver version, and SM clock and board power read in the background: by NVML's Python binding or nvidia-smi.

    Without either there are no readings. A reading costs the host's other cores a little, and the timed thread nothing
    but Python's lock every PERIOD_S.
    """

    PERIOD_S = 0.02
    SETTLE_S = 0.025  # the board's power is an average over about as long: earlier in a block it is the previous one's

    def __init__(self, device: torch.device) -> None:
        self._handle = self._nvml = None
        self._index = str(device.index or 0)
        self._readings: deque[Reading] = deque(maxlen=1000)
        try:
            import pynvml

            pynvml.nvmlInit()
            uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
            self._handle, self._nvml = pynvml.nvmlDeviceGetHandleByUUID(uuid), pynvml
            version = pynvml.nvmlSystemGetDriverVersion()
            self.driver = version.decode() if isinstance(version, bytes) else version
        except Exception:  # no binding, no library, or a container that hides NVML: figures matter more than the clock
            done = None
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                done = subprocess.run(self._smi("driver_version"), capture_output=True, text=True, timeout=10)
            self.driver = (done.stdout.strip() if done and done.returncode == 0 else "") or "unknown"

    def _smi(self, fields: str, *more: str) -> list[str]:
        command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits", "-i", self._index]
        return ["stdbuf", "-oL", *command, *more]  # a line as soon as it is there

    def watch(self) -> None:
        """Starts reading; ends with the process."""
        read = self._poll
        if self._nvml is None:
            command = self._smi("clocks.sm,power.draw.instant", "-lms", str(round(1e3 * self.PERIOD_S)))
            try:
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            except OSError:
                return
            atexit.register(process.kill)
            read = partial(self._listen, process.stdout)
        threading.Thread(target=read, name="gpu readings", daemon=True).start()

    def _poll(self) -> None:
        nvml, handle = self._nvml, self._handle
        power = getattr(nvml, "NVML_FI_DEV_POWER_INSTANT", 186)  # NVML's own power usage is the mean of a second
        while True:
            time.sleep(self.PERIOD_S)
            with contextlib.suppress(nvml.NVMLError):
                clock = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
                instant = nvml.nvmlDeviceGetFieldValues(handle, [power])[0]
                watts = None if instant.nvmlReturn else instant.value.uiVal / 1e3
                self._readings.append(Reading(time.monotonic(), clock, watts))

    def _listen(self, lines: Iterable[str]) -> None:
        for line in lines:
            clock, _, watts = line.partition(",")
            with contextlib.suppress(ValueError):  # "[N/A]"
                self._readings.append(Reading(time.monotonic(), int(clock), number(watts)))

    def readings(self, since: float, until: float) -> list[Reading]:
        """What was read between two times; its power only where it speaks of that span."""
        found = [reading for reading in tuple(self._readings) if since <= reading.time <= until]
        settled = since + self.SETTLE_S
        return [reading if reading.time >= settled else replace(reading, watts=None) for reading in found]


def number(text: str) -> float | None:
    with contextlib.suppress(ValueError):
        return float(text)
    return None


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
    if not torch.cuda.is_available():
        raise SystemExit(f"--device {device}: there is no NVIDIA GPU here")
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
    gpu = Gpu(device)
    gpu.watch()
    return Machine(properties.name, properties.L2_cache_size, copy, read, gpu)

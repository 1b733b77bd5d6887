"""The measured roofline: rates and energy over operations a byte.

Rows as in experiments.py. See docs/lab_roofline.md.
"""

import ctypes
import itertools
from collections.abc import Callable, Iterator
from functools import partial

import torch

from torch_ext import device
from torch_ext.lab.experiments import window_reference
from torch_ext.lab.measure import Call, Row, close, exact, product, randn, require, row, time_us

lab = torch.ops.xgemm_lab


FACTOR = -(1 - 2.0**-12)  # of intensity's multiply-adds y <- y FACTOR + 1


def alternated(x: torch.Tensor, steps: int) -> torch.Tensor:
    """What intensity must give, in float64: y jumps from side to side of a fixed point, ever so little closer to it."""
    fixed = 1 / (1 - FACTOR)
    return fixed + (x.double() - fixed) * FACTOR**steps


STEPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def roofline(sizes: list[int], budget: float) -> Iterator[Row]:
    """Multiply-adds between load and store, float and double, and the library's ops beside them.

    `sizes`: elements of float; double has half as many.
    """
    gpu = device.limits()
    peaks = {torch.float32: gpu.fp32_flops, torch.float64: gpu.fp64_flops}
    read = energy_counter()
    for n, dtype in itertools.product(sizes, (torch.float32, torch.float64)):
        size = torch.finfo(dtype).bits // 8
        x = torch.randn(n * 4 // size, device="cuda", dtype=dtype)
        for steps in STEPS:
            call = partial(lab.intensity, x, steps)
            difference = (call().double() - alternated(x, steps)).abs()
            allowed = (8 + steps) * torch.finfo(dtype).eps * (x.abs() + 2)
            require(bool((difference <= allowed).all()), f"intensity {steps}")
            flops, moved = 2 * steps * x.numel(), 2 * size * x.numel()
            timing = time_us(call, budget)
            attainable = min(peaks[dtype], flops / moved * gpu.bandwidth)
            yield row(
                f"{str(dtype).removeprefix('torch.')}, {moved >> 20} MiB",
                f"{steps} steps",
                timing,
                shape={"n": x.numel(), "steps": steps},
                dtype=str(dtype).removeprefix("torch."),
                flops=flops,
                bytes_moved=moved,
                intensity=flops / moved,
                attainable_tflops=round(attainable * 1e-12, 4) if steps else None,
                joules=joules(read, call, timing[0]),
            )
    yield from _marks(sizes[0], budget)


MARKED = 4096  # n of the products that are marked on the roofline, rows of the softmax


def _marks(n: int, budget: float) -> Iterator[Row]:
    """Kernels of the ladders to be marked on the roofline: operations and bytes by their floors."""
    x, y = randn(n), randn(MARKED, n // MARKED)
    a, b = randn(MARKED, MARKED), randn(MARKED, MARKED)
    operations, moved = 2 * MARKED**3, 12 * MARKED**2
    calls: list[tuple[str, Call, int, int]] = [
        ("copy", lambda: lab.concurrent_copy(x, 1024, 1, 4, "full"), 0, 8 * n),
        ("reduction v7", lambda: lab.reduce_sum(x, 7), n - 1, 4 * n),
        ("window sum 5", lambda: lab.window_sum(x, 5, True), 4 * n, 8 * n),  # a stencil
        ("softmax online4", lambda: lab.softmax(y, "online4"), 5 * n, 8 * n),  # maximum, difference, exp, sum, product
        *((f"SGEMM {step:02}", partial(lab.sgemm, a, b, step=step), operations, moved) for step in range(1, 8)),
        ("SGEMM 08", lambda: torch.ops.xgemm.matmul(a, b, precision="ieee"), operations, moved),
    ]
    expected, scale = product(a, b)
    for name, call, flops, moved in calls:
        if name.startswith("SGEMM"):
            close(call, expected, scale, 2 * MARKED**0.5 + 8, name)
        elif name == "copy":
            exact(call, x, name)
        elif name == "window sum 5":
            close(call, window_reference(x.double(), 5), window_reference(x.double().abs(), 5), 5, name)
        elif name == "reduction v7":
            require(bool((call().double() - x.double().sum()).abs() <= 2**-14 * x.abs().sum()), name)
        else:
            reference = torch.softmax(y.double(), -1)
            close(call, reference, reference, 64 + y.shape[1] / 256, name)
        yield row(
            "kernels of the ladders",
            name,
            time_us(call, budget),
            shape={"n": n},
            flops=flops or None,
            bytes_moved=moved,
            intensity=flops / moved,
        )


SECONDS = 0.4  # of work a measurement, after a quarter of that: the energy counter moves every 20 to 100 ms


def energy_counter() -> Callable[[], float] | None:
    """What reads the GPU's energy counter, in joules, by NVML; None where there is none."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        handle, millijoules = ctypes.c_void_p(), ctypes.c_ulonglong()
        uuid = f"GPU-{torch.cuda.get_device_properties().uuid}".encode()
        if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(handle)):
            return None
        if nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(millijoules)):
            return None
    except (OSError, AttributeError):
        return None

    def read() -> float:
        torch.cuda.synchronize()
        nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(millijoules))
        return millijoules.value / 1e3

    return read


def joules(read: Callable[[], float] | None, call: Call, us: float) -> float | None:
    """The energy of a call that takes `us`, from many of them."""
    if read is None:
        return None
    count = max(1, round(SECONDS / us * 1e6))
    for _ in range(count // 4):  # the counter lags behind, and the GPU comes from rest
        call()
    before = read()
    for _ in range(count):
        call()
    return (read() - before) / count


def fit_energy(rows: list[Row]) -> tuple[float, float, float, float] | None:
    """(joules a flop, joules a byte, watts whatever runs, largest relative residual) of E = W e_f + Q e_m + P0 T."""
    used = [r for r in rows if r.get("joules") and r["dtype"] == "float32"]
    if len(used) < 5:
        return None
    energy = torch.tensor([r["joules"] for r in used], dtype=torch.float64)
    seconds = [r["us"] * 1e-6 for r in used]
    terms = torch.tensor(
        [[(r["tflops"] or 0) * 1e12 * t, r["gbps"] * 1e9 * t, t] for r, t in zip(used, seconds, strict=True)],
        dtype=torch.float64,
    )
    weighted = terms / energy[:, None]  # relative residuals
    scale = weighted.norm(dim=0)
    solution = (
        torch.linalg.lstsq(weighted / scale, torch.ones(len(used), 1, dtype=torch.float64)).solution[:, 0] / scale
    )
    residual = (weighted @ solution - 1).abs().max().item()
    return (*solution.tolist(), residual)

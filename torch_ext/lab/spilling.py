"""One kernel compiled with fewer and fewer registers: occupancy rises, values spill, time tells.

The kernel (spilling.cu) is compiled when the experiment runs, by nvcc: the library's own kernels may not spill. See
docs/lab_registers.md.
"""

import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch

from torch_ext import device
from torch_ext.lab import exercise
from torch_ext.lab.measure import Row, close, randn, require, row, time_us

SOURCE = Path(__file__).with_suffix(".cu")
LIMITS = (128, 72, 64, 56, 48, 40, 32)
LIVE, THREADS, STEPS = 64, 256, 512  # values that a thread keeps; threads of a block; multiply-adds on each value

Kernel = Callable[[torch.Tensor], torch.Tensor]


def usage(text: str) -> dict[str, int]:
    """Registers of a thread and bytes that it stores and loads because they spill, as ptxas prints them."""
    used, stored, loaded = (
        re.search(pattern, text)
        for pattern in (r"Used (\d+) registers", r"(\d+) bytes spill stores", r"(\d+) bytes spill loads")
    )
    if not (used and stored and loaded):
        raise RuntimeError(f"xgemm lab: expected registers and spills in what ptxas prints, got {text[-200:]}")
    return {"registers": int(used[1]), "spilled": int(stored[1]) + int(loaded[1])}


def build(limit: int, architecture: str) -> tuple[Kernel, dict[str, int]]:
    """The kernel with at most `limit` registers a thread, and what ptxas says of it."""
    with tempfile.TemporaryDirectory(prefix="xgemm_spilling_") as folder:  # a library that is loaded needs no file
        library = Path(folder) / "spilling.so"
        command = [*exercise.command(SOURCE, library, architecture), f"-maxrregcount={limit}", "-Xptxas=-v"]
        done = subprocess.run(command, capture_output=True, text=True)
        require(done.returncode == 0, f"compilation with {limit} registers ({done.stderr[-200:]})")
        loaded = ctypes.CDLL(str(library)).exercise

    def run(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        pointers = (ctypes.c_void_p(t.data_ptr()) for t in (x, y))
        factors = ctypes.c_float(0.5), ctypes.c_float(1.0)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        loaded(*pointers, ctypes.c_int(x.numel()), ctypes.c_int(STEPS), *factors, stream)
        return y

    return run, usage(done.stderr)


def spilling(sizes: list[int], budget: float) -> Iterator[Row]:
    """64 live values in 128 to 32 registers a thread; `sizes`: threads. Nothing where there is no nvcc."""
    if shutil.which(exercise.command(SOURCE, SOURCE, "")[0]) is None:
        return
    gpu = device.limits()
    architecture = "sm_{}{}".format(*torch.cuda.get_device_capability())
    kernels = {limit: build(limit, architecture) for limit in LIMITS}
    for n in sizes:
        x = randn(n)
        fixed = torch.full_like(x, 2.0 * LIVE, dtype=torch.float64)  # y <- y / 2 + 1 forgets its start
        for limit, (kernel, used) in kernels.items():
            call = partial(kernel, x)
            close(call, fixed, fixed, 4, f"64 chains in {limit} registers")
            resident = device.occupancy(gpu, THREADS, used["registers"])
            yield row(
                f"{LIVE} live values, {n} threads",
                f"at most {limit} registers",
                time_us(call, budget),
                shape={"n": n, "limit": limit},
                flops=2 * LIVE * STEPS * n,
                **used,
                blocks=resident.blocks,
                occupancy=resident.fraction,
            )

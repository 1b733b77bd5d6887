"""The GPU's own counters of the lab's kernels, by Nsight Compute: ``python -m torch_ext.lab.counters [NAME ...]``.

Runs ``ncu`` on one prepared call at a time and prints what it counted beside the documents' figures. Without
``ncu``, or where the driver keeps counters from users, it says so.
"""

import argparse
import csv
import io
import itertools
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from torch_ext.lab import measure

lab = torch.ops.xgemm_lab

# Our names for ncu's metrics.
METRICS = {
    "load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "dram_bytes": "dram__bytes.sum",
    "l1_percent": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "l2_percent": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm_percent": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "warps_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "exponentials_percent": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "cycles": "sm__cycles_elapsed.max",
    "branches": "smsp__inst_executed_op_branch.sum",
    "divergent_branches": "smsp__sass_branch_targets_threads_divergent.sum",
    "shared_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "registers": "launch__registers_per_thread",
}
SOURCES = ("csrc/lab",)  # of the calls
UNITS = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}

Call = Callable[[], torch.Tensor]


def _on(op: str, *shapes: tuple[int, ...], **arguments: object) -> Callable[[], Call]:
    """An op whose operands are made when it is prepared: random numbers of these shapes."""

    def prepare() -> Call:
        dtype = torch.bfloat16 if op == "attention" else torch.float32
        operands = [torch.randn(shape, device="cuda").to(dtype) for shape in shapes]
        return partial(getattr(lab, op), *operands, **arguments)

    return prepare


def _parity(branch: bool) -> Call:
    x = torch.randint(-1000, 1000, (1 << 20,), dtype=torch.int32, device="cuda")
    return lambda: lab.parity(x, branch)


ARRAY, SMALL, SQUARE = (1 << 24,), (1 << 20,), (1024, 1024)
_copy = partial(_on, "strided_copy", ARRAY)
_add = partial(_on, "vector_add", SMALL, SMALL)
_tiled = partial(_on, "tiled_matmul", SQUARE, SQUARE)
_sgemm = partial(_on, "sgemm", SQUARE, SQUARE)
_reduce = partial(_on, "reduce_sum", ARRAY)
_transpose = partial(_on, "transpose", (4096, 4096))

# name -> (how to prepare the call, what the documents say of its counters)
PREPARED: dict[str, tuple[Callable[[], Call], str]] = {
    "copy_stride_1": (_copy(stride=1), "T4: DRAM 82 %, L1 37 %, 325,426 cycles"),
    "copy_stride_2": (_copy(stride=2), "T4: DRAM 90 %, L1 30 %, 444,595 cycles"),
    "parity_branch": (partial(_parity, True), "98,304 branch instructions, none divergent"),
    "parity_arithmetic": (partial(_parity, False), "65,536 branch instructions, none divergent"),
    "add_plain": (_add(variant="plain"), "4090: DRAM 77 %, 24,774 cycles"),
    "add_privatised": (_add(variant="privatised"), "4090: DRAM 81 %, 28,775 cycles"),
    "add_coarsened2": (_add(variant="coarsened2"), ""),
    "add_vector2": (_add(variant="vector2"), ""),
    "tiled_naive": (_tiled(variant="naive", tile=8), ""),
    **{f"tiled_fixed_{n}": (_tiled(variant="fixed", tile=n), "loads fall by the tile's side") for n in (8, 16, 32)},
    "tiled_conflicting": (_tiled(variant="conflicting"), "bank conflicts"),
    "tiled_padded": (_tiled(variant="padded"), "no bank conflicts"),
    "sgemm_01": (_sgemm(step=1), "many sectors a request"),
    "sgemm_02": (_sgemm(step=2), "few"),
    "sgemm_07": (_sgemm(step=7), "bank conflicts"),
    "sgemm_07a": (_sgemm(step=8), "no bank conflicts"),
    "reduction_v0": (_reduce(version=0), "divergent"),
    "reduction_v1": (_reduce(version=1), "bank conflicts"),
    "reduction_v2": (_reduce(version=2), "no bank conflicts"),
    **{f"transpose_{name}": (_transpose(variant=name), "") for name in ("naive", "tiled", "padded", "swizzled")},
    **{
        f"attention_{step:02}_d{size}": (_on("attention", *[(16, 1024 // size, 1024, size)] * 3, step=step), "")
        for step, size in itertools.product((5, 6, 7), (128, 64))
    },
}


class Refused(RuntimeError):
    """There are no counters to be had here, and why."""


def read(text: str) -> dict[str, float]:
    """The metrics of the first kernel in ncu's CSV."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise Refused("ncu has measured no kernel: " + (lines[-1] if lines else "it printed nothing"))
    names = {metric: name for name, metric in METRICS.items()}
    found: dict[str, float] = {}
    for line in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        name = names.get(line["Metric Name"])
        if line["ID"] == "0" and name:
            found[name] = float(line["Metric Value"].replace(",", "")) * UNITS.get(line["Metric Unit"], 1.0)
    if found.get("load_requests"):
        found["sectors_a_request"] = found["load_sectors"] / found["load_requests"]
    return found


def count(name: str, ncu: str | None = None) -> dict[str, float]:
    """What ncu counts in one call of a prepared op.

    Raises:
        ValueError: there is no such op.
        Refused: no ncu, or the driver keeps counters from users.
    """
    if name not in PREPARED:
        raise ValueError(f"expected one of {', '.join(PREPARED)}, got {name}")
    ncu = ncu or shutil.which("ncu")
    if ncu is None:
        raise Refused("there is no ncu on PATH: it comes with the CUDA toolkit (Nsight Compute)")
    # Clocks as they are: ncu would set them to the base clock, which is not what the lab's times are measured at.
    command = [ncu, "--csv", "--clock-control", "none", "--profile-from-start", "off"]
    command += ["--metrics", ",".join(METRICS.values())]
    command += [sys.executable, "-m", "torch_ext.lab.counters", "--call", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        raise Refused("ncu has not ended within five minutes") from None
    if "ERR_NVGPUCTRPERM" in done.stdout + done.stderr:
        raise Refused(
            "the driver keeps counters from users; root sets `options nvidia NVreg_RestrictProfilingToAdminUsers=0` in "
            "/etc/modprobe.d and loads the driver again (https://developer.nvidia.com/ERR_NVGPUCTRPERM)"
        )
    return read(done.stdout)


def call_once(name: str) -> None:
    """What ncu runs: the call once to load its module, then once where the profiler looks."""
    call = PREPARED[name][0]()
    call()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    call()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def main(argv: list[str] | None = None, describe: measure.Describe | None = None) -> int:
    """`describe`: what the result file says of the sources beside."""
    parser = argparse.ArgumentParser(
        prog="python -m torch_ext.lab.counters", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PREPARED)} (default: all)")
    parser.add_argument("--out", type=Path, help="write lab_counters.json into this folder")
    parser.add_argument("--call", choices=list(PREPARED), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if unknown := [name for name in arguments.names if name not in PREPARED]:
        parser.error(f"no prepared op {', '.join(unknown)}; there are {', '.join(PREPARED)}")
    if not torch.cuda.is_available():
        print("Counters are the GPU's: there is no NVIDIA GPU here.")
        return 0
    if arguments.call:
        call_once(arguments.call)
        return 0
    rows, naive = [], None  # loads of the product without tiles
    for name in arguments.names or PREPARED:
        try:
            counted = count(name)
        except Refused as reason:
            print(f"No counters{f' of {name}' * bool(rows)}: {reason}.")
            if not rows:  # none of the first, so none of any
                return 0
            continue
        if name == "tiled_naive":
            naive = counted.get("load_requests")
        elif name.startswith("tiled_") and naive and counted.get("load_requests"):
            counted["times_fewer_loads"] = naive / counted["load_requests"]
        rows.append({"case": name, "counters": counted, "document": PREPARED[name][1]})
        shown = ", ".join(
            f"{key.replace('_', ' ')} {value:,.{0 if value >= 1000 else 1}f}" for key, value in counted.items()
        )
        print(f"{name}: {shown}" + (f"; document: {PREPARED[name][1]}" if PREPARED[name][1] else ""))
    if arguments.out:
        more = describe(SOURCES) if describe else {}
        measure.write_results(arguments.out, measure.describe("lab_counters", rows, [], more))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The demo's short benchmark: three operators against torch's. The careful figures come from `make bench`."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

import torch_ext

if TYPE_CHECKING:
    from rich.table import Table


@dataclass
class Case:
    """One measured line. `work` is in FLOP or bytes, as `unit` says."""

    op: str
    shape: str
    work: float
    unit: str
    ours: Callable[[], torch.Tensor]
    theirs: Callable[[], torch.Tensor]
    us: tuple[float, float] = (0, 0)  # xgemm, torch
    difference: float = 0


def cases(device: torch.device, quick: bool) -> list[Case]:
    """The same three operators everywhere, of sizes that suit the device."""
    big = device.type == "cuda"
    n = 4096 if big else 256 if quick else 1024
    rows, columns = (4096, 32768) if big else (256, 1024) if quick else (1024, 8192)
    heads, length, size = (16, 4096, 64) if big else (4, 128, 64) if quick else (8, 512, 64)

    def case(op: str, theirs: Callable, shape: str, work: float, unit: str, sizes: list[tuple], *more: int) -> Case:
        inputs = [torch.randn(size, device=device) for size in sizes]
        ours, theirs = (partial(call, *inputs, *more) for call in (getattr(torch_ext, op), theirs))
        return Case(op, shape, work, unit, ours, theirs)

    sdpa, of_heads = torch.nn.functional.scaled_dot_product_attention, f"{heads} heads, {length} x {size}"
    return [
        case("matmul", torch.matmul, f"{n} x {n} x {n}", 2 * n**3, "FLOP", [(n, n)] * 2),
        case("softmax", torch.softmax, f"{rows} x {columns}", 8 * rows * columns, "B", [(rows, columns)], -1),
        case("attention", sdpa, of_heads, 4 * heads * length**2 * size, "FLOP", [(1, heads, length, size)] * 3),
    ]


def measure(case: Case, device: torch.device, seconds: float, advance: Callable[[int], None], rounds: int = 5) -> None:
    """Medians over rounds in which the two take turns, caches warm, launches amortised."""
    ours, theirs = case.ours(), case.theirs()
    case.difference = ((ours - theirs).abs().max() / theirs.abs().max()).item()

    def block(call: Callable[[], torch.Tensor], repeats: int) -> float:
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return (time.perf_counter() - start) / repeats

    block(case.ours, 2), block(case.theirs, 2)
    repeats = [max(1, int(seconds / rounds / max(block(call, 3), 1e-6))) for call in (case.ours, case.theirs)]
    times = ([], [])
    for _ in range(rounds):
        for call, n, taken in zip((case.ours, case.theirs), repeats, times, strict=True):
            taken.append(block(call, n))
        advance(1)
    case.us = tuple(1e6 * statistics.median(t) for t in times)


def plot(results: list[Case], title: str, path: Path) -> None:
    """Throughput of torch and xgemm as bars, one panel an operator: their units differ."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(results), figsize=(3.2 * len(results), 3.4), layout="constrained")
    for axis, case in zip(axes, results, strict=True):
        rates = [case.work / us / 1e3 for us in reversed(case.us)]
        prefix, scale = ("T", 1e3) if max(rates) >= 1e3 else ("G", 1.0)
        bars = axis.bar(["torch", "xgemm"], [rate / scale for rate in rates], color=["0.7", "tab:green"], width=0.6)
        axis.bar_label(bars, fmt="%.1f")
        axis.set(title=f"{case.op}\n{case.shape}", ylabel=f"{prefix}{case.unit}/s")
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(y=0.12)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def table(results: list[Case], where: str) -> "Table":
    """The measured cases, a line each."""
    from rich.table import Table

    found = Table(title=f"float32 on {where}; medians, caches warm")
    for name in ("operator", "shape", "torch", "xgemm", "speed-up", "rate", "difference"):
        found.add_column(name, justify="left" if name in ("operator", "shape") else "right")
    for case in results:
        xgemm_us, torch_us = case.us
        giga = case.work / xgemm_us / 1e3
        rate = f"{giga / 1e3:,.1f} T" if giga >= 1e3 else f"{giga:,.1f} G"
        found.add_row(
            *(case.op, case.shape, f"{torch_us:,.0f} us", f"{xgemm_us:,.0f} us", f"{torch_us / xgemm_us:.2f}x"),
            *(f"{rate}{case.unit}/s", f"{case.difference:.0e}"),
        )
    return found

"""``python -m torch_ext.lab [--quick] [--out DIR]``: runs the lab, prints tables, writes JSON and plots."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

try:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
except ImportError:
    sys.exit("the lab prints its tables with rich: pip install rich")

try:
    from torch_ext.lab import experiments, ladders, measure, report
except ImportError as error:
    sys.exit(str(error))


def plan(quick: bool) -> dict[str, Iterator[measure.Row]]:
    """Result file -> the rows to come. Nothing runs before the iterator is asked."""
    budget = 0.02 if quick else 0.2
    return {
        "lab_sgemm": ladders.sgemm([256, 1024] if quick else [128, 256, 512, 1024, 2048, 4096], budget),
        "lab_tensor": ladders.tensor([1024] if quick else [1024, 2048, 4096, 8192], budget),
        "lab_fp32": ladders.fp32([1024] if quick else [1024, 4096], budget),
        "lab_reduction": ladders.reduction([1 << 24] if quick else [1 << 24, 1 << 28], budget),
        "lab_softmax": ladders.softmax(
            [(1024, 4096)] if quick else [(4096, 1024), (4096, 4096), (4096, 32768)], budget
        ),
        "lab_attention": ladders.attention([1024] if quick else [512, 1024, 2048, 4096, 8192, 16384], budget),
        "lab_experiments": experiments.run(quick, budget),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m torch_ext.lab", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes only, under 20 seconds")
    parser.add_argument("--out", type=Path, help="folder for JSON and plots (default: benchmarks/results/<gpu>)")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 150)

    experiments.show_calculators(console)
    if not torch.cuda.is_available():
        console.print("The rest of the lab measures CUDA kernels and needs an NVIDIA GPU; there is none here.")
        return 0

    folder = arguments.out or measure.results_folder()
    rows_of: dict[str, list[measure.Row]] = {}
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with torch.inference_mode(), Progress(*columns, console=console, transient=True) as progress:
        for op, rows in plan(arguments.quick).items():
            task = progress.add_task(op)
            clocks = [measure.sm_clock_mhz()]
            rows_of[op] = []
            for r in rows:
                rows_of[op].append(r)
                progress.update(task, description=f"{op}  {r['case']}  {r['contender']}")
            clocks.append(measure.sm_clock_mhz())
            progress.remove_task(task)
            if not arguments.quick or arguments.out:  # a quick run must not replace the full run's results
                measure.write_results(folder, op, rows_of[op], [c for c in clocks if c])
    report.show(console, rows_of)
    experiments.show(console, rows_of["lab_experiments"])
    if not arguments.quick or arguments.out:
        report.plot(folder, torch.cuda.get_device_name(), rows_of)
        console.print(f"Results and plots: {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

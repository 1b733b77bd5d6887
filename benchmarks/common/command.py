"""What a person sees and types: the printed tables and the command line of a benchmark."""

import argparse
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
from torch.utils.benchmark import Compare, Measurement

from benchmarks.common.benchmark import Benchmark
from benchmarks.common.cases import DTYPES, Options
from benchmarks.common.files import save_measurements
from benchmarks.common.machine import Machine, machine
from benchmarks.results import geomean, grouped
from benchmarks.tables import Results, accuracy, case_groups_table


def table(measurements: list[Measurement]) -> str:
    """A row a way of measuring a case, a column a contender."""
    compare = Compare(measurements)
    compare.highlight_warnings()
    return str(compare)


def summary(benchmark: Benchmark) -> str:
    """Per peer: the geometric mean and the worst of its time over ours; and of the floor over ours. Then the groups."""
    ratios: dict[str, list[tuple[float, str]]] = {}
    for group in grouped(benchmark.rows):
        if ours := group.get("xgemm"):
            how = f"{ours['case']} {ours['dtype']} {ours['l2']}" + (", graph" if ours["graph"] else "")
            unit = "ms" if "ms" in ours else "us"
            times = {name: row[unit] for name, row in group.items() if name != "xgemm"}
            if ours.get("floor_us"):
                times["floor"] = ours["floor_us"]
            for name, time in times.items():
                ratios.setdefault(name, []).append((time / ours[unit], how))
    lines = []
    for name, entries in ratios.items():
        mean, (worst, how) = geomean([value for value, _ in entries]), min(entries)
        values = (f"{mean:5.0%}", f"{worst:.0%}") if name == "floor" else (f"{mean:5.2f}x", f"{worst:.2f}x")
        lines.append(f"{benchmark.op:<12} {name:<16} {values[0]:>6} of {len(entries)}; worst {values[1]} {how}")
    results = Results(Path(), {benchmark.op: {"rows": benchmark.rows}})
    if grouped_cases := case_groups_table(benchmark.op, results):
        lines += ["", *grouped_cases.splitlines()]
    if errors := accuracy(benchmark.rows):
        lines += ["", *errors.splitlines()]
    return "\n".join(lines)


def some_of(*known: str) -> Callable[[str], tuple[str, ...]]:
    """A comma-separated list; of the known names, if there are any."""

    def convert(text: str) -> tuple[str, ...]:
        names = tuple(part for part in text.split(",") if part)
        if known and (unknown := set(names) - set(known)):
            raise argparse.ArgumentTypeError(f"expected some of {','.join(known)}, got {','.join(sorted(unknown))}")
        return names

    return convert


def pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"expected a regular expression, got {text!r}: {error}") from None
    return text


def device(text: str) -> torch.device:
    try:
        return torch.device(text)
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(str(error).splitlines()[0]) from None


def parser(description: str = "") -> argparse.ArgumentParser:
    """The options that every benchmark takes."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--quick", action="store_true", help="fewer and shorter blocks, a subset of the cases")
    over = "regular expression over 'case dtype mode', e.g. '^4096x.* fp32'"
    found.add_argument("--filter", default="", type=pattern, help=over)
    found.add_argument("--budget", type=float, default=math.inf, help="seconds; cases beyond it are left out and named")
    found.add_argument("--set", choices=["peers", "all"], default="peers", help="all: the extra shapes too")
    found.add_argument("--dtypes", default=(), type=some_of(*DTYPES), help="comma-separated: fp32,bf16,fp16,fp64")
    modes = some_of("highest", "ieee", "high", "medium")
    help_of_modes = "fp32 precisions of matmul and attention, of highest,ieee,high,medium (highest,high)"
    found.add_argument("--modes", default=(), type=modes, help=help_of_modes)
    help_of_groups = "comma-separated: cases of these groups only (matmul, attention)"
    found.add_argument("--groups", default=(), type=some_of(), help=help_of_groups)
    found.add_argument("--seed", type=int, default=0, help="of the random cases (attention)")
    found.add_argument("--compile", action="store_true", help="torch.compile of the peer as one more contender")
    found.add_argument(
        "--compile-filter", default="", type=pattern, help="and of which cases, as --filter: each takes seconds"
    )
    found.add_argument("--out", type=Path, help="folder of the result files (GPU: benchmarks/results/<gpu>, CPU: none)")
    found.add_argument("--measurements", type=Path, help="every figure as a pickled torch.utils.benchmark.Measurement")
    found.add_argument("--device", type=device, default=Options().device)
    return found


def options_of(arguments: argparse.Namespace) -> Options:
    return Options(**{name: getattr(arguments, name) for name in Options.__dataclass_fields__})


def options_or_estimate(module: ModuleType, argv: list[str] | None) -> Options | None:
    """Prints what the cases take by `module.estimate_s`; the options to measure with, None for `--estimate` alone."""
    command = parser((module.__doc__ or "").splitlines()[0])
    command.add_argument("--estimate", action="store_true", help="print how long the cases take on an H200, and stop")
    arguments = command.parse_args(argv)
    options = options_of(arguments)
    print(estimate(module, options))
    return None if arguments.estimate else options


def estimate(module: ModuleType, options: Options) -> str:
    """A line for each first group of the cases and one for all: how many, and their seconds on an H200."""
    seconds: dict[str, list[float]] = {}
    for case in filter(options.wants, module.cases(options)):
        seconds.setdefault(case.groups[0], []).append(module.estimate_s(case))
    lines = [f"{group:<14} {len(of):>4} cases, about {sum(of):4.0f} s" for group, of in seconds.items()]
    every = [value for of in seconds.values() for value in of]
    return "\n".join([*lines, f"{'all':<14} {len(every):>4} cases, about {sum(every):4.0f} s on an H200"])


def to_stderr(text: str) -> None:
    """The progress of a run."""
    print(f"… {text}", file=sys.stderr)


def run_op(
    module: ModuleType, options: Options, where: Machine, progress: Callable[[str], None] = to_stderr
) -> Benchmark:
    """Measures one benchmark module: its OP, SOURCES and cases(options)."""
    benchmark = Benchmark(module.OP, module.SOURCES, options, where)
    benchmark.run(module.cases(options), progress)
    return benchmark


def show(benchmark: Benchmark) -> None:
    print(f"\n== {benchmark.op} on {benchmark.where.name}: medians of interleaved blocks")
    print(table(benchmark.measurements))
    show_notes(benchmark)


def show_notes(benchmark: Benchmark) -> None:
    for line in [*(f"note: {note}" for note in benchmark.notes), *(f"FAILED: {text}" for text in benchmark.failures)]:
        print(line)


def finish(benchmark: Benchmark) -> int:
    """Keeps the measurements, where asked for; the exit code of `main`."""
    if not (benchmark.rows or benchmark.failures or benchmark.notes):
        print(f"{benchmark.op}: no case is of these dtypes, modes, groups and this filter", file=sys.stderr)
        return 1
    if benchmark.options.measurements:
        save_measurements(benchmark.options.measurements, benchmark.measurements)
    return 1 if benchmark.failures else 0


def main(module: ModuleType, argv: list[str] | None = None) -> int:
    """`python -m benchmarks.<op>`: exit code 1 where a result of ours was wrong or failed, or no case was chosen."""
    command = parser((module.__doc__ or "").splitlines()[0])
    return measure(module, options_of(command.parse_args(argv)))


def measure(module: ModuleType, options: Options) -> int:
    """Measures one benchmark module and prints what came out; the exit code of `main`."""
    benchmark = run_op(module, options, machine(options.device))
    if benchmark.rows or benchmark.failures or benchmark.notes:
        show(benchmark)
        print(summary(benchmark))
    return finish(benchmark)

"""``python -m torch_ext.lab``: runs the lab's experiments, prints tables and conclusions, writes JSON and plots."""

import argparse
import importlib
import importlib.util
import sys
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch

from torch_ext import lab
from torch_ext.lab import calculators, counters, exercise, measure


def size(text: str) -> int:
    """4096, 2^24 or 1e6; at least 1."""
    base, _, power = text.partition("^")
    found = int(base) ** int(power or 1) if "e" not in text else int(float(text))
    if found < 1:
        raise ValueError(text)
    return found


COMMANDS: dict[str, tuple[str, Callable[[list[str]], int]]] = {
    "check": ("an exercise: checks, times and places a kernel of yours", lambda given: exercise.main(given[1:])),
    "counters": ("the GPU's own counters of prepared calls, by ncu", lambda given: counters.main(given[1:])),
    **{name: (what, calculators.main) for name, (what, *_) in calculators.COMMANDS.items()},
}


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m torch_ext.lab",
        description=(__doc__ or "").splitlines()[0],
        epilog="other commands, each with --help:\n"
        + "".join(f"  {n:<14}{what}\n" for n, (what, _) in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--list", action="store_true", help="name the experiments and ladders, and what each shows")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=list(lab.EXPERIMENTS), help="run these")
    parser.add_argument("--sizes", nargs="+", type=size, metavar="N", help="sizes in place of the experiment's own")
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, seconds an experiment; nothing is written without --out"
    )
    parser.add_argument(
        "--counters", action="store_true", help="the GPU's own counters of prepared calls, by ncu: lab_counters.json"
    )
    parser.add_argument("--seconds", type=float, help="GPU time a row, about (default: 0.2, with --quick 0.02)")
    parser.add_argument("--out", type=Path, help="folder for JSON and plots (default: xgemm_lab/<gpu>)")
    arguments = parser.parse_args(argv)
    if arguments.sizes and len(arguments.only or ()) != 1:
        parser.error("--sizes needs --only with one experiment: sizes mean something else in each")
    return arguments


def list_experiments() -> None:
    for name, e in lab.EXPERIMENTS.items():
        pages = f"docs/lab/{', '.join(e.documents)}; " if e.documents else ""
        print(f"{name:<15} {e.title}: {e.shows}\n{'':<15} {pages}--sizes: {e.size} {list(e.sizes)}")


def main(
    argv: list[str] | None = None, folder: Callable[[], Path] | None = None, describe: measure.Describe | None = None
) -> int:
    """`folder`: where results go by default; `describe`: what a result file says of the sources beside."""
    given = sys.argv[1:] if argv is None else argv
    if given and given[0] in COMMANDS:
        return COMMANDS[given[0]][1](given)
    arguments = parse(given)
    if arguments.list:
        list_experiments()
        return 0
    tables = importlib.import_module("torch_ext.lab.tables") if importlib.util.find_spec("rich") else None
    if tables is None:
        print("Conclusions only; with rich (pip install rich) tables as well.")
    elif not arguments.only:
        tables.show_calculators()
    if not torch.cuda.is_available():
        print("The lab measures CUDA kernels and needs an NVIDIA GPU; there is none here.")
        return 0

    partial = arguments.quick or arguments.sizes  # must not replace the full run's results
    out = arguments.out
    if out is None and not partial:
        out = folder() if folder else Path("xgemm_lab") / measure.gpu_folder()
    if arguments.counters:
        return counters.main(["--out", str(out)] if out else [], describe)
    absent, failed = [], []
    for name in arguments.only or lab.EXPERIMENTS:
        try:
            if not run_one(lab.EXPERIMENTS[name], arguments, tables, out, describe):
                absent.append(name)
        except Exception as error:  # must not cost the other experiments' results
            failed.append(name)
            print(f"{lab.EXPERIMENTS[name].title} FAILED. {type(error).__name__}: {str(error).partition(chr(10))[0]}")
            if not isinstance(error, (RuntimeError, ValueError)):
                traceback.print_exc()
        print(flush=True)
    if out:
        print(f"Results and plots: {out}")
    if absent:
        print(f"The effect was not measured in: {', '.join(absent)}.")
    if failed:
        print(f"These failed: {', '.join(failed)}.")
    return 1 if failed else 0


def run_one(
    e: lab.Experiment,
    arguments: argparse.Namespace,
    tables: ModuleType | None,
    out: Path | None,
    describe: measure.Describe | None,
) -> bool:
    """Runs an experiment, writes its results and prints them. False if its effect was not measured."""
    more = describe(e.sources) if describe else {}
    rows = lab.run(e.name, arguments.sizes, quick=arguments.quick, seconds=arguments.seconds)
    clock = measure.sm_clock_mhz()
    if not rows:
        print(f"{e.title}: nothing of it runs here; its page says what it needs.")
        return True
    conclusion = lab.conclude(rows)
    path = None
    if out:  # first of all: what follows must not cost what was measured
        more |= lab.heading(rows)
        path = measure.write_results(out, measure.describe(e.op, rows, [clock] if clock else [], more))
    if tables:
        tables.show(e, rows)
    print(textwrap.fill(("" if conclusion.shown else "NOT SHOWN. ") + conclusion.text, 120))
    if path and e.plot and importlib.util.find_spec("matplotlib"):
        lab.plot(rows).savefig(path.with_suffix(".png"), metadata={"Software": None})
    return conclusion.shown


if __name__ == "__main__":
    sys.exit(main())

"""``python -m torch_ext.lab``: runs the lab's experiments, prints tables and conclusions, writes JSON and plots."""

import argparse
import importlib
import importlib.util
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torch_ext import lab
from torch_ext.lab import exercise, measure

Describe = Callable[[lab.Experiment], dict[str, Any]]


def size(text: str) -> int:
    """4096, 2^24 or 1e6."""
    if power := re.fullmatch(r"(\d+)\^(\d+)", text):
        return int(power[1]) ** int(power[2])
    return int(float(text)) if "e" in text else int(text)


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m torch_ext.lab", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="name the experiments and ladders, and what each shows")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=list(lab.EXPERIMENTS), help="run these")
    parser.add_argument("--sizes", nargs="+", type=size, metavar="N", help="sizes in place of the experiment's own")
    parser.add_argument("--quick", action="store_true", help="small sizes, seconds; nothing is written without --out")
    parser.add_argument("--seconds", type=float, help="GPU time a row, about (default: 0.2, with --quick 0.02)")
    parser.add_argument("--out", type=Path, help="folder for JSON and plots (default: xgemm_lab/<gpu>)")
    arguments = parser.parse_args(argv)
    if arguments.sizes and len(arguments.only or ()) != 1:
        parser.error("--sizes needs --only with one experiment: sizes mean something else in each")
    return arguments


def list_experiments() -> None:
    for name, e in lab.EXPERIMENTS.items():
        print(f"{name:<15} {e.title}: {e.shows}\n{'':<15} items {e.documents}; --sizes: {e.size} {list(e.sizes)}")
    print(
        "Items are rows of the catalogue of the documents in docs/lab.md; S1-04 is the fourth of the second document."
    )


def main(
    argv: list[str] | None = None, folder: Callable[[], Path] | None = None, describe: Describe | None = None
) -> int:
    """`folder`: where results go by default; `describe`: what a result file says of the sources beside."""
    given = sys.argv[1:] if argv is None else argv
    if given[:1] == ["check"]:  # an exercise
        return exercise.main(given[1:])
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
    write = arguments.out or not partial
    out = arguments.out or (folder() if folder else Path("xgemm_lab") / measure.gpu_folder())
    absent = []
    for name in arguments.only or lab.EXPERIMENTS:
        e = lab.EXPERIMENTS[name]
        more = describe(e) if describe else {}
        clocks = [measure.sm_clock_mhz()]
        rows = lab.run(name, arguments.sizes, quick=arguments.quick, seconds=arguments.seconds)
        clocks.append(measure.sm_clock_mhz())
        if not rows:
            print(f"{e.title}: nothing of it runs on this GPU.")
            continue
        conclusion = lab.conclude(rows)
        if tables:
            tables.show(e, rows)
        print(textwrap.fill(("" if conclusion.shown else "NOT SHOWN. ") + conclusion.text, 120))
        if not conclusion.shown:
            absent.append(name)
        if write:
            more |= lab.heading(rows)
            path = measure.write_results(out, measure.describe(e.op, rows, [c for c in clocks if c], more))
            if e.plot and importlib.util.find_spec("matplotlib"):
                lab.plot(rows).savefig(path.with_suffix(".png"), metadata={"Software": None})
        print(flush=True)
    if write:
        print(f"Results and plots: {out}")
    if absent:
        print(f"The effect was not measured in: {', '.join(absent)}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

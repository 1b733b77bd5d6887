"""Times the variants of one op side by side: each a value of the environment variable that overrides the op's plan.

    python -m benchmarks.tune matmul --plans simt_128x128,simt_64x64 --shapes 4096x4096x4096,16x4096x4096

The variable (XGEMM_<OP>_PLAN unless --env names another) is set around a variant's blocks, in one process, so the
library must read it on every call. The library's own choice always runs too, and torch beside it.

    python -m benchmarks.tune matmul --candidates candidates.json

times the kernels that `python -m tools.plan_costs list` names for each of its products, and keeps the rows in
matmul_plans.json, which `python -m tools.plan_costs fit` reads.
"""

import contextlib
import dataclasses
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

from benchmarks import common, matmul
from benchmarks.common.command import finish, to_stderr
from benchmarks.results import grouped

CHOICE = "chosen"  # the library's own plan
MATMUL_PLANS = "matmul_plans"  # the result file of --candidates


@contextlib.contextmanager
def plan(variable: str, name: str) -> Iterator[None]:
    """`name` in the environment variable; the library's own choice where it is CHOICE."""
    before = os.environ.pop(variable, None)
    if name != CHOICE:
        os.environ[variable] = name
    try:
        yield
    finally:
        os.environ.pop(variable, None)
        if before is not None:
            os.environ[variable] = before


def variants(case: common.Case, variable: str, plans: list[str]) -> common.Case:
    """The case with one contender a plan in the place of ours; torch's stay."""
    ours = next(contender for contender in case.contenders if contender.name == "xgemm")
    contenders = [dataclasses.replace(ours, name=name, context=partial(plan, variable, name)) for name in plans]
    peers = [contender for contender in case.contenders if contender is not ours]
    return dataclasses.replace(case, contenders=contenders + peers)


def matmul_cases(shapes: str, options: common.Options) -> list[common.Case]:
    """Cases of 'MxNxK', '32x1024x1024x1024' (a batch first) or '4096x4096x4096:nt', comma-separated."""
    found = []
    for text in shapes.split(","):
        sizes, _, layout = text.partition(":")
        try:
            *batch, m, n, k = map(int, sizes.split("x"))
        except ValueError:
            raise SystemExit(f"--shapes: expected MxNxK[:layout], got {text}") from None
        shape = matmul.Shape(m, n, k, batch=batch[0] if batch else 1, layout=layout or "nn")
        for name in options.dtypes or ("fp32",):
            modes = (options.modes or ("highest",)) if name == "fp32" else (None,)
            found += [matmul.case(shape, common.DTYPES[name], mode, options) for mode in modes]
    return found


def candidate_cases(file: Path, options: common.Options) -> list[common.Case]:
    """The products of a list of `tools.plan_costs`, each with a contender for each of its kernels and no other: the
    choice is one of them, and a fit asks for no peer."""
    found = []
    for product in json.loads(file.read_text()):
        shape = matmul.Shape(*(product[name] for name in ("m", "n", "k", "batch", "layout")))
        case = matmul.case(shape, getattr(torch, product["dtype"]), product["mode"], options)
        case = variants(case, "XGEMM_MATMUL_PLAN", list(product["plans"]))
        contenders = [
            dataclasses.replace(contender, fields={"plan": product["plans"][contender.name]})
            for contender in case.contenders
            if contender.name in product["plans"]
        ]
        found.append(dataclasses.replace(case, contenders=contenders, rotating=True, eager=False))
    return found


def measured(
    op: str, sources: list[str], cases: list[common.Case], options: common.Options, keep: bool | None = None
) -> common.Benchmark:
    """The cases, run."""
    benchmark = common.Benchmark(op, sources, options, common.machine(options.device), keep=keep)
    benchmark.run(cases, to_stderr)
    return benchmark


def main(argv: list[str] | None = None) -> int:
    parser = common.parser((__doc__ or "").splitlines()[0])
    parser.add_argument("op", help="a benchmark's name, e.g. matmul")
    parser.add_argument("--plans", default="", help="comma-separated values of the variable")
    parser.add_argument("--env", help="the variable (default: XGEMM_<OP>_PLAN)")
    parser.add_argument("--shapes", help="matmul: comma-separated MxNxK[:layout] instead of the benchmark's cases")
    parser.add_argument("--candidates", type=Path, help="matmul: a list of products and kernels, instead of both")
    arguments = parser.parse_args(argv)
    if bool(arguments.plans) == bool(arguments.candidates) or (arguments.candidates and arguments.op != "matmul"):
        parser.error("expected --plans, or with matmul --candidates")
    if arguments.candidates and not arguments.candidates.is_file():
        parser.error(f"--candidates: there is no {arguments.candidates}")
    if importlib.util.find_spec(f"benchmarks.{arguments.op}") is None:
        parser.error(f"there is no benchmark {arguments.op}")
    options = common.options_of(arguments)
    if arguments.candidates:
        benchmark = measured(MATMUL_PLANS, matmul.SOURCES, candidate_cases(arguments.candidates, options), options)
        print("\n".join([f"{len(benchmark.rows)} rows", *benchmark.notes, *benchmark.failures]))
        return 1 if benchmark.wrong or benchmark.failures else 0
    variable = arguments.env or f"XGEMM_{arguments.op.upper()}_PLAN"
    module = importlib.import_module(f"benchmarks.{arguments.op}")
    cases = matmul_cases(arguments.shapes, options) if arguments.shapes else module.cases(options)
    plans = [CHOICE, *arguments.plans.split(",")]
    cases = [variants(case, variable, plans) for case in cases]
    benchmark = measured(arguments.op, module.SOURCES, cases, options, keep=False)
    show(benchmark, plans)
    return finish(benchmark) or int(benchmark.wrong > 0)


def show(benchmark: common.Benchmark, plans: list[str]) -> None:
    """The table, then a line a measurement: its fastest plan, and how much faster than the library's own choice."""
    print(common.table(benchmark.measurements))
    for group in grouped(benchmark.rows):
        if found := [group[name] for name in plans if name in group]:
            best = min(found, key=lambda row: row["us"])
            label = f"{best['case']} {best['dtype']} {best['l2']}" + (", graph" if best["graph"] else "")
            gain = f", {group[CHOICE]['us'] / best['us']:.2f}x" if CHOICE in group else ""
            print(f"fastest plan of {label}: {best['contender']}{gain}")
    for note in benchmark.notes + benchmark.failures:
        print(f"note: {note}")


if __name__ == "__main__":
    sys.exit(main())

"""Costs of matmul's planners from measured times.

    python -m tools.plan_costs list --seeds 11 12 --listed --out candidates.json   what to time: needs no GPU
    python -m benchmarks.tune matmul --candidates candidates.json         times it: matmul_plans.json among the results
    python -m tools.plan_costs fit benchmarks/results/<gpu>/matmul_plans.json [--write]

`fit` says how well predictions describe the times, what the choices lose against the fastest kernel, and both for costs
that were fitted to the other half of the products; `--write` puts the costs fitted to all of them into csrc/matmul.
Then tests/test_matmul_choice.py shows which decisions moved.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from tools.plan_costs import costs
from tools.plan_costs.fit import Fit, Loss, Timed, halves, losses, percentile, read
from tools.plan_costs.planner import Planner, Product, family

KINDS = [("float32", "highest"), ("float32", "high"), ("bfloat16", None), ("float64", None)]  # float16 is bfloat16's
MOST_FLOPS_FP64 = 3e11  # as benchmarks/random_shapes.py


def candidates(planner: Planner, products: Sequence[Product], within: float) -> list[dict]:
    """Of each product the kernels that are predicted to take at most `within` times as long as the fastest."""
    names = planner.names()
    asked = [(product, name) for product in products for name in names]
    offers: dict[Product, list] = {product: [] for product in products}
    for (product, _), offer in zip(asked, planner.offers(asked), strict=True):
        if offer:
            offers[product].append(offer)
    found = []
    for product, choice in zip(products, planner.choices(products), strict=True):
        least = min(offer.us for offer in offers[product])
        kept = {o.name: o.plan for o in offers[product] if o.us <= within * least or o.name == choice}
        found.append(asdict(product) | {"plans": kept})
    return found


def draw(seeds: Sequence[int], count: int, listed: bool = False) -> list[Product]:
    """benchmarks/random_shapes.py's products of these seeds and, if listed, benchmarks/matmul.py's, in all dtypes."""
    from benchmarks import matmul, random_shapes  # need torch

    shapes = dict.fromkeys(shape for seed in seeds for shape in random_shapes.products(seed, count))
    if listed:
        shapes |= dict.fromkeys(shape for group in matmul.GROUPS.values() for shape in group if not shape.full_range)
    return [
        Product(s.m, s.n, s.k, s.batch, s.layout, dtype, mode)
        for s in shapes
        for dtype, mode in KINDS
        if dtype != "float64" or 2.0 * s.batch * s.m * s.n * s.k <= MOST_FLOPS_FP64
    ]


def summary(found: Sequence[Loss]) -> str:
    shares = [loss.share for loss in found]
    parts = [f"{100 * percentile(shares, part):.1f}" for part in (0.5, 0.95, 1.0)]
    return f"{len(found):5} {parts[0]:>8} {parts[1]:>8} {parts[2]:>8}"


def table(planner: Planner, timed: Sequence[Timed], values: Sequence[float], title: str) -> list[str]:
    """Losses by dtype and precision, then the largest."""
    lines = [f"{title}: choices' loss against the fastest kernel, %", f"{'':20} cases   median      95%    worst"]
    found = losses(planner, timed, values)
    for dtype, mode in KINDS:
        of_kind = [loss for loss in found if (loss.timed.product.dtype, loss.timed.product.mode) == (dtype, mode)]
        if of_kind:
            lines.append(f"{dtype} {mode or '':12}"[:20].ljust(20) + summary(of_kind))
    lines.append("all".ljust(20) + summary(found) + f"   ({len(timed) - len(found)} choices were not timed)")
    for loss in sorted(found, key=lambda loss: -loss.share)[:8]:
        p, us = loss.timed.product, loss.timed.us
        best = min(us, key=us.__getitem__)
        batch = f"{p.batch}x" if p.batch > 1 else ""
        shape = f"{batch}{p.m}x{p.n}x{p.k} {p.layout} {p.dtype} {p.mode or ''}".strip()
        lines.append(
            f"  {100 * loss.share:5.1f}  {shape}: {loss.choice} {us[loss.choice]:.1f} us, {best} {us[best]:.1f} us"
        )
    return lines


def errors(fit: Fit, values: Sequence[float]) -> list[str]:
    """Of each family the error of its predictions, in per cent."""
    error = fit.error(values)
    of_family: dict[str, list[float]] = {}
    for (_, name), value in zip(fit.asked, error, strict=True):
        of_family.setdefault(family(name), []).append(100 * value)
    lines = [f"{'predictions, %':20} times   median  |median|      95%"]
    for name, found in sorted(of_family.items()):
        middle, size, most = np.median(found), np.median(np.abs(found)), np.quantile(np.abs(found), 0.95)
        lines.append(f"{name:20} {len(found):5} {middle:8.1f} {size:9.1f} {most:8.1f}")
    return lines


def changes(planner: Planner, values: Sequence[float]) -> list[str]:
    lines = []
    for cost, value in zip(planner.costs, values, strict=True):
        if abs(math.log(value / cost.value)) > 0.01:
            lines.append(f"  {cost.name:40} {cost.value:10.4g} -> {value:10.4g}  ({value / cost.value:.2f})")
    return ["costs that change:", *(lines or ["  none"])]


def run_list(arguments: argparse.Namespace) -> int:
    products = draw(arguments.seeds, arguments.count, arguments.listed)
    if not products:
        print(f"--count: expected a number from 1 on, got {arguments.count}", file=sys.stderr)
        return 1
    found = candidates(Planner(), products, arguments.within)
    arguments.out.write_text("[\n" + ",\n".join(json.dumps(product) for product in found) + "\n]\n")
    print(f"{arguments.out}: {len(found)} products, {sum(len(p['plans']) for p in found)} plans")
    return 0


def run_fit(arguments: argparse.Namespace) -> int:
    for file in arguments.files:
        if not file.is_file():
            print(f"there is no {file}", file=sys.stderr)
            return 1
    try:
        timed = read(arguments.files)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    if len(timed) < 4:
        print(f"expected times of at least 4 products, got {len(timed)}", file=sys.stderr)
        return 1
    planner = Planner()
    whole = Fit(planner, timed, arguments.workers, arguments.hold)
    say = lambda lines: print("\n".join(lines), end="\n\n", flush=True)  # noqa: E731
    say(errors(whole, planner.initial))
    say(table(planner, timed, planner.initial, "costs as they are"))
    for train, held_out in (parts := halves(timed)), parts[::-1]:
        values = Fit(planner, train, arguments.workers, arguments.hold).fit(arguments.rounds)
        say(table(planner, held_out, values, f"costs fitted to the other {len(train)} products"))
    values = whole.fit(arguments.rounds)
    say(errors(whole, values))
    say(table(planner, timed, values, "costs fitted to all products"))
    say([*changes(planner, values), f"{whole.moved(values)} of {len(whole.asked)} plans would now be cut otherwise"])
    if arguments.write:
        for file, text in costs.write(planner.costs, list(values)).items():
            file.write_text(text)
            print(f"wrote {file.relative_to(costs.ROOT)}")
    return 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    listing = commands.add_parser("list", help="which kernels to time on random products")
    listing.add_argument("--seeds", type=int, nargs="+", required=True, help="of benchmarks/random_shapes.py")
    listing.add_argument("--count", type=int, default=60, help="products a seed")
    listing.add_argument("--listed", action="store_true", help="the products of benchmarks/matmul.py as well")
    listing.add_argument("--within", type=float, default=1.6, help="times the fastest prediction: what is timed")
    listing.add_argument("--out", type=Path, default=Path("candidates.json"))
    listing.set_defaults(run=run_list)
    fitting = commands.add_parser("fit", help="fit the costs to measured times")
    fitting.add_argument("files", type=Path, nargs="+")
    fitting.add_argument("--rounds", type=int, default=12, help="evaluations of the least-squares solver")
    fitting.add_argument("--hold", default="", help="a regular expression: names of costs that stay as they are")
    fitting.add_argument("--workers", type=int, default=2, help="processes at a time")
    fitting.add_argument("--write", action="store_true", help="write the costs into csrc/matmul")
    fitting.set_defaults(run=run_fit)
    arguments = parser.parse_args(argv)
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())

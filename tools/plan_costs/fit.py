"""Costs from measured times: least squares on logarithms, and what a choice by predicted times loses.

A sample is one kernel on one product: the plan that was timed, and its microseconds. Samples whose plan the planners no
longer make are left out of the fit. Predictions are fitted to samples in proportion, the more closely the nearer a
kernel comes to the product's fastest, each cost held near its value by a prior. Then the few costs that no prediction
depends on, the margins by which one family must beat another, are searched one by one for the least loss.
(D. Marquardt's method as scipy.optimize.least_squares has it, with the robust loss "cauchy": some shapes no model
describes.)
"""

import json
import math
import random
import re
import statistics
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from tools.plan_costs.planner import MEMORY, Planner, Product

ERROR = 0.05  # of a prediction, about: what a sample's residual is measured in
FREEDOM = 0.5  # how far, in logarithms, a cost may well be from its value
STEP = 0.02  # of a cost, for its derivative: what rounds to whole waves needs more than an infinitesimal one
# Fields of a plan's text that do not say how a product is divided: in older files their values or names differ.
_UNCUT = re.compile(r" (?:per_sm|partials|counters|workspace|rows|many|apart)=\S+")
MARGINS = [0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 2.0]


@dataclass
class Timed:
    """One product: of each kernel that was timed on it the plan and the microseconds."""

    product: Product
    us: dict[str, float] = field(default_factory=dict)
    plans: dict[str, str] = field(default_factory=dict)

    @property
    def best(self) -> float:
        return min(self.us.values())


@dataclass(frozen=True)
class Loss:
    """A product's choice against its fastest kernel: the share of time that is lost."""

    timed: Timed
    choice: str

    @property
    def share(self) -> float:
        return self.timed.us[self.choice] / self.timed.best - 1


def read(files: Iterable[Path]) -> list[Timed]:
    """The products of result files that `benchmarks.tune matmul --candidates` wrote, on one GPU or several."""
    found: dict[Product, Timed] = {}
    for file in files:
        document = json.loads(file.read_text())
        if document.get("op") != "matmul_plans":
            raise ValueError(f"{file}: expected a matmul_plans.json, which benchmarks.tune --candidates writes")
        if document["gpu"] not in MEMORY:
            raise ValueError(f"{file}: expected times of {' or '.join(MEMORY)}, got {document['gpu']}")
        for row in document["rows"]:
            product = Product(**row["shape"], dtype=row["dtype"], mode=row["mode"], memory=MEMORY[document["gpu"]])
            timed = found.setdefault(product, Timed(product))
            timed.us[row["contender"]], timed.plans[row["contender"]] = row["us"], row["plan"]
    return [timed for timed in found.values() if len(timed.us) > 1]


def halves(timed: Sequence[Timed], seed: int = 0) -> tuple[list[Timed], list[Timed]]:
    """Two random halves: a product in all its dtypes and precisions is in one of them."""
    shapes = sorted({(t.product.m, t.product.n, t.product.k, t.product.batch, t.product.layout) for t in timed})
    chosen = set(random.Random(seed).sample(shapes, len(shapes) // 2))
    first = [t for t in timed if (t.product.m, t.product.n, t.product.k, t.product.batch, t.product.layout) in chosen]
    return first, [t for t in timed if t not in first]


class Fit:
    """Fits a planner's costs to products, except those whose names `hold` matches."""

    def __init__(self, planner: Planner, timed: Sequence[Timed], workers: int = 2, hold: str = "") -> None:
        self.planner, self.timed, self.workers, self.hold = planner, list(timed), workers, hold
        self.asked = [(t.product, name) for t in self.timed for name in t.us]
        self.us = np.array([us for t in self.timed for us in t.us.values()])
        best = np.array([t.best for t in self.timed for _ in t.us])
        self.weight = np.where(self.as_timed(planner.initial), best / self.us / ERROR, 0)

    def predicted(self, values: Sequence[float]) -> np.ndarray:
        """Microseconds of every sample; NaN where the kernel is no longer offered."""
        offers = self.planner.offers(self.asked, values)
        return np.array([offer.us if offer else math.nan for offer in offers])

    def error(self, values: Sequence[float]) -> np.ndarray:
        """The logarithm of predicted over measured, of every sample."""
        return np.nan_to_num(np.log(self.predicted(values) / self.us))

    def as_timed(self, values: Sequence[float]) -> np.ndarray:
        """Of every sample: does its kernel take the splits and clusters that were timed?"""
        offers = self.planner.offers(self.asked, values)
        cut = lambda plan: _UNCUT.sub("", plan)  # noqa: E731
        plans = [plan for t in self.timed for plan in t.plans.values()]
        return np.array([o is not None and cut(o.plan) == cut(plan) for o, plan in zip(offers, plans, strict=True)])

    def moved(self, values: Sequence[float]) -> int:
        """Samples whose kernel would now take other splits or clusters than those timed."""
        return int(np.sum(~self.as_timed(values)))

    def derivatives(self, values: np.ndarray, which: Sequence[int]) -> np.ndarray:
        """Of the errors by the logarithm of each cost."""

        def column(index: int) -> np.ndarray:
            up, down = (values * np.where(np.arange(len(values)) == index, math.exp(s), 1.0) for s in (STEP, -STEP))
            return (self.error(up) - self.error(down)) / (2 * STEP)

        with ThreadPoolExecutor(self.workers) as pool:
            return np.stack(list(pool.map(column, which)), axis=1)

    def fit(self, rounds: int = 12) -> np.ndarray:
        """The fitted values of all costs."""
        start = np.array(self.planner.initial)
        every = [i for i, cost in enumerate(self.planner.costs) if not self.hold or not re.search(self.hold, cost.name)]
        which = [i for i, column in zip(every, self.derivatives(start, every).T, strict=True) if np.any(column)]
        if not which:
            return start

        def values(x: np.ndarray) -> np.ndarray:
            costs = start.copy()
            costs[which] *= np.exp(x)
            return costs

        def residuals(x: np.ndarray) -> np.ndarray:
            return np.concatenate([self.weight * self.error(values(x)), x / FREEDOM])

        def jacobian(x: np.ndarray) -> np.ndarray:
            data = self.weight[:, None] * self.derivatives(values(x), which)
            return np.concatenate([data, np.eye(len(which)) / FREEDOM])

        found = least_squares(residuals, np.zeros(len(which)), jacobian, loss="cauchy", max_nfev=rounds)
        return self.with_margins(values(found.x), [i for i in every if i not in which])

    def with_margins(self, values: np.ndarray, which: Sequence[int]) -> np.ndarray:
        """Of the costs that no prediction depends on, those that lose least: of equal ones the nearest to the old."""

        def lost(candidate: np.ndarray) -> float:
            return statistics.fmean(loss.share for loss in losses(self.planner, self.timed, candidate))

        values = values.copy()
        for index in which:
            before = values[index]
            if not MARGINS[0] <= before <= MARGINS[-1]:
                continue  # seconds or bytes: of a kernel without samples
            tried = sorted([before, *MARGINS], key=lambda margin: abs(math.log(margin / before)))
            shares = []
            for margin in tried:
                values[index] = margin
                shares.append(lost(values))
            values[index] = tried[int(np.argmin(np.round(shares, 6)))]
        return values


def losses(planner: Planner, timed: Sequence[Timed], values: Sequence[float]) -> list[Loss]:
    """What the choices lose, of the products whose choice was timed."""
    choices = planner.choices([t.product for t in timed], values)
    return [Loss(t, choice) for t, choice in zip(timed, choices, strict=True) if choice in t.us]


def percentile(shares: Sequence[float], part: float) -> float:
    return float(np.quantile(shares, part)) if shares else math.nan

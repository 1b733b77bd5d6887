"""The planners as a program whose costs are numbers that a caller gives, built from the sources as they stand.

The program is tests/matmul_plans.cpp. It is compiled against a copy of the planners in which every cost (costs.py) is
read from a file when the program starts, so that no source holds anything for the sake of this tool.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.plan_costs import costs

PROGRAM = costs.ROOT / "tests" / "matmul_plans.cpp"
DTYPES = {"float32": 0, "float16": 1, "bfloat16": 2, "float64": 3}
PRECISIONS = {None: 0, "highest": 0, "ieee": 1, "high": 2, "medium": 3}
SM_COUNT = 132  # of an H100 SXM and an H200
# Bytes per second by the memory's clock and bus (csrc/device/properties.h).
MEMORY = {"NVIDIA H200": 2 * 3201e6 * 6144 / 8, "NVIDIA H100 80GB HBM3": 2 * 2619e6 * 5120 / 8}
_HEADER = """
#pragma once
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>
namespace plan_costs {
inline const std::vector<double> values = [] {
  std::ifstream file(std::getenv("PLAN_COSTS"));
  return std::vector<double>(std::istream_iterator<double>(file), {});
}();
}
"""
# What may not be constexpr once a cost is a variable: the named constants, the tables, and functions that return them.
_VARIABLE = [
    (re.compile(r"\bconstexpr double (?=\w+ = plan_costs)"), "const double "),
    (re.compile(r"\binline constexpr (Tiles<\d+>) (?=k)"), r"inline const \1 "),
    (re.compile(r"^(inline )?constexpr (?=[\w:&<> ]+\()", re.MULTILINE), "inline "),
]


@dataclass(frozen=True)
class Product:
    """C[m, n] = A[m, k] B[k, n], `batch` of them, as benchmarks/matmul.py's Shape, of a dtype and precision."""

    m: int
    n: int
    k: int
    batch: int
    layout: str
    dtype: str
    mode: str | None
    memory: float = MEMORY["NVIDIA H200"]  # of the GPU

    def question(self, forced: str, family: str) -> str:
        """A line that the program reads."""
        a = (1, self.m) if self.layout[0] == "t" else (self.k, 1)
        b = (1, self.k) if self.layout[1] == "t" else (self.n, 1)
        flags = (0, 0, 0, 0, 9)  # batch-invariant, gated, prepared, residual; compute capability
        sizes = (self.m, self.n, self.k, self.batch)
        gpu = (SM_COUNT, self.memory)
        words = (DTYPES[self.dtype], PRECISIONS[self.mode], *flags, *sizes, *a, 0, *b, 0, *gpu, forced, family)
        return " ".join(map(str, words))


@dataclass(frozen=True)
class Offer:
    """A family's plan: the name that forces its kernel, the plan in the program's words, the predicted time."""

    name: str
    plan: str
    us: float


def family(name: str) -> str:
    """The family that a forced name asks, in the program's words."""
    prefix = name.partition("_")[0]
    return "cuda_cores" if prefix in ("simt", "gemv", "dot", "sweep") else prefix


def _name(plan: str) -> str:
    """The name that forces a plan: its kernel's, and what else the program prints of it."""
    kernel = plan.split()[0]
    if " apart=1" in plan:
        return kernel + "_apart"
    return "wgmma_few_rows" if " b_as_it_lies" in plan else kernel


class Planner:
    """The compiled program. `values`: one number for each of `self.costs`."""

    def __init__(self) -> None:
        self.costs = costs.find()
        self.initial = [cost.value for cost in self.costs]
        self._folder = tempfile.TemporaryDirectory(prefix="plan_costs")
        self._build(Path(self._folder.name))

    def _build(self, folder: Path) -> None:
        (folder / "plan_costs.h").write_text(_HEADER)
        for file in costs.sources():
            text = file.read_text()
            of_file = [(index, cost) for index, cost in enumerate(self.costs) if cost.file == file]
            for index, cost in sorted(of_file, key=lambda pair: -pair[1].start):
                text = text[: cost.start] + f"plan_costs::values[{index}]" + text[cost.end :]
            for pattern, replacement in _VARIABLE:
                text = pattern.sub(replacement, text)
            copy = folder / file.relative_to(costs.CSRC)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text('#include "plan_costs.h"\n' + text)
        compiler = os.environ.get("CXX") or shutil.which("c++") or "c++"
        flags = ["-std=c++20", "-O1", "-w", f"-I{folder}", f"-I{costs.CSRC}"]
        units = [*folder.glob("matmul/**/*.cpp"), PROGRAM]
        whole = folder / "whole.cpp"  # one file compiles in a third of the time
        whole.write_text("".join(f'#include "{unit}"\n' for unit in units))
        subprocess.run([compiler, *flags, whole, "-o", folder / "program"], check=True)

    def answers(self, questions: Sequence[str], values: Sequence[float] | None = None) -> list[str]:
        """The program's line for each question."""
        with tempfile.NamedTemporaryFile("w", dir=self._folder.name) as file:
            file.write(" ".join(map(repr, map(float, values if values is not None else self.initial))))
            file.flush()
            result = subprocess.run(
                [f"{self._folder.name}/program"],
                input="\n".join(questions) + "\n",
                env=os.environ | {"PLAN_COSTS": file.name},
                capture_output=True,
                text=True,
                check=True,
            )
        lines = result.stdout.splitlines()
        assert len(lines) == len(questions), f"{len(questions)} questions, {len(lines)} answers"
        return lines

    def offers(self, asked: Sequence[tuple[Product, str]], values: Sequence[float] | None = None) -> list[Offer | None]:
        """Of each product and forced name the plan; None where that kernel cannot do the product."""
        questions = [product.question(name, family(name)) for product, name in asked]
        found: list[Offer | None] = []
        for (_, name), line in zip(asked, self.answers(questions, values), strict=True):
            plan, _, seconds = line.rpartition(" seconds=")
            found.append(Offer(name, plan, 1e6 * float(seconds)) if plan and _name(plan) == name else None)
        return found

    def choices(self, products: Sequence[Product], values: Sequence[float] | None = None) -> list[str]:
        """The name of the kernel that each product takes."""
        return [_name(line) for line in self.answers([p.question("-", "choice") for p in products], values)]

    def names(self) -> list[str]:
        """Every name of one kernel."""
        product = Product(64, 64, 64, 1, "nn", "float32", "highest")
        (line,) = self.answers([product.question("simt", "names")])
        listed = line.partition(": ")[2].partition(" (")[0].split(", ")
        return [name for name in listed if "_" in name or name in ("gemv", "dot", "sweep", "outputs")]

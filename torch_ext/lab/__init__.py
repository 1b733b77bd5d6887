"""The lab: optimisation ladders and experiments as kernels that run, are checked and are measured.

    >>> from torch_ext import lab
    >>> lab.steps()  # the ladders and their steps
    >>> c = lab.sgemm(a, b, step="coalesced")  # a kernel of a ladder by its name
    >>> rows = lab.run("fma")  # an experiment: checks, then times
    >>> lab.plot(rows)  # needs matplotlib

``python -m torch_ext.lab --list`` names the experiments and ``--only NAME`` runs one. The kernels are
``torch.ops.xgemm_lab.*``: CUDA only, contiguous inputs, and nothing in :mod:`torch_ext` depends on them. See
docs/lab.md.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch

import torch_ext  # noqa: F401  (loads the library)
from torch_ext.lab import fake, measure  # noqa: F401  (fake registers with the dispatcher)
from torch_ext.lab.catalogue import EXPERIMENTS
from torch_ext.lab.experiment import Conclusion, Experiment
from torch_ext.lab.experiments import attributes
from torch_ext.lab.ladders import SGEMM_KERNELS
from torch_ext.lab.measure import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENTS", "Conclusion", "Experiment", "attributes", "conclude", "load", "plot", "run", "sgemm", "steps"]


def experiment(name: str) -> Experiment:
    """The experiment of this name; ValueError names them all where there is none."""
    if name not in EXPERIMENTS:
        raise ValueError(f"expected an experiment of {', '.join(EXPERIMENTS)}, got {name}")
    return EXPERIMENTS[name]


def steps() -> dict[str, tuple[str, ...]]:
    """The ladders and their steps, in order; those with a number or a version are the lab's, the others peers."""
    return {name: tuple(e.steps) for name, e in EXPERIMENTS.items() if e.steps}


def sgemm(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None = None,
    *,
    step: str | int,
    alpha: float = 1,
    beta: float = 0,
) -> torch.Tensor:
    """alpha * a @ b + beta * c by a step of the SGEMM ladder.

    Args:
        a, b, c: contiguous float32 matrices on a GPU, of any sizes. `c` is read only where `beta` is not 0.
        step: ``"02_coalesced"``, ``"coalesced"``, or its place among the lab's steps, from 1.

    Raises:
        ValueError: there is no such step.
        RuntimeError: an argument is not as the kernels need it.
    """
    places = {name: place for place, name in enumerate(SGEMM_KERNELS, 1)}
    found = [place for name, place in places.items() if step in (name, name.partition("_")[2], place)]
    if not found:
        raise ValueError(f"expected step to be one of {', '.join(places)}, got {step}")
    return torch.ops.xgemm_lab.sgemm(a, b, c, step=found[0], alpha=alpha, beta=beta)


def run(name: str, sizes: list[int] | None = None, *, quick: bool = False, seconds: float | None = None) -> list[Row]:
    """Runs an experiment on the current GPU: every result is checked, then timed.

    Args:
        name: as :data:`EXPERIMENTS` and ``--list`` have it.
        sizes: in place of the experiment's own; what a size is, its ``size`` says.
        quick: its small sizes, and a tenth of the time a row.
        seconds: GPU time a row, about; 0.2 by default, 0.02 where quick.

    Returns:
        Rows: ``case``, ``contender``, ``shape``, ``us`` and its quartiles, rates, the error, what the experiment adds.

    Raises:
        ValueError: there is no such experiment.
        RuntimeError: there is no GPU, or a kernel's result is wrong.
    """
    which = experiment(name)
    if not torch.cuda.is_available():
        raise RuntimeError(f"xgemm lab: {name} measures CUDA kernels and needs an NVIDIA GPU; there is none here")
    torch.cuda.empty_cache()  # what went before may have left too little, also for a process that this one starts
    with torch.inference_mode(), measure.full_precision():
        rows = which.measure(
            list(sizes or (which.quick if quick else which.sizes)), seconds or (0.02 if quick else 0.2)
        )
        return [row | {"experiment": name} for row in rows]


def _of(rows: list[Row]) -> Experiment:
    names = {row.get("experiment") for row in rows}
    if len(names) != 1 or None in names:
        raise ValueError("expected rows of one experiment, as run() gives them")
    return experiment(names.pop())


def conclude(rows: list[Row]) -> Conclusion:
    """What the rows of :func:`run` say, and whether the effect that the experiment is about was measured.

    Rows of sizes that the sentence does not speak of, or of a GPU whose peak rates nobody knows, give one that says so.
    """
    which = _of(rows)
    try:
        return which.conclude(rows)
    except (LookupError, StopIteration, TypeError, ValueError, ZeroDivisionError):
        return Conclusion(
            "These sizes, or this GPU's unknown rates, leave out what the conclusion is made from.", False
        )


def load(file: str | Path) -> list[Row]:
    """The rows of a result file (``lab_fma.json``), for :func:`plot` and :func:`conclude`."""
    document = json.loads(Path(file).read_text())
    name = experiment(document["op"].removeprefix("lab_")).name
    return [row | {"experiment": name} for row in document["rows"]]


def heading(rows: list[Row]) -> dict[str, object]:
    """What a result file says of an experiment beside its rows: title, documents, conclusion."""
    which, conclusion = _of(rows), conclude(rows)
    return {
        "title": which.title,
        "documents": which.documents,
        "conclusion": {"text": conclusion.text, "shown": conclusion.shown},
    }


def plot(rows: list[Row], gpu: str | None = None) -> "Figure":
    """The experiment's plot of the rows of :func:`run`, a matplotlib figure (``figure.savefig("fma.png")``).

    Args:
        rows: as they are.
        gpu: named in the title; the current one by default.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: the experiment has no plot.
    """
    which = _of(rows)
    if which.plot is None:
        raise ValueError(f"{which.name} has no plot; its table says it all")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), dpi=120, layout="constrained")
    which.plot(rows, figure)
    gpu = gpu or (torch.cuda.get_device_name() if torch.cuda.is_available() else None)
    figure.suptitle(f"{which.title}, {gpu}" if gpu else which.title, fontsize=11)
    return figure

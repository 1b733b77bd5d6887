"""What the lab's experiments have in common: how one is named, run, concluded and drawn."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch_ext.lab.measure import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Measure = Callable[[list[int], float], Iterator[Row]]


@dataclass(frozen=True)
class Conclusion:
    """What the rows say, in words made from them."""

    text: str
    shown: bool
    """Whether the effect that the experiment is about was measured."""


@dataclass(frozen=True)
class Experiment:
    """One experiment, or one ladder."""

    measure: Measure
    """(sizes, seconds a row) -> rows; each result is checked before it is timed."""
    title: str
    shows: str
    """What one should see, in a sentence."""
    documents: tuple[str, ...]
    """Documents that it is from, by the names of their pages in docs/lab."""
    sources: tuple[str, ...]
    """Folders whose kernels its figures depend on."""
    size: str
    """What a size is."""
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    steps: Iterable[str] = ()
    """The contenders of a ladder, in order."""
    conclude: Callable[[list[Row]], Conclusion] = field(kw_only=True)
    plot: Callable[[list[Row], "Figure"], None] | None = field(kw_only=True)

    @property
    def name(self) -> str:
        """As ``--only`` takes it; its rows go to ``lab_<name>.json``."""
        return self.measure.__name__

    @property
    def op(self) -> str:
        """The name of its result file."""
        return f"lab_{self.name}"


def find(rows: list[Row], contender: str | None = None, **match: object) -> Row | None:
    """The first row of a contender whose fields, or whose shape's, have these values."""
    for row in rows:
        if contender in (None, row["contender"]) and all(
            row.get(key, row["shape"].get(key)) == value for key, value in match.items()
        ):
            return row
    return None


def need(rows: list[Row], contender: str | None = None, **match: object) -> Row:
    """The same; raises KeyError where there is none: these sizes were not measured."""
    if (row := find(rows, contender, **match)) is None:
        raise KeyError(f"{contender or 'row'} with {match}")
    return row

"""The counts of what :func:`torch_ext.replace` swapped and of where calls went."""

import itertools
import sys
import warnings
import weakref
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import torch

from torch_ext.replace.operators import OPERATORS

_MODULES = torch.nn.modules.module.__file__
# Torch's lines and ours, and code that torch generates.
_NOT_THE_CALLER = (*(f"{Path(file).parent}/" for file in (torch.__file__, Path(__file__).parent)), "<string>", "<eval_")
_numbers = itertools.count()
_reports: "weakref.WeakValueDictionary[str, Report]" = weakref.WeakValueDictionary()


class Report:
    """What :func:`torch_ext.replace` swapped, and where calls went since then. Prints as a table.

    Attributes:
        modules: number of modules swapped, by kind.
        spared: number of modules, by kind, whose forward only reduces (norms). Torch keeps them, since catching a call
            costs more host time than it saves; `include` catches them.
        operators: the operators that may run on xgemm.
        forced: whether they do so also on a GPU that would leave them to torch.
        catches: whether a forward may call a function that xgemm serves.
        calls: number of calls by (operator, where), where is "xgemm" or "torch: <reason>". Calls inside a compiled
            graph are not counted: counting would be an effect that breaks the graph.
        traced: the same of what torch.compile and torch.export have put into graphs.
    """

    def __init__(self, model: torch.nn.Module, operators: Iterable[str], forced: bool) -> None:
        self.modules: Counter[str] = Counter()
        self.spared: Counter[str] = Counter()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.traced: Counter[tuple[str, str]] = Counter()
        self.operators = frozenset(operators)
        self.forced = forced
        self.catches = False
        self._name = type(model).__name__
        self._warned = False
        self._register()

    def _register(self) -> None:
        """A name leads to the report: Dynamo evaluates a function while it traces if its arguments are constants."""
        self._key = f"report {next(_numbers)}"  # Dynamo may make a variable of an int
        _reports[self._key] = self

    def count(self, operator: str, reason: str | None) -> None:
        """Books one call: `reason` is why torch did it, None if xgemm did."""
        if torch.compiler.is_compiling():
            _trace(self._key, operator, reason)
            return
        self._book(self.calls, operator, reason)

    def _book(self, counts: Counter[tuple[str, str]], operator: str, reason: str | None) -> None:
        counts[operator, "xgemm" if reason is None else f"torch: {reason}"] += 1
        if reason == "requires grad" and not self._warned:
            self._warned = True
            warnings.warn(
                f"xgemm.replace: {self._name} is called in grad mode and {operator} has an input that requires grad, "
                "so torch serves it; call the model under torch.inference_mode() or torch.no_grad() to run on xgemm",
                stacklevel=_callers_level(),
            )

    def refuse_script(self) -> None:
        """The model's ``__prepare_scriptable__``.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            f"xgemm.replace: torch.jit.script does not take a swapped model, got {self._name}; call undo() of its "
            "report first, or use torch.compile or torch.export"
        )

    def __str__(self) -> str:
        modules = ", ".join(f"{n} {kind}" for kind, n in sorted(self.modules.items())) or "none"
        if not (self.modules or self.catches):
            modules += "; there is nothing to swap: no layer or function in it is one that xgemm serves"
        warning = " (swapped modules are subclasses of torch's: call quantize_dynamic and its like before replace)"
        lines = [f"{self._name} on xgemm{warning if self.modules else ''}", f"  modules swapped: {modules}"]
        if left := sorted(set(OPERATORS) - self.operators):
            lines.append(f"  left to torch: {', '.join(left)}")
        if self.spared:
            spared = ", ".join(f"{n} {kind}" for kind, n in sorted(self.spared.items()))
            lines.append(f"  reductions left to torch to spare host time (include=[...] swaps them too): {spared}")
        lines += table("calls so far", self.calls)
        if self.traced:
            lines += table("in graphs of torch.compile and torch.export, whose calls are not counted", self.traced)
        return "\n".join(lines)

    __repr__ = __str__


def table(title: str, counts: Counter[tuple[str, str]]) -> list[str]:
    """Lines of a report: number of calls by operator and server."""
    width = max((len(operator) for operator, _ in counts), default=0)
    rows = [f"    {operator:<{width}} {n:>8}  {where}" for (operator, where), n in sorted(counts.items())]
    return [f"  {title}:{'' if rows else ' none'}", *rows]


def _trace(key: str, operator: str, reason: str | None) -> None:
    """What a tracer meets: it goes into no graph, and runs once for each."""
    report = _reports[key]
    report._book(report.traced, operator, reason)


# What torch.compiler.assume_constant_result does, less its import of Dynamo (1 s).
_trace._dynamo_marked_constant = True


def _callers_level() -> int:
    """The stacklevel, for the function that asks, of the line that calls the outermost module (or torch itself)."""
    files, frame = [], sys._getframe(1)
    while frame is not None:
        files.append(frame.f_code.co_filename)
        frame = frame.f_back
    inside = max((level for level, file in enumerate(files) if file == _MODULES), default=0)
    outside = (i for i in range(inside, len(files)) if not files[i].startswith(_NOT_THE_CALLER))
    return next(outside, len(files) - 1) + 1

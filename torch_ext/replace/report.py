"""The counts of what :func:`torch_ext.replace` swapped and of where calls went."""

import warnings
from collections import Counter
from collections.abc import Iterable

import torch

from torch_ext.replace.operators import OPERATORS


class Report:
    """What :func:`torch_ext.replace` swapped, and where calls went since then. Prints as a table.

    Attributes:
        modules: number of modules swapped, by kind.
        spared: number of modules, by kind, whose forward only reduces (norms). Torch keeps them, since catching a call
            costs more host time than it saves; `include` catches them.
        operators: the operators that may run on xgemm.
        forced: whether they do so also on a GPU that would leave them to torch.
        calls: number of calls by (operator, where), where is "xgemm" or "torch: <reason>". Calls inside a compiled
            graph are not counted: counting would be an effect that breaks the graph.
    """

    def __init__(self, model: torch.nn.Module, operators: Iterable[str], forced: bool) -> None:
        self.modules: Counter[str] = Counter()
        self.spared: Counter[str] = Counter()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.operators = frozenset(operators)
        self.forced = forced
        self._name = type(model).__name__
        self._warned = False

    def count(self, operator: str, reason: str | None) -> None:
        """Books one call: `reason` is why torch did it, None if xgemm did."""
        if torch.compiler.is_compiling():
            return
        if reason is None:
            self.calls[operator, "xgemm"] += 1
            return
        self.calls[operator, f"torch: {reason}"] += 1
        if reason == "requires grad" and not self._warned:
            self._warned = True
            warnings.warn(
                f"xgemm.replace: {self._name} is called in grad mode and {operator} has an input that requires grad, "
                "so torch serves it; call the model under torch.inference_mode() or torch.no_grad() to run on xgemm",
                stacklevel=2,
            )

    def __str__(self) -> str:
        modules = ", ".join(f"{n} {kind}" for kind, n in sorted(self.modules.items())) or "none"
        warning = " (swapped modules are subclasses of torch's: call quantize_dynamic and its like before replace)"
        lines = [f"{self._name} on xgemm{warning if self.modules else ''}", f"  modules swapped: {modules}"]
        if left := sorted(set(OPERATORS) - self.operators):
            lines.append(f"  left to torch: {', '.join(left)}")
        if self.spared:
            spared = ", ".join(f"{n} {kind}" for kind, n in sorted(self.spared.items()))
            lines.append(f"  reductions left to torch to spare host time (include changes that): {spared}")
        lines.append("  calls so far:" if self.calls else "  calls so far: none")
        width = max((len(operator) for operator, _ in self.calls), default=0)
        for (operator, where), n in sorted(self.calls.items()):
            lines.append(f"    {operator:<{width}} {n:>8}  {where}")
        return "\n".join(lines)

    __repr__ = __str__

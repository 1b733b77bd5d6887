"""What :func:`torch_ext.replace` did to a model."""

import warnings
import weakref
from collections import Counter
from collections.abc import Iterable

import torch

from torch_ext.replace import forward, modules, transformers
from torch_ext.replace.speed import OPERATORS


class Replacement:
    """What :func:`torch_ext.replace` swapped, and where calls went since then. Prints as a table.

    A copied model counts into the report of the first one. A model that is pickled takes its report with it, with the
    counts of that moment; :meth:`of` finds the report of a model that was loaded.

    Attributes:
        modules: number of modules swapped, by kind.
        spared: number of modules, by kind, whose forward only reduces (norms). Torch keeps them, since catching a call
            costs more host time than it saves; `include` catches them.
        operators: the operators that may run on xgemm.
        forced: whether they do so where torch's are measured to be faster.
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
        self._model = weakref.ref(model)

    @staticmethod
    def of(model: torch.nn.Module) -> "Replacement":
        """The report of a model that runs on xgemm, such as one that was loaded.

        Raises:
            ValueError: the model does not run on xgemm.
        """
        for module in model.modules():
            if (report := module.__dict__.get("_xgemm_report")) is not None:
                if report._model is None:
                    report._model = weakref.ref(model)
                return report
        raise ValueError(f"xgemm.replace: expected a model that runs on xgemm, got {type(model).__name__} as it was")

    def undo(self, model: torch.nn.Module | None = None) -> None:
        """Gives a model its own modules and functions back. A second call does nothing.

        Args:
            model: a copy of the model; by default the one that this report was made for.

        Raises:
            RuntimeError: no model is given, and this report was loaded without one; a swapped module has got another
                class or forward since then, by a parametrization, fully_shard or accelerate. Nothing is undone then.
        """
        if model is None and self._model is None:
            raise RuntimeError("xgemm.replace: this report was loaded without its model; call undo(model)")
        model = self._model() if model is None else model
        if model is not None:
            for name, module in model.named_modules():
                if (got := modules.changed(module)) is not None:
                    raise RuntimeError(
                        f"xgemm.replace: expected {name or 'the model'} to be of the class that replace() gave it, got "
                        f"{got}; first remove what changed it (a parametrization, fully_shard, a hook of accelerate)"
                    )
            for module in model.modules():
                forward.put_back(module)
                modules.put_back(module)

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

    def __deepcopy__(self, memo: dict) -> "Replacement":
        return self

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_model": None}

    def __setstate__(self, state: dict) -> None:
        self.__dict__ = state
        transformers.route()  # as replace() did before the model was pickled

    def __str__(self) -> str:
        modules = ", ".join(f"{n} {kind}" for kind, n in sorted(self.modules.items())) or "none"
        lines = [f"{self._name} on xgemm", f"  modules swapped: {modules}"]
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

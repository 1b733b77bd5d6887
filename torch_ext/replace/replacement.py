"""What :func:`torch_ext.replace` returns."""

import weakref
from collections.abc import Iterable

import torch

from torch_ext.replace import forward, modules, transformers
from torch_ext.replace.report import Report


class Replacement(Report):
    """The report of a model, and the way back; see :class:`torch_ext.replace.report.Report` for what it counts.

    A copied model counts into the report of the first one. A model that is pickled takes its report with it, with the
    counts of that moment; :meth:`of` finds the report of a model that was loaded.
    """

    def __init__(self, model: torch.nn.Module, operators: Iterable[str], forced: bool) -> None:
        super().__init__(model, operators, forced)
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

    def __deepcopy__(self, memo: dict) -> "Replacement":
        return self

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_model": None}

    def __setstate__(self, state: dict) -> None:
        self.__dict__ = state
        self._register()
        transformers.route()  # as replace() did before the model was pickled

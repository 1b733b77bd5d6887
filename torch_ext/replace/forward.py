"""Catches the functions that a module's forward calls.

A mode that sees every torch function costs about two microseconds a function. So it is entered only by those forwards
that may call one that xgemm serves, and left where they call a module that calls none.
"""

import functools
import inspect
from collections.abc import Iterator
from types import MethodType

import torch
from torch.overrides import _get_current_function_mode

from torch_ext.replace import encoder, transformers
from torch_ext.replace.functions import Catching, not_catching
from torch_ext.replace.modules import is_swapped
from torch_ext.replace.operators import REDUCTIONS
from torch_ext.replace.report import Report
from torch_ext.replace.scan import may_call


class Forward:
    """A module's forward under the mode (`catches`), or without the mode of whoever calls it.

    Its bound method :attr:`forward` stands in the module's ``__dict__``: there torch.export and inspect.signature look
    for a method, and copies and pickles of the module get one of their own.
    """

    def __init__(self, module: torch.nn.Module, report: Report, catches: bool) -> None:
        self.module = module
        self.mode = Catching(report)
        self.catches = catches
        self.own = module.__dict__.get("forward")  # an instance's own forward, as some libraries' hooks leave it

    @property
    def forward(self) -> MethodType:
        @functools.wraps(type(self.module).forward)
        def forward(self: Forward, *args, **kwargs):
            if torch.compiler.is_compiling():
                if self.catches:
                    with self.mode:
                        return self._call(args, kwargs)
                return self._call(args, kwargs)
            if not self.catches:
                with not_catching():
                    return self._call(args, kwargs)
            mode = _get_current_function_mode()
            if type(mode) is Catching:
                if mode.report is self.mode.report:
                    return self._call(args, kwargs)
                with not_catching(), self.mode:  # another model's: this one has a choice of operators of its own
                    return self._call(args, kwargs)
            with self.mode:
                return self._call(args, kwargs)

        forward.__name__ = "forward"  # pickle takes the method by this name
        if self.own is not None:
            signature = inspect.signature(self.own)
            first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
            forward.__signature__ = signature.replace(parameters=[first, *signature.parameters.values()])
        return MethodType(forward, self)

    def replicate(self) -> torch.nn.Module:
        """The module's `_replicate_for_data_parallel`: torch.nn.DataParallel's copies have a forward of their own."""
        replica = type(self.module)._replicate_for_data_parallel(self.module)
        if self.own is None:
            del replica.forward
        else:
            replica.forward = self.own
        _set(replica, self.mode.report, self.catches)
        return replica

    def _call(self, args: tuple, kwargs: dict) -> object:
        if self.own is not None:
            return self.own(*args, **kwargs)
        function = type(self.module).forward
        if function is torch.nn.TransformerEncoder.forward:
            function = encoder.forward
        return function(self.module, *args, **kwargs)


def catch(model: torch.nn.Module, report: Report) -> None:
    """Puts each forward of the model under the mode that may call a function that xgemm serves."""
    transformers.route()
    scripted = torch.jit.ScriptModule  # calls no function of Python's
    modules = [module for module in model.modules() if not (is_swapped(module) or isinstance(module, scripted))]
    for module in modules:
        if transformers.is_routed(module):
            module._xgemm_report = report
    model._xgemm_report, model.__prepare_scriptable__ = report, report.refuse_script
    caught = {}
    for module in modules:
        routed = (transformers.is_known,) if transformers.is_routed(module) else ()
        # In a leaf, such as a norm, the mode costs more host time than a faster reduction saves.
        spared = REDUCTIONS if not (report.forced or module is model or module._modules) else frozenset()
        caught[module] = may_call(module, report.operators - spared, *routed)
        if spared and not caught[module] and may_call(module, report.operators, *routed):
            report.spared[type(module).__name__] += 1
    report.catches = any(caught.values()) or any(map(transformers.is_routed, modules))
    for module, catches in caught.items():
        if catches:
            _wrap(module, report, True)
    for module, catches in caught.items():
        for child in _callees(module) if catches else ():
            # A small module of torch's own is not worth it: one function is seen.
            if caught.get(child) is False and (child._modules or not type(child).__module__.startswith("torch.")):
                _wrap(child, report, False)


def _callees(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Children, in place of a container those in it."""
    for child in module.children():
        if isinstance(child, torch.nn.ModuleList | torch.nn.ModuleDict):
            yield from _callees(child)
        else:
            yield child


def _wrap(module: torch.nn.Module, report: Report, catches: bool) -> None:
    if _of(module) is None:
        _set(module, report, catches)


def _set(module: torch.nn.Module, report: Report, catches: bool) -> None:
    forward = Forward(module, report, catches)
    module.forward, module._replicate_for_data_parallel = forward.forward, forward.replicate


def _of(module: torch.nn.Module) -> Forward | None:
    owner = getattr(module.__dict__.get("forward"), "__self__", None)
    return owner if isinstance(owner, Forward) else None


def put_back(module: torch.nn.Module) -> None:
    """Undoes :func:`catch`."""
    if (forward := _of(module)) is not None:
        del module._replicate_for_data_parallel
        if forward.own is None:
            del module.forward
        else:
            module.forward = forward.own
    module.__dict__.pop("__prepare_scriptable__", None)
    if not is_swapped(module):
        module.__dict__.pop("_xgemm_report", None)

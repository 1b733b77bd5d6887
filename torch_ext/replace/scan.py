"""Whether a module's forward may call a function that xgemm serves, read from its bytecode without running it.

It may if its code, or that of a Python function or method that it reaches by name, multiplies by ``@``, names such a
function, or takes a function from a table. A name counts whoever owns it (``x.sum`` of any x), so the answer errs
towards yes. What no name leads to is not found: ``getattr(torch, name)``, methods of objects that are passed
as arguments, hooks.
"""

import dis
import functools
import sys
from collections.abc import Callable, Container, Hashable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType

import torch

from torch_ext.replace.functions import CAUGHT

# Not looked into, but for torch's modules: under the mode each function of torch is one, caught or not.
_OPAQUE = {"torch", *sys.stdlib_module_names}
_LOOKED_INTO = "torch.nn.modules"

# A value that the code loads and the attributes that it takes of it: where it comes from ("self", "global", "other"),
# its name, the attributes.
Chain = tuple[str, str, tuple[str, ...]]


def may_call(
    module: torch.nn.Module, operators: Container[str], known: Callable[[object], bool] = lambda value: False
) -> bool:
    """Whether `module.forward` itself, without the modules that it calls, may call a function that xgemm serves.

    Args:
        module: the module.
        operators: those that may run on xgemm.
        known: true for values that are all right although code takes functions of them.
    """
    caught = {function for function, (operator, handler) in CAUGHT.items() if handler is None or operator in operators}
    # A module of torch's that asks this has a fused path, past the swapped modules, for where no mode is on.
    caught.add(torch.overrides.has_torch_function)
    if "cross_entropy" in operators:
        caught.add(torch.nn.CrossEntropyLoss)  # a forward that names it makes one and calls it
    return _Scan(module, caught, known).found(module.forward)


class _Scan:
    def __init__(self, module: torch.nn.Module, caught: set[Callable], known: Callable[[object], bool]) -> None:
        self.module = module
        self.caught = caught
        self.names = {function.__name__ for function in caught}
        self.known = known
        self.seen: set[CodeType] = set()

    def found(self, value: object) -> bool:
        """Whether calling `value`, or something in it, may call such a function."""
        if isinstance(value, Hashable) and value in self.caught:
            return True
        if isinstance(value, torch.nn.Module | type | ModuleType) or self.known(value):
            return False
        if isinstance(value, functools.partial) and self.found(getattr(value, "__wrapped__", None)):
            return True  # accelerate's hooks: what they wrap is an attribute of an argument
        if isinstance(value, MethodType):
            return self._in_function(value.__func__, value.__self__ is self.module)
        if isinstance(value, FunctionType):
            return self._in_function(value, False)
        if isinstance(value, functools.partial):
            return self.found(value.func) or any(map(self.found, (*value.args, *value.keywords.values())))
        if isinstance(value, Mapping):
            return any(map(callable, value.values()))
        if isinstance(value, list | tuple | set | frozenset):
            return any(map(callable, value))
        if isinstance(value, torch.Tensor) or not callable(value):
            return False
        call = type(value).__call__
        return isinstance(call, FunctionType) and self._in_function(call, False)

    def _in_function(self, function: FunctionType, bound: bool) -> bool:
        origin = function.__module__ or ""
        if origin.split(".")[0] in _OPAQUE and not origin.startswith(_LOOKED_INTO):
            return function.__name__ in self.names
        if function.__code__ in self.seen:
            return False
        self.seen.add(function.__code__)
        chains = _chains(function.__code__, bound)
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # still empty
                continue
            # What a decorator wraps takes self as the wrapper does.
            if self._in_function(value, bound) if isinstance(value, FunctionType) else self.found(value):
                return True
        return any(self._in_chain(chain, function.__globals__) for chain in chains)

    def _in_chain(self, chain: Chain, names: Mapping) -> bool:
        source, name, attributes = chain
        if source == "self":
            values = [self.module]
        elif source == "global" and name in names:
            values = [names[name]]
            if not attributes and self.found(values[0]):
                return True
        elif source == "super":
            found = (base.__dict__.get(a) for base in type(self.module).__mro__[1:] for a in attributes)
            return any(self._in_function(f, True) for f in found if isinstance(f, FunctionType))
        else:
            values = []
        for attribute in attributes:
            values = [found for value in values for found in _attribute(value, attribute)]
            if not values and attribute in self.names:
                return True
            if any(map(self.found, values)):
                return True
        return False


def _attribute(value: object, name: str) -> Iterator[object]:
    """The attribute, if it can be had without running code."""
    if isinstance(value, torch.nn.Module):
        for found in (value.__dict__, value._modules):
            if name in found:
                yield found[name]
                return
        if name in value._parameters or name in value._buffers:
            yield None
            return
    if isinstance(value, ModuleType | type):
        if name in value.__dict__ or hasattr(value, name):
            yield getattr(value, name)
    elif name in getattr(value, "__dict__", ()):
        yield value.__dict__[name]
    else:
        method = getattr(type(value), name, None)
        method = method.fget if isinstance(method, property) else method
        if isinstance(method, FunctionType):
            yield MethodType(method, value)


@functools.lru_cache(maxsize=4096)
def _chains(code: CodeType, bound: bool, self_name: str | None = None) -> list[Chain]:
    """What the code loads; ``@`` counts as an attribute."""
    if self_name is None and bound and code.co_argcount:
        self_name = code.co_varnames[0]
    chains: list[Chain] = []
    ended, super_called = True, False
    for instruction in dis.get_instructions(code):
        operation, name = instruction.opname, instruction.argval
        if "MATRIX_MULTIPLY" in operation or (operation == "BINARY_OP" and "@" in instruction.argrepr):
            chains.append(("other", "", ("__matmul__",)))
            ended = True
        elif operation.startswith(("LOAD_GLOBAL", "LOAD_NAME")):
            chains.append(("global", name, ()))
            ended, super_called = False, super_called or name == "super"
        elif "LOAD_FAST" in operation or operation == "LOAD_DEREF":
            last = name[-1] if isinstance(name, tuple) else name  # 3.13 loads two at once
            chains.append(("self" if last == self_name else "other", last, ()))
            ended = False
        elif operation == "LOAD_SUPER_ATTR":
            chains.append(("super", "", (name,)))
            ended = True
        elif operation in ("LOAD_ATTR", "LOAD_METHOD"):
            if ended:
                chains.append(("super" if super_called else "other", "", ()))
                ended = super_called = False
            source, first, attributes = chains[-1]
            chains[-1] = source, first, (*attributes, name)
        elif operation == "LOAD_CONST" and isinstance(name, str):  # getattr(x, "sum")
            chains.append(("other", "", (name,)))
            ended = True
        elif operation not in ("PUSH_NULL", "CACHE", "NOP", "EXTENDED_ARG"):
            ended = True
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            chains += _chains(constant, bound, self_name)
    return chains

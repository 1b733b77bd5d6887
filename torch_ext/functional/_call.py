"""What every function does: the call, torch's own kinds of errors, the precision of the moment."""

import re

import torch

from torch_ext.autograd import DIFFERENTIABLE, check_forward_only

_BelowAutograd = torch._C._AutoDispatchBelowAutograd
compiling = torch.compiler.is_compiling
exporting = torch.compiler.is_exporting

# AOTInductor's packages keep export's number of a dtype, which torch 2.10 and 2.11 read as C++'s: an operator of ours
# gets float64 for float32 there, and complex32 for float64.
_PACKAGES_MISREAD_DTYPES = torch.__version__ < (2, 12)

_WRONG_TYPE = re.compile(r"Expected a value of type '(.+?)' for argument '(\w+)' but instead found type '(.+?)'\.")
_VALUE = re.compile(r"^Value: (.{1,60})$", re.MULTILINE)
_NO_DTYPE = re.compile(r"Not yet supported ScalarType (\w+)")  # of C++: quantised and other special ones
_UNDEFINED = re.compile(r"expected (\w+) to be a tensor, got an undefined one")
_WRONG_INDEX = re.compile(r": expected (dim in \[|the reduced dims to be non-empty|targets in \[)")
_WRONG_VALUE = re.compile(
    r": expected ((precision|activation|causal_alignment|reduction) |input and target of one batch size)"
)


def default_precision() -> str:
    """torch's setting of the moment, whichever of its two ways set it."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # torch refuses to sum up settings that were made per backend
        return "high" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "highest"


# What torch.compiler.assume_constant_result does, less its import of Dynamo (1 s). Dynamo's own guards recompile when
# the setting goes from "highest" to another one or back; between "high" and "medium" they see no difference.
default_precision._dynamo_marked_constant = True


def python_error(op: torch._ops.OpOverload, error: RuntimeError) -> Exception:
    """What torch's own function raises here, in one line: C++ knows RuntimeError only, the dispatcher writes pages."""
    message, name = str(error), op._schema.name
    if _WRONG_INDEX.search(message):
        return IndexError(message)
    if _WRONG_VALUE.search(message):
        return ValueError(message)
    if wrong := _WRONG_TYPE.search(message):
        expected = "torch.dtype or None" if wrong[2] == "dtype" else wrong[1]  # the dispatcher's word for it is int
        # Of a tuple the type says nothing: what it holds does not fit. Nor of an int beyond 64 bits.
        value = _VALUE.search(message)
        silent = wrong[3] == wrong[1] or (wrong[3] in ("tuple", "list") and "List[" in wrong[1])
        got = value[1] if silent and value else wrong[3]
        return TypeError(f"{name}: expected {wrong[2]} of type {expected}, got {got}")
    if ": CUDA out of memory." in message:
        return torch.OutOfMemoryError(message)
    if wrong := _NO_DTYPE.search(message):
        return RuntimeError(f"{name}: expected dtype to be a real floating, integer or bool dtype, got {wrong[1]}")
    if wrong := _UNDEFINED.search(message):
        return TypeError(f"{name}: expected {wrong[1]} of type Tensor, got None")
    if isinstance(error, NotImplementedError):
        if "no tensor arguments" in message:
            return TypeError(f"{name}: expected input of type Tensor, got None")
        if message.startswith("Could not run") or message == str(op):
            return RuntimeError(f"{name}: expected dense tensors on cpu or cuda, got nested ones or another backend's")
    return error


def _keyword_defaults(op: torch._ops.OpOverload) -> dict[str, object]:
    """What the schema fills in for keyword arguments that are not passed."""
    values = {each.name: each.default_value for each in op._schema.arguments if each.kwarg_only}
    return {name: tuple(value) if type(value) is list else value for name, value in values.items()}


# The dispatcher takes 0.5 to 1 us to read a keyword argument, so those that say what the schema says are not passed.
_OPS = [getattr(torch.ops.xgemm, name).default for name in DIFFERENTIABLE]
_DEFAULTS = {op._op: _keyword_defaults(op) for op in _OPS}
_NUMBERS = frozenset(each.name for op in _OPS for each in op._schema.arguments if "float" in str(each.type))


def check_number(op: torch._ops.OpOverload, value: object) -> None:
    """Raises RuntimeError for a tensor that requires grad in a number's place: an operator gets its value alone."""
    if isinstance(value, torch.Tensor):
        check_forward_only(op, (value,))


def call(op: torch._ops.OpOverload, *args, **kwargs):
    """Calls an op; with keyword arguments a differentiable one."""
    try:
        if not kwargs or compiling():
            return op(*args, **kwargs)
        direct = op._op  # what OpOverload.__call__ calls
        defaults, given = _DEFAULTS[direct], {}
        for name, value in kwargs.items():
            default = defaults[name]
            if value is not default and (type(value) is not type(default) or value != default):
                given[name] = value
                if name in _NUMBERS:
                    check_number(op, value)
        return direct(*args, **given)
    except RuntimeError as error:
        raise python_error(op, error) from None


def call_below_autograd(op: torch._ops.OpOverload, *args, **kwargs):
    """Calls an op that writes to its inputs below its Autograd kernel, after the same check: that saves 2 us."""
    if compiling():
        return call(op, *args, **kwargs)
    check_forward_only(op, (*args, *kwargs.values()))
    with _BelowAutograd():
        return call(op, *args, **kwargs)


def call_with_dtype(op: torch._ops.OpOverload, input: torch.Tensor, *args, dtype: torch.dtype, **kwargs):
    """Calls a differentiable op that converts its input to `dtype` first.

    Raises:
        TypeError: a `dtype` that is none; the dispatcher takes any int for one.
    """
    if isinstance(dtype, int):
        raise TypeError(f"{op._schema.name}: expected dtype of type torch.dtype or None, got {type(dtype).__name__}")
    if not (_PACKAGES_MISREAD_DTYPES and exporting()):
        return call(op, input, *args, dtype=dtype, **kwargs)
    results = call(op, input.to(dtype), *args, **kwargs)
    return results if isinstance(results, tuple) else results.to(dtype)  # a sum of integers is int64

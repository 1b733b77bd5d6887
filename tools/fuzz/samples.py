"""torch's own sample inputs and error inputs of the ops that ours stand for (OpInfo)."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import torch_ext
from tools.fuzz.check import Finding, Wrong, several
from tools.fuzz.draw import HALVES, Draw


def product(first: Tensor, second: Tensor) -> Tensor:
    return torch_ext.matmul(first, second)


OURS: dict[str, Callable[..., Any]] = {
    "matmul": product,
    "mm": product,
    "bmm": product,
    "mv": product,
    "addmm": torch_ext.addmm,
    "nn.functional.linear": torch_ext.linear,
    "nn.functional.cross_entropy": torch_ext.cross_entropy,
    "nn.functional.scaled_dot_product_attention": torch_ext.attention,
    **{
        name: getattr(torch_ext, name)
        for name in ("softmax", "log_softmax", "sum", "mean", "amax", "amin", "argmax", "argmin", "logsumexp")
    },
}
# Arguments that ours do not have, unless they say nothing.
FOREIGN = {"out": None, "dropout_p": 0.0, "weight": None, "where": None}
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


class Unavailable(Exception):
    """torch's test package, or what it needs, is not installed."""


@functools.cache
def samples(name: str, seed: int, device: str) -> list[tuple[Any, Any, bool]]:
    """(OpInfo, sample, whether it is an error)."""
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError as error:
        raise Unavailable(f"torch's sample inputs need {error.name}") from None
    torch.manual_seed(seed)
    found: list[tuple[Any, Any, bool]] = []
    for info in op_db:
        if info.name != name or info.variant_test_name == "decomposed":
            continue
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            if dtype in info.supported_dtypes(torch.device(device).type):
                found += [(info, s, False) for s in info.sample_inputs(device, dtype, requires_grad=False)]
        if info.error_inputs_func is not None:
            found += [(info, s, True) for s in info.error_inputs(device)]
    return found


class Sample:
    """One of torch's samples: the same result from our function, or an error as clear as torch's."""

    def __init__(self, draw: Draw, name: str, seed: int, number: int) -> None:
        every = samples(name, seed, str(draw.device))
        if number >= len(every):
            raise StopIteration
        self.info, self.sample, self.error = every[number]
        self.name = name

    def __str__(self) -> str:
        return f"opinfo.{self.name} {self.sample!r}"[:600]

    def run(self) -> Iterator[Finding]:
        sample = self.sample.sample_input if self.error else self.sample
        kwargs = {k: v for k, v in sample.kwargs.items() if FOREIGN.get(k, "") != v}
        tensors = [x for x in (sample.input, *sample.args, *kwargs.values()) if isinstance(x, Tensor)]
        complex_ = any(x.is_complex() for x in tensors) or getattr(kwargs.get("dtype"), "is_complex", False)
        if set(kwargs) & set(FOREIGN) or complex_ or sample.input is None:
            return
        ours = OURS[self.name]
        if self.name.endswith("attention"):
            names = ("key", "value", "attn_mask", "dropout_p", "is_causal")
            kwargs |= dict(zip(names, sample.args, strict=False))
            if kwargs.pop("dropout_p", 0.0):
                return
            args: tuple[Any, ...] = ()
        else:
            args = sample.args
        if self.name == "nn.functional.cross_entropy" and args[0].is_floating_point():
            return  # class probabilities
        try:
            found = several(ours(sample.input, *args, **kwargs))
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            if "\n" in str(error) or not str(error):
                raise Wrong(f"not one line: {str(error)!r}") from None
            if not self.error and all(x.is_floating_point() for x in tensors):
                raise Wrong(f"raised {type(error).__name__}: {error}") from None
            return
        if self.error:
            raise Wrong(f"accepted, though torch raises {self.sample.error_type.__name__}")
        exact = sample
        if self.name.endswith("attention"):  # torch's own fp32 result is off by more than the tolerance
            exact = sample.transform(lambda x: x.double() if isinstance(x, Tensor) and x.is_floating_point() else x)
        wanted = several(self.info.op(exact.input, *exact.args, **exact.kwargs))
        if exact is not sample:
            wanted = [y.to(sample.input.dtype) for y in wanted]
        for x, y in zip(found, wanted, strict=True):
            if (x.shape, x.dtype) != (y.shape, y.dtype):
                raise Wrong(f"{x.dtype}{list(x.shape)}, torch {y.dtype}{list(y.shape)}")
            limit = TOLERANCE.get(x.dtype, 0)
            if sample.input.dtype in HALVES:
                limit = TOLERANCE[torch.bfloat16]
            same = torch.isclose(x.double(), y.double(), rtol=limit, atol=limit, equal_nan=True).all()
            yield Finding(same, lambda x=x, y=y: f"{x.flatten()[:8].tolist()}, torch {y.flatten()[:8].tolist()}")


def streams() -> Iterator[str]:
    return (f"opinfo.{name}" for name in OURS)

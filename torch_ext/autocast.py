"""Autocast as torch's own ops have it, per op and device (https://docs.pytorch.org/docs/stable/amp.html).

- matmul, addmm, linear, gated_linear, attention, attention_varlen cast floating inputs to the autocast dtype, on "cuda"
  and on "cpu". attention_with_cache casts to its caches' dtype: a copy of a cache would lose what is appended.
- On "cuda" softmax, log_softmax, topk_softmax and sum of a half-precision input give float32 unless `dtype` says
  otherwise, and logsumexp, cross_entropy and scaled_masked_softmax cast their inputs to float32. Of these torch's CPU
  autocast does that to cross_entropy and leaves the others alone, and so does this.

float64 is never cast. These are kernels of the Autocast keys rather than ``torch.library.register_autocast``, which
knows one fixed dtype per op and cannot follow ``torch.get_autocast_dtype()``.
"""

from collections.abc import Callable
from functools import partial

import torch

from torch_ext import _registered

_library = _registered.library(__name__)


def _cast(value: object, dtype: torch.dtype, device: str) -> object:
    if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype is not torch.float64:
        return value.to(dtype) if value.device.type == device else value
    return value


def _to(dtype: torch.dtype, args: tuple, kwargs: dict, device: str) -> tuple[list, dict]:
    return [_cast(a, dtype, device) for a in args], {k: _cast(v, dtype, device) for k, v in kwargs.items()}


def _to_autocast_dtype(args: tuple, kwargs: dict, device: str) -> tuple[list, dict]:
    return _to(torch.get_autocast_dtype(device), args, kwargs, device)


def _to_cache_dtype(args: tuple, kwargs: dict, device: str) -> tuple[list, dict]:
    query, *caches = args
    (query,), kwargs = _to(caches[0].dtype, (query,), kwargs, device)
    return [query, *caches], kwargs


def _result_in_float32(args: tuple, kwargs: dict, device: str) -> tuple[tuple, dict]:
    if kwargs.get("dtype") is None and args[0].is_floating_point() and args[0].dtype is not torch.float64:
        kwargs = {**kwargs, "dtype": torch.float32}
    return args, kwargs


def _register(name: str, device: str, prepare: Callable[[tuple, dict, str], tuple]) -> None:
    op = getattr(torch.ops.xgemm, name).default
    key = f"Autocast{device.upper()}"
    below = torch._C._dispatch_keyset_full_after(getattr(torch._C.DispatchKey, key))

    def autocast(keys, *args, **kwargs):
        args, kwargs = prepare(args, kwargs, device)
        return op.redispatch(keys & below, *args, **kwargs)

    _library.impl(name, autocast, key, with_keyset=True)


_CAST = ("attention", "attention_lse", "attention_varlen", "attention_varlen_lse")
for _name in ("matmul", "addmm", "linear", "linear_prepared", "gated_linear", *_CAST):
    _register(_name, "cuda", _to_autocast_dtype)
    _register(_name, "cpu", _to_autocast_dtype)
for _name in ("attention_with_cache", "attention_with_cache_lse"):
    _register(_name, "cuda", _to_cache_dtype)
    _register(_name, "cpu", _to_cache_dtype)
for _name in ("softmax", "log_softmax", "topk_softmax", "sum"):
    _register(_name, "cuda", _result_in_float32)
for _name in ("logsumexp", "cross_entropy", "scaled_masked_softmax"):
    _register(_name, "cuda", partial(_to, torch.float32))
_register("cross_entropy", "cpu", partial(_to, torch.float32))

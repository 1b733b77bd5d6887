"""Batching rules: ``torch.vmap`` of an operator is one call of it with one more dim, where its semantics allow that.

Without them vmap would call the operator once an element, and warn. A rule has the operator's signature; a tensor comes
as an :class:`_Operand`, its batch dim in front. The arguments have been checked by the operator's fake before, with
the shapes that the caller sees. torch.library.register_vmap takes no operator with keyword-only tensors, so the rules
are kernels of the key that it uses.

Where a weight, a bias or a factor of addmm has a batch dim, the fused epilogue has no batched form: the product is
rounded to its dtype before the rest is applied, as in torch's own rules.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch._C._functorch import _add_batch_dim, _unwrap_batched
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter
from torch.utils._pytree import tree_map

from torch_ext import _registered
from torch_ext.autograd import DIFFERENTIABLE, check_forward_only
from torch_ext.functional._products import ACTIVATIONS

_ops = torch.ops.xgemm
_library = _registered.library(__name__)
_batched_key = torch._C.DispatchKeySet(torch._C.DispatchKey.FuncTorchBatched)
_SEQUENCES = ("attention_varlen", "attention_varlen_lse", "attention_with_cache", "attention_with_cache_lse")
_ONE_OF = "none, relu, gelu, gelu_tanh or silu"


class _Operand(NamedTuple):
    """A tensor argument: dim 0 of `x` is the batch's if `batched`; `rank` counts the others."""

    x: Tensor
    batched: bool

    @property
    def rank(self) -> int:
        return self.x.dim() - self.batched

    def front(self, rank: int) -> Tensor:
        """Broadcasts with others of `rank`: ones behind the batch dim. Without a batch dim it does so as it is."""
        return self.x[(slice(None), *[None] * (rank - self.rank))] if self.batched else self.x

    def expanded(self, size: int) -> Tensor:
        """With a batch dim, of stride 0 if it had none."""
        return self.x if self.batched else self.x.expand(size, *self.x.shape)

    def like(self) -> Tensor:
        """One element of the batch, without data."""
        return torch.empty(self.x.shape[int(self.batched) :], dtype=self.x.dtype, device="meta")


def _any_batched(*operands: _Operand | None) -> bool:
    return any(o is not None and o.batched for o in operands)


def _size(*operands: _Operand | None) -> int:
    return next(o.x.shape[0] for o in operands if o is not None and o.batched)


def _plain(value: object) -> object:
    return value.x if isinstance(value, _Operand) else value


# ---- products --------------------------------------------------------------------------------------------------------


def _matmul(a: _Operand, b: _Operand, **options) -> Tensor:
    row, column = a.rank == 1, b.rank == 1
    a = _Operand(a.x.unsqueeze(-2), a.batched) if row else a
    b = _Operand(b.x.unsqueeze(-1), b.batched) if column else b
    rank = max(a.rank, b.rank)
    y = _ops.matmul(a.front(rank), b.front(rank), **options)
    y = y.squeeze(-1) if column else y
    return y.squeeze(-1 if column else -2) if row else y


def _addmm(input: _Operand, mat1: _Operand, mat2: _Operand, *, beta: float = 1, alpha: float = 1, **options) -> Tensor:
    y = _matmul(mat1, mat2, **options)
    y = y if alpha == 1 else alpha * y
    if beta == 0:
        return y.expand(_size(input, mat1, mat2), *y.shape[-2:])
    return torch.add(y, input.front(2).to(y.dtype), alpha=beta)


def _linear(
    input: _Operand,
    weight: _Operand,
    bias: _Operand | None = None,
    *,
    op: str = "linear",
    prepared: _Operand | None = None,
    activation: str = "none",
    residual: _Operand | None = None,
    **options,
) -> Tensor:
    rank = input.rank + weight.rank - 2  # of the result
    if activation not in ACTIVATIONS:
        raise RuntimeError(f'xgemm::{op}: expected activation to be {_ONE_OF}, got "{activation}"')
    if input.batched and not _any_batched(weight, prepared, bias):
        added = None if residual is None else residual.front(rank)
        fused, copy = (_ops.linear, ()) if prepared is None else (_ops.linear_prepared, (prepared.x,))
        return fused(input.x, weight.x, *copy, _plain(bias), activation=activation, residual=added, **options)
    y = _matmul(input, _Operand(weight.x.mT if weight.rank > 1 else weight.x, weight.batched), **options)
    y = y if bias is None else y + bias.front(rank).to(y.dtype)
    y = ACTIVATIONS[activation](y)
    return y if residual is None else y + residual.front(rank).to(y.dtype)


def _linear_prepared(input: _Operand, weight: _Operand, prepared: _Operand, *args, **kwargs) -> Tensor:
    if prepared.batched and not _any_batched(input, weight):
        input = _Operand(input.expanded(_size(prepared)), True)
    return _linear(input, weight, *args, op="linear_prepared", prepared=prepared, **kwargs)


def _prepare(weight: _Operand, **options) -> Tensor:
    return torch.stack([_ops.prepare(w, **options) for w in weight.x])


def _gated_linear(
    input: _Operand,
    weight_gate: _Operand,
    weight_up: _Operand,
    bias_gate: _Operand | None = None,
    bias_up: _Operand | None = None,
    *,
    activation: str = "silu",
    **options,
) -> Tensor:
    others = (weight_gate, weight_up, bias_gate, bias_up)
    if not _any_batched(*others):
        return _ops.gated_linear(input.x, *map(_plain, others), activation=activation, **options)
    gate = _linear(input, weight_gate, bias_gate, op="gated_linear", activation=activation, **options)
    return gate * _linear(input, weight_up, bias_up, **options)


# ---- reductions and softmax ------------------------------------------------------------------------------------------


def _reduction(op: torch._ops.OpOverload) -> Callable[..., Tensor]:
    def rule(input: _Operand, dim: Sequence[int] | None = None, keepdim: bool = False, **options) -> Tensor:
        if input.rank == 0:
            return op(input.x.unsqueeze(1), [1], **options)
        return op(input.x, [1 + d % input.rank for d in dim or range(input.rank)], keepdim, **options)

    return rule


def _index_reduction(op: torch._ops.OpOverload) -> Callable[..., Tensor]:
    def rule(input: _Operand, dim: int | None = None, keepdim: bool = False) -> Tensor:
        if dim is not None and input.rank > 0:
            return op(input.x, 1 + dim % input.rank, keepdim)
        index = op(input.x.flatten(1) if input.rank else input.x.unsqueeze(1), 1)
        return index.view(-1, *[1] * input.rank) if keepdim else index

    return rule


def _along(op: torch._ops.OpOverload, input: Tensor, dim: int, **options) -> Tensor | tuple[Tensor, ...]:
    """An op that keeps `dim`, on a tensor whose first dim is the batch's; `dim` of a 0-d element is a dim of size 1."""
    rank = input.dim() - 1
    results = op(input if rank else input.unsqueeze(1), dim=1 + dim % max(rank, 1), **options)
    return results if rank else tree_map(lambda y: y.squeeze(1), results)


def _softmax(op: torch._ops.OpOverload) -> Callable[..., Tensor]:
    return lambda input, dim, **options: _along(op, input.x, dim, **options)


def _topk_softmax(input: _Operand, k: int, dim: int = -1, **options) -> tuple[Tensor, ...]:
    return _along(_ops.topk_softmax.default, input.x, dim, k=k, **options)


def _scaled_masked_softmax(input: _Operand, mask: _Operand | None = None, scale: float = 1.0, dim: int = -1) -> Tensor:
    x = input.expanded(_size(input, mask))
    mask = None if mask is None else mask.front(input.rank) if input.rank else mask.x.unsqueeze(-1)
    return _along(_ops.scaled_masked_softmax.default, x, dim, mask=mask, scale=scale)


def _cross_entropy(
    input: _Operand, target: _Operand, *, ignore_index: int = -100, reduction: str = "mean", **options
) -> Tensor:
    if reduction not in ("none", "mean", "sum"):  # under autocast the fake has not checked it
        raise RuntimeError(f'xgemm::cross_entropy: expected reduction to be none, mean or sum, got "{reduction}"')
    size = _size(input, target)
    x, classes = input.expanded(size), target.expanded(size)
    if input.rank > 1:  # (batch, N, C, ...): one long N
        x, classes = x.flatten(0, 1), classes.flatten(0, 1)
    losses = _ops.cross_entropy(x, classes, ignore_index=ignore_index, reduction="none", **options)
    if reduction == "none":
        return losses.view(size, *target.x.shape[int(target.batched) :])
    losses = losses.view(size, -1)
    total = losses.sum(1, dtype=torch.promote_types(losses.dtype, torch.float32))
    if reduction == "mean":
        total = total / (classes.view(size, -1) != ignore_index).sum(1)
    return total.to(losses.dtype)


# ---- attention -------------------------------------------------------------------------------------------------------


def _attention_with(op: torch._ops.OpOverload) -> Callable[..., Tensor | tuple[Tensor, ...]]:
    def rule(query: _Operand, key: _Operand, value: _Operand, *, attn_mask=None, sinks=None, **options):
        rank = max(query.rank, key.rank, value.rank)
        if not _any_batched(query, key, value):  # the mask or the sinks alone
            query = _Operand(query.expanded(_size(attn_mask, sinks)), True)
        mask = None if attn_mask is None else attn_mask.front(rank)
        sinks = None if sinks is None else sinks.front(rank - 2)
        return op(query.front(rank), key.front(rank), value.front(rank), attn_mask=mask, sinks=sinks, **options)

    return rule


def _refused(op: torch._ops.OpOverload) -> Callable[..., Tensor]:
    def rule(*_, **__) -> Tensor:
        raise RuntimeError(
            f"{op._schema.name}: expected tensors without a dim of torch.vmap, got one; its sequences are the batch"
        )

    return rule


_RULES: dict[str, Callable] = {
    "matmul": _matmul,
    "addmm": _addmm,
    "linear": _linear,
    "prepare": _prepare,
    "linear_prepared": _linear_prepared,
    "gated_linear": _gated_linear,
    **{name: _reduction(getattr(_ops, name).default) for name in ("sum", "mean", "amax", "amin", "logsumexp")},
    **{name: _index_reduction(getattr(_ops, name).default) for name in ("argmax", "argmin")},
    "cross_entropy": _cross_entropy,
    **{name: _softmax(getattr(_ops, name).default) for name in ("softmax", "log_softmax")},
    "scaled_masked_softmax": _scaled_masked_softmax,
    "topk_softmax": _topk_softmax,
    **{name: _attention_with(getattr(_ops, name).default) for name in ("attention", "attention_lse")},
    **{name: _refused(getattr(_ops, name).default) for name in _SEQUENCES},
}


def _register(name: str, rule: Callable) -> None:
    op = getattr(_ops, name).default

    def batched(*args, **kwargs):
        level = retrieve_current_functorch_interpreter().level()

        def operand(value: object) -> object:
            if not isinstance(value, Tensor):
                return value
            x, dim = _unwrap_batched(value, level)
            return _Operand(x, False) if dim is None else _Operand(x.movedim(dim, 0), True)

        with torch._C._ExcludeDispatchKeyGuard(_batched_key):
            args, kwargs = [operand(a) for a in args], {k: operand(v) for k, v in kwargs.items()}
            operands = [o for o in (*args, *kwargs.values()) if isinstance(o, _Operand)]
            if not _any_batched(*operands):  # batched at another level only
                return op(*map(_plain, args), **{k: _plain(v) for k, v in kwargs.items()})
            if name in DIFFERENTIABLE:  # what a batched tensor wraps may require grad where it does not
                check_forward_only(op, map(_plain, operands))
            if not torch.is_autocast_enabled(operands[0].x.device.type):  # which casts dtypes that differ
                like = [a.like() if isinstance(a, _Operand) else a for a in args]
                op(*like, **{k: v.like() if isinstance(v, _Operand) else v for k, v in kwargs.items()})
            return tree_map(lambda y: _add_batch_dim(y, 0, level), rule(*args, **kwargs))

    _library.impl(name, batched, "FuncTorchBatched")


for _name, _rule in _RULES.items():
    _register(_name, _rule)

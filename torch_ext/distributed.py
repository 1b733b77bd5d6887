"""DTensor: how the operators' tensors may be sharded, and where the results then are.

With this module imported, ``torch.ops.xgemm.*`` and all that is built of them take DTensors: under
``parallelize_module``, ``fully_shard``, or made by hand. The package imports it as soon as the program imports
``torch.distributed.tensor``.

A strategy says for one dim of the mesh which inputs are sharded and what the outputs are then, as those do that are
given to ``torch.distributed.tensor.experimental.register_sharding``. That function itself does not fit. It does not
move keyword-only tensors (residual, attn_mask) to where the strategy wants them, and it reuses a plan made for one list
of dims for another list. So each operator has a dispatch rule for DTensor instead. For each dim of the mesh it chooses
the strategy that moves the fewest elements, lets ``DTensor.redistribute`` move them, and calls the operator on local
tensors.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DeviceMesh, DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.utils._python_dispatch import _disable_current_modes

from torch_ext import _registered
from torch_ext.replace import _PLAIN

Shape = Sequence[int]
# The outputs' placements, and those of the named inputs; the others are replicated.
Strategy = tuple[tuple[Placement, ...], dict[str, Placement]]
Strategies = Callable[[int, SimpleNamespace], Iterator[Strategy]]
_REPLICATE = Replicate()


def _aligned(shape: Shape | None, rank: int, dim: int) -> Placement:
    """Of a tensor that broadcasts to `rank` dims, of which `dim` is sharded."""
    own = dim - rank + len(shape or ())
    return Shard(own) if shape is not None and own >= 0 and shape[own] != 1 else _REPLICATE


# ---- strategies ------------------------------------------------------------------------------------------------------
# Each takes the number of shards and the operator's arguments by name: shapes in place of tensors, None where there is
# none, options as they are.


def _matmul(parts: int, x: SimpleNamespace) -> Iterator[Strategy]:
    a, b = x.a, x.b
    batch = max(len(a), len(b), 2) - 2
    for i in range(batch):
        yield (Shard(i),), {"a": _aligned(a[:-2], batch, i), "b": _aligned(b[:-2], batch, i)}
    if len(a) > 1:
        yield (Shard(batch),), {"a": Shard(len(a) - 2)}
    if len(b) > 1:
        yield (Shard(batch + (len(a) > 1)),), {"b": Shard(len(b) - 1)}
    yield (Partial(),), {"a": Shard(len(a) - 1), "b": Shard(max(len(b) - 2, 0))}


def _addmm(parts: int, x: SimpleNamespace) -> Iterator[Strategy]:
    yield (Shard(0),), {"mat1": Shard(0), "input": _aligned(x.input, 2, 0)}
    yield (Shard(1),), {"mat2": Shard(1), "input": _aligned(x.input, 2, 1)}
    yield (Partial(),), {"mat1": Shard(1), "mat2": Shard(0), "input": Partial()}


def _rows(parts: int, x: SimpleNamespace) -> Iterator[Strategy]:
    rank = len(x.input)
    for i in range(rank - 1):
        yield (Shard(i),), {"input": Shard(i), "residual": _aligned(getattr(x, "residual", None), rank, i)}


def _linear(parts: int, x: SimpleNamespace) -> Iterator[Strategy]:
    if len(x.weight) != 2:
        return
    yield from _rows(parts, x)
    last = len(x.input) - 1
    columns = {"bias": _aligned(x.bias, 1, 0), "residual": _aligned(x.residual, last + 1, last)}
    yield (Shard(last),), {"weight": Shard(0), **columns}
    if x.activation == "none":
        yield (Partial(),), {"input": Shard(last), "weight": Shard(1), "bias": Partial(), "residual": Partial()}


def _gated_linear(parts: int, x: SimpleNamespace) -> Iterator[Strategy]:
    yield from _rows(parts, x)
    names = ("weight_gate", "weight_up", "bias_gate", "bias_up")
    yield (Shard(len(x.input) - 1),), {name: Shard(0) for name in names}


def _reduction(combine: str | None) -> Strategies:
    """`combine`: how the shards' results make the whole's; None if they do not."""

    def strategies(parts: int, x: SimpleNamespace) -> Iterator[Strategy]:
        dims = (x.dim,) if isinstance(x.dim, int) else x.dim or range(len(x.input))
        gone = {d % max(len(x.input), 1) for d in dims}
        for i, size in enumerate(x.input):
            if i not in gone:
                yield (Shard(i if x.keepdim else i - sum(d < i for d in gone)),), {"input": Shard(i)}
            elif combine is not None and (combine != "avg" or size % parts == 0):
                yield (Partial(combine),), {"input": Shard(i)}

    return strategies


def _softmax(outputs: int) -> Strategies:
    def strategies(parts: int, x: SimpleNamespace) -> Iterator[Strategy]:
        rank, mask = len(x.input), getattr(x, "mask", None)
        for i in range(rank):
            if i != x.dim % rank:
                yield (Shard(i),) * outputs, {"input": Shard(i), "mask": _aligned(mask, rank, i)}

    return strategies


def _cross_entropy(parts: int, x: SimpleNamespace) -> Iterator[Strategy]:
    for i in range(len(x.input)):
        if len(x.input) > 1 and i != 1 and x.reduction != "mean":  # a mean's shards may have ignored different numbers
            place = Shard(max(i - 1, 0))
            yield (place if x.reduction == "none" else Partial(),), {"input": Shard(i), "target": place}


def _attention(outputs: int) -> Strategies:
    def strategies(parts: int, x: SimpleNamespace) -> Iterator[Strategy]:
        shapes = {"query": x.query, "key": x.key, "value": x.value}
        rank = max(map(len, shapes.values()))
        for i in range(rank - 2):
            if x.enable_gqa and i == rank - 3 and any(s[-3] % parts and s[-3] != 1 for s in shapes.values()):
                continue  # a shard's query heads would need key heads of another shard
            inputs = {name: _aligned(shape[:-2], rank - 2, i) for name, shape in shapes.items()}
            beside = {"attn_mask": _aligned(x.attn_mask, rank, i), "sinks": _aligned(x.sinks, rank - 2, i)}
            yield (Shard(i),) * outputs, {**inputs, **beside}
        if not x.is_causal and max(x.window) < 0:  # which count rows from the first one
            rows = {"query": Shard(len(x.query) - 2), "attn_mask": _aligned(x.attn_mask, rank, rank - 2)}
            yield (Shard(rank - 2),) * outputs, rows

    return strategies


def _by_heads(parts: int, heads: int, key_heads: int) -> bool:
    """Whether every shard of query heads finds its key heads in its own shard."""
    return heads % parts == 0 and key_heads % parts == 0


def _varlen(*lse: int) -> Strategies:
    """`lse`: the dim of the log-sum-exp's heads, if the operator gives it."""

    def strategies(parts: int, x: SimpleNamespace) -> Iterator[Strategy]:
        if _by_heads(parts, x.query[1], x.key[-2]):
            heads = Shard(len(x.key) - 2)
            yield (Shard(1), *map(Shard, lse)), {"query": Shard(1), "key": heads, "value": heads, "sinks": Shard(0)}

    return strategies


def _with_cache(*lse: int) -> Strategies:
    names = ("query", "key_cache", "value_cache", "key", "value")

    def strategies(parts: int, x: SimpleNamespace) -> Iterator[Strategy]:
        if _by_heads(parts, x.query[2], x.key_cache[2]):
            yield (Shard(2), *map(Shard, lse)), {**dict.fromkeys(names, Shard(2)), "sinks": Shard(0)}
        if x.block_table is None:  # pages belong to any sequence
            yield (Shard(0), *(Shard(0) for _ in lse)), dict.fromkeys((*names, "cache_seqlens"), Shard(0))

    return strategies


_STRATEGIES: dict[str, Strategies] = {
    "matmul": _matmul,
    "addmm": _addmm,
    "linear": _linear,
    "prepare": lambda parts, x: iter(()),  # a copy is of the whole weight
    "linear_prepared": _rows,
    "gated_linear": _gated_linear,
    "sum": _reduction("sum"),
    "mean": _reduction("avg"),
    "amax": _reduction("max"),
    "amin": _reduction("min"),
    "argmax": _reduction(None),
    "argmin": _reduction(None),
    "logsumexp": _reduction(None),
    "cross_entropy": _cross_entropy,
    "softmax": _softmax(1),
    "log_softmax": _softmax(1),
    "scaled_masked_softmax": _softmax(1),
    "topk_softmax": _softmax(2),
    "attention": _attention(1),
    "attention_lse": _attention(2),
    "attention_varlen": _varlen(),
    "attention_varlen_lse": _varlen(0),
    "attention_with_cache": _with_cache(),
    "attention_with_cache_lse": _with_cache(1),
}


def _lowest(dtype: torch.dtype) -> float | int:
    return -math.inf if dtype.is_floating_point else 0 if dtype is torch.bool else torch.iinfo(dtype).min


def _highest(dtype: torch.dtype) -> float | int:
    return math.inf if dtype.is_floating_point else 1 if dtype is torch.bool else torch.iinfo(dtype).max


_NEUTRAL = {"amax": _lowest, "amin": _highest}


# ---- the plan of a call ----------------------------------------------------------------------------------------------


def _cost(have: Placement, want: Placement, elements: int, parts: int) -> float:
    """Elements that a redistribution moves over one dim of the mesh; 1 if it only cuts what is there."""
    if have == want:
        return 0
    if have.is_replicate():
        return 1
    if have.is_partial():
        return elements if want.is_shard() else 2 * elements
    return elements / parts if want.is_shard() else elements


class _Plan(NamedTuple):
    """Of one operator called with these placements, shapes, strides and options."""

    inputs: list[tuple[Placement, ...] | None]  # where each tensor argument has to be; None: not a tensor
    outputs: list[DTensorSpec]
    orders: list[list[int]]  # each output's dims, from the slowest to the fastest in memory
    neutral: tuple[set[int], float | int] | None  # amax, amin: dims reduced in shards; the extremum of none
    here: bool  # whether this process has a part of the mesh


def _plan(op: torch._ops.OpOverload, names: tuple[str, ...], values: tuple[object, ...]) -> _Plan:
    """`values`: the arguments, specs in place of DTensors.

    Raises:
        RuntimeError: tensors that are not DTensors or not of one mesh; what the operator does not take, in its words.
    """
    specs = {name: value for name, value in zip(names, values, strict=True) if isinstance(value, DTensorSpec)}
    others = {name: value for name, value in zip(names, values, strict=True) if name not in specs}
    mesh: DeviceMesh = next(iter(specs.values())).mesh
    for name, value in others.items():
        if isinstance(value, Tensor):
            raise RuntimeError(
                f"{op._schema.name}: expected all tensors to be DTensors where one is, got {name} of type "
                f"{type(value).__name__}; torch.distributed.tensor.distribute_tensor makes one"
            )
    for name, spec in specs.items():
        if spec.mesh != mesh:
            raise RuntimeError(f"{op._schema.name}: expected all DTensors on {mesh}, got {name} on {spec.mesh}")
    with _disable_current_modes():
        metas = {name: spec.tensor_meta for name, spec in specs.items()}
        like = {n: torch.empty_strided(m.shape, m.stride, dtype=m.dtype, device="meta") for n, m in metas.items()}
        results = op(**like, **others)
    results = results if isinstance(results, tuple) else (results,)

    op_name = op._schema.name.removeprefix("xgemm::")
    defaults = {argument.name: argument.default_value for argument in op._schema.arguments}
    shapes = {name: list(spec.tensor_meta.shape) for name, spec in specs.items()}  # of one place of the mesh, at most
    elements = {name: math.prod(shape) for name, shape in shapes.items()}
    inputs: dict[str, list[Placement]] = {name: [] for name in specs}
    outputs: list[list[Placement]] = [[] for _ in results]
    for i, parts in enumerate(mesh.shape):

        def fits(strategy: Strategy, parts: int = parts) -> bool:
            sharded = [(shapes[n], p.dim) for n, p in strategy[1].items() if n in shapes and p.is_shard()]
            return len(sharded) > 0 and all(shape[dim] >= parts for shape, dim in sharded)

        def cost(strategy: Strategy, i: int = i, parts: int = parts) -> float:
            wanted = {name: strategy[1].get(name, _REPLICATE) for name in specs}
            return sum(_cost(specs[name].placements[i], p, elements[name], parts) for name, p in wanted.items())

        possible = _STRATEGIES[op_name](parts, SimpleNamespace(**defaults | others | shapes))
        replicated: Strategy = ((_REPLICATE,) * len(results), {})
        best = min([replicated, *filter(fits, possible)], key=cost)
        for name, placements in inputs.items():
            placements.append(best[1].get(name, _REPLICATE))
            if placements[-1].is_shard():
                dim = placements[-1].dim
                shapes[name][dim] = -(-shapes[name][dim] // parts)
        for placements, place in zip(outputs, best[0], strict=True):
            placements.append(place)
    neutral = None
    if op_name in _NEUTRAL:
        dims = {have.dim for have, y in zip(inputs["input"], outputs[0], strict=True) if y.is_partial()}
        neutral = (dims, _NEUTRAL[op_name](results[0].dtype)) if dims else None
    return _Plan(
        [tuple(inputs[name]) if name in inputs else None for name in names],
        [
            DTensorSpec(mesh, tuple(placements), TensorMeta(y.shape, y.stride(), y.dtype))
            for y, placements in zip(results, outputs, strict=True)
        ],
        [sorted(range(y.dim()), key=y.stride().__getitem__, reverse=True) for y in results],
        neutral,
        mesh.get_coordinate() is not None,
    )


_kept_plan = functools.lru_cache(maxsize=4096)(_plan)


def _local(x: DTensor, placements: tuple[Placement, ...]) -> Tensor:
    """This process' part. Where a partial sum is wanted of a tensor that is not one, the first place has all of it."""
    if x.placements == placements:
        return x._local_tensor
    pairs = zip(x.placements, placements, strict=True)
    reachable = tuple(_REPLICATE if want.is_partial() and want != have else want for have, want in pairs)
    with torch.no_grad():  # detached: a parameter's redistribution would call autograd, which may be passed by here
        local = (x if x.placements == reachable else x.detach().redistribute(placements=reachable))._local_tensor
    where = x.device_mesh.get_coordinate() or ()
    others = any(want != have and at > 0 for want, have, at in zip(placements, reachable, where, strict=False))
    return torch.zeros_like(local) if others else local


def _filled(x: Tensor, dims: set[int], value: float | int) -> Tensor:
    """One element of `value` along each of `dims` of which this process has nothing."""
    return x if x.numel() else x.new_full([1 if i in dims else n for i, n in enumerate(x.shape)], value)


def _in_order(y: Tensor, order: list[int]) -> Tensor:
    """In the whole's order of dims, which local tensors need not have: a redistribution does not keep it."""
    ordered = y.permute(order)
    return y if ordered.is_contiguous() else ordered.contiguous().permute(sorted(range(y.dim()), key=order.__getitem__))


def _check_in_place(op: torch._ops.OpOverload, names: tuple[str, ...], values: tuple, plan: _Plan) -> None:
    """Raises RuntimeError if the operator would write to a redistributed copy of a tensor."""
    for argument in op._schema.arguments:
        if argument.is_write:
            at = names.index(argument.name)
            if values[at].placements != plan.inputs[at]:
                raise RuntimeError(
                    f"{op._schema.name}: expected {argument.name}, which it writes to, and the others sharded alike, "
                    f"over heads or sequences, got {argument.name} of placements {values[at].placements}"
                )


def _sharded(cls: type, op: torch._ops.OpOverload, types: object, args: tuple, kwargs: dict | None) -> object:
    """Calls an operator with DTensors: torch's dispatch rule for it."""
    kwargs = kwargs or {}
    values = (*args, *kwargs.values())
    names = (*(a.name for a in op._schema.arguments[: len(args)]), *kwargs)
    # A kept plan makes new DTensors of kept specs, as torch's own dispatch does: the public from_local takes 0.1 ms.
    known = tuple(x._spec if isinstance(x, DTensor) else tuple(x) if isinstance(x, list) else x for x in values)
    try:
        plan = _kept_plan(op, names, known)
    except TypeError:  # sizes that are symbolic, while tracing
        plan = _plan(op, names, known)
    if op._schema.is_mutable and "key" in names:
        _check_in_place(op, names, values, plan)
    local = [x if places is None else _local(x, places) for x, places in zip(values, plan.inputs, strict=True)]
    if plan.here:
        if plan.neutral is not None:
            local[names.index("input")] = _filled(local[names.index("input")], *plan.neutral)
        results = op(*local[: len(args)], **dict(zip(kwargs, local[len(args) :], strict=True)))
        results = results if isinstance(results, tuple) else (results,)
        results = tuple(map(_in_order, results, plan.orders))
    else:  # then a DTensor holds nothing
        results = tuple(torch.empty(0, dtype=s.tensor_meta.dtype, device=s.mesh.device_type) for s in plan.outputs)
    wrapped = tuple(DTensor(y, spec, requires_grad=False) for y, spec in zip(results, plan.outputs, strict=True))
    return wrapped if len(wrapped) > 1 else wrapped[0]


_library = _registered.library(__name__)
for _name in _STRATEGIES:
    torch.library.register_torch_dispatch(f"xgemm::{_name}", DTensor, _sharded, lib=_library)
_PLAIN.update((DTensor, AsyncCollectiveTensor))  # what torch_ext.replace lets through

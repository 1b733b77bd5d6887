"""What the operators' results look like (shape, dtype, device, strides) without computing them.

All results are contiguous but attention's output, which may have the query's order of dims.

torch.compile, torch.export, FakeTensorMode and tensors on "meta" use these, and vmap for its checks. Sizes may be
symbolic; a size that is not known while tracing is taken to be other than 1, as torch's own ops do. A fake checks what
the result's shape and dtype follow from, with the C++ operator's words; what only the values or options decide is left
to the operator.
"""

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from torch_ext import _registered
from torch_ext._architecture import architecture, splits_gain

_library = _registered.library(__name__)

FLOATING = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
REAL = (*FLOATING, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
REAL_AND_BOOL = (*REAL, torch.bool)
MAX_HEAD_SIZE = 576
MAX_TOP_K = 64


def widest_head(dtype: torch.dtype) -> int:
    """The widest heads of attention that is taken from torch: wider ones have tensor cores in half precision alone."""
    return MAX_HEAD_SIZE if dtype in (torch.float16, torch.bfloat16) else 256


def _fake(name: str) -> Callable[[Callable], Callable]:
    """Registers the fake of an operator. It is called only if all tensors that the schema requires are there."""
    schema = getattr(torch.ops.xgemm, name).default._schema
    required = [argument.name for argument in schema.arguments if str(argument.type) == "Tensor"]

    def register(fake: Callable) -> Callable:
        @functools.wraps(fake)
        def checked(*args, **kwargs):
            for argument, value in zip(required, args, strict=False):
                if value is None:
                    raise RuntimeError(f"xgemm::{name}: expected {argument} to be a tensor, got an undefined one")
            return fake(*args, **kwargs)

        return torch.library.register_fake(f"xgemm::{name}", checked, lib=_library)

    return register


def _text(value: object) -> str:
    if isinstance(value, Tensor):
        value = value.shape
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    return str(list(value)) if listed else str(value).removeprefix("torch.")


def _check(holds: bool, op: str, expected: str, *got: object) -> None:
    """Raises the C++ operator's line unless `holds`; a tensor in `got` stands for its shape."""

    def line() -> str:
        word = {0: "", 1: "shape "}.get(len([g for g in got if isinstance(g, Tensor)]), "shapes ")
        return f"xgemm::{op}: expected {expected}, got {word}{' and '.join(map(_text, got))}"

    torch._check(holds, line)


def _check_device(op: str, **tensors: Tensor | None) -> None:
    (first_name, first), *others = [(name, t) for name, t in tensors.items() if t is not None]
    for name, t in others:
        _check(t.device == first.device, op, f"{first_name} and {name} on one device", first.device, t.device)


def _check_inputs(op: str, dtypes: Sequence[torch.dtype] = FLOATING, **tensors: Tensor | None) -> None:
    """All inputs on one device, of one dtype that the op takes."""
    _check_device(op, **tensors)
    (first_name, first), *others = [(name, t) for name, t in tensors.items() if t is not None]
    _check(first.dtype in dtypes, op, f"{first_name} of dtype {', '.join(map(_text, dtypes))}", first.dtype)
    for name, t in others:
        _check(t.dtype == first.dtype, op, f"{first_name} and {name} of one dtype", first.dtype, t.dtype)


def _check_mask(op: str, name: str, mask: Tensor, input_name: str, input: Tensor) -> None:
    _check(
        mask.dtype in (torch.bool, torch.float32, input.dtype),
        op,
        f"{name} of dtype bool, float32 or {input_name}'s {_text(input.dtype)}",
        mask.dtype,
    )


def _result_dtype(op: str, input: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """Of an op that computes in its result's dtype."""
    result = dtype or input.dtype
    _check(result in FLOATING, op, f"{'dtype' if dtype else 'input'} of a floating dtype", result)
    return result


def _broadcast(a: Sequence, b: Sequence, op: str, expected: str, *got: object) -> list:
    """NumPy broadcasting that asks of an unknown size only what it must."""
    from torch.fx.experimental.symbolic_shapes import guard_or_false  # costs an import of sympy: only when tracing

    rank = max(len(a), len(b))
    shape = []
    for x, y in zip([1] * (rank - len(a)) + [*a], [1] * (rank - len(b)) + [*b], strict=True):
        if guard_or_false(x == 1):
            shape.append(y)
        else:
            _check(guard_or_false(y == 1) or x == y, op, expected, *got)
            shape.append(x)
    return shape


def _expands(op: str, name: str, t: Tensor, what: str, shape: Sequence) -> None:
    """Checks that `t` broadcasts to `shape`."""
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    expected = f"{name} to broadcast to {what}{_text(shape)}"
    _check(t.dim() <= len(shape), op, expected, t)
    for x, y in zip(reversed(t.shape), reversed(shape), strict=False):
        _check(guard_or_false(x == 1) or x == y, op, expected, t)


def _register(fake: Callable, *ops: str) -> None:
    """One fake of several operators; it takes the operator's name first."""
    for op in ops:
        _fake(op)(functools.partial(fake, op))


# ---- products --------------------------------------------------------------------------------------------------------


@_fake("matmul")
def _matmul(a: Tensor, b: Tensor, **_) -> Tensor:
    _check_inputs("matmul", a=a, b=b)
    _check(a.dim() > 0 and b.dim() > 0, "matmul", "a and b with at least 1 dim", a, b)
    inner, its = (0, "only") if b.dim() == 1 else (-2, "second-to-last")
    _check(a.shape[-1] == b.shape[inner], "matmul", f"a's last dim to equal b's {its} dim", a, b)
    batch = _broadcast(a.shape[:-2], b.shape[:-2], "matmul", "a and b with dims that broadcast", a, b)
    return a.new_empty([*batch, *a.shape[-2:-1], *(b.shape[-1:] if b.dim() > 1 else ())])


@_fake("addmm")
def _addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, **_) -> Tensor:
    _check_inputs("addmm", mat1=mat1, mat2=mat2, input=input)
    _check(mat1.dim() == 2 and mat2.dim() == 2, "addmm", "mat1 and mat2 with 2 dims", mat1, mat2)
    _check(mat1.shape[1] == mat2.shape[0], "addmm", "mat1's last dim to equal mat2's first dim", mat1, mat2)
    shape = [mat1.shape[0], mat2.shape[1]]
    if beta != 0:  # else it is not read
        _expands("addmm", "input", input, "the output's shape ", shape)
    return mat1.new_empty(shape)


@_fake("linear")
def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, *, residual=None, op="linear", **_) -> Tensor:
    _check_inputs(op, input=input, weight=weight, bias=bias, residual=residual)
    ranks = "input with at least 1 dim and weight with 1 or 2 dims"
    _check(input.dim() > 0 and weight.dim() in (1, 2), op, ranks, input, weight)
    _check(input.shape[-1] == weight.shape[-1], op, "input's last dim to equal weight's last dim", input, weight)
    shape = [*input.shape[:-1], *weight.shape[:-1]]
    if bias is not None:
        _expands(op, "bias", bias, "", weight.shape[:-1])
    if residual is not None:
        _expands(op, "residual", residual, "the output's shape ", shape)
    return input.new_empty(shape)


@_fake("linear_prepared")
def _linear_prepared(input: Tensor, weight: Tensor, prepared: Tensor, *args, **options) -> Tensor:
    _check_device("linear_prepared", weight=weight, prepared=prepared)
    got = f"{_text(prepared.dtype)} of shape {_text(prepared)}"
    made = prepared.dtype is torch.uint8 and prepared.dim() == 1
    _check(made, "linear_prepared", "prepared to be what prepare(weight) gives", got)
    return _linear(input, weight, *args, op="linear_prepared", **options)


@_fake("prepare")
def _prepare(weight: Tensor, *, precision: str = "highest") -> Tensor:
    _check_inputs("prepare", weight=weight)
    _check(weight.dim() == 2, "prepare", "weight with 2 dims", weight)
    n, k = weight.shape
    used = weight.is_cuda and weight.dtype is torch.float32 and precision != "ieee" and weight.numel() > 0
    gpu, parts = architecture(weight.device) if used else None, 2 if precision == "highest" else 1
    if gpu is None or not splits_gain(gpu, parts):
        return weight.new_empty([0], dtype=torch.uint8)
    halves = 2 * parts * n * ((k + 7) // 8 * 8)  # bytes of the fp16 halves
    return weight.new_empty([(halves + 255) // 256 * 256 + 16 * n + 16], dtype=torch.uint8)  # and of each row's facts


@_fake("gated_linear")
def _gated_linear(
    input: Tensor,
    weight_gate: Tensor,
    weight_up: Tensor,
    bias_gate: Tensor | None = None,
    bias_up: Tensor | None = None,
    **_,
) -> Tensor:
    op, biases = "gated_linear", {"bias_gate": bias_gate, "bias_up": bias_up}
    _check_inputs(op, input=input, weight_gate=weight_gate, weight_up=weight_up, **biases)
    ranks = "input with at least 1 dim and weight_gate with 2 dims"
    _check(input.dim() > 0 and weight_gate.dim() == 2, op, ranks, input, weight_gate)
    last = "input's last dim to equal weight_gate's last dim"
    _check(input.shape[-1] == weight_gate.shape[-1], op, last, input, weight_gate)
    weights = {"weight_up": (weight_up, weight_gate.shape)}
    for name, (t, shape) in (weights | {n: (b, weight_gate.shape[:1]) for n, b in biases.items()}).items():
        if t is not None:
            _check(t.dim() == len(shape), op, f"{name} of shape {_text(shape)}", t)
            for x, y in zip(t.shape, shape, strict=True):
                _check(x == y, op, f"{name} of shape {_text(shape)}", t)
    return input.new_empty([*input.shape[:-1], weight_gate.shape[0]])


# ---- reductions and softmax ------------------------------------------------------------------------------------------


def _wrap_dim(op: str, input: Tensor, dim: int) -> int:
    rank = max(input.dim(), 1)
    _check(-rank <= dim < rank, op, f"dim in [{-rank}, {rank - 1}]", dim)
    return dim % rank


def _reduced(op: str, input: Tensor, dims: Sequence[int] | None, keepdim: bool) -> list:
    """The shape left after reducing `dims`: all when None or empty."""
    wrapped = [_wrap_dim(op, input, dim) for dim in dims or ()]
    gone = set(wrapped) or set(range(input.dim()))
    if op in ("amax", "amin", "argmax", "argmin"):  # there is no largest of nothing
        if not wrapped and op.startswith("am"):
            for n in input.shape:
                _check(n != 0, op, "dim to be given for an input of no elements", input)
        for d in gone:
            if d < input.dim():
                _check(input.shape[d] != 0, op, "the reduced dims to be non-empty", input)
    _check(len(set(wrapped)) == len(wrapped), op, "every dim at most once", dims)
    if keepdim:
        return [1 if i in gone else n for i, n in enumerate(input.shape)]
    return [n for i, n in enumerate(input.shape) if i not in gone]


@_fake("sum")
def _sum(input: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype=None) -> Tensor:
    _check_inputs("sum", REAL_AND_BOOL, input=input)
    known = dtype is None or dtype in REAL_AND_BOOL
    _check(known, "sum", "dtype to be a real floating, integer or bool dtype", dtype)
    dtype = dtype or (input.dtype if input.is_floating_point() else torch.int64)
    return input.new_empty(_reduced("sum", input, dim, keepdim), dtype=dtype)


@_fake("mean")
def _mean(input: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype=None) -> Tensor:
    _check_inputs("mean", REAL_AND_BOOL, input=input)
    dtype = _result_dtype("mean", input, dtype)
    return input.new_empty(_reduced("mean", input, dim, keepdim), dtype=dtype)


@_fake("logsumexp")
def _logsumexp(input: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    _check_inputs("logsumexp", REAL_AND_BOOL, input=input)
    dtype = input.dtype if input.is_floating_point() else torch.float32
    return input.new_empty(_reduced("logsumexp", input, dim, keepdim), dtype=dtype)


def _extremum(op: str, input: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    _check_inputs(op, REAL_AND_BOOL, input=input)
    return input.new_empty(_reduced(op, input, dim, keepdim))


def _index(op: str, input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    _check_inputs(op, REAL, input=input)
    return input.new_empty(_reduced(op, input, None if dim is None else [dim], keepdim), dtype=torch.int64)


def _softmax(op: str, input: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    _check_inputs(op, REAL_AND_BOOL, input=input)
    _wrap_dim(op, input, dim)
    return input.new_empty(input.shape, dtype=_result_dtype(op, input, dtype))


_register(_extremum, "amax", "amin")
_register(_index, "argmax", "argmin")
_register(_softmax, "softmax", "log_softmax")


@_fake("cross_entropy")
def _cross_entropy(input: Tensor, target: Tensor, *, reduction: str = "mean", **_) -> Tensor:
    op = "cross_entropy"
    _check_inputs(op, input=input)
    _check_inputs(op, (torch.int64, torch.uint8), target=target)
    _check_device(op, input=input, target=target)
    _check(reduction in ("none", "mean", "sum"), op, "reduction to be none, mean or sum", f'"{reduction}"')
    _check(input.dim() > 0, op, "input of shape (C), (N, C) or (N, C, ...)", input)
    batch = "input and target of one batch size"
    _check(target.dim() != 1 if input.dim() == 1 else target.dim() > 0, op, batch, input, target)
    if input.dim() > 1:
        _check(target.shape[0] == input.shape[0], op, batch, input, target)
    wanted = [*input.shape[:1], *input.shape[2:]] if input.dim() > 1 else []
    expected = f"target of shape {_text(wanted)} for input of shape {_text(input)}"
    _check(len(wanted) == target.dim(), op, expected, target.shape)
    for ours, theirs in zip(wanted, target.shape, strict=True):
        _check(ours == theirs, op, expected, target.shape)
    return input.new_empty(wanted if reduction == "none" else [])


@_fake("scaled_masked_softmax")
def _scaled_masked_softmax(input: Tensor, mask: Tensor | None = None, scale: float = 1.0, dim: int = -1) -> Tensor:
    op = "scaled_masked_softmax"
    _check_inputs(op, input=input)
    _check_device(op, input=input, mask=mask)
    _wrap_dim(op, input, dim)
    if mask is not None:
        _check_mask(op, "mask", mask, "input", input)
        _expands(op, "mask", mask, "input's shape ", input.shape)
    return input.new_empty(input.shape)


@_fake("topk_softmax")
def _topk_softmax(input: Tensor, k: int, dim: int = -1, *, dtype: torch.dtype | None = None, **_):
    op = "topk_softmax"
    _check_inputs(op, REAL_AND_BOOL, input=input)
    result = _result_dtype(op, input, dtype)
    wrapped, shape = _wrap_dim(op, input, dim), list(input.shape)
    expected = f"k in [0, {MAX_TOP_K}] and at most the size of dim"
    _check((0 if shape else 1) <= k <= MAX_TOP_K, op, expected, k)
    _check(k <= (shape[wrapped] if shape else 1), op, expected, k)
    if shape:
        shape[wrapped] = k
    return input.new_empty(shape, dtype=result), input.new_empty(shape, dtype=torch.int64)


# ---- attention -------------------------------------------------------------------------------------------------------


def _rows(op, query, key, value, *, attn_mask=None, enable_gqa=False, sinks=None, **_) -> list:
    """The output's shape without its last dim."""
    _check_inputs(op, query=query, key=key, value=value)
    _check_device(op, query=query, attn_mask=attn_mask, sinks=sinks)
    for name, t in (("query", query), ("key", key), ("value", value)):
        _check(t.dim() >= 2, op, f"{name} of shape (..., heads, length, head size)", t)
    (sq, d), (sk, dv) = query.shape[-2:], value.shape[-2:]
    _check(key.shape[-1] == d, op, "query and key of one head size", d, key.shape[-1])
    _check(key.shape[-2] == sk, op, "key and value of one length", key.shape[-2], sk)
    for size in (d, dv):
        _check(size <= MAX_HEAD_SIZE, op, f"head sizes up to {MAX_HEAD_SIZE}", size)
    batch = list(query.shape[:-2])
    for name, t in (("key", key), ("value", value)):
        shape = list(t.shape[:-2])
        if enable_gqa:  # each head of key and value serves a group of the query's heads
            ranks = f"query and {name} of shape (..., heads, length, head size) with enable_gqa"
            _check(query.dim() >= 3 and t.dim() >= 3, op, ranks, query, t)
            heads, ours = query.shape[-3], shape[-1]
            _check_groups(op, f"{name} heads with enable_gqa", heads, ours)
            shape[-1] = heads
        expected = f"query and {name} with dims that broadcast (enable_gqa=True when query heads share {name} heads)"
        batch = _broadcast(batch, shape, op, expected, query, t)
    if attn_mask is not None:
        _check_mask(op, "attn_mask", attn_mask, "query", query)
        _expands(op, "attn_mask", attn_mask, "", [*batch, sq, sk])
    if sinks is not None:
        dtypes = (torch.float32, query.dtype)
        _check(sinks.dtype in dtypes, op, f"sinks of dtype float32 or query's {_text(query.dtype)}", sinks.dtype)
        _expands(op, "sinks", sinks, "", batch)
    return [*batch, sq]


def _check_groups(op: str, what: str, heads: int, shared: int) -> None:
    """Without a branch, since the numbers of heads may be unknown."""
    divides = heads == heads // torch.sym_max(shared, 1) * shared
    _check(divides, op, f"the number of query heads to be a multiple of {what}", heads, shared)


def _heads_beside(query: Tensor) -> bool:
    """call.cpp's rule for the output's layout, (batch, length, heads, head size) or contiguous, from the query's.

    The rule asks for sizes over 1, which a fake may not know, so one that is unknown counts as that. If it is at most 1
    after all, both layouts are the same memory, and only a stride that no element is reached by differs. Strides can be
    compared without the sizes in them: of dims that lie in any order, one stride is a multiple of the other.
    """
    from torch.fx.experimental.symbolic_shapes import guard_or_false, statically_known_true, sym_or  # loads sympy

    if query.dim() < 3:
        return False
    (heads, length), (of_head, of_position) = query.shape[-3:-1], query.stride()[-3:-1]
    if any(map(statically_known_true, (heads <= 1, length <= 1, of_head == 0, of_head >= of_position))):
        return False
    if statically_known_true(of_head <= of_position):
        return True
    if guard_or_false(of_head < of_position):
        return guard_or_false(of_head > 0)
    # Strides that have nothing to do with each other: the graph checks what is assumed here.
    torch._check(
        sym_or(of_head >= of_position, heads <= 1, length <= 1, of_head == 0),
        lambda: "xgemm: expected query to lie with one order of heads and length, got strides that depend on data",
    )
    return False


def _output(query: Tensor, shape: list) -> Tensor:
    if not _heads_beside(query):
        return query.new_empty(shape)
    *batch, heads, length, size = shape
    return query.new_empty([*batch, length, heads, size]).transpose(-2, -3)


def _attention(op: str, query: Tensor, key: Tensor, value: Tensor, **options) -> Tensor | tuple[Tensor, Tensor]:
    rows = _rows(op, query, key, value, **options)
    return _with_lse(op, _output(query, [*rows, value.shape[-1]]), query, *rows)


def _with_lse(op: str, output: Tensor, query: Tensor, *shape: int) -> Tensor | tuple[Tensor, Tensor]:
    """The output; of an operator that gives it also the log-sum-exp, of this shape."""
    if not op.endswith("_lse"):
        return output
    return output, query.new_empty(shape, dtype=torch.float64 if query.dtype is torch.float64 else torch.float32)


_register(_attention, "attention", "attention_lse")


# ---- attention over sequences of different lengths -------------------------------------------------------------------

_PAGES = "(pages, page size, heads, head size)"
_PACKED = "(tokens, heads, head size)"
_BATCH = "(sequences, length, heads, head size)"


def _check_sequences(
    op: str, query: Tensor, key: Tensor, value: Tensor, names: tuple[str, str], layouts: tuple[str, str], sinks
) -> None:
    """What both operators ask of query, keys and values, and sinks."""
    given = {"query": query, names[0]: key, names[1]: value}
    for name, t in given.items():
        layout = layouts[name != "query"]
        _check(t.dim() == 1 + layout.count(","), op, f"{name} of shape {layout}", t)
    _check_inputs(op, **given)
    _check_device(op, query=query, sinks=sinks)
    (heads, d), (shared, dv) = query.shape[-2:], value.shape[-2:]
    _check(key.shape[-1] == d, op, f"query and {names[0]} of one head size", d, key.shape[-1])
    for size in (d, dv):
        _check(size <= MAX_HEAD_SIZE, op, f"head sizes up to {MAX_HEAD_SIZE}", size)
    for x, y in zip(key.shape[:-1], value.shape[:-1], strict=True):
        _check(x == y, op, f"{names[0]} and {names[1]} of one shape but for the head size", key, value)
    _check_groups(op, f"{names[0]} heads", heads, shared)
    if sinks is not None:
        dtypes = (torch.float32, query.dtype)
        _check(sinks.dtype in dtypes, op, f"sinks of dtype float32 or query's {_text(query.dtype)}", sinks.dtype)
        _check(sinks.dim() == 1, op, f"sinks of shape {_text([heads])}", sinks)
        _check(sinks.shape[0] == heads, op, f"sinks of shape {_text([heads])}", sinks)


def _check_indices(op: str, query: Tensor, count: object, dims: int = 1, **given: Tensor | None) -> None:
    """Offsets, lengths or a table of `count` elements or rows."""
    for name, t in given.items():
        if t is not None:
            _check_device(op, query=query, **{name: t})
            _check(t.dtype is torch.int32, op, f"{name} of dtype int32", t.dtype)
            _check(t.dim() == dims, op, f"{name} with {dims} dim{'s' * (dims > 1)}", t)
            _check(t.shape[0] == count, op, f"{name} of {count} {'elements' if dims == 1 else 'rows'}", t.shape[0])


def _varlen(
    op, query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, sinks=None, seqused_k=None, block_table=None, **_
):
    paged = block_table is not None
    _check_sequences(op, query, key, value, ("key", "value"), (_PACKED, _PAGES if paged else _PACKED), sinks)
    _check(cu_seq_q.dim() == 1, op, "cu_seq_q with 1 dim", cu_seq_q)
    count = cu_seq_q.shape[0]
    _check(count > 0, op, "cu_seq_q of sequences + 1 elements", "none")
    _check_indices(op, query, count, cu_seq_q=cu_seq_q, cu_seq_k=None if paged else cu_seq_k)
    _check_indices(op, query, count - 1, seqused_k=seqused_k)
    _check_indices(op, query, count - 1, 2, block_table=block_table)
    _check(not paged or seqused_k is not None, op, "seqused_k with block_table", None)
    _check(paged or cu_seq_k is not None, op, "cu_seq_k unless there is a block_table", None)
    rows, heads, _ = query.shape
    return _with_lse(op, query.new_empty([rows, heads, value.shape[-1]]), query, heads, rows)


def _with_cache(
    op, query, key_cache, value_cache, cache_seqlens, *, key=None, value=None, block_table=None, sinks=None, **_
):
    caches = {"key_cache": key_cache, "value_cache": value_cache}
    layouts = (_BATCH, _BATCH if block_table is None else _PAGES)
    _check_sequences(op, query, *caches.values(), tuple(caches), layouts, sinks)
    count, length, heads, _ = query.shape
    _check_indices(op, query, count, cache_seqlens=cache_seqlens)
    _check_indices(op, query, count, 2, block_table=block_table)
    if block_table is None:
        _check(key_cache.shape[0] == count, op, f"key_cache of {count} sequences, as query", key_cache.shape[0])
    _check((key is None) == (value is None), op, "key and value, or neither", "key" if value is None else "value")
    for (name, t), cache in zip({"key": key, "value": value}.items(), caches.values(), strict=True):
        if t is not None:
            _check_inputs(op, query=query, **{name: t})
            expected = f"{name} of shape (sequences, new, heads, head size)"
            _check(t.dim() == 4, op, expected, t)
            for x, y in zip(t.shape, (count, key.shape[1], *cache.shape[2:]), strict=True):
                _check(x == y, op, expected, t)
    output = query.new_empty([count, length, heads, value_cache.shape[-1]])
    return _with_lse(op, output, query, count, heads, length)


_register(_varlen, "attention_varlen", "attention_varlen_lse")
_register(_with_cache, "attention_with_cache", "attention_with_cache_lse")

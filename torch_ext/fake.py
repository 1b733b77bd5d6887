"""What the operators' results look like (shape, dtype, device; always contiguous) without computing them.

torch.compile, torch.export, FakeTensorMode and tensors on "meta" use these. Sizes may be symbolic; a size that is not
known while tracing is taken to be other than 1, as torch's own ops do.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

FLOATING = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
MAX_HEAD_SIZE = 256


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _shape(shape: Sequence) -> str:
    return str(list(shape))


def _check_inputs(op: str, dtypes: Sequence[torch.dtype] = FLOATING, **tensors: Tensor | None) -> None:
    """All inputs dense, on one device, of one dtype that the op takes."""
    present = [(name, t) for name, t in tensors.items() if t is not None]
    first_name, first = present[0]
    for name, t in present:
        torch._check(
            t.layout is torch.strided,
            lambda name=name: (
                f"xgemm::{op}: expected {name} to be a dense (strided) tensor, got a sparse or opaque layout"
            ),
        )
        torch._check(
            t.device == first.device,
            lambda name=name, t=t: (
                f"xgemm::{op}: expected {first_name} and {name} on one device, got {first.device} and {t.device}"
            ),
        )
    torch._check(
        first.dtype in dtypes,
        lambda: (
            f"xgemm::{op}: expected {first_name} of dtype {', '.join(map(_name, dtypes))}, got {_name(first.dtype)}"
        ),
    )
    for name, t in present:
        torch._check(
            t.dtype == first.dtype,
            lambda name=name, t=t: (
                f"xgemm::{op}: expected {first_name} and {name} of one dtype, "
                f"got {_name(first.dtype)} and {_name(t.dtype)}"
            ),
        )


def _broadcast(a: Sequence, b: Sequence, message: str) -> list:
    """NumPy broadcasting that asks of an unknown size only what it must."""
    from torch.fx.experimental.symbolic_shapes import guard_or_false  # costs an import of sympy: only when tracing

    rank = max(len(a), len(b))
    shape = []
    for x, y in zip([1] * (rank - len(a)) + [*a], [1] * (rank - len(b)) + [*b], strict=True):
        if guard_or_false(x == 1):
            shape.append(y)
        elif guard_or_false(y == 1):
            shape.append(x)
        else:
            torch._check(x == y, lambda: message)
            shape.append(x)
    return shape


def _broadcasts_to(shape: Sequence, target: Sequence, message: str) -> None:
    """Checks that `shape` expands to `target`."""
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    torch._check(len(shape) <= len(target), lambda: message)
    for x, y in zip(reversed(shape), reversed(target), strict=False):
        if not guard_or_false(x == 1):
            torch._check(x == y, lambda: message)


def _product(op: str, names: str, a: Tensor, b: Tensor, b_transposed: bool) -> list:
    """torch.matmul's shape rules; `b_transposed` reads b as (..., N, K), as linear's weight is."""
    shapes = f"got shapes {_shape(a.shape)} and {_shape(b.shape)}"
    torch._check(a.dim() > 0 and b.dim() > 0, lambda: f"xgemm::{op}: expected {names} of at least one dim, {shapes}")
    inner, columns = (-1, -2) if b_transposed else (-2, -1)
    torch._check(
        a.shape[-1] == b.shape[inner if b.dim() > 1 else 0],
        lambda: f"xgemm::{op}: expected {names} with equal inner dims, {shapes}",
    )
    message = f"xgemm::{op}: expected {names} with dims that broadcast, {shapes}"
    batch = _broadcast(a.shape[:-2], b.shape[:-2], message)
    return [*batch, *a.shape[-2:-1], *([b.shape[columns]] if b.dim() > 1 else [])]


def _expands(op: str, name: str, t: Tensor, shape: Sequence) -> None:
    message = f"xgemm::{op}: expected {name} to broadcast to {_shape(shape)}, got shape {_shape(t.shape)}"
    _broadcasts_to(t.shape, shape, message)


@torch.library.register_fake("xgemm::matmul")
def _matmul(a: Tensor, b: Tensor, *, precision: str = "highest") -> Tensor:
    _check_inputs("matmul", a=a, b=b)
    return a.new_empty(_product("matmul", "a and b", a, b, False))


@torch.library.register_fake("xgemm::addmm")
def _addmm(input, mat1, mat2, *, beta: float = 1, alpha: float = 1, precision: str = "highest") -> Tensor:
    torch._check(
        mat1.dim() == 2 and mat2.dim() == 2,
        lambda: (
            "xgemm::addmm: expected mat1 and mat2 of two dims, "
            f"got shapes {_shape(mat1.shape)} and {_shape(mat2.shape)}"
        ),
    )
    _check_inputs("addmm", mat1=mat1, mat2=mat2, input=input)
    shape = _product("addmm", "mat1 and mat2", mat1, mat2, False)
    _expands("addmm", "input", input, shape)
    return mat1.new_empty(shape)


@torch.library.register_fake("xgemm::linear")
def _linear(input, weight, bias=None, *, activation="none", residual=None, precision="highest") -> Tensor:
    torch._check(
        weight.dim() in (1, 2),
        lambda: f"xgemm::linear: expected weight of shape [N, K] or [K], got shape {_shape(weight.shape)}",
    )
    _check_inputs("linear", input=input, weight=weight, bias=bias, residual=residual)
    shape = _product("linear", "input and weight", input, weight, True)
    if bias is not None and bias.dim() > 0:
        rows = list(weight.shape[:-1])
        torch._check(
            bias.dim() == len(rows) and bias.shape[0] == rows[0],
            lambda: (
                f"xgemm::linear: expected bias of shape {f'{rows} or ' if rows else ''}[], "
                f"got shape {_shape(bias.shape)}"
            ),
        )
    if residual is not None:
        _expands("linear", "residual", residual, shape)
    return input.new_empty(shape)


def _wrap_dim(op: str, input: Tensor, dim: int) -> int:
    rank = max(input.dim(), 1)
    torch._check(-rank <= dim < rank, lambda: f"xgemm::{op}: expected dim in [{-rank}, {rank - 1}], got {dim}")
    return dim % rank


def _reduced(op: str, input: Tensor, dims: Sequence[int] | None, keepdim: bool) -> list:
    """The shape that is left after reducing `dims` (all when None or empty)."""
    wrapped = {_wrap_dim(op, input, d) for d in dims} if dims else set(range(input.dim()))
    torch._check(
        not dims or len(wrapped) == len(dims), lambda: f"xgemm::{op}: expected each dim once, got {list(dims or ())}"
    )
    if keepdim:
        return [1 if i in wrapped else n for i, n in enumerate(input.shape)]
    return [n for i, n in enumerate(input.shape) if i not in wrapped]


def _check_real(op: str, input: Tensor) -> None:
    torch._check(
        input.layout is torch.strided,
        lambda: f"xgemm::{op}: expected input to be a dense (strided) tensor, got a sparse or opaque layout",
    )
    torch._check(
        not input.is_complex(),
        lambda: f"xgemm::{op}: expected input of a floating, integer or bool dtype, got {_name(input.dtype)}",
    )


@torch.library.register_fake("xgemm::sum")
def _sum(input, dim=None, keepdim=False, *, dtype=None) -> Tensor:
    _check_real("sum", input)
    dtype = dtype or (input.dtype if input.is_floating_point() else torch.int64)
    return input.new_empty(_reduced("sum", input, dim, keepdim), dtype=dtype)


@torch.library.register_fake("xgemm::mean")
def _mean(input, dim=None, keepdim=False, *, dtype=None) -> Tensor:
    _check_real("mean", input)
    dtype = dtype or input.dtype
    torch._check(
        dtype.is_floating_point,
        lambda: f"xgemm::mean: expected input of a floating dtype or a floating dtype=, got {_name(dtype)}",
    )
    return input.new_empty(_reduced("mean", input, dim, keepdim), dtype=dtype)


@torch.library.register_fake("xgemm::logsumexp")
def _logsumexp(input, dim=None, keepdim=False) -> Tensor:
    _check_real("logsumexp", input)
    dtype = input.dtype if input.is_floating_point() else torch.get_default_dtype()
    return input.new_empty(_reduced("logsumexp", input, dim, keepdim), dtype=dtype)


def _register_extremum(name: str) -> None:
    @torch.library.register_fake(f"xgemm::{name}")
    def extremum(input, dim=None, keepdim=False) -> Tensor:
        _check_real(name, input)
        return input.new_empty(_reduced(name, input, dim, keepdim))

    @torch.library.register_fake(f"xgemm::arg{name.removeprefix('a')}")
    def index(input, dim=None, keepdim=False) -> Tensor:
        op = f"arg{name.removeprefix('a')}"
        _check_real(op, input)
        return input.new_empty(_reduced(op, input, None if dim is None else [dim], keepdim), dtype=torch.int64)


_register_extremum("amax")
_register_extremum("amin")


def _register_softmax(name: str) -> None:
    @torch.library.register_fake(f"xgemm::{name}")
    def softmax(input, dim, *, dtype=None) -> Tensor:
        _check_real(name, input)
        _wrap_dim(name, input, dim)
        result = dtype or input.dtype
        torch._check(
            result in FLOATING,
            lambda: f"xgemm::{name}: expected input of dtype {', '.join(map(_name, FLOATING))}, got {_name(result)}",
        )
        return input.new_empty(input.shape, dtype=result)


_register_softmax("softmax")
_register_softmax("log_softmax")


def _check_attention(op, query, key, value, attn_mask, is_causal, enable_gqa) -> tuple[list, Tensor]:
    """The output's shape without its last dim."""
    _check_inputs(op, query=query, key=key, value=value)
    for name, t in (("query", query), ("key", key), ("value", value)):
        torch._check(
            t.dim() >= 2,
            lambda name=name, t=t: (
                f"xgemm::{op}: expected {name} of shape (..., heads, length, head size), got shape {_shape(t.shape)}"
            ),
        )
    (sq, d), (sk, dv) = query.shape[-2:], value.shape[-2:]
    torch._check(
        key.shape[-1] == d,
        lambda: f"xgemm::{op}: expected query and key of one head size, got {d} and {key.shape[-1]}",
    )
    torch._check(
        key.shape[-2] == sk,
        lambda: f"xgemm::{op}: expected key and value of one length, got {key.shape[-2]} and {sk}",
    )
    torch._check(
        d <= MAX_HEAD_SIZE,
        lambda: f"xgemm::{op}: expected head sizes up to {MAX_HEAD_SIZE}, got query {d} and value {dv}",
    )
    torch._check(
        dv <= MAX_HEAD_SIZE,
        lambda: f"xgemm::{op}: expected head sizes up to {MAX_HEAD_SIZE}, got query {d} and value {dv}",
    )
    batch = list(query.shape[:-2])
    for name, t in (("key", key), ("value", value)):
        shape, shapes = list(t.shape[:-2]), f"got shapes {_shape(query.shape)} and {_shape(t.shape)}"
        if enable_gqa:  # each head of key and value serves a group of the query's heads
            torch._check(
                query.dim() >= 3 and t.dim() >= 3,
                lambda name=name, shapes=shapes: (
                    f"xgemm::{op}: expected query and {name} of shape (..., heads, length, head size) with enable_gqa, "
                    f"{shapes}"
                ),
            )
            torch._check(
                query.shape[-3] == shape[-1] or (shape[-1] > 0 and query.shape[-3] % shape[-1] == 0),
                lambda name=name, shape=shape: (
                    f"xgemm::{op}: expected the number of query heads to be a multiple of {name} heads "
                    f"with enable_gqa, got {query.shape[-3]} and {shape[-1]}"
                ),
            )
            shape[-1] = query.shape[-3]
        heads = f"of equal heads (pass enable_gqa=True when query heads share them), {shapes}"
        _broadcast(batch[-1:], shape[-1:], f"xgemm::{op}: expected query and {name} {heads}")
        batch = _broadcast(batch, shape, f"xgemm::{op}: expected query and {name} with dims that broadcast, {shapes}")
    if attn_mask is not None:
        torch._check(not is_causal, lambda: f"xgemm::{op}: expected attn_mask or is_causal, got both")
        scores = [*batch, sq, sk]
        message = (
            f"xgemm::{op}: expected attn_mask to broadcast to {_shape(scores)}, got shape {_shape(attn_mask.shape)}"
        )
        _broadcasts_to(attn_mask.shape, scores, message)
    return [*batch, sq]


@torch.library.register_fake("xgemm::attention")
def _attention(
    query, key, value, *, attn_mask=None, is_causal=False, scale=None, enable_gqa=False, causal_alignment="top_left"
) -> Tensor:
    rows = _check_attention("attention", query, key, value, attn_mask, is_causal, enable_gqa)
    return query.new_empty([*rows, value.shape[-1]])


@torch.library.register_fake("xgemm::attention_lse")
def _attention_lse(
    query, key, value, *, attn_mask=None, is_causal=False, scale=None, enable_gqa=False, causal_alignment="top_left"
) -> tuple[Tensor, Tensor]:
    rows = _check_attention("attention_lse", query, key, value, attn_mask, is_causal, enable_gqa)
    accumulator = torch.float64 if query.dtype is torch.float64 else torch.float32
    return query.new_empty([*rows, value.shape[-1]]), query.new_empty(rows, dtype=accumulator)

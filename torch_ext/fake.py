"""What the operators' results look like (shape, dtype, device; always contiguous) without computing them.

torch.compile, torch.export, FakeTensorMode and tensors on "meta" use these. Sizes may be symbolic; a size that is not
known while tracing is taken to be other than 1, as torch's own ops do.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

FLOATING = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
REAL = (*FLOATING, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
REAL_AND_BOOL = (*REAL, torch.bool)
MAX_HEAD_SIZE = 256
MAX_TOP_K = 64


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


def _expands(op: str, name: str, t: Tensor, what: str, shape: Sequence) -> None:
    """Checks that `t` broadcasts to `shape`."""
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    message = f"xgemm::{op}: expected {name} to broadcast to {what}{_shape(shape)}, got shape {_shape(t.shape)}"
    torch._check(t.dim() <= len(shape), lambda: message)
    for x, y in zip(reversed(t.shape), reversed(shape), strict=False):
        if not guard_or_false(x == 1):
            torch._check(x == y, lambda: message)


@torch.library.register_fake("xgemm::matmul")
def _matmul(a: Tensor, b: Tensor, *, precision: str = "highest") -> Tensor:
    _check_inputs("matmul", a=a, b=b)
    shapes = f"got shapes {_shape(a.shape)} and {_shape(b.shape)}"
    torch._check(a.dim() > 0 and b.dim() > 0, lambda: f"xgemm::matmul: expected a and b with at least 1 dim, {shapes}")
    inner, its = (0, "only") if b.dim() == 1 else (-2, "second-to-last")
    torch._check(
        a.shape[-1] == b.shape[inner], lambda: f"xgemm::matmul: expected a's last dim to equal b's {its} dim, {shapes}"
    )
    message = f"xgemm::matmul: expected a and b with dims that broadcast, {shapes}"
    batch = _broadcast(a.shape[:-2], b.shape[:-2], message)
    return a.new_empty([*batch, *a.shape[-2:-1], *(b.shape[-1:] if b.dim() > 1 else ())])


@torch.library.register_fake("xgemm::addmm")
def _addmm(input, mat1, mat2, *, beta: float = 1, alpha: float = 1, precision: str = "highest") -> Tensor:
    _check_inputs("addmm", mat1=mat1, mat2=mat2, input=input)
    shapes = f"got shapes {_shape(mat1.shape)} and {_shape(mat2.shape)}"
    torch._check(
        mat1.dim() == 2 and mat2.dim() == 2, lambda: f"xgemm::addmm: expected mat1 and mat2 with 2 dims, {shapes}"
    )
    torch._check(
        mat1.shape[1] == mat2.shape[0],
        lambda: f"xgemm::addmm: expected mat1's last dim to equal mat2's first dim, {shapes}",
    )
    shape = [mat1.shape[0], mat2.shape[1]]
    if beta != 0:  # else it is not read
        _expands("addmm", "input", input, "the output's shape ", shape)
    return mat1.new_empty(shape)


@torch.library.register_fake("xgemm::linear")
def _linear(input, weight, bias=None, *, activation="none", residual=None, precision="highest") -> Tensor:
    return _linear_like("linear", input, weight, bias, residual)


def _linear_like(op: str, input: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None) -> Tensor:
    _check_inputs(op, input=input, weight=weight, bias=bias, residual=residual)
    shapes = f"got shapes {_shape(input.shape)} and {_shape(weight.shape)}"
    torch._check(
        input.dim() > 0 and weight.dim() in (1, 2),
        lambda: f"xgemm::{op}: expected input with at least 1 dim and weight with 1 or 2 dims, {shapes}",
    )
    torch._check(
        input.shape[-1] == weight.shape[-1],
        lambda: f"xgemm::{op}: expected input's last dim to equal weight's last dim, {shapes}",
    )
    shape = [*input.shape[:-1], *weight.shape[:-1]]
    if bias is not None:
        torch._check(
            weight.dim() == 2 or bias.dim() == 0,
            lambda: f"xgemm::{op}: expected a bias of no dims beside a weight of 1 dim, got shape {_shape(bias.shape)}",
        )
        _expands(op, "bias", bias, "", weight.shape[:-1])
    if residual is not None:
        _expands(op, "residual", residual, "the output's shape ", shape)
    return input.new_empty(shape)


@torch.library.register_fake("xgemm::prepare")
def _prepare(weight, *, precision="highest") -> Tensor:
    _check_inputs("prepare", weight=weight)
    torch._check(weight.dim() == 2, lambda: f"xgemm::prepare: expected weight with 2 dims, got {_shape(weight.shape)}")
    n, k = weight.shape
    used = weight.is_cuda and weight.dtype is torch.float32 and precision != "ieee" and weight.numel() > 0
    if not used or not torch.cuda.is_available() or torch.cuda.get_device_capability(weight.device)[0] != 9:
        return weight.new_empty([0], dtype=torch.uint8)
    parts = 2 * (2 if precision == "highest" else 1) * n * ((k + 7) // 8 * 8)
    return weight.new_empty([(parts + 255) // 256 * 256 + 16 * n + 16], dtype=torch.uint8)  # copies, lines, counts


@torch.library.register_fake("xgemm::linear_prepared")
def _linear_prepared(
    input, weight, prepared, bias=None, *, activation="none", residual=None, precision="highest"
) -> Tensor:
    torch._check(
        prepared.device == weight.device,
        lambda: (
            f"xgemm::linear_prepared: expected weight and prepared on one device, "
            f"got {weight.device} and {prepared.device}"
        ),
    )
    return _linear_like("linear_prepared", input, weight, bias, residual)


@torch.library.register_fake("xgemm::gated_linear")
def _gated_linear(
    input, weight_gate, weight_up, bias_gate=None, bias_up=None, *, activation="silu", precision="highest"
) -> Tensor:
    weights = {"weight_gate": weight_gate, "weight_up": weight_up}
    _check_inputs("gated_linear", input=input, **weights, bias_gate=bias_gate, bias_up=bias_up)
    shapes = f"got shapes {_shape(input.shape)} and {_shape(weight_gate.shape)}"
    torch._check(
        input.dim() > 0 and weight_gate.dim() == 2,
        lambda: f"xgemm::gated_linear: expected input with at least 1 dim and weight_gate with 2 dims, {shapes}",
    )
    torch._check(
        input.shape[-1] == weight_gate.shape[-1],
        lambda: f"xgemm::gated_linear: expected input's last dim to equal weight_gate's last dim, {shapes}",
    )
    message = (
        f"xgemm::gated_linear: expected weight_up of weight_gate's shape {_shape(weight_gate.shape)}, "
        f"got {_shape(weight_up.shape)}"
    )
    torch._check(weight_up.dim() == 2, lambda: message)
    for x, y in zip(weight_up.shape, weight_gate.shape, strict=True):
        torch._check(x == y, lambda: message)
    for name, bias in (("bias_gate", bias_gate), ("bias_up", bias_up)):
        if bias is not None:
            expected = f"xgemm::gated_linear: expected {name} of shape {_shape(weight_gate.shape[:1])}"
            torch._check(bias.dim() == 1, lambda e=expected, b=bias: f"{e}, got {_shape(b.shape)}")
            torch._check(
                bias.shape[0] == weight_gate.shape[0], lambda e=expected, b=bias: f"{e}, got {_shape(b.shape)}"
            )
    return input.new_empty([*input.shape[:-1], weight_gate.shape[0]])


def _wrap_dim(op: str, input: Tensor, dim: int) -> int:
    rank = max(input.dim(), 1)
    torch._check(-rank <= dim < rank, lambda: f"xgemm::{op}: expected dim in [{-rank}, {rank - 1}], got {dim}")
    return dim % rank


def _check_floating(op: str, input: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """The result's dtype of an op that computes in it."""
    result = input.dtype if dtype is None else dtype
    argument, hint = ("input", "; pass dtype=, for example torch.float32") if dtype is None else ("dtype", "")
    torch._check(
        result in FLOATING,
        lambda: f"xgemm::{op}: expected {argument} of a floating dtype, got {_name(result)}{hint}",
    )
    return result


def _reduced(
    op: str, input: Tensor, dims: Sequence[int] | None, keepdim: bool, of_nothing: bool = True, index: bool = False
) -> list:
    """The shape left after reducing `dims` (all when None or empty); `of_nothing`: no elements have a value too."""
    wrapped = [_wrap_dim(op, input, dim) for dim in dims or ()]
    gone = set(wrapped) or set(range(input.dim()))
    if not of_nothing:
        if not wrapped and not index:
            for n in input.shape:
                torch._check(
                    n != 0,
                    lambda: (
                        f"xgemm::{op}: expected dim to be given for an input of no elements, "
                        f"got shape {_shape(input.shape)}"
                    ),
                )
        for d in sorted(gone):
            if d < input.dim():
                torch._check(
                    input.shape[d] != 0,
                    lambda d=d: (
                        f"xgemm::{op}: expected the reduced dims to be non-empty, "
                        f"got dim {d} of size 0 in shape {_shape(input.shape)}"
                    ),
                )
    for i, dim in enumerate(wrapped):
        torch._check(
            dim not in wrapped[:i],
            lambda i=i: f"xgemm::{op}: expected every dim at most once, got {dims[i]} twice (as one of {list(dims)})",
        )
    if keepdim:
        return [1 if i in gone else n for i, n in enumerate(input.shape)]
    return [n for i, n in enumerate(input.shape) if i not in gone]


@torch.library.register_fake("xgemm::sum")
def _sum(input, dim=None, keepdim=False, *, dtype=None) -> Tensor:
    _check_inputs("sum", REAL_AND_BOOL, input=input)
    dtype = dtype or (input.dtype if input.is_floating_point() else torch.int64)
    return input.new_empty(_reduced("sum", input, dim, keepdim), dtype=dtype)


@torch.library.register_fake("xgemm::mean")
def _mean(input, dim=None, keepdim=False, *, dtype=None) -> Tensor:
    _check_inputs("mean", REAL_AND_BOOL, input=input)
    dtype = _check_floating("mean", input, dtype)
    return input.new_empty(_reduced("mean", input, dim, keepdim), dtype=dtype)


@torch.library.register_fake("xgemm::logsumexp")
def _logsumexp(input, dim=None, keepdim=False) -> Tensor:
    _check_inputs("logsumexp", REAL_AND_BOOL, input=input)
    dtype = input.dtype if input.is_floating_point() else torch.float32
    return input.new_empty(_reduced("logsumexp", input, dim, keepdim), dtype=dtype)


def _register_extremum(name: str) -> None:
    @torch.library.register_fake(f"xgemm::{name}")
    def extremum(input, dim=None, keepdim=False) -> Tensor:
        _check_inputs(name, REAL_AND_BOOL, input=input)
        return input.new_empty(_reduced(name, input, dim, keepdim, of_nothing=False))


def _register_index(name: str) -> None:
    @torch.library.register_fake(f"xgemm::{name}")
    def index(input, dim=None, keepdim=False) -> Tensor:
        _check_inputs(name, REAL, input=input)
        dims = None if dim is None else [dim]
        return input.new_empty(_reduced(name, input, dims, keepdim, of_nothing=False, index=True), dtype=torch.int64)


_register_extremum("amax")
_register_extremum("amin")
_register_index("argmax")
_register_index("argmin")


@torch.library.register_fake("xgemm::cross_entropy")
def _cross_entropy(input, target, *, ignore_index=-100, reduction="mean", label_smoothing=0.0) -> Tensor:
    _check_inputs("cross_entropy", input=input)
    _check_inputs("cross_entropy", (torch.int64, torch.uint8), target=target)
    torch._check(
        input.device == target.device,
        lambda: (
            f"xgemm::cross_entropy: expected input and target on one device, got {input.device} and {target.device}"
        ),
    )
    torch._check(
        reduction in ("none", "mean", "sum"),
        lambda: f"xgemm::cross_entropy: expected reduction to be none, mean or sum, got {reduction}",
    )
    torch._check(
        0 <= label_smoothing <= 1,
        lambda: f"xgemm::cross_entropy: expected label_smoothing in [0, 1], got {label_smoothing}",
    )
    torch._check(
        input.dim() > 0,
        lambda: "xgemm::cross_entropy: expected input of shape (C), (N, C) or (N, C, ...), got shape []",
    )
    batch = (
        "xgemm::cross_entropy: expected input and target of one batch size, "
        f"got shapes {_shape(input.shape)} and {_shape(target.shape)}"
    )
    torch._check(target.dim() != 1 if input.dim() == 1 else target.dim() > 0, lambda: batch)
    if input.dim() > 1:
        torch._check(target.shape[0] == input.shape[0], lambda: batch)
    wanted = [*input.shape[:1], *input.shape[2:]] if input.dim() > 1 else []
    message = (
        f"xgemm::cross_entropy: expected target of shape {_shape(wanted)} for input of shape {_shape(input.shape)}"
    )
    torch._check(len(wanted) == target.dim(), lambda: f"{message}, got {_shape(target.shape)}")
    for ours, theirs in zip(wanted, target.shape, strict=True):
        torch._check(ours == theirs, lambda: f"{message}, got {_shape(target.shape)}")
    return input.new_empty(wanted if reduction == "none" else [])


def _register_softmax(name: str) -> None:
    @torch.library.register_fake(f"xgemm::{name}")
    def softmax(input, dim, *, dtype=None) -> Tensor:
        _check_inputs(name, REAL_AND_BOOL, input=input)
        result = _check_floating(name, input, dtype)
        _wrap_dim(name, input, dim)
        return input.new_empty(input.shape, dtype=result)


_register_softmax("softmax")
_register_softmax("log_softmax")


@torch.library.register_fake("xgemm::scaled_masked_softmax")
def _scaled_masked_softmax(input, mask=None, scale=1.0, dim=-1) -> Tensor:
    op = "scaled_masked_softmax"
    _check_inputs(op, input=input)
    _wrap_dim(op, input, dim)
    if mask is not None:
        _check_inputs(op, (torch.bool, torch.float32, input.dtype), mask=mask)
        torch._check(
            mask.device == input.device,
            lambda: f"xgemm::{op}: expected input and mask on one device, got {input.device} and {mask.device}",
        )
        message = (
            f"xgemm::{op}: expected mask to broadcast to input's shape {_shape(input.shape)}, "
            f"got shape {_shape(mask.shape)}"
        )
        torch._check(mask.dim() <= input.dim(), lambda: message)
        for have, wanted in zip(reversed(mask.shape), reversed(input.shape), strict=False):
            torch._check(have == 1 or have == wanted, lambda: message)
    return input.new_empty(input.shape)


@torch.library.register_fake("xgemm::topk_softmax")
def _topk_softmax(input, k, dim=-1, *, renormalize=True, dtype=None) -> tuple[Tensor, Tensor]:
    _check_inputs("topk_softmax", REAL_AND_BOOL, input=input)
    result = _check_floating("topk_softmax", input, dtype)
    wrapped, shape = _wrap_dim("topk_softmax", input, dim), list(input.shape)
    length = shape[wrapped] if shape else 1
    torch._check(
        length < 2**31, lambda: f"xgemm::topk_softmax: expected rows of fewer than 2^31 elements, got {length}"
    )
    message = f"xgemm::topk_softmax: expected k in [0, {MAX_TOP_K}] and at most the size of dim, got {k}"
    torch._check((0 if shape else 1) <= k <= MAX_TOP_K, lambda: message)
    torch._check(k <= length, lambda: message)
    if shape:
        shape[wrapped] = k
    return input.new_empty(shape, dtype=result), input.new_empty(shape, dtype=torch.int64)


def _check_attention(op, query, key, value, attn_mask, is_causal, enable_gqa, sinks) -> tuple[list, Tensor]:
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
        torch._check(
            attn_mask.device == query.device,
            lambda: (
                f"xgemm::{op}: expected query and attn_mask on one device, got {query.device} and {attn_mask.device}"
            ),
        )
        _expands(op, "attn_mask", attn_mask, "", [*batch, sq, sk])
    if sinks is not None:
        torch._check(
            sinks.device == query.device,
            lambda: f"xgemm::{op}: expected query and sinks on one device, got {query.device} and {sinks.device}",
        )
        torch._check(
            sinks.dtype in (torch.float32, query.dtype),
            lambda: (
                f"xgemm::{op}: expected sinks of dtype float32 or query's {_name(query.dtype)}, "
                f"got {_name(sinks.dtype)}"
            ),
        )
        _expands(op, "sinks", sinks, "", batch)
    return [*batch, sq]


@torch.library.register_fake("xgemm::attention")
def _attention(
    query,
    key,
    value,
    *,
    attn_mask=None,
    is_causal=False,
    scale=None,
    enable_gqa=False,
    causal_alignment="top_left",
    window=(-1, -1),
    softcap=0.0,
    sinks=None,
) -> Tensor:
    rows = _check_attention("attention", query, key, value, attn_mask, is_causal, enable_gqa, sinks)
    return query.new_empty([*rows, value.shape[-1]])


@torch.library.register_fake("xgemm::attention_lse")
def _attention_lse(
    query,
    key,
    value,
    *,
    attn_mask=None,
    is_causal=False,
    scale=None,
    enable_gqa=False,
    causal_alignment="top_left",
    window=(-1, -1),
    softcap=0.0,
    sinks=None,
) -> tuple[Tensor, Tensor]:
    rows = _check_attention("attention_lse", query, key, value, attn_mask, is_causal, enable_gqa, sinks)
    accumulator = torch.float64 if query.dtype is torch.float64 else torch.float32
    return query.new_empty([*rows, value.shape[-1]]), query.new_empty(rows, dtype=accumulator)

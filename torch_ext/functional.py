"""The operators as documented functions: torch's names, argument order and semantics where torch has the op.

Every function takes dense tensors of any strides on the CPU (ATen computes) or on a CUDA device (xgemm's kernels
compute, on the current stream) and returns a new contiguous tensor on the same device. Common to all:

Forward only
    With grad mode on, an input that requires grad is a RuntimeError: call under ``torch.no_grad()`` or
    ``torch.inference_mode()``. (argmax and argmin take such inputs: indices have no gradient.)
Determinism
    The same call gives the same bits on every run, and on CUDA a row's bits do not depend on how many other rows there
    are; docs/architecture.md lists the exceptions.
Errors
    RuntimeError for mixed devices or dtypes, unsupported dtypes, layouts and shapes; IndexError for a dim out of range;
    ValueError for an unknown precision, activation, causal_alignment or reduction; TypeError for an argument of the
    wrong type. One line each.
Autocast
    As torch's own ops have it; see :mod:`torch_ext.autocast`.

``precision`` is about float32 inputs only (others ignore it): "highest", at least as accurate as SGEMM by the fastest
means; "ieee", fp32 multiply-adds; "high", TF32; "medium", bf16. None, the default, follows
``torch.get_float32_matmul_precision()``.
"""

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from torch_ext.autograd import check_forward_only
from torch_ext.prepared import PreparedWeight

__all__ = [
    "addmm",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "attention",
    "cross_entropy",
    "gated_linear",
    "linear",
    "log_softmax",
    "logsumexp",
    "matmul",
    "mean",
    "prepare",
    "scaled_masked_softmax",
    "softmax",
    "sum",
    "topk_softmax",
]

# Bound once: a lookup through torch.ops costs as much as the call itself.
_ops = torch.ops.xgemm
_matmul, _addmm, _linear = _ops.matmul.default, _ops.addmm.default, _ops.linear.default
_sum, _mean, _amax, _amin = _ops.sum.default, _ops.mean.default, _ops.amax.default, _ops.amin.default
_argmax, _argmin, _logsumexp = _ops.argmax.default, _ops.argmin.default, _ops.logsumexp.default
_gated_linear, _linear_prepared = _ops.gated_linear.default, _ops.linear_prepared.default
_cross_entropy = _ops.cross_entropy.default
_softmax, _log_softmax, _topk_softmax = _ops.softmax.default, _ops.log_softmax.default, _ops.topk_softmax.default
_scaled_masked_softmax = _ops.scaled_masked_softmax.default
_attention, _attention_lse = _ops.attention.default, _ops.attention_lse.default

_BelowAutograd = torch._C._AutoDispatchBelowAutograd
_inference_mode = torch.is_inference_mode_enabled
_compiling = torch.compiler.is_compiling

_WRONG_TYPE = re.compile(r"Expected a value of type '(.+?)' for argument '(\w+)' but instead found type '(.+?)'\.")
_UNDEFINED = re.compile(r"expected (\w+) to be a tensor, got an undefined one")
_WRONG_INDEX = re.compile(r": expected (dim in \[|the reduced dims to be non-empty|targets in \[)")
_WRONG_VALUE = re.compile(
    r": expected ((precision|activation|causal_alignment|reduction) |input and target of one batch size)"
)


def _precision() -> str:
    """torch's setting of the moment, whichever of its two ways set it."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # torch refuses to sum up settings that were made per backend
        return "high" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "highest"


# What torch.compiler.assume_constant_result does, less its import of Dynamo (1 s). Dynamo's own guards recompile when
# the setting goes from "highest" to another one or back; between "high" and "medium" they see no difference.
_precision._dynamo_marked_constant = True


def _python_error(op: torch._ops.OpOverload, error: RuntimeError) -> Exception:
    """What torch's own function raises here, in one line: C++ knows RuntimeError only, the dispatcher writes pages."""
    message, name = str(error), op._schema.name
    if _WRONG_INDEX.search(message):
        return IndexError(message)
    if _WRONG_VALUE.search(message):
        return ValueError(message)
    if wrong := _WRONG_TYPE.search(message):
        expected = "torch.dtype or None" if wrong[2] == "dtype" else wrong[1]  # the dispatcher's word for it is int
        return TypeError(f"{name}: expected {wrong[2]} of type {expected}, got {wrong[3]}")
    if wrong := _UNDEFINED.search(message):
        return TypeError(f"{name}: expected {wrong[1]} of type Tensor, got None")
    if isinstance(error, NotImplementedError):
        if "no tensor arguments" in message:
            return TypeError(f"{name}: expected input of type Tensor, got None")
        if message.startswith("Could not run") or message == str(op):
            return RuntimeError(f"{name}: expected dense tensors on cpu or cuda, got nested ones or another backend's")
    return error


def _call(op: torch._ops.OpOverload, *args, **kwargs):
    """Calls a differentiable op below its Autograd kernel, after the same check: that saves 2 us."""
    try:
        if _compiling() or _inference_mode():
            return op(*args, **kwargs)
        check_forward_only(op, (*args, *kwargs.values()))
        with _BelowAutograd():
            return op(*args, **kwargs)
    except RuntimeError as error:
        raise _python_error(op, error) from None


def _check_dtype(op: torch._ops.OpOverload, dtype: torch.dtype | None) -> None:
    """The dispatcher takes any int for a dtype."""
    if isinstance(dtype, int):
        raise TypeError(f"{op._schema.name}: expected dtype of type torch.dtype or None, got {type(dtype).__name__}")


def matmul(a: Tensor, b: Tensor, *, precision: str | None = None) -> Tensor:
    """Matrix product with the semantics of :func:`torch.matmul`.

    Args:
        a: (..., M, K) or (K,), float32, float16, bfloat16 or float64.
        b: (..., K, N) or (K,), of a's dtype and device; the batch dims in front broadcast.
        precision: for float32, see the module's text.

    Returns:
        (..., M, N), without M or N where an input is 1-D, of the inputs' dtype. Sums are kept in fp32 or wider.

    Raises:
        RuntimeError: a 0-d input, K or batch dims that do not fit; and what the module's text lists.

    Source: blocked matrix product after Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication"
        (2008); on CUDA in warp tiles as in CUTLASS.
    """
    return _call(_matmul, a, b, precision=_precision() if precision is None else precision)


def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1, precision: str | None = None
) -> Tensor:
    """``beta * input + alpha * (mat1 @ mat2)``, the semantics of :func:`torch.addmm`.

    Args:
        input: broadcasts to (M, N); not read when beta is 0, so that its NaN and Inf do not spread and any shape does.
        mat1: (M, K), float32, float16, bfloat16 or float64.
        mat2: (K, N). All three of one dtype and device.
        beta: factor of input.
        alpha: factor of the product.
        precision: for float32, see the module's text.

    Returns:
        (M, N) of the inputs' dtype.

    Raises:
        RuntimeError: shapes that do not fit; and what the module's text lists.

    Source: BLAS GEMM (Dongarra et al., 1990).
    """
    return _call(
        _addmm, input, mat1, mat2, beta=beta, alpha=alpha, precision=_precision() if precision is None else precision
    )


def linear(
    input: Tensor,
    weight: Tensor | PreparedWeight,
    bias: Tensor | None = None,
    *,
    activation: str = "none",
    residual: Tensor | None = None,
    precision: str | None = None,
) -> Tensor:
    """``activation(input @ weight.T + bias) + residual`` in one kernel: :func:`torch.nn.functional.linear` and more.

    Args:
        input: (..., K), float32, float16, bfloat16 or float64.
        weight: (N, K), or what :func:`prepare` made of it; (K,) gives a result without N.
        bias: (N,) or None.
        activation: "none", "relu", "gelu" (by erf), "gelu_tanh" (its tanh approximation) or "silu".
        residual: added after the activation; broadcasts to the result. All tensors of one dtype and device.
        precision: for float32, see the module's text.

    Returns:
        (..., N) of the inputs' dtype. Bias, activation and residual are applied in fp32 or wider, before the one
        rounding.

    Raises:
        RuntimeError: shapes that do not fit; a weight that has changed since it was prepared; and what the module's
            text lists.
        ValueError: an unknown activation; a precision other than the one that the weight was prepared for.

    Source: GELU after Hendrycks and Gimpel (2016), SiLU after Elfwing et al. (2017); fused epilogues as in CUTLASS.
    """
    if type(weight) is PreparedWeight:
        return _linear_with_copy(input, weight, bias, activation, residual, precision)
    precision = _precision() if precision is None else precision
    return _call(_linear, input, weight, bias, activation=activation, residual=residual, precision=precision)


def _linear_with_copy(
    input: Tensor,
    prepared: PreparedWeight,
    bias: Tensor | None,
    activation: str,
    residual: Tensor | None,
    precision: str | None,
) -> Tensor:
    if precision not in (None, prepared.precision):
        raise ValueError(
            f"xgemm::linear: expected precision {prepared.precision!r}, which the weight was prepared for, "
            f"got {precision!r}"
        )
    options = {"activation": activation, "residual": residual, "precision": prepared.precision}
    if _compiling():  # a compiled graph could not see whether the copy is fresh
        return _call(_linear, input, prepared.weight, bias, **options)
    if not prepared.is_fresh():
        raise RuntimeError(
            "xgemm::linear: expected the weight as it was when it was prepared, got one that has been written to or "
            "moved since; call update() of the prepared weight"
        )
    return _call(_linear_prepared, input, prepared.weight, prepared.copy, bias, **options)


def prepare(weight: Tensor, precision: str | None = None) -> PreparedWeight:
    """Splits a weight for fp32 products on Hopper's tensor cores, once: ``linear(x, prepare(weight))``.

    Without it every call splits the weight anew, which costs more than the product itself where rows are few. The
    result has the bits of the tensor cores' product of the plain weight. The copy is as large as the weight ("highest":
    two fp16 parts; "high" and "medium": half of that) and is kept beside it; its `memory` says the bytes. Where no
    product would use a copy (on the CPU, on other GPUs, of other dtypes, for "ieee") there is none, and linear does the
    plain product.

    A weight that is written to or moved after that is an error at the next call, by its version counter and address;
    the result's `update()` copies it again. What goes round the counter goes round the check: do not write through
    ``weight.data``. A CUDA graph holds the copy and does not check: call `update()` after a change, before the next
    replay. Under torch.compile the plain product is compiled.

    Args:
        weight: (N, K), float32 (others are left as they are).
        precision: what the copy is for, see the module's text.

    Returns:
        What :func:`linear` takes in the weight's place.

    Raises:
        RuntimeError: a weight that is not 2-D or was made under ``torch.inference_mode()``; and what the module's text
            lists.

    Source: Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores" (2022).
    """
    try:
        return PreparedWeight(weight, _precision() if precision is None else precision)
    except RuntimeError as error:
        raise _python_error(_ops.prepare.default, error) from None


def gated_linear(
    input: Tensor,
    weight_gate: Tensor,
    weight_up: Tensor,
    bias_gate: Tensor | None = None,
    bias_up: Tensor | None = None,
    *,
    activation: str = "silu",
    precision: str | None = None,
) -> Tensor:
    """``activation(input @ weight_gate.T + bias_gate) * (input @ weight_up.T + bias_up)``: SwiGLU, GEGLU and the like.

    Args:
        input: (..., K), float32, float16, bfloat16 or float64.
        weight_gate: (N, K).
        weight_up: (N, K).
        bias_gate: (N,) or None.
        bias_up: (N,) or None. All tensors of one dtype and device.
        activation: as in :func:`linear`; "silu" makes it SwiGLU, "gelu" GEGLU, "relu" ReGLU.
        precision: for float32, see the module's text.

    Returns:
        (..., N) of the inputs' dtype. Biases, activation and product are done in fp32 or wider, before the one
        rounding. On Hopper's tensor cores both products are one kernel and neither is written to memory; that kernel
        wants contiguous weights and copies others first.

    Raises:
        RuntimeError: shapes that do not fit; and what the module's text lists.
        ValueError: an unknown activation.

    Source: Shazeer, "GLU Variants Improve Transformer" (2020).
    """
    precision = _precision() if precision is None else precision
    return _call(
        _gated_linear,
        input,
        weight_gate,
        weight_up,
        bias_gate,
        bias_up,
        activation=activation,
        precision=precision,
    )


def sum(
    input: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Sum over dims, the semantics of :func:`torch.sum`.

    Args:
        input: any shape; floating, integer or bool.
        dim: the dim or dims to sum over; all when None or empty.
        keepdim: keep the reduced dims with size 1.
        dtype: converts the input first and is the result's dtype.

    Returns:
        The input's dtype, int64 for integers and bool. Floating sums are kept in fp32 or wider, added in a fixed tree
        order.

    Raises:
        IndexError: a dim out of range.
        RuntimeError: a dim given twice; and what the module's text lists.

    Source: tree reduction after Harris, "Optimizing Parallel Reduction in CUDA" (2007), with warp shuffles.
    """
    _check_dtype(_sum, dtype)
    return _call(_sum, input, dim, keepdim, dtype=dtype)


def mean(
    input: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Arithmetic mean over dims, the semantics of :func:`torch.mean`.

    Args:
        input: any shape, floating; integers with a floating `dtype`.
        dim, keepdim, dtype: as in :func:`sum`.

    Returns:
        The input's dtype or `dtype`; NaN where no element is averaged.

    Raises:
        IndexError: a dim out of range.
        RuntimeError: a dim given twice, an integer input without `dtype`; and what the module's text lists.

    Source: as :func:`sum`.
    """
    _check_dtype(_mean, dtype)
    return _call(_mean, input, dim, keepdim, dtype=dtype)


def amax(input: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """Largest value over dims, the semantics of :func:`torch.amax`.

    Args:
        input: any shape; floating, integer or bool. A reduced dim must not be empty.
        dim, keepdim: as in :func:`sum`.

    Returns:
        The input's dtype; NaN where there is one among the values.

    Raises:
        IndexError: a dim out of range or empty.
        RuntimeError: a dim given twice, an input of no elements without `dim`; and what the module's text lists.

    Source: as :func:`sum`.
    """
    return _call(_amax, input, dim, keepdim)


def amin(input: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """Smallest value over dims, the semantics of :func:`torch.amin`. Arguments, results and errors as in :func:`amax`.

    Source: as :func:`sum`.
    """
    return _call(_amin, input, dim, keepdim)


def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the largest value, of equal ones the first; a NaN is the largest.

    The semantics of :func:`torch.argmax`.

    Args:
        input: any shape, not empty; floating or integer.
        dim: the dim to search; the flattened input when None.
        keepdim: keep the reduced dim with size 1.

    Returns:
        int64 indices.

    Raises:
        IndexError: a dim out of range, an empty reduction.
        RuntimeError: what the module's text lists.

    Source: as :func:`sum`, over (value, index) pairs.
    """
    try:
        return _argmax(input, dim, keepdim)
    except RuntimeError as error:
        raise _python_error(_argmax, error) from None


def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the smallest value, of equal ones the first; a NaN is the smallest.

    The semantics of :func:`torch.argmin`.

    Arguments, results and errors as in :func:`argmax`.

    Source: as :func:`argmax`.
    """
    try:
        return _argmin(input, dim, keepdim)
    except RuntimeError as error:
        raise _python_error(_argmin, error) from None


def logsumexp(input: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """``log(sum(exp(input)))`` over dims without overflow, the semantics of :func:`torch.logsumexp`.

    Args:
        input: any shape; floating or integer.
        dim, keepdim: as in :func:`sum`.

    Returns:
        The input's dtype (torch's default dtype for integers); -inf where no element is summed.

    Raises:
        IndexError: a dim out of range.
        RuntimeError: a dim given twice; and what the module's text lists.

    Source: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018): one pass over the input.
    """
    return _call(_logsumexp, input, dim, keepdim)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0,  # as 0.0 torch.compile(dynamic=True) would take the default for an unknown float
) -> Tensor:
    """Cross-entropy of logits and class indices, the semantics of :func:`torch.nn.functional.cross_entropy`.

    The logits are read once and no log-probabilities are stored. Class weights and class probabilities are not taken.

    Args:
        input: logits of shape (C), (N, C) or (N, C, ...); floating.
        target: the classes, int64 or uint8 (of any shape; torch's CPU wants int64 beyond (N)), of input's shape
            without C.
        ignore_index: a target of this value counts for nothing.
        reduction: "none", "mean" (over the targets that are not ignored; NaN when all are) or "sum".
        label_smoothing: share of the target's probability, in [0, 1], that is spread evenly over all classes.

    Returns:
        The input's dtype; the target's shape for "none", else 0-d. Sums are kept in fp32 or wider.

    Raises:
        ValueError: an unknown reduction, batch sizes that differ.
        IndexError: on the CPU a target that is neither a class nor ignore_index; on CUDA it gives NaN (torch stops the
            program there).
        RuntimeError: shapes that do not fit, a label_smoothing out of range; and what the module's text lists.

    Source: as :func:`logsumexp`.
    """
    return _call(
        _cross_entropy,
        input,
        target,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


def softmax(input: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """``exp(input) / sum(exp(input))`` over one dim of any length, the semantics of :func:`torch.softmax`.

    Args:
        input: any shape; floating, or integer with a floating `dtype`.
        dim: the dim that sums to 1.
        dtype: converts the input first and is the result's dtype.

    Returns:
        The input's shape, its dtype or `dtype`; computed in fp32 or wider. NaN where a row is all -inf.

    Raises:
        IndexError: a dim out of range.
        RuntimeError: what the module's text lists.

    Source: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).
    """
    _check_dtype(_softmax, dtype)
    return _call(_softmax, input, dim, dtype=dtype)


def log_softmax(input: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """``log(softmax(input))`` over one dim, the semantics of :func:`torch.log_softmax`.

    Arguments, results and errors as in :func:`softmax`.

    Source: as :func:`softmax`.
    """
    _check_dtype(_log_softmax, dtype)
    return _call(_log_softmax, input, dim, dtype=dtype)


def scaled_masked_softmax(input: Tensor, mask: Tensor | None = None, scale: float = 1.0, dim: int = -1) -> Tensor:
    """``softmax(scale * input + mask)`` over one dim: what attention weights need, in one read of `input`.

    Args:
        input: float32, float16, bfloat16 or float64; any shape and strides.
        mask: broadcasts to `input`: bool, True where an element takes part (one that does not gives 0, whatever it is),
            or of the input's dtype or float32, added to ``scale * input``. It is read by its strides, never expanded.
        scale: factor of `input`.
        dim: the dim that sums to 1.

    Returns:
        The input's shape and dtype; computed in fp32 or wider. NaN where nothing of a row takes part, as in
        :func:`softmax`.

    Raises:
        IndexError: a dim out of range.
        RuntimeError: a mask that does not broadcast; and what the module's text lists.

    Source: as :func:`softmax`.
    """
    return _call(_scaled_masked_softmax, input, mask, scale, dim)


def topk_softmax(
    input: Tensor, k: int, dim: int = -1, *, renormalize: bool = True, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """The `k` largest elements of ``softmax(input, dim)`` in descending order, and their indices, in one read.

    What a mixture-of-experts router computes: :func:`torch.softmax`, :func:`torch.topk` and a division.

    Args:
        input: any shape; floating, or integer with a floating `dtype`.
        k: how many, 0 to 64 and at most the size of `dim`; 1 for a 0-d input.
        dim: the dim of the softmax; fewer than 2^31 elements.
        renormalize: divide the k values by their sum, so that they sum to 1. Else they are those of the whole softmax.
        dtype: converts the input first and is the values' dtype.

    Returns:
        Two tensors of the input's shape with k in place of the size of `dim`: values of the input's dtype or `dtype`,
        computed in fp32 or wider, and int64 indices. The order is that of the input's elements, of equal ones the
        first; a NaN is the largest. All values are NaN where the row holds NaN or +inf, or the chosen ones are all
        -inf.

    Raises:
        IndexError: a dim out of range.
        RuntimeError: a k out of range; and what the module's text lists.

    Source: Johnson, Douze and Jegou, "Billion-scale similarity search with GPUs" (2017): WarpSelect, for long rows.
    """
    _check_dtype(_topk_softmax, dtype)
    return _call(_topk_softmax, input, k, dim, renormalize=renormalize, dtype=dtype)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    causal_alignment: str = "top_left",
    window: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """``softmax(scale * query @ key.mT + mask) @ value`` in memory O(length).

    The semantics of :func:`torch.nn.functional.scaled_dot_product_attention`, without its dropout, and its order of
    arguments.

    Args:
        query: (..., H, Sq, D), float32, float16, bfloat16 or float64; D up to 256.
        key: (..., H, Sk, D).
        value: (..., H, Sk, Dv); Dv up to 256, it may differ from D. All three of one dtype and device; the dims in
            front broadcast.
        attn_mask: bool (True takes part) or additive (float32 or the query's dtype); broadcasts to (..., H, Sq, Sk).
        dropout_p: 0: there is no dropout.
        is_causal: a query sees no later key; not together with attn_mask.
        scale: default 1 / sqrt(D).
        enable_gqa: key and value may have fewer heads; each serves an equal group of neighbouring query heads.
        causal_alignment: which diagonal is_causal means when Sq != Sk: "top_left", row i sees keys 0 to i, as torch;
            "bottom_right", the last row sees all keys.
        window: how many keys to the left and to the right of its own a query sees; -1: all of them. Row i's own key is
            i ("top_left") or i + Sk - Sq ("bottom_right"). With is_causal the second number is 0. Keys outside take no
            time.
        softcap: scores become ``softcap * tanh(scores / softcap)``, before masks; 0: they stay as they are.
        sinks: broadcasts to (..., H), float32 or the query's dtype: for each row the logit of one more key, without a
            value, which takes its part of the weights ("attention sinks" of GPT-OSS).
        return_lse: also return the natural log-sum-exp of each row's scaled and masked scores, its sink among them.

    Returns:
        (..., H, Sq, Dv) of the query's dtype; a row whose keys are all masked is 0. With return_lse a tuple of that and
        (..., H, Sq) in float32 (float64 for float64 inputs), -inf for such a row.

    Raises:
        RuntimeError: shapes that do not fit, a head size over 256, a scale or softcap that is not finite; and what the
            module's text lists.
        ValueError: a dropout_p other than 0, an unknown causal_alignment.

    Source: Dao et al., "FlashAttention" (2022) and "FlashAttention-2" (2023), with the online softmax of Milakov and
        Gimelshein.
    """
    if dropout_p != 0:
        raise ValueError(f"xgemm::attention: expected dropout_p of 0, got {dropout_p}")
    return _call(
        _attention_lse if return_lse else _attention,
        query,
        key,
        value,
        attn_mask=attn_mask,
        is_causal=is_causal,
        scale=scale,
        enable_gqa=enable_gqa,
        causal_alignment=causal_alignment,
        window=window,
        softcap=softcap,
        sinks=sinks,
    )

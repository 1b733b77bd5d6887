"""Matrix products and what is fused with them."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from torch_ext.functional._call import call, compiling, default_precision, python_error
from torch_ext.prepared import PreparedWeight

# Bound once: a lookup through torch.ops costs as much as the call itself.
_addmm = torch.ops.xgemm.addmm.default
_gated_linear = torch.ops.xgemm.gated_linear.default
_linear = torch.ops.xgemm.linear.default
_linear_prepared = torch.ops.xgemm.linear_prepared.default
_matmul = torch.ops.xgemm.matmul.default

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {  # what each means by torch
    "none": lambda x: x,
    "relu": torch.nn.functional.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": partial(torch.nn.functional.gelu, approximate="tanh"),
    "silu": torch.nn.functional.silu,
}


def matmul(a: Tensor, b: Tensor, *, precision: str | None = None) -> Tensor:
    """Matrix product with the semantics of :func:`torch.matmul`.

    Args:
        a: (..., M, K) or (K,), float32, float16, bfloat16 or float64.
        b: (..., K, N) or (K,), of a's dtype and device; the batch dims in front broadcast.
        precision: for float32, see :mod:`torch_ext.functional`.

    Returns:
        (..., M, N), without M or N where an input is 1-D, of the inputs' dtype. Sums are kept in fp32 or wider.

    Raises:
        RuntimeError: a 0-d input, K or batch dims that do not fit; and what :mod:`torch_ext.functional` lists.

    Source: blocked matrix product after Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication"
        (2008); on CUDA in warp tiles as in CUTLASS.
    """
    return call(_matmul, a, b, precision=default_precision() if precision is None else precision)


def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0, precision: str | None = None
) -> Tensor:
    """``beta * input + alpha * (mat1 @ mat2)``, the semantics of :func:`torch.addmm`.

    Args:
        input: broadcasts to (M, N); not read when beta is 0, so that its NaN and Inf do not spread and any shape does.
        mat1: (M, K), float32, float16, bfloat16 or float64.
        mat2: (K, N). All three of one dtype and device.
        beta: factor of input.
        alpha: factor of the product.
        precision: for float32, see :mod:`torch_ext.functional`.

    Returns:
        (M, N) of the inputs' dtype.

    Raises:
        RuntimeError: shapes that do not fit; and what :mod:`torch_ext.functional` lists.

    Source: BLAS GEMM (Dongarra et al., 1990).
    """
    return call(
        _addmm,
        input,
        mat1,
        mat2,
        beta=beta,
        alpha=alpha,
        precision=default_precision() if precision is None else precision,
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
        precision: for float32, see :mod:`torch_ext.functional`.

    Returns:
        (..., N) of the inputs' dtype. Bias, activation and residual are applied in fp32 or wider, before the one
        rounding.

    Raises:
        RuntimeError: shapes that do not fit; a weight that has changed since it was prepared; and what
            :mod:`torch_ext.functional` lists.
        ValueError: an unknown activation; a precision other than the one that the weight was prepared for.

    Source: GELU after Hendrycks and Gimpel (2016), SiLU after Elfwing et al. (2017); fused epilogues as in CUTLASS.
    """
    if type(weight) is not PreparedWeight:
        precision = default_precision() if precision is None else precision
        return call(_linear, input, weight, bias, activation=activation, residual=residual, precision=precision)
    prepared = weight
    if precision not in (None, prepared.precision):
        raise ValueError(
            f"xgemm::linear: expected precision {prepared.precision!r}, which the weight was prepared for, "
            f"got {precision!r}"
        )
    options = {"activation": activation, "residual": residual, "precision": prepared.precision}
    if compiling():  # a compiled graph could not see whether the copy is fresh
        return call(_linear, input, prepared.weight, bias, **options)
    if not prepared.is_fresh():
        raise RuntimeError(
            "xgemm::linear: expected the weight as it was when it was prepared, got one that has been written to or "
            "moved since; call update() of the prepared weight"
        )
    return call(_linear_prepared, input, prepared.weight, prepared.copy, bias, **options)


def prepare(weight: Tensor, precision: str | None = None) -> PreparedWeight:
    """Splits a weight for fp32 products on Hopper's tensor cores, once: ``linear(x, prepare(weight))``.

    Without it every call splits the weight anew, which costs more than the product itself where rows are few. The
    result has the bits of the tensor cores' product of the plain weight. The copy is as large as the weight ("highest":
    two fp16 parts; "high" and "medium": half of that) and is kept beside it; its `memory` says the bytes. Where no
    product would use a copy (on the CPU, on other GPUs, of other dtypes, for "ieee") there is none, and linear does the
    plain product.

    The copy is made on the current stream, as every result: another stream waits for it before it uses it.

    A weight that is written to or moved after that is an error at the next call, by its version counter and address;
    the result's `update()` copies it again. Writes through ``weight.data`` bypass the counter and so the check. A CUDA
    graph holds the copy and does not check: call `update()` after a change, before the next replay. Under torch.compile
    the plain product is compiled.

    Args:
        weight: (N, K), float32 (others are left as they are).
        precision: what the copy is for, see :mod:`torch_ext.functional`.

    Returns:
        What :func:`linear` takes in the weight's place.

    Raises:
        RuntimeError: a weight that is not 2-D or was made under ``torch.inference_mode()``; and what
            :mod:`torch_ext.functional` lists.

    Source: Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores" (2022).
    """
    try:
        return PreparedWeight(weight, default_precision() if precision is None else precision)
    except RuntimeError as error:
        raise python_error(torch.ops.xgemm.prepare.default, error) from None


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
        precision: for float32, see :mod:`torch_ext.functional`.

    Returns:
        (..., N) of the inputs' dtype. Biases, activation and product are done in fp32 or wider, before the one
        rounding. On Hopper's tensor cores both products are one kernel and neither is written to memory; that kernel
        wants contiguous weights and copies others first.

    Raises:
        RuntimeError: shapes that do not fit; and what :mod:`torch_ext.functional` lists.
        ValueError: an unknown activation.

    Source: Shazeer, "GLU Variants Improve Transformer" (2020).
    """
    precision = default_precision() if precision is None else precision
    return call(
        _gated_linear,
        input,
        weight_gate,
        weight_up,
        bias_gate,
        bias_up,
        activation=activation,
        precision=precision,
    )

"""Softmax and its variants, over one dim."""

import torch
from torch import Tensor

from torch_ext.functional._call import call, call_with_dtype, check_number

# Bound once: a lookup through torch.ops costs as much as the call itself.
_log_softmax = torch.ops.xgemm.log_softmax.default
_scaled_masked_softmax = torch.ops.xgemm.scaled_masked_softmax.default
_softmax = torch.ops.xgemm.softmax.default
_topk_softmax = torch.ops.xgemm.topk_softmax.default


def softmax(input: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """``exp(input) / sum(exp(input))`` over one dim of any length, the semantics of :func:`torch.softmax`.

    Args:
        input: any shape; floating, or integer or bool with a floating `dtype`.
        dim: the dim that sums to 1.
        dtype: converts the input first and is the result's dtype.

    Returns:
        The input's shape, its dtype or `dtype`; computed in fp32 or wider. NaN where a row is all -inf.

    Raises:
        IndexError: a dim out of range.
        RuntimeError: what :mod:`torch_ext.functional` lists.

    Source: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).
    """
    if dtype is None:
        return call(_softmax, input, dim)
    return call_with_dtype(_softmax, input, dim, dtype=dtype)


def log_softmax(input: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """``log(softmax(input))`` over one dim, the semantics of :func:`torch.log_softmax`.

    Arguments, results and errors as in :func:`softmax`.

    Source: as :func:`softmax`.
    """
    if dtype is None:
        return call(_log_softmax, input, dim)
    return call_with_dtype(_log_softmax, input, dim, dtype=dtype)


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
        RuntimeError: a mask that does not broadcast; and what :mod:`torch_ext.functional` lists.

    Source: as :func:`softmax`.
    """
    check_number(_scaled_masked_softmax, scale)
    return call(_scaled_masked_softmax, input, mask, scale, dim)


def topk_softmax(
    input: Tensor, k: int, dim: int = -1, *, renormalize: bool = True, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """The `k` largest elements of ``softmax(input, dim)`` in descending order, and their indices, in one read.

    What a mixture-of-experts router computes: :func:`torch.softmax`, :func:`torch.topk` and a division.

    Args:
        input: any shape; floating, or integer or bool with a floating `dtype`.
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
        RuntimeError: a k out of range; and what :mod:`torch_ext.functional` lists.

    Source: Johnson, Douze and Jegou, "Billion-scale similarity search with GPUs" (2017): WarpSelect, for long rows.
    """
    if dtype is None:
        return call(_topk_softmax, input, k, dim, renormalize=renormalize)
    return call_with_dtype(_topk_softmax, input, k, dim, renormalize=renormalize, dtype=dtype)

"""Reductions over any dims, and the loss that is one."""

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_ext.functional._call import call, call_with_dtype

# Bound once: a lookup through torch.ops costs as much as the call itself.
_amax = torch.ops.xgemm.amax.default
_amin = torch.ops.xgemm.amin.default
_argmax = torch.ops.xgemm.argmax.default
_argmin = torch.ops.xgemm.argmin.default
_cross_entropy = torch.ops.xgemm.cross_entropy.default
_logsumexp = torch.ops.xgemm.logsumexp.default
_mean = torch.ops.xgemm.mean.default
_sum = torch.ops.xgemm.sum.default
_compiling = torch.compiler.is_dynamo_compiling


def _dims(dim: int | Sequence[int] | None) -> Sequence[int] | None:
    """A dim that torch.compile does not know (one that another call had otherwise) is no list to the dispatcher."""
    return [dim] if _compiling() and isinstance(dim, int) else dim


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
        RuntimeError: a dim given twice; and what :mod:`torch_ext.functional` lists.

    Source: tree reduction after Harris, "Optimizing Parallel Reduction in CUDA" (2007), with warp shuffles.
    """
    if dtype is None:
        return call(_sum, input, _dims(dim), keepdim)
    return call_with_dtype(_sum, input, _dims(dim), keepdim, dtype=dtype)


def mean(
    input: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Arithmetic mean over dims, the semantics of :func:`torch.mean`.

    Args:
        input: any shape, floating; integers and bool with a floating `dtype`.
        dim, keepdim, dtype: as in :func:`sum`.

    Returns:
        The input's dtype or `dtype`; NaN where no element is averaged.

    Raises:
        IndexError: a dim out of range.
        RuntimeError: a dim given twice, an integer input without `dtype`; and what :mod:`torch_ext.functional` lists.

    Source: as :func:`sum`.
    """
    if dtype is None:
        return call(_mean, input, _dims(dim), keepdim)
    return call_with_dtype(_mean, input, _dims(dim), keepdim, dtype=dtype)


def amax(input: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """Largest value over dims, the semantics of :func:`torch.amax`.

    Args:
        input: any shape; floating, integer or bool. A reduced dim must not be empty.
        dim, keepdim: as in :func:`sum`.

    Returns:
        The input's dtype; NaN where there is one among the values.

    Raises:
        IndexError: a dim out of range or empty.
        RuntimeError: a dim given twice, an input of no elements without `dim`; and what
            :mod:`torch_ext.functional` lists.

    Source: as :func:`sum`.
    """
    return call(_amax, input, _dims(dim), keepdim)


def amin(input: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """Smallest value over dims, the semantics of :func:`torch.amin`. Arguments, results and errors as in :func:`amax`.

    Source: as :func:`sum`.
    """
    return call(_amin, input, _dims(dim), keepdim)


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
        RuntimeError: what :mod:`torch_ext.functional` lists.

    Source: as :func:`sum`, over (value, index) pairs.
    """
    return call(_argmax, input, dim, keepdim)


def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the smallest value, of equal ones the first; a NaN is the smallest.

    The semantics of :func:`torch.argmin`.

    Arguments, results and errors as in :func:`argmax`.

    Source: as :func:`argmax`.
    """
    return call(_argmin, input, dim, keepdim)


def logsumexp(input: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """``log(sum(exp(input)))`` over dims without overflow, the semantics of :func:`torch.logsumexp`.

    Args:
        input: any shape; floating, integer or bool.
        dim, keepdim: as in :func:`sum`.

    Returns:
        The input's dtype (float32 for integers and bool); -inf where no element is summed.

    Raises:
        IndexError: a dim out of range.
        RuntimeError: a dim given twice; and what :mod:`torch_ext.functional` lists.

    Source: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018): one pass over the input.
    """
    return call(_logsumexp, input, _dims(dim), keepdim)


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
        RuntimeError: shapes that do not fit, a label_smoothing out of range; and what
            :mod:`torch_ext.functional` lists.

    Source: as :func:`logsumexp`.
    """
    return call(
        _cross_entropy,
        input,
        target,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )

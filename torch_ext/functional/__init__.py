"""The operators as documented functions: torch's names, argument order and semantics where torch has the op.

Every function takes dense tensors of any strides on the CPU (ATen computes) or on a CUDA device (xgemm's kernels
compute, on the current stream) and returns a new tensor on the same device, contiguous unless it says otherwise. Common
to all:

Forward only
    With grad mode on, an input that requires grad is a RuntimeError: call under ``torch.no_grad()`` or
    ``torch.inference_mode()``. (argmax and argmin take such inputs: indices have no gradient.)
Determinism
    The same call gives the same bits on every run, and on CUDA a row's bits do not depend on how many other rows there
    are; docs/architecture.md lists the exceptions.
Errors
    RuntimeError for mixed devices or dtypes, unsupported dtypes, layouts and shapes; IndexError for a dim out of range;
    ValueError for an unknown precision, activation, causal_alignment or reduction; TypeError for an argument of the
    wrong type; torch.OutOfMemoryError where a GPU's memory is exhausted. One line each.
Autocast
    As torch's own ops have it; see :mod:`torch_ext.autocast`.

``precision`` is about float32 inputs only (others ignore it): "highest", at least as accurate as SGEMM by the fastest
means; "ieee", fp32 multiply-adds; "high", TF32 or better; "medium", as "high" on a GPU, bf16 or better on the CPU.
None, the default, follows ``torch.get_float32_matmul_precision()``.
"""

from torch_ext.functional._attention import attention
from torch_ext.functional._products import addmm, gated_linear, linear, matmul, prepare
from torch_ext.functional._reductions import amax, amin, argmax, argmin, cross_entropy, logsumexp, mean, sum
from torch_ext.functional._sequences import attention_varlen, attention_with_cache
from torch_ext.functional._softmax import log_softmax, scaled_masked_softmax, softmax, topk_softmax

__all__ = [
    "addmm",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "attention",
    "attention_varlen",
    "attention_with_cache",
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

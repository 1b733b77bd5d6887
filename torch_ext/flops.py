"""What ``torch.utils.flop_counter.FlopCounterMode`` counts for the operators: torch's numbers for the same products.

Multiplications and additions of the products; epilogues, softmax, reductions and masks count nothing, as in torch. The
package imports this module as soon as the program imports torch's counter.
"""

from collections.abc import Callable, Sequence
from math import prod

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils.flop_counter import flop_registry, register_flop_formula

_ops = torch.ops.xgemm


def _formula(*operators: torch._ops.OpOverloadPacket, tensors: bool = False) -> Callable:
    """Registers the formula, of tensors or of shapes, in place of the one of an earlier import of this module."""
    for operator in operators:
        flop_registry.pop(operator, None)
    return register_flop_formula(operators, get_raw=tensors)


@_formula(_ops.matmul, _ops.linear, _ops.linear_prepared)
def _product(a: Sequence[int], *_, out_shape: Sequence[int], **__) -> int:
    return 2 * a[-1] * prod(out_shape)


@_formula(_ops.addmm)
def _addmm(input: Sequence[int], mat1: Sequence[int], *_, out_shape: Sequence[int], **__) -> int:
    return 2 * mat1[-1] * prod(out_shape)


@_formula(_ops.gated_linear)
def _gated_linear(input: Sequence[int], *_, out_shape: Sequence[int], **__) -> int:
    return 2 * (2 * input[-1] * prod(out_shape))


@_formula(_ops.attention, _ops.attention_lse)
def _attention(query: Sequence[int], key: Sequence[int], value: Sequence[int], *, out_shape: Sequence, **_) -> int:
    output = out_shape[0] if isinstance(out_shape[0], Sequence) else out_shape  # of attention_lse the first
    return 2 * prod(output[:-1]) * key[-2] * (query[-1] + value[-1])


def _read(numbers: Tensor, most: int) -> list[int]:
    """Lengths as they are, or the longest ones where there are no data: as torch counts packed sequences."""
    known = numbers.device.type != "meta" and not isinstance(numbers, (FakeTensor, FunctionalTensor))
    return numbers.tolist() if known else [most] * numbers.shape[0]


@_formula(_ops.attention_varlen, _ops.attention_varlen_lse, tensors=True)
def _attention_varlen(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, seqused_k=None, **_) -> int:
    queries = _read(cu_seq_q.diff(), max_q)
    keys = _read(cu_seq_k.diff() if seqused_k is None else seqused_k, max_k)
    products = sum(n * m for n, m in zip(queries, keys, strict=True))
    return 2 * products * query.shape[1] * (query.shape[2] + value.shape[-1])


@_formula(_ops.attention_with_cache, _ops.attention_with_cache_lse, tensors=True)
def _attention_with_cache(query, key_cache, value_cache, cache_seqlens, *, key=None, block_table=None, **_) -> int:
    new = 0 if key is None else key.shape[1]
    room = key_cache.shape[1] * (1 if block_table is None else block_table.shape[1])
    keys = sum(n + new for n in _read(cache_seqlens, room - new))
    return 2 * keys * prod(query.shape[1:3]) * (query.shape[3] + value_cache.shape[3])

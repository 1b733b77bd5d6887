"""What ``torch.utils.flop_counter.FlopCounterMode`` counts for the operators: torch's numbers for the same products.

Multiplications and additions of the products; epilogues, softmax, reductions and masks count nothing, as in torch. The
package imports this module as soon as the program imports torch's counter.
"""

from collections.abc import Callable, Sequence
from math import prod

import torch
from torch.utils.flop_counter import flop_registry, register_flop_formula

_ops = torch.ops.xgemm


def _formula(*operators: torch._ops.OpOverloadPacket) -> Callable:
    """Registers the formula, in place of the one of an earlier import of this module."""
    for operator in operators:
        flop_registry.pop(operator, None)
    return register_flop_formula(operators)


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

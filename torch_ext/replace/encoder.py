"""``torch.nn.TransformerEncoder`` with the padding of torch's fast path, which a swapped model never takes."""

import torch
from torch import Tensor

from torch_ext.replace.functions import not_catching


def forward(
    module: torch.nn.TransformerEncoder,
    src: Tensor,
    mask: Tensor | None = None,
    src_key_padding_mask: Tensor | None = None,
    is_causal: bool | None = None,
) -> Tensor:
    """In its fast path torch drops padded rows and gives 0 in their place, before the last norm."""
    if not _drops_padding(module, src, mask, src_key_padding_mask):
        return torch.nn.TransformerEncoder.forward(module, src, mask, src_key_padding_mask, is_causal)
    padding = src_key_padding_mask.bool()  # of an additive mask whatever is not 0
    output = src
    for layer in module.layers:
        output = layer(output, src_key_padding_mask=padding)
    output = output.masked_fill(padding.unsqueeze(-1), 0)
    return output if module.norm is None else module.norm(output)


def _drops_padding(
    module: torch.nn.TransformerEncoder, src: Tensor, mask: Tensor | None, padding: Tensor | None
) -> bool:
    """torch's own conditions."""
    first = module.layers[0]
    if (
        padding is None
        or mask is not None
        or not module.use_nested_tensor
        or not torch.backends.mha.get_fastpath_enabled()
        or first.training
        or src.dim() != 3
        or src.is_nested
        or torch.is_autocast_enabled()
    ):
        return False
    weights = [*first.self_attn.parameters(), *first.norm1.parameters(), *first.norm2.parameters()]
    weights += [*first.linear1.parameters(), *first.linear2.parameters()]
    with not_catching():
        if torch.overrides.has_torch_function((src, *weights)):
            return False
    if torch.is_grad_enabled() and any(x.requires_grad for x in (src, *weights)):
        return False
    if not module.mask_check:
        return True
    if torch.compiler.is_compiling():
        return False
    return torch._nested_tensor_from_mask_left_aligned(src, ~padding.bool())

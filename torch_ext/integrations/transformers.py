"""Hugging Face transformers: ``attn_implementation="xgemm"``.

from torch_ext.integrations import transformers as xgemm_transformers

xgemm_transformers.register()
model = AutoModel.from_pretrained(name, attn_implementation="xgemm")
"""

import torch
from torch import Tensor

import torch_ext

NAME = "xgemm"


def register() -> None:
    """Makes ``attn_implementation="xgemm"`` known to transformers; masks are made as for "sdpa". A second call is fine.

    Raises:
        ImportError: transformers is not installed, or older than its AttentionInterface and AttentionMaskInterface.
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask
    except ImportError as error:
        raise ImportError(
            f"xgemm.integrations.transformers: needs transformers with AttentionInterface and AttentionMaskInterface "
            f"(4.53 or newer): {error}"
        ) from None
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    is_causal: bool | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **kwargs,
) -> tuple[Tensor, None]:
    """What an attention layer of transformers calls.

    Args:
        module: the layer; its `is_causal` counts where the argument of that name is None.
        query: (batch, heads, length, head size).
        key, value: (batch, key heads, key length, head size); key heads divide heads.
        attention_mask: broadcasts to (batch, heads, length, key length); bool (True takes part) or additive.
        scaling: default 1 / sqrt(head size).
        is_causal: without a mask and for more than one query, a query sees no later key.
        sliding_window: the window's size. The mask function that :func:`register` sets puts the window into the mask.
        softcap: scores become ``softcap * tanh(scores / softcap)``. Takes memory for all scores, as "eager" does.
        s_aux: (heads), one more logit for each row that has no value: attention sinks.
        position_bias: added to the scores.

    Returns:
        (batch, length, heads, head size), contiguous, and None in place of the weights.

    Raises:
        RuntimeError: dropout; softcap together with s_aux; a window that is not in the mask; a paged cache;
            output_attentions; and what :func:`torch_ext.attention` raises.
    """
    length, keys = query.shape[2], key.shape[2]
    if dropout:
        raise RuntimeError(f"xgemm attention: has no dropout, got dropout={dropout}; call eval() on the model")
    if kwargs.get("output_attentions"):
        raise RuntimeError('xgemm attention: does not return weights, got output_attentions=True; use "eager"')
    if kwargs.get("cache") is not None:
        raise RuntimeError('xgemm attention: has no paged cache, got one; use "sdpa" for continuous batching')
    if softcap is not None and s_aux is not None:
        raise RuntimeError("xgemm attention: expected softcap or s_aux (attention sinks), got both")
    if sliding_window is not None and attention_mask is None and keys > sliding_window:
        raise RuntimeError(
            f"xgemm attention: expected attention_mask to hold the sliding window of {sliding_window} for {keys} keys, "
            "got None; call torch_ext.integrations.transformers.register()"
        )

    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = length > 1 and attention_mask is None and causal
    if causal and (softcap is not None or position_bias is not None):
        attention_mask = torch.ones(length, keys, dtype=torch.bool, device=query.device).tril()[None, None]
        causal = False
    if position_bias is not None:
        attention_mask = _added(position_bias, attention_mask)

    if (report := module.__dict__.get("_xgemm_report")) is not None:  # of a model that torch_ext.replace swapped
        report.count("attention", None)
    if softcap is not None:
        output = _softcapped(query, key, value, attention_mask, scaling, softcap)
        return output.transpose(1, 2).contiguous(), None
    options = {"attn_mask": attention_mask, "is_causal": causal, "scale": scaling}
    options["enable_gqa"] = query.shape[1] != key.shape[1]
    if s_aux is None:
        output = torch_ext.attention(query, key, value, **options)
    else:  # one more logit divides a row's weights by 1 + exp(s_aux - logsumexp)
        output, lse = torch_ext.attention(query, key, value, **options, return_lse=True)
        output = output * torch.sigmoid(lse - s_aux[:, None])[..., None].to(output.dtype)
    return output.transpose(1, 2).contiguous(), None


def _added(bias: Tensor, mask: Tensor | None) -> Tensor:
    """Both as one additive mask. No row is left without a finite number, so that none gives NaN."""
    if mask is None:
        return bias
    return torch.where(mask, bias, torch.finfo(bias.dtype).min) if mask.dtype is torch.bool else bias + mask


def _softcapped(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float | None, softcap: float
) -> Tensor:
    """softmax(softcap * tanh(scores / softcap) + mask) @ value, by operators that write the scores to memory."""
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    groups = key.shape[1]  # (batch, key heads, query heads of each, length, size): key heads broadcast
    scores = torch_ext.matmul(query.unflatten(1, (groups, -1)) * (scaling / softcap), key[:, :, None].mT)
    if mask is not None:
        mask = mask[:, :, None] if mask.shape[1] == 1 else mask.unflatten(1, (groups, -1))
        mask = _added(torch.zeros((), dtype=query.dtype, device=query.device), mask)
    weights = torch_ext.scaled_masked_softmax(scores.tanh_(), mask, softcap)
    return torch_ext.matmul(weights, value[:, :, None]).flatten(1, 2)

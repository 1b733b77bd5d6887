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
    """Makes ``attn_implementation="xgemm"`` known to transformers. A second call is fine.

    Masks are made as for "sdpa", but none for a sliding window alone.

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

    def mask(*args, **given) -> Tensor | None:
        return None if _is_window_alone(**given) else sdpa_mask(*args, **given)

    AttentionMaskInterface.register(NAME, mask)


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
        sliding_window: without a mask, a query sees so many keys, itself the last of them; the last query stands at the
            last key. A mask holds the window.
        softcap: scores become ``softcap * tanh(scores / softcap)``.
        s_aux: (heads), one more logit for each row that has no value: attention sinks.
        position_bias: added to the scores.

    Returns:
        (batch, length, heads, head size), contiguous, and None in place of the weights.

    Raises:
        RuntimeError: dropout; a paged cache; output_attentions; and what :func:`torch_ext.attention` raises.
    """
    length, keys = query.shape[2], key.shape[2]
    if dropout:
        raise RuntimeError(f"xgemm attention: has no dropout, got dropout={dropout}; call eval() on the model")
    if kwargs.get("output_attentions"):
        raise RuntimeError('xgemm attention: does not return weights, got output_attentions=True; use "eager"')
    if kwargs.get("cache") is not None:
        raise RuntimeError('xgemm attention: has no paged cache, got one; use "sdpa" for continuous batching')
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = length > 1 and attention_mask is None and is_causal
    options = {
        "scale": scaling,
        "enable_gqa": query.shape[1] != key.shape[1],
        "softcap": softcap or 0.0,
        "sinks": s_aux,
    }
    if sliding_window is not None and attention_mask is None and keys > sliding_window:
        reach = sliding_window - 1
        options |= {"window": (reach, 0 if is_causal else reach), "causal_alignment": "bottom_right"}
        causal = False
    if causal and position_bias is not None:
        attention_mask = torch.ones(length, keys, dtype=torch.bool, device=query.device).tril()[None, None]
        causal = False
    if position_bias is not None:
        attention_mask = _added(position_bias, attention_mask)
    if (report := module.__dict__.get("_xgemm_report")) is not None:  # of a model that torch_ext.replace swapped
        report.count("attention", None)
    output = torch_ext.attention(query, key, value, attn_mask=attention_mask, is_causal=causal, **options)
    return output.transpose(1, 2).contiguous(), None


def _is_window_alone(
    *,
    q_length: int = 0,
    kv_length: int = 0,
    q_offset: int | Tensor = -1,
    kv_offset: int = 0,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    config: object = None,
    **_,
) -> bool:
    """Whether a mask is no more than the causal sliding window that the layer names to :func:`attention` as well."""
    if torch.compiler.is_compiling() or not allow_is_causal_skip or local_size is None or kv_length <= local_size:
        return False
    if local_size != getattr(config, "sliding_window", None) or hasattr(config, "attention_chunk_size"):
        return False
    if not isinstance(q_offset, int) or q_offset + q_length != kv_offset + kv_length:  # a static cache
        return False
    return attention_mask is None or bool(attention_mask.all())


def _added(bias: Tensor, mask: Tensor | None) -> Tensor:
    """Both as one additive mask. No row is left without a finite number, so that none gives NaN."""
    if mask is None:
        return bias
    return torch.where(mask, bias, torch.finfo(bias.dtype).min) if mask.dtype is torch.bool else bias + mask

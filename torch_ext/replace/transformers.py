"""Attention of Hugging Face transformers' models, by the table that their attention layers take it from.

So no mode is needed in the layers, which call 20 functions around it. The table's entry "sdpa" becomes one that asks
the layer: a layer of a model that does not run on xgemm gets transformers' own function, as before.
"""

import sys
from collections.abc import Callable

import torch
from torch import Tensor

from torch_ext.replace import functions

_KIND = "sdpa"
_theirs: Callable | None = None  # transformers' own function, once ours stands in the table


def route() -> None:
    """Puts our function into the table, if the program has imported it. A second call does nothing."""
    global _theirs
    if _theirs is None and (table := _table()) is not None:
        _theirs = getattr(table[_KIND], "theirs", table[_KIND])  # ours has it if this package was imported before
        _attention.theirs = _theirs
        type(table).register(_KIND, _attention)


def is_routed(module: torch.nn.Module) -> bool:
    """Whether a layer that takes its attention from the table gets ours: as "sdpa", or as "xgemm" by its own choice."""
    kind = getattr(module.__dict__.get("config"), "_attn_implementation", None)
    integration = sys.modules.get("torch_ext.integrations.transformers")
    if integration is not None and kind == integration.NAME and (table := _table()) is not None:
        return table.get(kind) is integration.attention
    return _theirs is not None and kind == _KIND


def is_known(value: object) -> bool:
    """Of what the code of such a layer names: the tables, and what is called if "eager" is asked for."""
    if getattr(value, "__name__", "") == "eager_attention_forward":
        return True
    rope = sys.modules.get("transformers.modeling_rope_utils")
    if rope is not None and value is getattr(rope, "ROPE_INIT_FUNCTIONS", None):  # they compute frequencies once
        return True
    return type(value).__name__ in ("AttentionInterface", "AttentionMaskInterface")


def _table() -> object | None:
    return getattr(sys.modules.get("transformers.modeling_utils"), "ALL_ATTENTION_FUNCTIONS", None)


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs,
) -> tuple[Tensor, None]:
    """What a layer calls: (batch, heads, length, size) in, (batch, length, heads, size) out."""
    report = getattr(module, "_xgemm_report", None)
    if report is None:
        return _theirs(module, query, key, value, attention_mask, dropout, scaling, is_causal, **kwargs)
    if kwargs.get("position_bias") is not None or kwargs.get("cache") is not None:
        with functions.Catching(report):
            return _theirs(module, query, key, value, attention_mask, dropout, scaling, is_causal, **kwargs)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = attention_mask is None and query.shape[2] > 1 and causal
    gqa = query.shape[1] != key.shape[1]
    why, inputs, ours = functions.attention(query, key, value, attention_mask, dropout, causal, scaling, gqa)
    if why is None:
        why = functions.booked_reason(report, "attention", *inputs)
    else:
        report.count("attention", why)
    if why is None:
        return ours().transpose(1, 2).contiguous(), None
    with functions.not_catching():
        return _theirs(module, query, key, value, attention_mask, dropout, scaling, is_causal, **kwargs)

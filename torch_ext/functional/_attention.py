"""Attention."""

from collections.abc import Sequence
from typing import Literal, overload

import torch
from torch import Tensor

from torch_ext.functional._call import call, default_precision

# Bound once: a lookup through torch.ops costs as much as the call itself.
_attention = torch.ops.xgemm.attention.default
_attention_lse = torch.ops.xgemm.attention_lse.default


@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    causal_alignment: str = "top_left",
    window: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    precision: str | None = None,
    return_lse: Literal[False] = False,
) -> Tensor: ...


@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    causal_alignment: str = "top_left",
    window: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    precision: str | None = None,
    return_lse: Literal[True],
) -> tuple[Tensor, Tensor]: ...


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    causal_alignment: str = "top_left",
    window: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    precision: str | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """``softmax(scale * query @ key.mT + mask) @ value`` in memory O(length).

    The semantics of :func:`torch.nn.functional.scaled_dot_product_attention`, without its dropout, and its order of
    arguments.

    Args:
        query: (..., H, Sq, D), float32, float16, bfloat16 or float64; D up to 576.
        key: (..., H, Sk, D).
        value: (..., H, Sk, Dv); Dv up to 576, it may differ from D. All three of one dtype and device; the dims in
            front broadcast.
        attn_mask: bool (True takes part) or additive (float32 or the query's dtype); broadcasts to (..., H, Sq, Sk). Or
            one of :mod:`torch.nn.attention.bias`, which means is_causal and causal_alignment.
        dropout_p: 0: there is no dropout.
        is_causal: a query sees no later key; not together with attn_mask.
        scale: default 1 / sqrt(D).
        enable_gqa: key and value may have fewer heads; each serves an equal group of neighbouring query heads.
        causal_alignment: which diagonal is_causal means when Sq != Sk: "top_left", row i sees keys 0 to i, as torch;
            "bottom_right", the last row sees all keys.
        window: how many keys to the left and to the right of its own a query sees; -1: all of them. Row i's own key is
            i ("top_left") or i + Sk - Sq ("bottom_right"). With is_causal the second number is 0. Keys outside take no
            time.
        softcap: scores become ``softcap * tanh(scores / softcap)``, before masks; 0: they stay as they are.
        sinks: broadcasts to (..., H), float32 or the query's dtype: for each row the logit of one more key, without a
            value, which takes its part of the weights ("attention sinks" of GPT-OSS).
        precision: for float32, see the module's text. On the CPU "highest" whatever it is.
        return_lse: also return the natural log-sum-exp of each row's scaled and masked scores, its sink among them.

    Returns:
        (..., H, Sq, Dv) of the query's dtype; a row whose keys are all masked is 0. It is contiguous, or lies in memory
        as (..., Sq, H, Dv) where the query does. With return_lse a tuple of that and (..., H, Sq) in float32 (float64
        for float64 inputs), -inf for such a row.

    Raises:
        RuntimeError: shapes that do not fit, a head size over 576, a scale or softcap that is not finite, also in
            float32 (but for float64 inputs); and what :mod:`torch_ext.functional` lists.
        TypeError: a window that is one number.
        ValueError: a dropout_p other than 0, an unknown causal_alignment or precision.

    Source: Dao et al., "FlashAttention" (2022) and "FlashAttention-2" (2023), with the online softmax of Milakov and
        Gimelshein.
    """
    if dropout_p != 0:
        raise ValueError(f"xgemm::attention: expected dropout_p of 0, got {dropout_p}")
    check_window("attention", window)
    if type(attn_mask).__name__ == "CausalBias" and not is_causal:
        causal_alignment, attn_mask, is_causal = _alignment(attn_mask, query, key), None, True
    return call(
        _attention_lse if return_lse else _attention,
        query,
        key,
        value,
        attn_mask=attn_mask,
        is_causal=is_causal,
        scale=scale,
        enable_gqa=enable_gqa,
        causal_alignment=causal_alignment,
        window=window,
        softcap=softcap,
        sinks=sinks,
        precision=default_precision() if precision is None else precision,
    )


def check_window(op: str, window: Sequence[int]) -> None:
    """Raises TypeError for one number, which the dispatcher would take twice."""
    if isinstance(window, int):
        raise TypeError(f"xgemm::{op}: expected window of two numbers of keys, -1 for no limit, got {window}")


def _alignment(bias: Tensor, query: Tensor, key: Tensor) -> str:
    """The causal_alignment that a mask of torch.nn.attention.bias means."""
    if (bias.seq_len_q, bias.seq_len_kv) != (query.shape[-2], key.shape[-2]):
        raise RuntimeError(
            f"xgemm::attention: expected attn_mask for {query.shape[-2]} queries and {key.shape[-2]} keys, got one for "
            f"{bias.seq_len_q} and {bias.seq_len_kv}"
        )
    return "bottom_right" if bias.variant.name == "LOWER_RIGHT" else "top_left"

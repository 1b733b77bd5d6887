"""FlashAttention's functions, forward only, on xgemm's kernels.

import torch_ext.flash_attn as flash_attn                       # for code written for FlashAttention 2
import torch_ext.flash_attn_interface as flash_attn_interface   # for code written for FlashAttention 3

Names, order of arguments and results are FlashAttention 2's; FlashAttention 3's other arguments are taken by name.
Tensors are (batch, length, heads, head size) on a GPU or the CPU, in float32, float16, bfloat16 or float64.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_ext.functional import attention

__all__ = ["flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func"]

_PACKED_SEQUENCES = (
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
)


def absent(module: str, name: str) -> AttributeError:
    """What a name that a module of FlashAttention has, and ours has not, raises."""
    instead = ""
    if name in _PACKED_SEQUENCES:
        instead = " (packed sequences): pad them, or call flash_attn_func once for each sequence"
    if name == "flash_attn_with_kvcache":
        instead = " (key and value caches): append to the cache yourself and pass cache[:, :length] to flash_attn_func"
    return AttributeError(f"module {module!r} has no attribute {name!r}{instead}")


def __getattr__(name: str) -> object:
    raise absent(__name__, name)


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    **fa3: object,
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """``softmax(softmax_scale * q @ k.T) @ v`` for each head, in memory O(length).

    Args:
        q: (B, Sq, H, D), D up to 256.
        k, v: (B, Sk, Hk, D); Hk divides H, and neighbouring heads of q share a head of k. v's head size may differ.
        dropout_p: 0; there is no dropout.
        softmax_scale: default 1 / sqrt(D).
        causal: query i sees the keys up to i + Sk - Sq: the last query sees all.
        window_size: (left, right): query i sees the keys from i + Sk - Sq - left to i + Sk - Sq + right; a negative
            number: all keys of that side. With causal, right is 0.
        softcap: scores become ``softcap * tanh(scores / softcap)``; 0: they stay as they are.
        alibi_slopes: None; there are no such biases.
        deterministic: results are reproducible with either value.
        return_attn_probs: also return the log-sum-exp, and an empty tensor, as FlashAttention does without dropout.
        fa3: FlashAttention 3's other arguments. num_splits, pack_gqa and sm_margin are about speed there and mean
            nothing here; qv, q_descale, k_descale, v_descale and attention_chunk have to be None or 0.

    Returns:
        (B, Sq, H, D), contiguous; a query that sees no key gives 0. With return_attn_probs also (B, H, Sq) in float32
        (float64 for float64), inf for a query that sees no key, and the empty tensor.

    Raises:
        ValueError: a tensor that is not 4-dimensional; dropout.
        NotImplementedError: alibi_slopes; qv, descales or attention_chunk.
        TypeError: an unknown argument; FlashAttention 3's order of arguments.
        RuntimeError: an input that requires grad in grad mode; fp8; and what :func:`torch_ext.attention` raises.
    """
    op = "flash_attn_func"
    check_fa3(op, fa3)
    _check_fa2(op, dropout_p, softmax_scale, alibi_slopes)
    output, logsumexp = attend(op, q, k, v, softmax_scale, causal, window_size, softcap, return_attn_probs)
    if logsumexp is None:
        return output
    if _rows_without_keys(q.shape[1], k.shape[1], causal, window_size):
        logsumexp = logsumexp.masked_fill(logsumexp == -torch.inf, torch.inf)
    return output, logsumexp, q.new_empty(0)


def flash_attn_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """:func:`flash_attn_func` of keys and values in one tensor.

    Args:
        kv: (B, Sk, 2, Hk, D); it is read where it lies.

    Raises:
        ValueError: kv of another shape; and what :func:`flash_attn_func` raises.
    """
    if kv.dim() != 5 or kv.shape[2] != 2:
        raise ValueError(f"flash_attn_kvpacked_func: expected kv of shape (B, S, 2, H, D), got {list(kv.shape)}")
    return flash_attn_func(
        q,
        *kv.unbind(2),
        dropout_p=dropout_p,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=window_size,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        return_attn_probs=return_attn_probs,
    )


def flash_attn_qkvpacked_func(
    qkv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    num_heads_q: int | None = None,
    **fa3: object,
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """:func:`flash_attn_func` of queries, keys and values in one tensor.

    Args:
        qkv: (B, S, 3, H, D), or with num_heads_q (B, S, num_heads_q + 2 Hk, D): the heads of q, k and v in this order.
            It is read where it lies.

    Raises:
        ValueError: qkv of another shape; and what :func:`flash_attn_func` raises.
    """
    q, k, v = unpacked(qkv, num_heads_q)
    return flash_attn_func(
        q,
        k,
        v,
        dropout_p=dropout_p,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=window_size,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        return_attn_probs=return_attn_probs,
        **fa3,
    )


def attend(
    op: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None,
    causal: bool,
    window_size: Sequence[int],
    softcap: float,
    return_lse: bool,
) -> tuple[Tensor, Tensor | None]:
    """The output and, if asked for, the log-sum-exp: -inf for a query that sees no key."""
    for name, t in (("q", q), ("k", k), ("v", v)):
        if t.dim() != 4:
            raise ValueError(f"{op}: expected {name} of shape (B, S, H, D), got {list(t.shape)}")
    results = attention(
        *(t.transpose(1, 2) for t in (q, k, v)),
        is_causal=causal,
        scale=scale,
        enable_gqa=True,
        causal_alignment="bottom_right",
        window=[max(-1, size) for size in window_size],
        softcap=softcap,
        return_lse=return_lse,
    )
    output, logsumexp = results if return_lse else (results, None)
    return output.transpose(1, 2).contiguous(), logsumexp


def unpacked(qkv: Tensor, heads: int | None) -> tuple[Tensor, ...]:
    if heads is None:
        if qkv.dim() != 5 or qkv.shape[2] != 3:
            raise ValueError(f"flash_attn_qkvpacked_func: expected qkv of shape (B, S, 3, H, D), got {list(qkv.shape)}")
        return qkv.unbind(2)
    if qkv.dim() != 4 or qkv.shape[2] <= heads or (qkv.shape[2] - heads) % 2 != 0:
        raise ValueError(
            f"flash_attn_qkvpacked_func: expected qkv of shape (B, S, {heads} + 2 Hk, D), got {list(qkv.shape)}"
        )
    key_heads = (qkv.shape[2] - heads) // 2
    return qkv.split([heads, key_heads, key_heads], 2)


def _check_fa2(op: str, dropout_p: float, scale: object, alibi_slopes: Tensor | None) -> None:
    if dropout_p is None or isinstance(scale, bool):
        raise TypeError(
            f"{op}: got FlashAttention 3's order of arguments; pass them by name, or import "
            "torch_ext.flash_attn_interface"
        )
    if dropout_p != 0:
        raise ValueError(f"{op}: expected dropout_p of 0, got {dropout_p}; pass softmax_scale by name")
    if alibi_slopes is not None:
        raise NotImplementedError(f"{op}: has no ALiBi, got alibi_slopes; use torch_ext.attention with an attn_mask")


def check_fa3(op: str, given: dict[str, object]) -> None:
    for name, value in given.items():
        if name in ("qv", "q_descale", "k_descale", "v_descale"):
            if value is not None:
                raise NotImplementedError(f"{op}: has no {name}; it has to be None")
        elif name == "attention_chunk":
            if value != 0:
                raise NotImplementedError(f"{op}: has no chunks, got attention_chunk={value}; it has to be 0")
        elif name not in ("num_splits", "pack_gqa", "sm_margin"):
            raise TypeError(f"{op}: got an unexpected argument {name!r}")


def _rows_without_keys(queries: int, keys: int, causal: bool, window_size: Sequence[int]) -> bool:
    """Whether the first queries come so long before the first key that they do not see it."""
    right = 0 if causal else window_size[1]
    return keys == 0 or (right >= 0 and queries - keys > right)

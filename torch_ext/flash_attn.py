"""FlashAttention's functions, forward only, on xgemm's kernels.

import torch_ext.flash_attn as flash_attn                       # for code written for FlashAttention 2
import torch_ext.flash_attn_interface as flash_attn_interface   # for code written for FlashAttention 3

Names, order of arguments and results are FlashAttention 2's; FlashAttention 3's other arguments are taken by name.
Tensors are (batch, length, heads, head size), or (tokens, heads, head size) where sequences are packed, on a GPU or the
CPU, in float32, float16, bfloat16 or float64.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_ext.functional import attention, attention_varlen, attention_with_cache

__all__ = [
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
]


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
        q: (B, Sq, H, D), D up to 576.
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
    check_fa3(op, **fa3)
    _check_fa2(op, dropout_p, softmax_scale, alibi_slopes)
    results = attend(op, q, k, v, options_of(softmax_scale, causal, window_size, softcap, return_attn_probs))
    if not return_attn_probs:
        return results
    output, logsumexp = results
    if _rows_without_keys(q.shape[1], k.shape[1], causal, window_size):
        logsumexp = _as_fa2(logsumexp)
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
    options = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)
    return flash_attn_func(q, *kv.unbind(2), *options)


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
    options = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)
    return flash_attn_func(*unpacked(qkv, num_heads_q), *options, **fa3)


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
    **fa3: object,
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """:func:`flash_attn_func` of sequences that are packed one behind the other.

    Args:
        q: (total q, H, D).
        k, v: (total k, Hk, D), or with block_table pages of (pages, page size, Hk, D).
        cu_seqlens_q, cu_seqlens_k: (B + 1), int32: sequence i has the rows cu_seqlens[i] to cu_seqlens[i + 1] - 1.
        max_seqlen_q, max_seqlen_k: no sequence is longer.
        block_table: (B, columns), int32: the pages of each sequence; its keys are cu_seqlens_k[i + 1] -
            cu_seqlens_k[i], or seqused_k[i].
        fa3: seqused_k, (B), int32: how many of its keys each sequence has; and what :func:`flash_attn_func` takes.

    Returns:
        (total q, H, D), contiguous; a query that sees no key gives 0. With return_attn_probs also (H, total q), inf
        for a query that sees no key, and an empty tensor.

    Raises:
        NotImplementedError: seqused_q.
        ValueError, TypeError, RuntimeError: as :func:`flash_attn_func` and :func:`torch_ext.attention_varlen`.
    """
    op = "flash_attn_varlen_func"
    seqused_k, seqused_q = fa3.pop("seqused_k", None), fa3.pop("seqused_q", None)
    check_absent(op, seqused_q=seqused_q)
    check_fa3(op, **fa3)
    _check_fa2(op, dropout_p, softmax_scale, alibi_slopes)
    if block_table is not None and seqused_k is None and cu_seqlens_k is not None:
        seqused_k = cu_seqlens_k.diff()
    offsets = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    options = options_of(softmax_scale, causal, window_size, softcap, return_attn_probs)
    results = attention_varlen(q, k, v, *offsets, seqused_k=seqused_k, block_table=block_table, **options)
    return (results[0], _as_fa2(results[1]), q.new_empty(0)) if return_attn_probs else results


def flash_attn_varlen_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *args: object,
    **kwargs: object,
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """:func:`flash_attn_varlen_func` of keys and values in one tensor; the other arguments are that function's.

    Args:
        kv: (total k, 2, Hk, D); it is read where it lies.

    Raises:
        ValueError: kv of another shape; and what :func:`flash_attn_varlen_func` raises.
    """
    if kv.dim() != 4 or kv.shape[1] != 2:
        raise ValueError(f"flash_attn_varlen_kvpacked_func: expected kv of shape (T, 2, H, D), got {list(kv.shape)}")
    offsets = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    return flash_attn_varlen_func(q, *kv.unbind(1), *offsets, *args, **kwargs)


def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, *args: object, **kwargs: object
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """:func:`flash_attn_varlen_func` of queries, keys and values in one tensor; the others are that function's.

    Args:
        qkv: (total, 3, H, D); it is read where it lies.

    Raises:
        ValueError: qkv of another shape; and what :func:`flash_attn_varlen_func` raises.
    """
    if qkv.dim() != 4 or qkv.shape[1] != 3:
        raise ValueError(f"flash_attn_varlen_qkvpacked_func: expected qkv of shape (T, 3, H, D), got {list(qkv.shape)}")
    offsets = (cu_seqlens, cu_seqlens, max_seqlen, max_seqlen)
    return flash_attn_varlen_func(*qkv.unbind(1), *offsets, *args, **kwargs)


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    block_table: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention over key and value caches, to which it appends in place.

    Args:
        q: (B, Sq, H, D).
        k_cache, v_cache: (B, S, Hk, D), or with block_table pages of (pages, page size, Hk, D).
        k, v: (B, new, Hk, D), written to the caches behind their first cache_seqlens rows, and seen.
        cache_seqlens: (B), int32, or one number: rows of the caches in use, before k and v. None: all of them.
        block_table: (B, columns), int32: the pages of each sequence.
        rotary_cos, rotary_sin, cache_batch_idx, cache_leftpad, alibi_slopes: None. Apply rotary embeddings to q and k
            before the call.
        softmax_scale, causal, window_size, softcap: as :func:`flash_attn_func`.
        num_splits, rotary_interleaved: mean nothing here.

    Returns:
        (B, Sq, H, D), contiguous. With return_softmax_lse also (B, H, Sq), inf for a query that sees no key.

    Raises:
        NotImplementedError: rotary embeddings, cache_batch_idx, cache_leftpad, alibi_slopes.
        ValueError: k without cache_seqlens.
        RuntimeError: what :func:`torch_ext.attention_with_cache` raises.
    """
    op = "flash_attn_with_kvcache"
    check_absent(
        op,
        rotary_cos=rotary_cos,
        rotary_sin=rotary_sin,
        cache_batch_idx=cache_batch_idx,
        cache_leftpad=cache_leftpad,
        alibi_slopes=alibi_slopes,
    )
    lengths = cache_lengths(op, q.shape[0], k_cache, k, cache_seqlens, block_table)
    options = options_of(softmax_scale, causal, window_size, softcap, return_softmax_lse)
    results = attention_with_cache(q, k_cache, v_cache, lengths, key=k, value=v, block_table=block_table, **options)
    return (results[0], _as_fa2(results[1])) if return_softmax_lse else results


def options_of(
    scale: float | None, causal: bool, window_size: Sequence[int], softcap: float, return_lse: bool
) -> dict[str, object]:
    """The same by torch_ext's names."""
    try:
        window = [max(-1, size) for size in window_size]
    except TypeError:
        raise TypeError(
            f"flash_attn: expected window_size of two numbers of keys, negative for no limit, got {window_size!r}"
        ) from None
    return {"scale": scale, "is_causal": causal, "window": window, "softcap": softcap, "return_lse": return_lse}


def attend(op: str, q: Tensor, k: Tensor, v: Tensor, options: dict) -> Tensor | tuple[Tensor, Tensor]:
    """The output and, if asked for, the log-sum-exp: -inf for a query that sees no key."""
    for name, t in (("q", q), ("k", k), ("v", v)):
        if t.dim() != 4:
            raise ValueError(f"{op}: expected {name} of shape (B, S, H, D), got {list(t.shape)}")
    heads_first = (t.transpose(1, 2) for t in (q, k, v))
    results = attention(*heads_first, enable_gqa=True, causal_alignment="bottom_right", **options)
    if not options["return_lse"]:
        return results.transpose(1, 2).contiguous()
    return results[0].transpose(1, 2).contiguous(), results[1]


def cache_lengths(
    op: str,
    sequences: int,
    k_cache: Tensor,
    k: Tensor | None,
    cache_seqlens: int | Tensor | None,
    block_table: Tensor | None,
) -> Tensor:
    """(B), int32. One number stands for all sequences, None for whole caches."""
    if isinstance(cache_seqlens, Tensor):
        return cache_seqlens
    if cache_seqlens is None:
        if k is not None:
            raise ValueError(f"{op}: expected cache_seqlens with k, got None")
        cache_seqlens = k_cache.shape[1] * (1 if block_table is None else block_table.shape[1])
    if isinstance(cache_seqlens, float | Sequence):  # a fraction would be cut off
        got = type(cache_seqlens).__name__
        raise TypeError(f"{op}: expected cache_seqlens to be an int or a tensor of int32, got {got}")
    return torch.full((sequences,), cache_seqlens, dtype=torch.int32, device=k_cache.device)


def _as_fa2(logsumexp: Tensor) -> Tensor:
    """With inf for a query that sees no key."""
    return logsumexp.masked_fill(logsumexp == -torch.inf, torch.inf)


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


def check_absent(op: str, **given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise NotImplementedError(f"{op}: has no {name}; it has to be None")


def check_fa3(op: str, /, **given: object) -> None:
    for name, value in given.items():
        if name in ("qv", "q_descale", "k_descale", "v_descale"):
            check_absent(op, **{name: value})
        elif name == "attention_chunk":
            if value != 0:
                raise NotImplementedError(f"{op}: has no chunks, got attention_chunk={value}; it has to be 0")
        elif name not in ("num_splits", "pack_gqa", "sm_margin"):
            raise TypeError(f"{op}: got an unexpected argument {name!r}")


def _rows_without_keys(queries: int, keys: int, causal: bool, window_size: Sequence[int]) -> bool:
    """Whether the first queries come so long before the first key that they do not see it."""
    right = 0 if causal else window_size[1]
    return keys == 0 or (right >= 0 and queries - keys > right)

"""Attention over sequences of different lengths, packed or in caches."""

from collections.abc import Sequence
from typing import Literal, overload

import torch
from torch import Tensor

from torch_ext.autograd import written
from torch_ext.functional._attention import check_window
from torch_ext.functional._call import call, call_below_autograd, compiling, default_precision

# Bound once: a lookup through torch.ops costs as much as the call itself.
_varlen = torch.ops.xgemm.attention_varlen.default
_varlen_lse = torch.ops.xgemm.attention_varlen_lse.default
_with_cache = torch.ops.xgemm.attention_with_cache.default
_with_cache_lse = torch.ops.xgemm.attention_with_cache_lse.default


@overload
def attention_varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    window: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    precision: str | None = None,
    return_lse: Literal[False] = False,
) -> Tensor: ...


@overload
def attention_varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    window: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    precision: str | None = None,
    return_lse: Literal[True],
) -> tuple[Tensor, Tensor]: ...


def attention_varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    window: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    precision: str | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention within each of many sequences that are packed one behind the other.

    The arguments of :func:`torch.nn.attention.varlen.varlen_attn`, and more. Of a sequence with n queries and m keys,
    query i's own key is i + m - n: the last query sees all keys where the mask is causal.

    Args:
        query: (Tq, H, D), float32, float16, bfloat16 or float64; D and Dv up to 576.
        key: (Tk, Hkv, D); Hkv divides H, and neighbouring query heads share a key head. With block_table
            (pages, page size, Hkv, D).
        value: as key with head size Dv, up to as much. All three of one dtype and device.
        cu_seq_q: (N + 1), int32: sequence i has the queries cu_seq_q[i] to cu_seq_q[i + 1] - 1; it may have none.
        cu_seq_k: the same for keys; not read, and may be None, with block_table.
        max_q, max_k: no sequence has more queries or keys.
        scale: default 1 / sqrt(D).
        is_causal: a query sees no key behind its own; the window (-1, 0) means the same.
        window: how many keys to the left and to the right of its own a query sees; -1: all of them.
        softcap: scores become ``softcap * tanh(scores / softcap)``, before masks; 0: they stay as they are.
        sinks: (H), float32 or the query's dtype: for each head the logit of one more key, without a value.
        seqused_k: (N), int32: how many of its keys each sequence has; needed with block_table.
        block_table: (N, columns), int32: row r of sequence i's keys is row r % page size of the page
            block_table[i, r // page size]. Entries behind a sequence's last page are not read.
        precision: for float32, see the module's text. On the CPU "highest" whatever it is.
        return_lse: also return the natural log-sum-exp of each row's scaled and masked scores, its sink among them.

    Returns:
        (Tq, H, Dv) of the query's dtype, contiguous; 0 in a row that sees no key. With return_lse a tuple of that and
        (H, Tq) in float32 (float64 for float64 inputs), -inf for such a row. Rows that are part of no sequence are the
        same on the CPU; on CUDA they are not written.

    Raises:
        RuntimeError: shapes that do not fit, wider heads, a scale or softcap that is not finite, offsets, lengths or a
            table not of int32; on the CPU also offsets that decrease, lengths over max_q or max_k, pages that do not
            exist. On CUDA these cannot be known without waiting for the device: a range ends where the tensor, max_q
            or max_k does, and a page that does not exist holds zeros. And what :mod:`torch_ext.functional` lists.
        TypeError: a window that is one number.
        ValueError: an unknown precision.

    Source: Dao, "FlashAttention-2" (2023); pages as in Kwon et al., "PagedAttention" (2023).
    """
    check_window("attention_varlen", window)
    return call(
        _varlen_lse if return_lse else _varlen,
        query,
        key,
        value,
        cu_seq_q,
        cu_seq_k,
        max_q,
        max_k,
        scale=scale,
        is_causal=is_causal,
        window=window,
        softcap=softcap,
        sinks=sinks,
        seqused_k=seqused_k,
        block_table=block_table,
        precision=default_precision() if precision is None else precision,
    )


@overload
def attention_with_cache(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    cache_seqlens: Tensor,
    *,
    key: Tensor | None = None,
    value: Tensor | None = None,
    block_table: Tensor | None = None,
    scale: float | None = None,
    is_causal: bool = False,
    window: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    precision: str | None = None,
    return_lse: Literal[False] = False,
) -> Tensor: ...


@overload
def attention_with_cache(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    cache_seqlens: Tensor,
    *,
    key: Tensor | None = None,
    value: Tensor | None = None,
    block_table: Tensor | None = None,
    scale: float | None = None,
    is_causal: bool = False,
    window: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    precision: str | None = None,
    return_lse: Literal[True],
) -> tuple[Tensor, Tensor]: ...


def attention_with_cache(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    cache_seqlens: Tensor,
    *,
    key: Tensor | None = None,
    value: Tensor | None = None,
    block_table: Tensor | None = None,
    scale: float | None = None,
    is_causal: bool = False,
    window: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    precision: str | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention of new tokens over key and value caches, which it can append to in the same call.

    Query i's own key is i + m - Sq, where m is the length of its sequence with what is appended: the last query sees
    all keys where the mask is causal. Lengths and tables are read on the device, so one CUDA graph serves every step.

    Args:
        query: (B, Sq, H, D), float32, float16, bfloat16 or float64; D and Dv up to 576.
        key_cache: (B, S, Hkv, D); Hkv divides H, and neighbouring query heads share a key head. With block_table
            (pages, page size, Hkv, D).
        value_cache: as key_cache with head size Dv, up to as much. All of one dtype and device.
        cache_seqlens: (B), int32: how many rows of its cache each sequence has, before anything is appended. It stays
            as it is.
        key: (B, new, Hkv, D), written to the cache behind these rows and then seen; new need not be Sq.
        value: (B, new, Hkv, Dv), with key.
        block_table: (B, columns), int32: row r of sequence i's cache is row r % page size of the page
            block_table[i, r // page size]. Entries behind a sequence's last page are not read. Pages that sequences
            share must not be appended to.
        scale, is_causal, window, softcap, sinks, precision, return_lse: as :func:`attention_varlen`.

    Returns:
        (B, Sq, H, Dv) of the query's dtype, contiguous; 0 in a row that sees no key. With return_lse a tuple of that
        and (B, H, Sq) in float32 (float64 for float64 inputs), -inf for such a row.

    Raises:
        RuntimeError: as :func:`attention_varlen`; key without value; a cache to append to whose rows share memory; on
            the CPU lengths that the cache has no room for. On CUDA keys that find no room are dropped.
        TypeError: a window that is one number.
        ValueError: an unknown precision.

    Source: Dao et al., "Flash-Decoding for long-context inference" (2023); pages as in Kwon et al., "PagedAttention"
        (2023).
    """
    check_window("attention_with_cache", window)
    results = call_below_autograd(
        _with_cache_lse if return_lse else _with_cache,
        query,
        key_cache,
        value_cache,
        cache_seqlens,
        key=key,
        value=value,
        block_table=block_table,
        scale=scale,
        is_causal=is_causal,
        window=window,
        softcap=softcap,
        sinks=sinks,
        precision=default_precision() if precision is None else precision,
    )
    if key is not None and not compiling():
        written(key_cache, value_cache)
    return results

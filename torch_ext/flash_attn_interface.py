"""FlashAttention 3's functions, forward only: what it calls ``flash_attn_interface``.

As :mod:`torch_ext.flash_attn`, with FlashAttention 3's order of arguments and its results: with return_attn_probs the
output and the log-sum-exp alone, -inf for a query that sees no key. That module's text says what each argument means.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_ext.flash_attn import attend, cache_lengths, check_absent, check_fa3, options_of, unpacked
from torch_ext.functional import attention_varlen, attention_with_cache

__all__ = ["flash_attn_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func", "flash_attn_with_kvcache"]


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    window_size: Sequence[int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """:func:`torch_ext.flash_attn.flash_attn_func`.

    Returns:
        (B, Sq, H, D), contiguous; with return_attn_probs also (B, H, Sq), the log-sum-exp.

    Raises:
        NotImplementedError: qv, descales or an attention_chunk.
        ValueError, RuntimeError: as that function.
    """
    op = "flash_attn_func"
    descales = {"q_descale": q_descale, "k_descale": k_descale, "v_descale": v_descale}
    check_fa3(op, qv=qv, **descales, attention_chunk=attention_chunk)
    return attend(op, q, k, v, options_of(softmax_scale, causal, window_size, softcap, return_attn_probs))


def flash_attn_qkvpacked_func(
    qkv: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    window_size: Sequence[int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    deterministic: bool = False,
    num_heads_q: int | None = None,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """:func:`flash_attn_func` of queries, keys and values in one tensor.

    Args:
        qkv: (B, S, 3, H, D), or with num_heads_q (B, S, num_heads_q + 2 Hk, D).

    Raises:
        ValueError: qkv of another shape; and what :func:`flash_attn_func` raises.
    """
    options = (softmax_scale, causal, None, q_descale, k_descale, v_descale, window_size, attention_chunk, softcap)
    return flash_attn_func(*unpacked(qkv, num_heads_q), *options, return_attn_probs=return_attn_probs)


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    window_size: Sequence[int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """:func:`torch_ext.flash_attn.flash_attn_varlen_func`.

    Returns:
        (total q, H, D), contiguous; with return_attn_probs also (H, total q), the log-sum-exp.

    Raises:
        NotImplementedError: seqused_q, qv, descales or an attention_chunk.
        ValueError, RuntimeError: as that function.
    """
    op = "flash_attn_varlen_func"
    descales = {"q_descale": q_descale, "k_descale": k_descale, "v_descale": v_descale}
    check_absent(op, seqused_q=seqused_q)
    check_fa3(op, qv=qv, **descales, attention_chunk=attention_chunk)
    offsets = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    options = options_of(softmax_scale, causal, window_size, softcap, return_attn_probs)
    return attention_varlen(q, k, v, *offsets, seqused_k=seqused_k, **options)


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    qv: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    page_table: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k_new: Tensor | None = None,
    max_seqlen_q: int | None = None,
    rotary_seqlens: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    scheduler_metadata: Tensor | None = None,
    num_splits: int = 0,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
    return_softmax_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """:func:`torch_ext.flash_attn.flash_attn_with_kvcache`, also of packed queries.

    Args:
        q: (B, Sq, H, D), or with cu_seqlens_q (total q, H, D); then nothing can be appended.
        page_table: what is called block_table there.
        cu_seqlens_q: (B + 1), int32: sequence i has the queries cu_seqlens_q[i] to cu_seqlens_q[i + 1] - 1.
        max_seqlen_q: no sequence has more queries; needed with cu_seqlens_q.

    Returns:
        As q, contiguous; with return_softmax_lse also (B, H, Sq) or (H, total q), the log-sum-exp.

    Raises:
        NotImplementedError: k or v with packed queries, cu_seqlens_k_new, qv, descales, attention_chunk; and what that
            function refuses.
        ValueError, RuntimeError: as that function.
    """
    op = "flash_attn_with_kvcache"
    check_absent(
        op,
        rotary_cos=rotary_cos,
        rotary_sin=rotary_sin,
        rotary_seqlens=rotary_seqlens,
        cache_batch_idx=cache_batch_idx,
        cache_leftpad=cache_leftpad,
        cu_seqlens_k_new=cu_seqlens_k_new,
    )
    descales = {"q_descale": q_descale, "k_descale": k_descale, "v_descale": v_descale}
    check_fa3(op, qv=qv, **descales, attention_chunk=attention_chunk)
    options = options_of(softmax_scale, causal, window_size, softcap, return_softmax_lse)
    sequences = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
    lengths = cache_lengths(op, sequences, k_cache, k, cache_seqlens, page_table)
    if cu_seqlens_q is None:
        return attention_with_cache(q, k_cache, v_cache, lengths, key=k, value=v, block_table=page_table, **options)
    for name, new in (("k", k), ("v", v)):
        if new is not None:
            raise NotImplementedError(f"{op}: appends nothing for packed queries, got {name} with cu_seqlens_q")
    if max_seqlen_q is None:
        raise ValueError(f"{op}: expected max_seqlen_q with cu_seqlens_q, got None")
    if page_table is None:  # each sequence's cache is its one page
        page_table = torch.arange(sequences, dtype=torch.int32, device=q.device)[:, None]
    offsets = (cu_seqlens_q, None, max_seqlen_q, page_table.shape[1] * k_cache.shape[1])
    return attention_varlen(q, k_cache, v_cache, *offsets, seqused_k=lengths, block_table=page_table, **options)

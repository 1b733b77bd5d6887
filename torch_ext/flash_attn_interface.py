"""FlashAttention 3's functions, forward only: what it calls ``flash_attn_interface``.

As :mod:`torch_ext.flash_attn`, with FlashAttention 3's order of arguments and its results: with return_attn_probs the
output and the log-sum-exp alone, -inf for a query that sees no key. That module's text says what each argument means.
"""

from collections.abc import Sequence

from torch import Tensor

from torch_ext import flash_attn

__all__ = ["flash_attn_func", "flash_attn_qkvpacked_func"]


def __getattr__(name: str) -> object:
    raise flash_attn.absent(__name__, name)


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
    flash_attn.check_fa3(
        op,
        {
            "qv": qv,
            "q_descale": q_descale,
            "k_descale": k_descale,
            "v_descale": v_descale,
            "attention_chunk": attention_chunk,
        },
    )
    output, logsumexp = flash_attn.attend(op, q, k, v, softmax_scale, causal, window_size, softcap, return_attn_probs)
    return output if logsumexp is None else (output, logsumexp)


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
    return flash_attn_func(
        *flash_attn.unpacked(qkv, num_heads_q),
        softmax_scale,
        causal,
        None,
        q_descale,
        k_descale,
        v_descale,
        window_size,
        attention_chunk,
        softcap,
        return_attn_probs=return_attn_probs,
    )

"""The forwards of SDPA's flash backend as aten has them: with what torch's backwards read."""

from collections.abc import Callable

import torch
from torch import Tensor

from torch_ext.replace.operators import left_to_torch

FLASH_DTYPES = (torch.float16, torch.bfloat16)
WIDEST_HEAD = 256  # of torch's own backward; of packed sequences of transformers' models

# What an argument of another name has to be: absent, None, False or 0.
SERVED_ARGUMENTS = frozenset(
    ("query", "key", "value", "is_causal", "scale", "max_q", "max_k", "window_size_left", "window_size_right")
)

PACKED_ARGUMENTS = ("cum_seq_q", "cum_seq_k", "seqused_k")

_attention_lse = torch.ops.xgemm.attention_lse.default
_varlen_lse = torch.ops.xgemm.attention_varlen_lse.default
_BelowAutograd = torch._C._AutoDispatchBelowAutograd

# An operator's arguments by name -> its results, or None: not served.
_Forward = Callable[[dict[str, object]], tuple | None]


def scaled_dot_product_flash_attention(given: dict[str, object]) -> tuple | None:
    """``aten::_scaled_dot_product_flash_attention``.

    Args:
        given: its arguments by name; query, key and value are (B, H, S, D), (B, Hk, Sk, D) and (B, Hk, Sk, D).

    Returns:
        The operator's nine results, or None if it is not served. The output has the query's order of dims, without
        holes; the log-sum-exp is natural, (B, H, S), contiguous, float32, inf for a query without keys.
    """
    query, key, value = (given[name] for name in ("query", "key", "value"))
    if not _is_served(query, key, value, given):
        return None
    output, logsumexp = _forward(query, key, value, given)
    lengths = query.shape[2], key.shape[2]
    return _laid_out_as(query, output), logsumexp, None, None, *lengths, *_without_dropout(query)


def flash_attention_forward(given: dict[str, object]) -> tuple | None:
    """``aten::_flash_attention_forward`` of a dense batch or of packed sequences.

    Args:
        given: its arguments by name; query, key and value are (B, S, H, D), (B, Sk, Hk, D) and (B, Sk, Hk, D), or with
            cum_seq_q and cum_seq_k (T, H, D), (Tk, Hk, D) and (Tk, Hk, D).

    Returns:
        The operator's five results, as :func:`scaled_dot_product_flash_attention`, or None if it is not served. Of
        packed sequences the log-sum-exp is (H, T).
    """
    if given["query"].dim() == 3:
        return _packed_forward(given)
    if given["query"].dim() != 4:
        return None
    query, key, value = (given[name].transpose(1, 2) for name in ("query", "key", "value"))
    if not _is_served(query, key, value, given):
        return None
    output, logsumexp = _forward(query, key, value, given)
    return _laid_out_as(given["query"], output.transpose(1, 2)), logsumexp, *_without_dropout(query)


def _packed_forward(given: dict[str, object]) -> tuple | None:
    """``varlen_attn`` and nested tensors arrive here."""
    query, key, value = (given[name] for name in ("query", "key", "value"))
    offsets = [given.get(name) for name in PACKED_ARGUMENTS]
    others = {name: argument for name, argument in given.items() if name not in PACKED_ARGUMENTS}
    if any(t is None or t.dim() != 3 for t in (query, key, value)) or None in map(_kind, offsets[:2]):
        return None
    if any(_kind(t) not in (None, (torch.int32, 1, query.device)) for t in offsets):
        return None
    if not _is_served(*(t.transpose(0, 1)[None] for t in (query, key, value)), others):
        return None
    (cum_seq_q, cum_seq_k, seqused_k), longest = offsets, (given["max_q"], given["max_k"])
    options = {"scale": given.get("scale"), "window": _window(given), "seqused_k": seqused_k}
    with _BelowAutograd():
        output, logsumexp = _varlen_lse(query, key, value, cum_seq_q, cum_seq_k, *longest, **options)
    logsumexp.masked_fill_(logsumexp == -torch.inf, torch.inf)  # lengths are not known here
    return _laid_out_as(query, output), logsumexp, *_without_dropout(query)


def _kind(t: Tensor | None) -> tuple | None:
    return None if t is None else (t.dtype, t.dim(), t.device)


def _is_served(query: Tensor, key: Tensor, value: Tensor, given: dict[str, object]) -> bool:
    """Whether torch's flash attention takes the call, and ours does. The tensors are (B, H, S, D)."""
    for name, argument in given.items():
        if name not in SERVED_ARGUMENTS and argument is not None and (isinstance(argument, Tensor) or argument):
            return False
    if not query.dtype is key.dtype is value.dtype or query.dtype not in FLASH_DTYPES:
        return False
    if not query.device == key.device == value.device or not query.dim() == key.dim() == 4 or key.shape != value.shape:
        return False
    (batch, heads, _, size), (key_batch, key_heads, _, key_size) = query.shape, key.shape
    if batch != key_batch or size != key_size or query.numel() == 0 or key.numel() == 0:
        return False
    if size % 8 != 0 or size > WIDEST_HEAD or heads % key_heads != 0:
        return False
    if not query.stride(3) == key.stride(3) == value.stride(3) == 1:
        return False
    return left_to_torch("attention", query.dtype, query.device) is None


def _forward(query: Tensor, key: Tensor, value: Tensor, given: dict[str, object]) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp of (B, H, S, D)."""
    window, gqa = _window(given), query.shape[1] != key.shape[1]
    options = {"scale": given.get("scale"), "enable_gqa": gqa, "causal_alignment": "bottom_right", "window": window}
    with _BelowAutograd():  # the operator's own Autograd kernel has called this one
        output, logsumexp = _attention_lse(query, key, value, **options)
    if 0 <= window[1] < query.shape[2] - key.shape[2]:  # the first queries come too long before the first key
        logsumexp.masked_fill_(logsumexp == -torch.inf, torch.inf)
    return output, logsumexp


def _window(given: dict[str, object]) -> tuple[int, int]:
    sizes = (given.get(f"window_size_{side}") for side in ("left", "right"))
    left, right = (-1 if size is None else max(-1, size) for size in sizes)
    return left, 0 if given.get("is_causal") else right


def _laid_out_as(query: Tensor, output: Tensor) -> Tensor:
    """The output with the strides of ``empty_like(query)``, which torch's own and its fake have."""
    if output.stride() == query.stride():
        return output
    like = torch.empty_like(query)
    sizes = zip(query.shape, output.stride(), like.stride(), strict=True)
    if all(size == 1 or ours == theirs for size, ours, theirs in sizes):
        return output.as_strided(output.shape, like.stride())
    return like.copy_(output)


def _without_dropout(query: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The generator's state, an unused result and the debug mask, none of which is read without dropout."""
    return query.new_empty(2, dtype=torch.uint64), query.new_empty((), dtype=torch.uint64), query.new_empty(0)


# An operator of aten -> its forward here.
FORWARDS: dict[str, _Forward] = {
    "_scaled_dot_product_flash_attention": scaled_dot_product_flash_attention,
    "_flash_attention_forward": flash_attention_forward,
}


def forward(name: str) -> Callable[..., tuple | None]:
    """The forward of an operator of aten, which takes what a kernel of it takes."""
    by_name = FORWARDS[name]
    names = [argument.name for argument in getattr(torch.ops.aten, name).default._schema.arguments]
    return lambda *args, **kwargs: by_name({**dict(zip(names, args, strict=False)), **kwargs})

"""Hugging Face transformers: ``attn_implementation="xgemm"``.

from torch_ext.integrations import transformers as xgemm_transformers

xgemm_transformers.register()
model = AutoModel.from_pretrained(name, attn_implementation="xgemm")

transformers makes a mask once and gives it to a function of attention in each layer. A model may tell the window or the
causality to one of the two only, so that a mask is not left out on trust in the layer: a mask that is a rule
(:class:`RuleMask`) takes no memory, and says itself what it masks.
"""

import functools
import sys
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

import torch_ext
from torch_ext._sdpa import WIDEST_HEAD
from torch_ext.fake import widest_head

NAME = "xgemm"
EVERY_KEY = (-1, -1)
CAUSAL = (-1, 0)


def register() -> None:
    """Makes ``attn_implementation="xgemm"`` known to transformers. A second call is fine.

    Masks are made as for "sdpa", but a causal mask, a window and one that masks nothing are a :class:`RuleMask`.

    Raises:
        ImportError: transformers is not installed, or older than its AttentionInterface and AttentionMaskInterface.
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface, masking_utils
    except ImportError as error:
        raise ImportError(
            f"xgemm.integrations.transformers: needs transformers with AttentionInterface and AttentionMaskInterface "
            f"(4.53 or newer): {error}"
        ) from None
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, functools.partial(_mask, masking_utils))


class RuleMask(Tensor):
    """A mask of bools that a rule gives: row i sees the keys from own - left to own + right.

    It takes no memory as long as layers only pass it on to :func:`attention`. The first operator that meets it, as in a
    layer that adds something to its mask, makes the bools; from then on it is these, so that writing to them works.

    Args:
        shape: (batch, 1, length, key length).
        window: (left, right), -1: all keys of that side.
        alignment: row i's own key is i ("top_left") or i + key length - length ("bottom_right").
        bools: the mask if it has been made, else an empty tensor of the device.
        documents: (batch, length), the sequence that each position is part of, where a row holds several: a query sees
            keys of its own only. With them length and key length are equal.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl
    window: tuple[int, int]
    alignment: str
    bools: Tensor
    documents: Tensor | None

    @staticmethod
    def __new__(
        cls,
        shape: torch.Size,
        window: tuple[int, int],
        alignment: str,
        bools: Tensor,
        documents: Tensor | None = None,
    ) -> "RuleMask":
        mask = Tensor._make_wrapper_subclass(cls, shape, dtype=torch.bool, device=bools.device)
        mask.window, mask.alignment, mask.bools, mask.documents = window, alignment, bools, documents
        return mask

    def made(self) -> Tensor:
        """The mask as bools, made once."""
        if self.bools.dim() != 4:
            self.bools = _bools(self.shape, self.window, self.alignment, self.bools.device)
            if self.documents is not None:
                self.bools = self.bools & (self.documents[:, None, :, None] == self.documents[:, None, None, :])
        return self.bools

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = torch.utils._pytree.tree_map_only(cls, cls.made, (args, kwargs or {}))
        return func(*args, **kwargs)

    def __repr__(self) -> str:
        return f"RuleMask({tuple(self.shape)}, window={self.window}, alignment={self.alignment!r})"

    def __tensor_flatten__(self) -> tuple[list[str], tuple]:  # a compiled layer may get a mask made outside
        return ["bools"] + ["documents"] * (self.documents is not None), (self.window, self.alignment)

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], rule: tuple, shape: torch.Size, stride: tuple) -> "RuleMask":
        return RuleMask(shape, *rule, inner["bools"], inner.get("documents"))


def _bools(shape: Sequence[int], window: tuple[int, int], alignment: str, device: torch.device) -> Tensor:
    """The mask that the arguments of :class:`RuleMask` mean."""
    length, keys = shape[-2:]
    own = torch.arange(length, device=device) + (keys - length if alignment == "bottom_right" else 0)
    away = torch.arange(keys, device=device) - own[:, None]
    seen = torch.ones(length, keys, dtype=torch.bool, device=device)
    left, right = window
    if left >= 0:
        seen &= away >= -left
    if right >= 0:
        seen &= away <= right
    return seen.expand(shape)


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
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **kwargs,
) -> tuple[Tensor, None]:
    """What an attention layer of transformers calls. Torch computes heads wider than `widest_head`.

    Args:
        module: the layer; its `is_causal` counts where the argument of that name is None.
        query: (batch, heads, length, head size).
        key, value: (batch, key heads, key length, head size); key heads divide heads.
        attention_mask: broadcasts to (batch, heads, length, key length); bool (True takes part), additive or a
            :class:`RuleMask`. It holds the window: a `sliding_window` among `kwargs` means nothing, as for "sdpa".
        scaling: default 1 / sqrt(head size).
        is_causal: as for "sdpa", without a mask and for more than one query, query i sees the keys 0 to i.
        softcap: scores become ``softcap * tanh(scores / softcap)``.
        s_aux: (heads), one more logit for each row that has no value: attention sinks.
        kwargs: cu_seq_lens_q, cu_seq_lens_k, max_length_q and max_length_k, as for flash attention: the batch is one
            row of packed sequences, and each query sees keys of its own sequence only.
        position_bias: added to the scores.

    Returns:
        (batch, length, heads, head size), contiguous, and None in place of the weights.

    Raises:
        RuntimeError: a model that declares neither sdpa nor flash attention; dropout; a paged cache; sparse indices;
            output_attentions; packed sequences in more than one row; and what :func:`torch_ext.attention` raises.
    """
    if (model := _undeclared(type(module))) is not None:
        raise RuntimeError(f'xgemm attention: {model} declares neither sdpa nor flash attention; use "eager"')
    if dropout:
        raise RuntimeError(f"xgemm attention: has no dropout, got dropout={dropout}; call eval() on the model")
    if kwargs.get("output_attentions"):
        raise RuntimeError('xgemm attention: does not return weights, got output_attentions=True; use "eager"')
    if kwargs.get("cache") is not None:
        raise RuntimeError('xgemm attention: has no paged cache, got one; use "sdpa" within torch_ext.enable()')
    for name in ("indices", "block_indices"):  # of keys that a layer has chosen, which it masks for "sdpa" only
        if kwargs.get(name) is not None:
            raise RuntimeError(f'xgemm attention: has no sparse attention, got {name}; use "sdpa"')
    length, keys = query.shape[2], key.shape[2]
    packed = _packed(kwargs, query)
    window, alignment = EVERY_KEY, "top_left"
    if attention_mask is None:
        if length > 1 and (getattr(module, "is_causal", True) if is_causal is None else is_causal):
            window = CAUSAL
    elif isinstance(attention_mask, RuleMask):
        if attention_mask.bools.dim() == 4:
            attention_mask = attention_mask.bools
        elif attention_mask.documents is not None and packed is None:
            attention_mask = attention_mask.made()
        elif attention_mask.shape[-2:] != (length, keys) and attention_mask.window != EVERY_KEY:
            attention_mask = attention_mask.clone()  # makes the bools
        else:
            window, alignment, attention_mask = attention_mask.window, attention_mask.alignment, None
            if length == 1 and window == CAUSAL and alignment == "bottom_right":  # a decoded token
                window = EVERY_KEY
    elif attention_mask.is_floating_point() and attention_mask.dtype is not torch.float32:
        attention_mask = attention_mask.to(query.dtype)
    widest = max(query.shape[3], value.shape[3])
    wide = widest > widest_head(query.dtype)
    by_sequence = packed is not None and attention_mask is None and position_bias is None and widest <= WIDEST_HEAD
    if window != EVERY_KEY and (position_bias is not None or wide):
        attention_mask = _bools((1, 1, length, keys), window, alignment, query.device)
        window = EVERY_KEY
    if packed is not None and not by_sequence:
        same = _of_one_sequence(packed, length, keys)
        attention_mask = same if attention_mask is None else _added(attention_mask, same)
    if position_bias is not None:
        attention_mask = _added(position_bias, attention_mask)
    if wide:
        output = _by_torch(query, key, value, attention_mask, scaling, softcap, s_aux)
        return output.transpose(1, 2).contiguous(), None
    if (report := module.__dict__.get("_xgemm_report")) is not None:  # of a model that torch_ext.replace swapped
        report.count("attention", None)
    options = {"scale": scaling, "softcap": softcap or 0.0, "sinks": s_aux}
    if by_sequence:
        rows = [t[0].transpose(0, 1) for t in (query, key, value)]
        return torch_ext.attention_varlen(*rows, *packed, window=window, **options)[None], None
    causal = window == CAUSAL
    output = torch_ext.attention(
        query,
        key,
        value,
        attn_mask=attention_mask,
        is_causal=causal,
        enable_gqa=query.shape[1] != key.shape[1],
        causal_alignment=alignment,
        window=EVERY_KEY if causal else window,
        **options,
    )
    return output.transpose(1, 2).contiguous(), None


def _packed(given: dict[str, object], query: Tensor) -> tuple[Tensor, Tensor, int, int] | None:
    """The offsets of packed sequences and their longest lengths, if all are given."""
    names = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")
    if any(given.get(name) is None for name in names):
        return None
    if query.shape[0] != 1:
        raise RuntimeError(
            f"xgemm attention: expected one row of packed sequences with cu_seq_lens_q, got {query.shape[0]}"
        )
    starts_q, starts_k, most_q, most_k = (given[name] for name in names)
    return starts_q.int(), starts_k.int(), int(most_q), int(most_k)


def _of_one_sequence(packed: tuple[Tensor, Tensor, int, int], length: int, keys: int) -> Tensor:
    """(1, 1, length, keys): whether a key is part of its query's sequence."""
    places = zip(packed, (length, keys), strict=False)
    ids = [torch.bucketize(torch.arange(n, device=starts.device), starts, right=True) for starts, n in places]
    return (ids[0][:, None] == ids[1])[None, None]


def _mask(masking: ModuleType, *args, **given) -> Tensor | None:
    """What transformers calls for a mask. `masking` is its masking_utils."""
    if (mask := _rule(masking, **given)) is not None:
        return mask
    if "q_offset" in given:  # older versions do not say where the queries stand, and have no RuleMask
        given["allow_is_causal_skip"] = False
    return masking.sdpa_mask(*args, **given)


def _rule(
    masking: ModuleType,
    *,
    batch_size: int = 0,
    q_length: int = 0,
    kv_length: int = 0,
    q_offset: int | Tensor | None = None,
    kv_offset: int = 0,
    mask_function: Callable | None = None,
    attention_mask: Tensor | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    device: torch.device | str = "cpu",
    **_,
) -> RuleMask | None:
    """The mask as a rule, or None where it is more than that or may not be left out."""
    if _is_traced(attention_mask) or _is_traced(q_offset) or q_offset is None:
        return None
    mask_function, documents = _documents(masking, mask_function)
    window, causal = _window(masking, mask_function)
    if documents is not None:  # nothing is left out: layers get the mask
        if window is None or _is_traced(documents) or documents.shape != (batch_size, kv_length) or kv_offset != 0:
            return None
    elif window is None or not (allow_is_causal_skip if causal else allow_is_bidirectional_skip):
        return None
    first = int(q_offset) - kv_offset  # the own key of the first query
    if first == kv_length - q_length or window == EVERY_KEY:
        alignment, seen = "bottom_right", kv_length
    elif first == 0:  # a prompt in a static cache
        alignment, seen = "top_left", min(q_length, kv_length) if causal else kv_length
    else:
        return None
    if attention_mask is not None:
        padding = attention_mask[:, kv_offset : kv_offset + seen]
        if padding.shape[1] < seen or not padding.all():
            return None
    shape = torch.Size((batch_size, 1, q_length, kv_length))
    return RuleMask(shape, window, alignment, torch.empty(0, dtype=torch.bool, device=device), documents)


def _documents(masking: ModuleType, function: Callable | None) -> tuple[Callable | None, Tensor | None]:
    """The mask function within each packed sequence, and the sequence of each position; None: there is one."""
    of_packed = getattr(masking, "packed_sequence_mask_function", None)
    if of_packed is not None and getattr(function, "__code__", None) is masking.and_masks().__code__:
        *others, last = _closed_over(function)[0]
        if len(others) == 1 and getattr(last, "__code__", None) is of_packed(None).__code__:
            return others[0], _closed_over(last)[0]
    return function, None


def _window(masking: ModuleType, function: Callable | None) -> tuple[tuple[int, int] | None, bool]:
    """The window that a mask function of transformers means and whether it is causal; None if it is not a plain one.

    Told by the function itself, since a size, as sdpa_mask gets it, may be that of a chunk.
    """
    if function is masking.causal_mask_function:
        return CAUSAL, True
    if function is getattr(masking, "bidirectional_mask_function", None):
        return EVERY_KEY, False
    if getattr(function, "__code__", None) is masking.and_masks().__code__:
        overlay, *others = _closed_over(function)[0]
        code = getattr(overlay, "__code__", None)
        if others == [masking.causal_mask_function] and code is masking.sliding_window_overlay(1).__code__:
            return (_closed_over(overlay)[0] - 1, 0), True
        both_sides = getattr(masking, "sliding_window_bidirectional_overlay", None)
        if both_sides and others == [masking.bidirectional_mask_function] and code is both_sides(1).__code__:
            return (_closed_over(overlay)[0],) * 2, False
    return None, False


def _closed_over(function: Callable) -> list:
    return [cell.cell_contents for cell in function.__closure__]


def _is_traced(tensor: object) -> bool:
    """Whether the values of a tensor cannot be read, or what is read would stay in a graph."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or isinstance(tensor, (FakeTensor, torch.fx.Proxy)):
        return True
    return isinstance(tensor, Tensor) and tensor.is_cuda and torch.cuda.is_current_stream_capturing()


@torch.compiler.assume_constant_result
def _undeclared(layer: type[torch.nn.Module]) -> str | None:
    """The model of an attention layer if its file declares neither sdpa nor flash attention: what such layers do with a
    mask of bools, or in place of one, is not known."""
    if layer not in _UNDECLARED:
        base = sys.modules["transformers"].PreTrainedModel
        models = [
            model
            for model in vars(sys.modules[layer.__module__]).values()
            if isinstance(model, type) and issubclass(model, base) and model.__module__ == layer.__module__
        ]
        declared = any(model._supports_sdpa or model._supports_flash_attn for model in models)
        _UNDECLARED[layer] = models[0].__name__ if models and not declared else None
    return _UNDECLARED[layer]


_UNDECLARED: WeakKeyDictionary[type[torch.nn.Module], str | None] = WeakKeyDictionary()


def _by_torch(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """Attention of heads that are too wide for :func:`torch_ext.attention`."""
    _say_once(f"xgemm attention: torch computes heads wider than {widest_head(query.dtype)} (here {query.shape[3]})")
    if not softcap and sinks is None:
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=scale, enable_gqa=query.shape[1] != key.shape[1]
        )
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    scores = (query @ key.mT).float() * (query.shape[3] ** -0.5 if scale is None else scale)
    scores = softcap * (scores / softcap).tanh() if softcap else scores
    if mask is not None:
        lowest = torch.finfo(scores.dtype).min
        scores = torch.where(mask, scores, lowest) if mask.dtype is torch.bool else scores + mask
    if sinks is not None:
        scores = torch.cat([scores, sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:3], 1)], -1)
    return scores.softmax(-1)[..., : key.shape[2]].to(value.dtype) @ value


@functools.cache
def _say_once(text: str) -> None:
    warnings.warn(text, stacklevel=4)


def _added(bias: Tensor, mask: Tensor | None) -> Tensor:
    """Both as one mask. No row of an additive one is left without a finite number, so that none gives NaN."""
    if mask is None:
        return bias
    if bias.dtype is torch.bool:
        return bias & mask
    return torch.where(mask, bias, torch.finfo(bias.dtype).min) if mask.dtype is torch.bool else bias + mask

"""One attention problem: its masks, its float64 reference, and who else computes it."""

import contextlib
import functools
import importlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

from benchmarks.common import Contender, Options, compiled
from benchmarks.matmul import tf32

BACKENDS = {
    "sdpa_math": SDPBackend.MATH,
    "sdpa_flash": SDPBackend.FLASH_ATTENTION,
    "sdpa_efficient": SDPBackend.EFFICIENT_ATTENTION,
    "sdpa_cudnn": SDPBackend.CUDNN_ATTENTION,
}
FA3 = "fa3_fwd_interface"  # the module of FlashAttention-3's wheel `fa3-fwd`: bfloat16, no masks, no windows
DOCUMENTS = 8  # of equal length, in a mask of documents
TOKENS, WIDTH = 16384, 2048  # batch * sequence and heads * head size of the standard cases
SCORES = {"": 1.0, "peaked": 4.0, "large": 32.0}  # their standard deviation
# Tolerances of fp32 by one part of 11 bits. Rounding operands and weights to TF32 changes a normal case by up to 1.6e-3
# of its scale in 40 heads of 64 causal rows; a case has more heads.
ONE_PART = {"high": 2.0**-8, "medium": 2.0**-8}
MATH_SCORES = 1 << 29  # that the math backend has in memory at a time while its error is measured


@dataclass(frozen=True)
class Problem:
    """Sizes and kind of one call. Causal is aligned to the bottom right: the last query sees all keys."""

    batch: int
    heads: int
    kv_heads: int
    rows: int
    keys: int
    size: int
    value_size: int = 0  # 0: as `size`
    causal: bool = False
    mask: str = ""  # one of MASKS
    scores: str = ""  # one of SCORES: other data than normal
    window: int = 0  # keys that a causal query sees, its own position's among them; 0: no limit
    precision: str = "highest"  # of fp32
    latent: bool = False  # the values are the keys' first columns, as in DeepSeek's MLA

    @property
    def dv(self) -> int:
        return self.value_size or self.size

    @property
    def gqa(self) -> bool:
        return self.heads != self.kv_heads

    @property
    def name(self) -> str:
        """'S2048 D64 causal'; with batch and heads in front where TOKENS and WIDTH do not say them."""
        standard = (self.rows, self.heads, self.batch) == (self.keys, WIDTH // self.size, max(1, TOKENS // self.rows))
        heads = f"{self.heads}/{self.kv_heads}" if self.gqa else str(self.heads)
        parts = [] if standard and not self.gqa else [f"B{self.batch} H{heads}"]
        parts.append(f"S{self.rows}" if self.rows == self.keys else f"Q{self.rows} KV{self.keys}")
        parts.append(f"D{self.size}" + (f"/{self.dv}" if self.dv != self.size else ""))
        parts += ["latent"] * self.latent + ["causal"] * self.causal + [f"window {self.window}"] * bool(self.window)
        parts += [f"{self.mask} mask"] * bool(self.mask)
        parts += [f"{self.scores} scores"] * bool(self.scores)
        return " ".join(parts)

    @property
    def limits(self) -> dict[str, int]:
        """What the calls below are told of the keys that a query sees, apart from the mask."""
        return {"causal": self.causal, "window": self.window}

    @property
    def kept(self) -> float:
        """The part of the scores that the causal edge, the window, the documents or the padding leave."""
        if self.window:
            earlier = self.keys - self.rows
            seen = sum(min(earlier + row + 1, self.window) for row in range(self.rows))
            return seen / (self.rows * self.keys)
        if self.causal:
            return 1 - self.rows / (2 * self.keys)
        return {"document": 1 / DOCUMENTS, "padding": sum(self.lengths) / (self.batch * self.keys)}.get(self.mask, 1.0)

    @property
    def lengths(self) -> list[int]:
        """Keys of each batch entry under a padding mask: from half of them to all."""
        return [self.keys - self.keys * entry // (2 * self.batch) for entry in range(self.batch)]


def boolean(p: Problem, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Half of the scores at random, and the first key for all: no row is masked as a whole."""
    mask = torch.rand(p.rows, p.keys, device=device) < 0.5
    mask[:, 0] = True
    return mask


def additive(p: Problem, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.randn(p.rows, p.keys, dtype=dtype, device=device)


def padding(p: Problem, dtype: torch.dtype, device: torch.device) -> Tensor:
    lengths = torch.tensor(p.lengths, device=device)
    return (torch.arange(p.keys, device=device) < lengths[:, None])[:, None, None]


def documents(p: Problem, dtype: torch.dtype, device: torch.device) -> Tensor:
    document = torch.arange(p.keys, device=device) // (p.keys // DOCUMENTS)
    return document[:, None] == document


MASKS: dict[str, Callable[[Problem, torch.dtype, torch.device], Tensor]] = {
    "boolean": boolean,
    "additive": additive,
    "padding": padding,
    "document": documents,
}


def reference(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool, window: int = 0
) -> tuple[Tensor, Tensor]:
    """softmax(q k^T / sqrt(d) + mask) v in float64 and the same with |v|, some rows of one batch entry at a time."""
    result = torch.empty(*q.shape[:-1], v.shape[-1], dtype=torch.float64, device=q.device)
    scale = torch.empty_like(result)
    groups, queries, keys = q.shape[1] // k.shape[1], q.shape[2], k.shape[2]
    if mask is not None:
        mask = mask.expand(q.shape[0], 1, queries, keys)
    rows = max(1, min(queries, (1 << 28) // (q.shape[1] * keys)))
    for entry in range(q.shape[0]):
        k64, v64 = (x[entry].double().repeat_interleave(groups, 0) for x in (k, v))
        for first in range(0, queries, rows):
            block = slice(first, first + rows)
            scores = q[entry, :, block].double().mul_(q.shape[-1] ** -0.5) @ k64.mT
            if causal:
                row = torch.arange(first, first + scores.shape[-2], device=q.device) + keys - queries
                key = torch.arange(keys, device=q.device)
                scores.masked_fill_(key > row[:, None], float("-inf"))
                if window:
                    scores.masked_fill_(key <= row[:, None] - window, float("-inf"))
            if mask is not None and mask.dtype == torch.bool:
                scores.masked_fill_(~mask[entry, :, block], float("-inf"))
            elif mask is not None:
                scores += mask[entry, :, block]
            weights = torch.softmax(scores, -1)
            del scores
            result[entry, :, block] = weights @ v64
            scale[entry, :, block] = weights @ v64.abs()
        if q.dtype == torch.float16:  # smaller weights lose their relative accuracy when they are rounded
            scale[entry] += torch.finfo(q.dtype).smallest_normal * v64.abs().amax(-2, keepdim=True)
    return result, scale


@contextlib.contextmanager
def backend(which: SDPBackend) -> Iterator[None]:
    with sdpa_kernel(which), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a backend that refuses a case says why in a page of warnings
        yield


@contextlib.contextmanager
def math_in_tf32() -> Iterator[None]:
    with backend(SDPBackend.MATH), tf32():
        yield


@functools.lru_cache(maxsize=1)
def bottom_right(rows: int, keys: int, window: int, device: torch.device) -> Tensor:
    """Causal edge and window as a mask, for what knows the top left edge only; made once, outside the timing."""
    mask = torch.ones(rows, keys, dtype=torch.bool, device=device).tril_(keys - rows)
    return mask.triu_(keys - rows - window + 1) if window else mask


def sdpa(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool, window: int = 0, flash: bool = False
) -> Tensor:
    """torch's function. It aligns `is_causal` to the top left: short queries need a mask, or flash's bias.

    It has no window: that is a mask too.
    """
    rows, keys = q.shape[2], k.shape[2]
    if causal and (rows != keys or window):
        mask = causal_lower_right(rows, keys) if flash else bottom_right(rows, keys, window, q.device)
    causal = causal and rows == keys and not window
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])


def math_backend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool, window: int = 0
) -> Tensor:
    """The math backend's result, a few heads at a time: the error that ours is compared with."""
    groups, kv_heads = q.shape[1] // k.shape[1], k.shape[1]
    step = max(1, MATH_SCORES // (groups * q.shape[2] * k.shape[2]))
    result = torch.empty(*q.shape[:-1], v.shape[-1], dtype=q.dtype, device=q.device)
    with backend(SDPBackend.MATH):
        for entry in range(q.shape[0]):
            one = slice(entry, entry + 1)
            mask_one = mask[one] if mask is not None and mask.dim() == 4 and mask.shape[0] > 1 else mask
            for head in range(0, kv_heads, step):
                some, queries = slice(head, head + step), slice(head * groups, (head + step) * groups)
                inputs = q[one, queries], k[one, some], v[one, some], mask_one
                result[one, queries] = sdpa(*inputs, causal=causal, window=window)
    return result


@functools.cache
def fa3_call() -> Callable[..., Tensor]:
    """The entry point that chooses its number of key splits itself; it takes prompts as well as single queries."""
    return importlib.import_module(FA3).flash_attn_with_kvcache


def fa3(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    """FlashAttention-3: (batch, sequence, heads, head size), causal at the bottom right, key heads by their number."""
    return fa3_call()(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal=causal).transpose(1, 2)


@functools.cache
def flex() -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)


@functools.lru_cache(maxsize=1)
def document_blocks(keys: int, device: torch.device) -> object:
    """flex_attention's form of the mask of documents; made once, outside the timing."""
    from torch.nn.attention.flex_attention import create_block_mask

    length = keys // DOCUMENTS
    return create_block_mask(lambda b, h, i, j: i // length == j // length, None, None, keys, keys, device=device)


@functools.lru_cache(maxsize=1)
def window_blocks(rows: int, keys: int, window: int, device: torch.device) -> object:
    """flex_attention's form of the causal window; made once, outside the timing."""
    from torch.nn.attention.flex_attention import create_block_mask

    def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        distance = i + keys - rows - j
        return (distance >= 0) & (distance < window)

    return create_block_mask(seen, None, None, rows, keys, device=device)


def flex_window(q: Tensor, k: Tensor, v: Tensor, *, window: int) -> Tensor:
    blocks = window_blocks(q.shape[2], k.shape[2], window, q.device)
    return flex()(q, k, v, block_mask=blocks, enable_gqa=q.shape[1] != k.shape[1])


def flex_documents(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return flex()(q, k, v, block_mask=document_blocks(k.shape[2], q.device))


def backends(p: Problem, dtype: torch.dtype, options: Options) -> list[str]:
    """SDPA's backends that take the problem; the math one where no other may, on the CPU, and with `--set all`."""
    if not options.cuda:
        return ["sdpa_math"]
    names = []
    if dtype != torch.float32:
        names += ["sdpa_flash"] * (not p.mask and not p.window and p.dv == p.size) + ["sdpa_cudnn"]
    if not p.gqa:
        names.append("sdpa_efficient")
    return names + ["sdpa_math"] * (options.all or not names or (p.size > 256 and not p.latent))


def peers(p: Problem, dtype: torch.dtype, options: Options) -> list[Contender]:
    """Everyone else who computes the problem; one that refuses it after all is noted when its turn comes."""
    limits = p.limits
    found = [
        Contender(name, partial(sdpa, **limits, flash=name == "sdpa_flash"), partial(backend, BACKENDS[name]))
        for name in backends(p, dtype, options)
    ]
    if options.cuda and options.all and p.precision in ONE_PART:
        call = partial(sdpa, **limits)
        found.append(Contender("sdpa_math_tf32", call, math_in_tf32, tolerance=ONE_PART[p.precision]))
    plain = dtype == torch.bfloat16 and not p.mask and not p.window
    if options.cuda and plain and importlib.util.find_spec(FA3):
        found.append(Contender("fa3", partial(fa3, causal=p.causal)))
    if options.cuda and p.mask == "document":
        found.append(Contender("flex_attention", flex_documents))
    if options.cuda and p.window:  # SDPA computes all scores
        found.append(Contender("flex_attention", partial(flex_window, window=p.window)))
    return found + compiled(partial(sdpa, **limits), options)

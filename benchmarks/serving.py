"""attention_varlen and attention_with_cache against FlashAttention-3, torch's varlen_attn and cuDNN.

`xgemm_contiguous`, `fa3_contiguous` and `sdpa_cudnn_contiguous` have the same keys in a contiguous cache; the pages of
a page table lie in random order. Sequences' lengths depend on `--seed`. FlashAttention-3: where `fa3-fwd` is installed.
"""

import importlib
import math
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend

from benchmarks.attention_peers import FA3, backend
from benchmarks.attention_peers import reference as dense_reference
from benchmarks.common import Case, Contender, Options, main, sum_tolerance

OP = "serving"
SOURCES = ["csrc/attention", "csrc/device"]
BF16 = torch.bfloat16
RANDOM_BATCHES = 40


@dataclass(frozen=True)
class Batch:
    """Packed sequences (`page` 0), or one query of each sequence over a cache of pages of so many rows."""

    name: str
    lengths: tuple[int, ...]
    heads: int
    kv_heads: int
    size: int
    page: int = 0
    value_size: int = 0
    appended: int = 0
    latent: bool = False  # the values are the keys' first columns, as in DeepSeek's MLA

    @property
    def dv(self) -> int:
        return self.value_size or self.size

    @property
    def longest(self) -> int:
        return max(self.lengths)


def log_uniform(draw: random.Random, count: int, least: int, most: int) -> tuple[int, ...]:
    return tuple(round(math.exp(draw.uniform(math.log(least), math.log(most)))) for _ in range(count))


def documents(draw: random.Random, tokens: int, least: int, most: int) -> tuple[int, ...]:
    """Lengths that sum to `tokens`."""
    found: list[int] = []
    while (left := tokens - sum(found)) > 0:
        found.append(min(left, *log_uniform(draw, 1, least, most)))
    return tuple(found)


def peer() -> ModuleType | None:
    try:
        return importlib.import_module(FA3)
    except ImportError:
        return None


# ---- packed sequences ------------------------------------------------------------------------------------------------


def of_each(lengths: tuple[int, ...], call, q: Tensor, k: Tensor, v: Tensor) -> list:
    """`call` for each sequence's (1, heads, length, size)."""
    parts = (x.split(list(lengths)) for x in (q, k, v))
    return [call(*(x.transpose(0, 1)[None] for x in one)) for one in zip(*parts, strict=True)]


def varlen_reference(b: Batch, q: Tensor, k: Tensor, v: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    pairs = of_each(b.lengths, partial(dense_reference, causal=True), q, k, v)
    return tuple(torch.cat([x[0].transpose(0, 1) for x in side]) for side in zip(*pairs, strict=True))


def varlen_case(b: Batch, dtype: torch.dtype, group: str) -> Case:
    tokens, most = sum(b.lengths), b.longest

    def make(device: torch.device) -> tuple[Tensor, ...]:
        new = partial(torch.randn, dtype=dtype, device=device)
        offsets = torch.tensor([0, *b.lengths], device=device).cumsum(0).to(torch.int32)
        packed = (new(tokens, b.heads, b.size), new(tokens, b.kv_heads, b.size), new(tokens, b.kv_heads, b.dv))
        return *packed, offsets

    def ours(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor) -> Tensor:
        return torch.ops.xgemm.attention_varlen(q, k, v, offsets, offsets, most, most, is_causal=True)

    contenders = [Contender("xgemm", ours)]
    if (fa3 := peer()) and dtype == BF16:

        def theirs(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor) -> Tensor:
            output = fa3.flash_attn_varlen_func(q, k, v, offsets, offsets, most, most, causal=True)
            return output[0] if isinstance(output, tuple) else output

        contenders.append(Contender("fa3", theirs))
    if b.heads == b.kv_heads and b.size == b.dv:  # torch 2.11's has no grouped heads
        from torch.nn.attention.varlen import varlen_attn

        def torchs(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor) -> Tensor:
            return varlen_attn(q, k, v, offsets, offsets, most, most, window_size=(-1, 0))

        contenders.append(Contender("torch_varlen", torchs))
    data = tokens * dtype.itemsize
    return Case(
        name=b.name,
        shape={"sequences": len(b.lengths), "tokens": tokens, "longest": most, "heads": b.heads}
        | {"kv_heads": b.kv_heads, "d": b.size, "dv": b.dv, "causal": True},
        dtype=dtype,
        make=make,
        contenders=contenders,
        reference=partial(varlen_reference, b),
        tolerance=2 * sum_tolerance(most, dtype) + 2 * sum_tolerance(b.size, dtype) + 2 * torch.finfo(dtype).eps,
        read=data * (b.heads * b.size + b.kv_heads * (b.size + b.dv)),
        written=data * b.heads * b.dv,
        flops=sum(b.heads * length * (length + 1.0) * (b.size + b.dv) for length in b.lengths),
        groups=(group,),
    )


# ---- caches ----------------------------------------------------------------------------------------------------------


def cache_reference(b: Batch, q: Tensor, *caches: Tensor) -> tuple[Tensor, Tensor]:
    keys, values = caches[4:6]
    pairs = [
        dense_reference(
            q[i : i + 1].transpose(1, 2),
            keys[i : i + 1, :length].transpose(1, 2),
            values[i : i + 1, :length].transpose(1, 2),
            causal=False,
        )
        for i, length in enumerate(b.lengths)
    ]
    return tuple(torch.cat(side).transpose(1, 2) for side in zip(*pairs, strict=True))


def cache_case(b: Batch, dtype: torch.dtype, group: str) -> Case:
    count, columns = len(b.lengths), -(-b.longest // b.page)
    rows = columns * b.page

    def make(device: torch.device) -> tuple[Tensor, ...]:
        new = partial(torch.randn, dtype=dtype, device=device)
        sizes = [b.size] if b.latent else [b.size, b.dv]
        caches = [new(count, rows, b.kv_heads, size) for size in sizes]
        order = torch.randperm(count * columns, device=device)
        table = torch.empty_like(order)
        table[order] = torch.arange(count * columns, device=device)
        pages = [x.view(count * columns, b.page, b.kv_heads, -1)[order] for x in caches]
        lengths = torch.tensor(b.lengths, dtype=torch.int32, device=device)
        query, table = new(count, 1, b.heads, b.size), table.view(count, columns).int()
        if b.latent:
            caches, pages = ([x[0], x[0][..., : b.dv]] for x in (caches, pages))
        return query, *pages, lengths - b.appended, table, *caches

    def ours(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, table: Tensor, *contiguous: Tensor) -> Tensor:
        return torch.ops.xgemm.attention_with_cache(q, k, v, lengths, block_table=table)

    def ours_contiguous(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, table: Tensor, *contiguous: Tensor) -> Tensor:
        return torch.ops.xgemm.attention_with_cache(q, *contiguous, lengths)

    def dense(
        attention: Callable[..., Tensor],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        lengths: Tensor,
        table: Tensor,
        *contiguous: Tensor,
    ) -> Tensor:
        """Of equally long sequences."""
        keys, values = (x[:, : b.longest].transpose(1, 2) for x in contiguous)
        return attention(q.transpose(1, 2), keys, values, enable_gqa=b.heads != b.kv_heads).transpose(1, 2)

    def new_rows(contiguous: tuple[Tensor, ...]) -> list[Tensor]:
        """The last row of each sequence, all of which are equally long: written again, they change no result."""
        return [x[:, b.longest - 1 : b.longest] for x in contiguous]

    def appending(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, table: Tensor, *contiguous: Tensor) -> Tensor:
        key, value = new_rows(contiguous)
        return torch.ops.xgemm.attention_with_cache(q, k, v, lengths, key=key, value=value, block_table=table)

    def apart(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, table: Tensor, *contiguous: Tensor) -> Tensor:
        page = table.gather(1, (lengths // b.page).long()[:, None])[:, 0].long()
        for cache, new in zip((k, v), new_rows(contiguous), strict=True):
            cache[page, lengths % b.page] = new[:, 0]
        return ours(q, k, v, lengths + 1, table)

    def theirs(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, table: Tensor, *contiguous: Tensor) -> Tensor:
        output = peer().flash_attn_with_kvcache(q, *contiguous, cache_seqlens=lengths)
        return output[0] if isinstance(output, tuple) else output

    def theirs_paged(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, table: Tensor, *contiguous: Tensor) -> Tensor:
        output = peer().flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, page_table=table)
        return output[0] if isinstance(output, tuple) else output

    if b.appended:
        contenders = [Contender("xgemm", appending), Contender("xgemm_apart", apart)]
    else:
        contenders = [Contender("xgemm", ours), Contender("xgemm_contiguous", ours_contiguous)]
        if b.latent:  # no peer has such heads
            contenders.append(Contender("xgemm_attention", partial(dense, torch.ops.xgemm.attention)))
        elif peer() and dtype == BF16:
            contenders += [Contender("fa3_contiguous", theirs), Contender("fa3", theirs_paged)]
    if len(set(b.lengths)) == 1 and not b.appended and not b.latent:
        cudnn = partial(dense, F.scaled_dot_product_attention)
        context = partial(backend, SDPBackend.CUDNN_ATTENTION)
        contenders.append(Contender("sdpa_cudnn_contiguous", cudnn, context=context))
    keys = sum(b.lengths)
    return Case(
        name=b.name,
        shape={"sequences": count, "keys": keys, "longest": b.longest, "heads": b.heads, "kv_heads": b.kv_heads}
        | {"d": b.size, "dv": b.dv, "page": b.page, "appended": b.appended},
        dtype=dtype,
        make=make,
        contenders=contenders,
        reference=partial(cache_reference, b),
        tolerance=2 * sum_tolerance(b.longest, dtype) + 2 * sum_tolerance(b.size, dtype) + 2 * torch.finfo(dtype).eps,
        read=(keys * b.kv_heads * (b.size + (0 if b.latent else b.dv)) + count * b.heads * b.size) * dtype.itemsize,
        written=count * b.heads * b.dv * dtype.itemsize,
        flops=2.0 * keys * b.heads * (b.size + b.dv),
        groups=(group,),
    )


def decode(count: int, keys: int, heads: int, kv_heads: int, page: int, size: int = 128, appended: int = 0) -> Batch:
    name = f"B{count} H{heads}/{kv_heads} KV{keys} page {page}" + (" append" if appended else "")
    return Batch(name, (keys,) * count, heads, kv_heads, size, page, appended=appended)


def random_batches(seed: int) -> list[Batch]:
    """Of decoding over pages, and of packed prompts, that `seed` alone decides."""
    draw = random.Random(seed)
    found: list[Batch] = []
    while len(found) < RANDOM_BATCHES:
        kv_heads, group = draw.choice([1, 4, 8, 8]), draw.choice([1, 4, 8])
        size, decodes = draw.choice([64, 128, 128]), draw.random() < 0.5
        count = round(math.exp(draw.uniform(0, math.log(128))))
        lengths = log_uniform(draw, count, 64, 32768 if decodes else 8192)
        data = 4 * sum(lengths) * kv_heads * size
        if not 1 << 22 <= data <= 1 << 30 or (not decodes and sum(lengths) > 65536):
            continue
        name = (
            f"random {'decode' if decodes else 'prompts'} {len(found)} B{count} H{kv_heads * group}/{kv_heads} D{size}"
        )
        found.append(Batch(name, lengths, kv_heads * group, kv_heads, size, draw.choice([16, 64]) if decodes else 0))
    return found


def groups_of(options: Options) -> list[tuple[str, list[Batch]]]:
    draw = random.Random(options.seed)
    if not options.cuda:
        small = Batch("small", (5, 1, 12), 4, 2, 16)
        return [("varlen", [small]), ("decode", [replace(small, page=4), decode(2, 20, 4, 2, 4, 16, 1)])]
    mixed, packed = log_uniform(draw, 64, 64, 4096), documents(draw, 65536, 128, 16384)
    varlen = [
        Batch(f"{what} H{heads}/{kv} D{d}", lengths, heads, kv, d)
        for what, lengths in (("64 sequences", mixed), ("documents of 64k", packed))
        for heads, kv, d in ((32, 32, 64), (16, 16, 128), (32, 8, 128))
    ]
    sizes = [(1, 65536), (1, 8192), (8, 16384), (16, 1024), (32, 8192), (64, 2048), (128, 256), (128, 4096)]
    if options.quick:
        varlen, sizes = varlen[:2], sizes[4:5]
    heads = [(32, 8)] if options.quick else [(32, 8), (64, 8), (16, 1)]
    decoding = [decode(b, keys, h, kv, page) for h, kv in heads for b, keys in sizes for page in (16, 64)]
    latent = [
        Batch(f"B{b} H128/1 KV{keys} page {page} latent", (keys,) * b, 128, 1, 576, page, 512, latent=True)
        for b, keys in ((32, 8192), (128, 4096), (4, 32768), (1, 8192))
        for page in (16, 64)
    ]
    found = [("varlen", varlen), ("decode", decoding), ("append", [decode(32, 8192, 32, 8, 16, appended=1)])]
    found.append(("latent", latent[:2] if options.quick else latent))
    return found if options.quick else [*found, ("random", random_batches(options.seed))]


def cases(options: Options) -> list[Case]:
    return [
        (cache_case if b.page else varlen_case)(b, BF16, group)
        for group, batches in groups_of(options)
        for b in batches
    ]


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))

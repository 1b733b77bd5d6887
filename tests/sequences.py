"""Random sequences of different lengths, packed or in caches, and their attention in float64."""

import itertools
import random
from collections.abc import Sequence

import torch
from common import foreign, randn
from flash_conventions import reference
from torch import Tensor

EDGES = (0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129)  # one off a page and a tile
HEADS = ((4, 4), (6, 2), (8, 1))
HEAD_SIZES = ((64, 64), (128, 128), (40, 24), (192, 128), (512, 512), (264, 320))
TOLERANCES = {torch.float64: 1e-11, torch.float32: 3e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def int32(numbers: Sequence, device: torch.device | str) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32, device=device)


def ends(lengths: Sequence[int], device: torch.device | str) -> Tensor:
    return int32([0, *itertools.accumulate(lengths)], device)


def by_sequence(queries: Sequence, parts: Sequence[Sequence], is_causal: bool = False, **options) -> tuple[list, list]:
    """(n, H, Dv) and (H, n) of each sequence in float64, of its q (n, H, D), k (m, Hkv, D), v (m, Hkv, Dv)."""
    heads_first = ([t.transpose(0, 1)[None] for t in (q, *kv)] for q, kv in zip(queries, parts, strict=True))
    results = [reference(*qkv, causal=is_causal, **options) for qkv in heads_first]
    return [output[0].transpose(0, 1) for output, _ in results], [lse[0] for _, lse in results]


def options_of(rng: random.Random, heads: int, dtype: torch.dtype, device: torch.device) -> dict:
    """Some of the arguments that both operators have."""
    sinks = randn(heads, dtype=rng.choice([dtype, torch.float32]), device=device)
    given = {
        "scale": rng.choice([None, None, 0.3]),
        "is_causal": rng.random() < 0.5,
        "window": rng.choice([(-1, -1), (-1, -1), (-1, 0), (rng.randrange(40), 0), (20, rng.randrange(9)), (-1, 3)]),
        "softcap": rng.choice([0.0, 0.0, 5.0]),
        "sinks": rng.choice([None, None, sinks]),
    }
    return {name: value for name, value in given.items() if value is not None}


def spread(x: Tensor, rng: random.Random) -> Tensor:
    """The same values with other strides, among foreign ones."""
    kind = rng.choice(["dense", "dense", "rows apart", "heads first", "columns apart"])
    if kind == "heads first":
        return x.transpose(-2, -3).contiguous().transpose(-2, -3)
    if kind == "rows apart":
        wide = x.new_full((*x.shape[:-2], x.shape[-2] + 1, x.shape[-1]), foreign(x.dtype))
        return wide[..., :-1, :].copy_(x)
    if kind == "columns apart":
        wide = x.new_full((*x.shape[:-1], 2 * x.shape[-1]), foreign(x.dtype))
        return wide[..., ::2].copy_(x)
    return x


def in_pages(parts: Sequence, page: int, columns: int, rng: random.Random) -> tuple[list[Tensor], Tensor]:
    """Keys and values of each sequence on pages in any order, NaN elsewhere, and the table, with entries that no one
    may follow behind a sequence's last page."""
    lengths = [len(k) for k, _ in parts]
    order = list(range(sum(-(-n // page) for n in lengths) + 2))
    rng.shuffle(order)
    table = int32([[1 << 30] * columns] * len(parts), parts[0][0].device)
    pages = [part.new_full((len(order), page, *part.shape[1:]), torch.nan) for part in parts[0]]
    for i, n in enumerate(lengths):
        for j in range(-(-n // page)):
            table[i, j] = order.pop()
            for whole, part in zip(pages, parts[i], strict=True):
                rows = part[j * page : (j + 1) * page]
                whole[table[i, j], : len(rows)] = rows
    return pages, table


def check(actual: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor], dtype: torch.dtype) -> None:
    """Output and log-sum-exp; the latter is kept in fp32 or wider."""
    assert actual[0].dtype is dtype and actual[0].is_contiguous() and actual[1].is_contiguous()
    assert actual[1].dtype is (torch.float64 if dtype is torch.float64 else torch.float32)
    for x, y, bound in zip(actual, wanted, (TOLERANCES[dtype], min(TOLERANCES[dtype], 1e-4)), strict=True):
        torch.testing.assert_close(x.double(), y, rtol=bound, atol=bound)

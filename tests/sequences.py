"""Random sequences of different lengths, packed or in caches, and their attention in float64."""

import itertools
import random
from collections.abc import Sequence

import torch
from common import foreign, randn
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

EDGES = (0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129)  # one off a page and a tile
HEADS = ((4, 4), (6, 2), (8, 1))
HEAD_SIZES = ((64, 64), (128, 128), (40, 24), (192, 128))
TOLERANCES = {torch.float64: 1e-11, torch.float32: 3e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def int32(numbers: Sequence, device: torch.device | str) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32, device=device)


def ends(lengths: Sequence[int], device: torch.device | str) -> Tensor:
    return int32([0, *itertools.accumulate(lengths)], device)


def by_sequence(
    queries: Sequence[Tensor],
    parts: Sequence[Sequence[Tensor]],
    *,
    scale: float | None = None,
    is_causal: bool = False,
    window: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Tensor | None = None,
) -> tuple[list[Tensor], list[Tensor]]:
    """(n, H, Dv) and (H, n) of each sequence in float64, of its q (n, H, D), k (m, Hkv, D), v (m, Hkv, Dv).

    One batch, filled up with zeros that no query sees.
    """
    (q, n), (k, m), (v, _) = (
        (pad_sequence([t.double() for t in tensors], batch_first=True).transpose(1, 2), [len(t) for t in tensors])
        for tensors in (queries, *zip(*parts, strict=True))
    )
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    rows, columns, keys, more = (
        torch.tensor(x, device=q.device).view(shape)
        for x, shape in (
            (range(q.shape[2]), (-1, 1)),
            (range(k.shape[2]), (1, -1)),
            (m, (-1, 1, 1, 1)),
            ([b - a for a, b in zip(n, m, strict=True)], (-1, 1, 1, 1)),
        )
    )
    scores = q @ k.mT * (q.shape[3] ** -0.5 if scale is None else scale)
    scores = softcap * (scores / softcap).tanh() if softcap else scores
    away = columns - rows - more
    left, right = window[0], 0 if is_causal else window[1]
    hidden = ((away < -left) & (left >= 0)) | ((away > right) & (right >= 0)) | (columns >= keys)
    sink = scores.new_full((), -torch.inf) if sinks is None else sinks.double()[:, None, None]
    scores = torch.cat([scores.masked_fill(hidden, -torch.inf), sink.expand(*scores.shape[:3], 1)], -1)
    lse = scores.logsumexp(-1)
    weights = (scores - lse.masked_fill(lse == -torch.inf, 0)[..., None]).exp()[..., :-1]
    output = (weights @ v).transpose(1, 2)
    return [o[:end] for o, end in zip(output, n, strict=True)], [x[:, :end] for x, end in zip(lse, n, strict=True)]


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
        return wide.narrow(-2, 0, x.shape[-2]).copy_(x)
    if kind == "columns apart":
        wide = x.new_full((*x.shape[:-1], 2 * x.shape[-1]), foreign(x.dtype))
        return wide[..., ::2].copy_(x)
    return x


def in_pages(
    parts: Sequence[Sequence[Tensor]], page: int, columns: int, rng: random.Random
) -> tuple[list[Tensor], Tensor]:
    """Keys and values of each sequence on pages in any order, NaN elsewhere, and the table, with entries that no one
    may follow behind a sequence's last page."""
    lengths = [len(k) for k, _ in parts]
    order = list(range(sum(-(-n // page) for n in lengths) + 2))
    rng.shuffle(order)
    first, pages = parts[0][0], []
    table = int32([[1 << 30] * columns] * len(parts), first.device)
    for part in parts[0]:
        pages.append(part.new_full((len(order), page, *part.shape[1:]), torch.nan))
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
    bound = TOLERANCES[dtype]
    torch.testing.assert_close(actual[0].double(), wanted[0], rtol=bound, atol=bound)
    torch.testing.assert_close(actual[1].double(), wanted[1], rtol=min(bound, 1e-4), atol=min(bound, 1e-4))

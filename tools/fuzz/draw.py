"""Random sizes, values and layouts. Everything follows from the op's name, the seed and the case's number."""

import functools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from common import FLOATING, foreign
from reductions import INTEGERS
from torch import Tensor

T = TypeVar("T")
HALVES = (torch.float16, torch.bfloat16)
EDGES = [edge + step for edge in (8, 16, 32, 64, 128, 256, 1024) for step in (-1, 0, 1)]
PRIMES = [2, 3, 5, 7, 11, 13, 17, 23, 31, 37, 61, 97, 127, 131, 251, 257, 509, 521, 1021, 1031]
POOL = 1 << 21
MOST = 1 << 20  # elements of a tensor

# What a tensor holds. "integers" are those whose sums and products are exact in every dtype's accumulator.
KINDS = ["normal", "integers", "special", "huge", "tiny", "wide", "sparse", "positive"]


@functools.lru_cache(maxsize=2)
def _pool(seed: int, device: str) -> Tensor:
    """Normal numbers, the same ones on every device; a tensor's values are a piece of them."""
    return torch.randn(POOL, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(device)


class Draw:
    """The random choices of one case, and the tensors that it has made."""

    def __init__(self, stream: str, seed: int, number: int, device: torch.device) -> None:
        self.rng = random.Random(f"{stream} {seed} {number}")
        self.number = number
        self.device = device
        self.cuda = device.type == "cuda"
        self.theme = self.rng.choices(KINDS, [40, 15, 12, 6, 6, 6, 8, 7])[0]
        self.bases: list[Tensor] = []  # the memory behind every tensor, what lies beside it included
        self.irregular = False  # some tensor is broadcast or overlaps itself: errors may add up instead of cancelling
        self._seed = seed

    # ---- choices -------------------------------------------------------------------------------------------------

    def choice(self, options: Sequence[T]) -> T:
        return self.rng.choice(options)

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def dtype(self) -> torch.dtype:
        return self.rng.choices(FLOATING, [40, 20, 25, 15])[0]

    def size(self, limit: int) -> int:
        kind = self.rng.random()
        if kind < 0.03:
            return 0
        if kind < 0.12:
            return 1
        if kind < 0.4:
            return self.rng.randint(2, min(limit, 20)) if limit > 2 else limit
        fitting = [n for n in (PRIMES if kind < 0.6 else EDGES) if n <= limit]
        return self.choice(fitting) if fitting else limit

    def sizes(self, count: int, budget: int) -> list[int]:
        """Mostly small; their product is at most `budget`."""
        limit = self.rng.choices([33, 130, 1031], [60, 30, 10])[0]
        sizes = [self.size(limit) for _ in range(count)]
        while math.prod(max(n, 1) for n in sizes) > budget:
            largest = max(range(count), key=sizes.__getitem__)
            sizes[largest] = self.size(max(1, sizes[largest] // 2))
        return sizes

    def product_sizes(self, batch: Sequence[int], budget: int) -> tuple[int, int, int]:
        """m, n and k of a batch of products with at most `budget` multiplications and MOST numbers an operand."""
        batches = math.prod(max(1, n) for n in batch)
        while True:
            m, n, k = self.sizes(3, max(1, budget // batches))
            if max(m * n, n * k, m * k) * batches <= MOST:
                return m, n, k
            budget //= 4

    def batch(self, most: int = 5) -> list[int]:
        rank = min(most, self.rng.choices(range(6), [50, 25, 14, 7, 2, 2])[0])
        return [0 if self.chance(0.02) else self.rng.randint(1, 3) for _ in range(rank)]

    def shape(self, budget: int = MOST) -> list[int]:
        """Of any number of dims, a few of them long."""
        rank = self.rng.choices(range(7), [3, 15, 37, 25, 12, 5, 3])[0]
        long = min(rank, self.rng.randint(1, 3))
        shape = [self.rng.randint(1, 3) for _ in range(rank - long)]
        shape += self.sizes(long, budget // math.prod(shape)) if long else []
        self.rng.shuffle(shape)
        return shape

    def broadcast(self, shape: Sequence[int]) -> list[int]:
        """A shape that broadcasts to `shape`."""
        ones = [1 if self.chance(0.3) else n for n in shape]
        return ones[self.rng.randint(0, len(ones)) if self.chance(0.3) else 0 :]

    # ---- values --------------------------------------------------------------------------------------------------

    def _normal(self, count: int) -> Tensor:
        start = self.rng.randrange(POOL - count)
        return _pool(self._seed, str(self.device))[start : start + count]

    def values(self, count: int, dtype: torch.dtype) -> Tensor:
        """`count` numbers of the case's theme. In a case about extremes, other tensors may be ordinary."""
        z, theme = self._normal(count), self.theme
        if dtype is torch.bool:
            return z > self.choice([-3.0, -0.5, 0.0, 2.0])
        if not dtype.is_floating_point:
            small = theme in ("integers", "sparse") or self.chance(0.3)
            size = 2.0 if small else min(torch.iinfo(dtype).max / 8, 2.0**40)
            return (z * size).clamp(max(torch.iinfo(dtype).min, -(2**50)), min(torch.iinfo(dtype).max, 2**50)).to(dtype)
        if theme == "integers":
            return (2 * z).round_().clamp_(-8, 8).to(dtype)
        if theme in ("special", "huge", "tiny", "wide") and self.chance(0.4):
            theme = "normal"
        wide = dtype is torch.float64
        if theme == "special" and count:
            z = z.clone()
            for _ in range(self.rng.randint(1, 3)):
                z[self.rng.randrange(count)] = self.choice([math.nan, math.inf, -math.inf])
        elif theme == "huge":
            z = z * (1e150 if wide else 1e4 if dtype is torch.float16 else 1e37)
        elif theme == "tiny":
            z = z * (1e-310 if wide else 2e-7 if dtype is torch.float16 else 1e-40)
        elif theme == "wide":
            z = z * 10.0 ** (self._normal(count) * (60 if wide else 1 if dtype is torch.float16 else 4))
            z = z.clamp_(-torch.finfo(dtype).max / 8, torch.finfo(dtype).max / 8)
        elif theme == "sparse":
            z = z * (self._normal(count) > 1.2)
        elif theme == "positive":
            z = z.abs()
        return z.to(dtype)

    # ---- layouts -------------------------------------------------------------------------------------------------

    def tensor(
        self, shape: Sequence[int], dtype: torch.dtype, values: Callable[[int, torch.dtype], Tensor] | None = None
    ) -> Tensor:
        """A tensor of any strides at any address; what lies beside its elements is NaN, or 1."""
        shape, rank, values = list(shape), len(shape), values or self.values
        kind = self.rng.random()
        stored, overlaps = list(shape), False
        if rank and kind < 0.08:  # stride 0
            self.irregular = True
            stored = [min(n, 1) if self.chance(0.5) else n for n in shape]
        order, step, pad = list(range(rank)), [1] * rank, 0
        if kind > 0.45:
            if rank > 1 and kind < 0.63:
                order[-1], order[-2] = order[-2], order[-1]
            elif kind < 0.75:
                self.rng.shuffle(order)
            elif kind < 0.85:
                pad = self.rng.randint(1, 9)
            elif kind < 0.97:
                for d in self.rng.sample(range(rank), min(rank, 2)):
                    step[d] = self.choice([1, 2, 3])
        strides, run = [0] * rank, 1
        for d in reversed(order):
            strides[d] = run * step[d]
            run = max(1, run * stored[d] * step[d]) + (pad if run == 1 else 0)
        if rank > 1 and kind >= 0.97 and stored[order[-1]] > 1:  # rows that overlap
            self.irregular = overlaps = True
            strides[order[0]] = self.rng.randint(1, 5)
        offset = self.choice([0, 0, 0, 1, 2, 3, 5, 8, 64])
        count = 1 + sum((n - 1) * s for n, s in zip(stored, strides, strict=True)) if 0 not in stored else 0
        base = torch.full((offset + count,), foreign(dtype), dtype=dtype, device=self.device)
        self.bases.append(base)
        view = base.as_strided(stored, strides, offset)
        if overlaps:
            base[offset:].copy_(values(count, dtype))
        else:
            view.copy_(values(view.numel(), dtype).view(stored))
        return view.expand(shape)

    def integers(self, shape: Sequence[int], low: int, high: int, dtype: torch.dtype = torch.int64) -> Tensor:
        """Uniform in [low, high), any layout."""

        def uniform(count: int, dtype: torch.dtype) -> Tensor:
            return (low + torch.special.ndtr(self._normal(count)) * (high - low)).floor().clamp(low, high - 1).to(dtype)

        return self.tensor(shape, dtype, uniform)

    def any_dtype(self) -> torch.dtype:
        return self.choice([*INTEGERS, torch.bool]) if self.chance(0.3) else self.dtype()


def describe(name: str, value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"{name}={value!r}"
    if value.is_nested:
        return f"{name}=nested {value.dtype}"
    text = f"{name}={str(value.dtype)[6:]}{list(value.shape)}"
    if value.layout is not torch.strided or value.device.type not in ("cpu", "cuda"):
        return f"{text} {value.layout} on {value.device}"
    if not value.is_contiguous():
        text += f" strides {list(value.stride())}"
    return text + (f" offset {value.storage_offset()}" if value.storage_offset() else "")

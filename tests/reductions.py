"""Helpers shared by the tests of sum, mean, amax, argmax, logsumexp and softmax.

Cases around the plans' boundaries, and promises of every op: the same bits on repeat, with batch invariance in any
batch and layout; graphs, streams, no kernels but ours.
"""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from common import check_replays, foreign, kernels_of, misaligned, on_streams, poison, randn

import torch_ext

INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
CUDA = torch.device("cuda")

# Around the boundaries of the plans: a 16-byte vector of each dtype; in reductions a few lanes, a warp, a block, a wide
# block and split blocks; in softmax lanes, a warp, a block and clusters. Also primes and vocabularies.
LENGTHS = [1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 257, 511, 513, 1000, 1023, 1024, 1025]
LONG_LENGTHS = [2047, 2049, 4095, 4096, 4097, 8191, 8193, 16384, 16385, 30011, 32767, 32768, 32769, 50257, 65537]
LONG_LENGTHS += [131072, 131073, 262143]

# (shape, dim): one and several dims, merged or not, first, middle and last; columns wide, narrow, ragged.
DIMS = [
    *(((), None), ((1,), None), ((7,), None), ((7,), 0), ((3, 5), None), ((3, 5), 0), ((3, 5), -1), ((3, 5), (0, 1))),
    *(((4, 1, 6), 1), ((4, 5, 6), 0), ((4, 5, 6), 1), ((4, 5, 6), (0, 2)), ((4, 5, 6), (0, 1)), ((4, 5, 6), (1, 2))),
    *(((4, 5, 6), None), ((2, 3, 4, 5, 6), (0, 2, 4)), ((2, 3, 4, 5, 6), (1, 3)), ((2, 3, 4, 5, 6), (-1, 0))),
    *(((3, 64, 40), (0, 2)), ((5, 257, 33), 1), ((2, 1000, 129), 1), ((4099, 7), 0), ((70001, 3), 0), ((70001, 1), 0)),
    *(((9000, 200), 0), ((129, 1031), 0), ((33, 4100), 0), ((6, 40, 1000), (0, 1)), ((40, 6, 1000), 1)),
    *(((3, 2, 1 << 15), 0), ((20000, 64), 0), ((2, 5000, 24), 1), ((16, 70000), None)),
    ((198, 24, 143, 3), (0, 1, 3)),  # folded runs: one tile, several tiles, several positions per tile
    *(((8, 9, 5, 223), (0, 3)), ((40, 6, 53), (0, 2)), ((301, 16, 3), (0, 2)), ((5, 6, 200, 2), (0, 1, 3))),
    ((7, 3, 5, 90, 4), (0, 2, 4)),
    *(((3, 59, 3, 1741), (0, 2, 3)), ((5000, 3, 994), (0, 2))),  # long runs
    *(((4000, 2), 0), ((50003, 13), 0), ((4, 9001, 5), 1)),  # folded positions, the last tile partial
    ((1100, 22642), 0),  # columns: splits in one CTA
    *(((242, 22642), 0), ((2, 256, 1028), 1), ((5, 65, 1001), 1)),  # short columns, several threads each
    *(((260, 67, 1024), 1), ((128, 300, 1000), 1)),  # a thread each
    ((6, 3, 109, 1), (1, 3)),  # the kernel for single elements
    *(((1270, 2), 0), ((9, 6, 53), (0, 2)), ((3, 1168, 5), 1)),  # several warps a row: two, five or eight
    ((2, 3072, 2), 1),
    *(((3, 5, 31, 2, 6), (0, 2, 4)), ((300, 7, 9), 1)),  # three reduced dims
    *(((4, 2, 16, 912), 0), ((3, 8, 4099), 1)),  # a few positions of many columns
    *(((40, 2, 4096), 1), ((3, 33, 50000), 1), ((70, 5, 2056), 1)),  # short columns by vectors
    *(((1, 1101, 780), 0), ((513, 1, 7), 1)),  # one element per output
    *(((45001, 3, 2), 1), ((5003, 9, 6), 1), ((501, 301, 3), 1), ((20011, 2, 5), 1)),  # packed groups of few columns
]


def dim_cases(device: torch.device) -> list[tuple[tuple[int, ...], object]]:
    """All cases, or on the CPU, where ATen computes, only small ones."""
    return DIMS if device.type == "cuda" else DIMS[:18]


def row_lengths(device: torch.device) -> list[int]:
    return LENGTHS + LONG_LENGTHS if device.type == "cuda" else LENGTHS[::4]


def permuted(x: torch.Tensor) -> torch.Tensor:
    """The same values and shape, stored with the dims in reverse."""
    order = tuple(reversed(range(x.dim())))
    return x.permute(order).contiguous().permute(order) if x.dim() else x


def strided(x: torch.Tensor) -> torch.Tensor:
    """The same values as every second element of every dim."""
    if x.dim() == 0:
        return x
    wide = torch.full([2 * s for s in x.shape], foreign(x.dtype), dtype=x.dtype, device=x.device)
    view = wide[tuple(slice(0, None, 2) for _ in x.shape)]
    return view.copy_(x)


def rows_of_wider(x: torch.Tensor) -> torch.Tensor:
    """The same values, rows of stride 1 at odd distances."""
    if x.dim() == 0:
        return x
    wide = torch.full((*x.shape[:-1], x.shape[-1] + 3), foreign(x.dtype), dtype=x.dtype, device=x.device)
    return wide[..., 1 : 1 + x.shape[-1]].copy_(x)


LAYOUTS = {
    "contiguous": lambda x: x.contiguous(),
    "misaligned": misaligned,
    "permuted": permuted,
    "strided": strided,
    "rows": rows_of_wider,
}


# For the sanitizers: rows of a few lanes, a warp, a block and several blocks, of whole vectors and not; columns, split
# or not.
SMALL_CASES = [((5, 77), 1), ((19, 80), 1), ((9, 1040), 1), ((3, 9001), 1), ((2, 70000), 1), ((257, 33), 0)]
SMALL_CASES += [((601, 13), 0), ((64, 1, 33), 1), ((9000, 40), 0), ((70, 301), 0)]
SMALL_LAYOUTS = ["contiguous", "misaligned", "permuted"]  # vectors, vectors at odd addresses, single elements


def integers(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.rand(shape, device=device) > 0.5
    info = torch.iinfo(dtype)
    return torch.randint(max(info.min, -(2**40)), min(info.max, 2**40), shape, dtype=dtype, device=device)


def values(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Normal, or any integer."""
    return randn(*shape, dtype=dtype, device=device) if dtype.is_floating_point else integers(shape, dtype, device)


def small_cases(dtype: torch.dtype, device: torch.device) -> Iterator[tuple[torch.Tensor, int]]:
    """Rows and columns, whole and split, by vectors at any address and by elements."""
    for shape, dim in SMALL_CASES:
        x = values(shape, dtype, device)
        for layout in SMALL_LAYOUTS:
            yield LAYOUTS[layout](x), dim


def special_rows(dtype: torch.dtype) -> list[list[float]]:
    """Rows of four elements that are hard for exponentials and their sums."""
    inf, nan, big = float("inf"), float("nan"), 6e4 if dtype is torch.float16 else 1e38
    return [
        *([1, inf, 2, -inf], [-inf] * 4, [inf] * 4, [nan, 1, inf, 0], [-inf, 0, -inf, -inf], [big, -big, 0, 1]),
        *([-big] * 4, [0, -0.0, 1e-7, -1e-7]),
    ]


def dims_of(x: torch.Tensor, dim: int | tuple[int, ...] | None) -> int | tuple[int, ...]:
    """`dim`, or all of them for torch's ops that do not take None."""
    return tuple(range(x.dim())) if dim is None else dim


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    bits = (x.reshape(-1).view(torch.uint8) for x in (a, b))
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(*bits)


def check_promises(op: Callable[[torch.Tensor, int], torch.Tensor], dtype: torch.dtype) -> None:
    """op(x, dim) on problems of every plan: repeats and no kernels but ours."""
    for n in (40, 700, 5000, 20000, 50257, 140001, 600001):
        x = torch.randn(max(2, 300000 // n), n, device=CUDA).to(dtype)
        poison(CUDA)
        assert same_bits(op(x, 1), op(x, 1)), n
    columns = [(6, 60, 33), (40, 700, 5), (5, 3000, 64), (3, 20000, 129), (2, 40000, 8), (300, 150, 1024)]
    for shape in [*columns, (140, 41, 4100)]:
        x = torch.randn(shape, device=CUDA).to(dtype)
        assert same_bits(op(x, 1), op(x, 1)), shape

    for shape, dim in (((64, 200), 1), ((3, 70001), 1), ((4000, 80), 0), ((2, 700001), 1), ((50000, 24), 0)):
        x = torch.randn(shape, device=CUDA).to(dtype)
        names = kernels_of(partial(op, x, dim))
        assert names and all("xgemm" in name or "memset" in name.lower() for name in names), names
        check_replays(partial(op, x, dim), x, replays=3)
        wanted, results = op(x, dim), on_streams([partial(op, x, dim)] * 4, times=5)
        assert all(same_bits(wanted, r) for r in results), (shape, dim)


def check_op_db(
    name: str, ours: Callable[..., torch.Tensor], device: torch.device, dtypes: list[torch.dtype], **tolerance: float
) -> None:
    """torch's own sample inputs of an op; those with arguments that ours does not have are left out."""
    pytest.importorskip("expecttest")  # torch's own test package needs it
    from torch.testing._internal.common_methods_invocations import op_db

    infos = [info for info in op_db if info.name == name]
    assert infos
    seen = 0
    for info in infos:
        for dtype in info.supported_dtypes(device.type) & set(dtypes):
            for sample in info.sample_inputs(device, dtype, requires_grad=False):
                if set(sample.kwargs) - {"dim", "keepdim", "dtype"}:
                    continue
                if sample.input.is_complex() or getattr(sample.kwargs.get("dtype"), "is_complex", False):
                    continue
                wanted = info.op(sample.input, *sample.args, **sample.kwargs)
                found = ours(sample.input, *sample.args, **sample.kwargs)
                torch.testing.assert_close(found, wanted, equal_nan=True, **tolerance)
                seen += 1
    assert seen > 0


def rows_in_other_places(x: torch.Tensor) -> Iterator[tuple[str, torch.Tensor, int, slice | torch.Tensor]]:
    """Rows of a matrix alone, permuted and all, in every layout; in batches: name, tensor, the rows' dim, which rows.

    The matrix has a multiple of 12 rows.
    """
    order, middle = torch.randperm(len(x), device=x.device), len(x) // 2
    ranges = ((0, len(x)), (0, 1), (middle, middle + 1), (len(x) - 1, len(x)), (0, 3), (5, 21), (64, 129))
    for which in (*(slice(*ends) for ends in ranges if ends[0] < len(x)), order):
        yield f"rows {which}", x[which], 1, which
        for layout, place in LAYOUTS.items():
            yield f"{layout} rows {which}", place(x[which]), 1, which
    turned = torch.arange(len(x), device=x.device).view(2, 3, 2, -1).transpose(0, 2)
    yield "dims that do not merge", x.view(2, 3, 2, -1, x.shape[1]).transpose(0, 2), 4, turned.flatten()
    yield "columns", x.t().contiguous(), 0, slice(None)
    yield "few columns", x[:3].t().contiguous(), 0, slice(0, 3)
    yield "one column", x[:1].t().contiguous(), 0, slice(0, 1)
    yield "a middle dim", x.view(2, len(x) // 2, -1).transpose(1, 2).contiguous(), 1, slice(None)
    yield "a batch", x.view(2, len(x) // 2, -1), 2, slice(None)
    yield "a batch in reverse", permuted(x.view(2, len(x) // 2, -1)), 2, slice(None)


def check_batch_invariance(op: Callable[[torch.Tensor, int], torch.Tensor], dtype: torch.dtype) -> None:
    """op(x, dim): rows of every kernel have the same bits wherever they lie."""
    short = (1, 3, 15, 23, 29, 31, 50, 53, 63, 77, 78, 79, 100)
    long = (121, 153, 154, 157, 158, 161, 177, 257, 301, 313, 314, 401, 513, 700, 1024, 1605, 5000)
    for n in (*short, *long, 8192, 20000, 50257, 140001, 600001):
        x = torch.randn(max(12, min(40000, 200000 // n) // 12 * 12), n, device=CUDA).to(dtype)
        with torch_ext.batch_invariant():
            expected = op(x, 1)
            for place, moved, dim, which in rows_in_other_places(x):
                y = op(moved, dim)
                if y.dim() == moved.dim():  # not reduced
                    y = y.movedim(dim, -1)
                y = y.reshape(expected[which].shape)
                assert same_bits(y.contiguous(), expected[which].contiguous()), (place, n)

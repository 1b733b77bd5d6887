"""torch.ops.xgemm.softmax against torch.softmax, over the last dim and over others."""

import math
import sys
from functools import partial

import torch

from benchmarks.common import Case, Options, main, row_case, sum_tolerance

OP = "softmax"
SOURCES = ["csrc/device", "csrc/softmax"]

SHAPES = [
    (32768, 256),
    (32768, 1024),
    (16384, 4096),
    (8192, 8192),
    (8192, 16384),
    (4096, 32768),
    (2048, 65536),
    (1024, 131072),
    (1024, 262144),
    (4096, 50257),
    (64, 128),
    (1, 131072),
    (262144, 77),  # not whole vectors
]
NOT_LAST = [((8192, 8192), 0), ((64, 1000, 4096), 1), ((4096, 8, 1001), 1)]
QUICK = [(32768, 1024), (4096, 32768), (1024, 131072), (64, 128)]
CPU = [(64, 128), (256, 4096)]


def reference(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Every element is right to a relative error: the scale is the result itself."""
    result = torch.softmax(x, dim, dtype=torch.float64)
    return result, result


def case(shape: tuple[int, ...], dtype: torch.dtype, options: Options, dim: int = -1) -> Case:
    ours, theirs = partial(torch.ops.xgemm.softmax, dim=dim), partial(torch.softmax, dim=dim)
    # exp multiplies the rounding of x - max, at most about 12 here, into a relative error.
    tolerance = sum_tolerance(shape[dim], dtype) + 16 * 2.0**-24
    written = math.prod(shape) * dtype.itemsize
    expected = partial(reference, dim=dim)
    return row_case(shape, dim, dtype, ours, theirs, expected, tolerance, options, result_bytes=written)


def cases(options: Options) -> list[Case]:
    if not options.cuda:
        return [case(shape, torch.float32, options) for shape in CPU]
    dims = [(shape, -1) for shape in (QUICK if options.quick else SHAPES)] + ([] if options.quick else NOT_LAST)
    return [case(shape, dtype, options, dim) for dtype in (torch.float32, torch.bfloat16) for shape, dim in dims]


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))

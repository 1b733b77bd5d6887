"""torch.ops.xgemm.softmax against torch.softmax over the last dim."""

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
]
QUICK = [(32768, 1024), (4096, 32768), (1024, 131072), (64, 128)]
CPU = [(64, 128), (256, 4096)]


def reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Every element is right to a relative error: the scale is the result itself."""
    result = torch.softmax(x, -1, dtype=torch.float64)
    return result, result


def case(shape: tuple[int, int], dtype: torch.dtype, options: Options) -> Case:
    ours, theirs = partial(torch.ops.xgemm.softmax, dim=-1), partial(torch.softmax, dim=-1)
    # exp multiplies the rounding of x - max, at most about 12 here, into a relative error.
    tolerance = sum_tolerance(shape[1], dtype) + 16 * 2.0**-24
    written = shape[0] * shape[1] * dtype.itemsize
    return row_case(shape, -1, dtype, ours, theirs, reference, tolerance, options, result_bytes=written)


def cases(options: Options) -> list[Case]:
    if not options.cuda:
        return [case(shape, torch.float32, options) for shape in CPU]
    shapes = QUICK if options.quick else SHAPES
    return [case(shape, dtype, options) for dtype in (torch.float32, torch.bfloat16) for shape in shapes]


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))

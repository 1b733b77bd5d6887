"""torch.ops.xgemm.log_softmax against torch.log_softmax over the last dim."""

import sys
from functools import partial

import torch

from benchmarks.common import Case, Options, main, row_case, sum_tolerance
from benchmarks.softmax import CPU, QUICK, SHAPES

OP = "log_softmax"
SOURCES = ["csrc/device", "csrc/softmax"]


def reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    result = torch.log_softmax(x, -1, dtype=torch.float64)
    return result, result.abs() + 1


def case(shape: tuple[int, int], dtype: torch.dtype, options: Options) -> Case:
    ours, theirs = partial(torch.ops.xgemm.log_softmax, dim=-1), partial(torch.log_softmax, dim=-1)
    written = shape[0] * shape[1] * dtype.itemsize
    tolerance = sum_tolerance(shape[1], dtype)
    return row_case(shape, -1, dtype, ours, theirs, reference, tolerance, options, result_bytes=written)


def cases(options: Options) -> list[Case]:
    if not options.cuda:
        return [case(shape, torch.float32, options) for shape in CPU]
    if options.quick:
        return [case(shape, torch.float32, options) for shape in QUICK[:2]]
    return [case(shape, dtype, options) for dtype in (torch.float32, torch.bfloat16) for shape in SHAPES]


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))

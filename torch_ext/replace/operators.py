"""The operators that :func:`torch_ext.replace` swaps, and which of them a GPU leaves to torch."""

import torch

from torch_ext._architecture import architecture, splits_gain
from torch_ext.functional._call import default_precision

OPERATORS = (
    *("linear", "matmul", "addmm", "softmax", "log_softmax", "attention", "multihead_attention"),
    *("cross_entropy", "logsumexp", "sum", "mean", "amax", "amin", "argmax", "argmin"),
)
# Those that torch computes on tensor cores.
PRODUCTS = frozenset({"linear", "matmul", "addmm", "attention", "multihead_attention"})
# A forward without submodules that calls none but these is not caught by default.
REDUCTIONS = frozenset({"sum", "mean", "amax", "amin", "argmax", "argmin"})
WIDEST_IN_PARTS = 128  # csrc/attention/fp16_split/tile.h: kSplitMmaTiles
FP64_TENSOR_CORES = ((8, 0), (10, 0))  # beside Hopper: csrc/matmul/plan/machine.h has the rates

_architectures: dict[torch.device, tuple[int, int] | None] = {}


def _architecture(device: torch.device) -> tuple[int, int] | None:
    if device not in _architectures:
        _architectures[device] = architecture(device)
    return _architectures[device]


def _gains_by_parts(gpu: tuple[int, int]) -> bool:
    return splits_gain(gpu, 2)


# What torch.compiler.assume_constant_result does, less its import of Dynamo (1 s).
_architecture._dynamo_marked_constant = _gains_by_parts._dynamo_marked_constant = True


def left_to_torch(operator: str, dtype: torch.dtype, device: torch.device, head_size: int = 0) -> str | None:
    """Why the GPU leaves a call to torch, or None.

    On compute capability 8.0 and newer half precision runs on tensor cores. In float32 on 9.x (Hopper); elsewhere in
    "highest" products are ours, on CUDA cores as torch's or faster, attention where fp16 parts gain; TF32 is torch's.
    Products in float64 are ours where tensor cores have units for it.
    """
    gpu = _architecture(device) if operator in PRODUCTS else None
    if gpu is None or gpu[0] == 9:
        return None
    if dtype in (torch.float16, torch.bfloat16) and gpu >= (8, 0):
        return None
    if dtype is torch.float64 and operator != "attention" and gpu in FP64_TENSOR_CORES:
        return None
    if dtype is torch.float32 and default_precision() == "highest":
        if operator != "attention":
            return None
        if _gains_by_parts(gpu):
            return f"head size over {WIDEST_IN_PARTS}" if head_size > WIDEST_IN_PARTS else None
    return f"xgemm has no faster kernels for compute capability {gpu[0]}.{gpu[1]}"

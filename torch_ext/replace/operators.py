"""The operators that :func:`torch_ext.replace` swaps, and which of them a GPU leaves to torch."""

import torch

from torch_ext.functional._call import default_precision

OPERATORS = (
    *("linear", "matmul", "addmm", "softmax", "log_softmax", "attention", "multihead_attention"),
    *("cross_entropy", "logsumexp", "sum", "mean", "amax", "amin", "argmax", "argmin"),
)
# Those that torch computes on tensor cores.
PRODUCTS = frozenset({"linear", "matmul", "addmm", "attention", "multihead_attention"})
# A forward without submodules that calls none but these is not caught by default.
REDUCTIONS = frozenset({"sum", "mean", "amax", "amin", "argmax", "argmin"})

_capabilities: dict[torch.device, tuple[int, int] | None] = {}


def _capability(device: torch.device) -> tuple[int, int] | None:
    """A GPU's compute capability; None of other devices, and where there is no GPU: then the tensor is a fake one."""
    if device not in _capabilities:
        is_gpu = device.type == "cuda" and torch.cuda.is_available()
        _capabilities[device] = torch.cuda.get_device_capability(device) if is_gpu else None
    return _capabilities[device]


# What torch.compiler.assume_constant_result does, less its import of Dynamo (1 s).
_capability._dynamo_marked_constant = True


def left_to_torch(operator: str, dtype: torch.dtype, device: torch.device) -> str | None:
    """Why the GPU leaves a call to torch, or None.

    xgemm's products use tensor cores on compute capability 9.x (Hopper) alone, its attention of half precision on 8.0
    and newer. Else they run on CUDA cores, and so do torch's only for float32 products in "highest".
    """
    capability = _capability(device) if operator in PRODUCTS else None
    if capability is None or capability[0] == 9:
        return None
    if operator == "attention" and dtype in (torch.float16, torch.bfloat16) and capability >= (8, 0):
        return None
    if dtype is torch.float32 and operator != "attention" and default_precision() == "highest":
        return None
    return f"xgemm has no tensor-core kernels for compute capability {capability[0]}.{capability[1]}"

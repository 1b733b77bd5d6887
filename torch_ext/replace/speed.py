"""Which operators are slower than torch's by the committed results, for the dtype and device at hand."""

import torch

from torch_ext.replace.measured import SPEED

OPERATORS = (
    *("linear", "matmul", "addmm", "softmax", "log_softmax", "attention", "multihead_attention"),
    *("cross_entropy", "logsumexp", "sum", "mean", "amax", "amin", "argmax", "argmin"),
)
# A forward without submodules that calls none but these is not caught by default.
REDUCTIONS = frozenset({"sum", "mean", "amax", "amin", "argmax", "argmin"})
# Measured with one that runs the same kernels.
_LIKE = {"addmm": "matmul", "mean": "sum", "amin": "amax", "argmin": "argmax", "float16": "bfloat16"}

MEASURED = {
    operator
    for operator in OPERATORS
    for table in SPEED.values()
    if any(ratio < 1 for ratio in table.get(_LIKE.get(operator, operator), {}).values())
}  # those that are slower somewhere: the others need no look-up at every call


_known: dict[tuple[str, torch.dtype, torch.device], str | None] = {}


def slower(operator: str, dtype: torch.dtype, device: torch.device) -> str | None:
    """The reason to leave a call to torch, or None.

    Where the operator was not measured on a GPU, the first GPU on which it was stands for it.
    """
    key = operator, dtype, device
    if key not in _known:
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        measured = _LIKE.get(operator, operator)
        if device.type == "cuda" and measured not in SPEED.get(name, {}):
            name = next((gpu for gpu, table in SPEED.items() if gpu != "cpu" and measured in table), name)
        speeds = SPEED.get(name, {}).get(measured, {})
        own = str(dtype).removeprefix("torch.")
        ratio = speeds.get(own, speeds.get(_LIKE.get(own, own), 1.0))
        _known[key] = f"{1 / ratio:.1f} times as fast in {own} on {name}" if ratio < 1 else None
    return _known[key]


slower._dynamo_marked_constant = (
    True  # what torch.compiler.assume_constant_result does, less its import of Dynamo (1 s)
)

"""Random tensors for an operator's arguments, by the argument's name."""

import torch
from common import randn

CLASSES = 5


def make(name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    """Class indices, a bool mask with a True in every row, a prepared weight's bytes, or signed data of `dtype`."""
    if name == "target":
        return torch.randint(0, CLASSES, shape, device=device)
    if name in ("mask", "attn_mask"):
        return (torch.rand(shape, device=device) > 0.3).index_fill_(-1, torch.tensor(0, device=device), True)
    if name == "prepared":  # unused: neither the CPU nor float64 reads the copy
        return torch.empty(shape, dtype=torch.uint8, device=device)
    return randn(*shape, dtype=dtype, device=device)

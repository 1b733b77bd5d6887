"""Random tensors for an operator's arguments, by the argument's name."""

import torch
from common import randn

CLASSES = 5


def make(name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    """Classes, a bool mask of which every row has a True, the bytes of a prepared weight, or signed data of `dtype`."""
    if name == "target":
        return torch.randint(0, CLASSES, shape, device=device)
    if name in ("mask", "attn_mask"):
        return (torch.rand(shape, device=device) > 0.3).index_fill_(-1, torch.tensor(0, device=device), True)
    if name == "prepared":  # none: on the CPU and for float64 no product uses a copy
        return torch.empty(shape, dtype=torch.uint8, device=device)
    return randn(*shape, dtype=dtype, device=device)

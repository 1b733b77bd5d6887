"""Random tensors for an operator's arguments, by the argument's name."""

import torch
from common import randn

CLASSES = 5


def make(name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    """Class indices, a bool mask with a True in every row, a prepared weight's bytes, or signed data of `dtype`.

    Of sequences: two or three rows each, one row in the caches, pages in order.
    """
    if name == "target":
        return torch.randint(0, CLASSES, shape, device=device)
    if name in ("mask", "attn_mask"):
        return (torch.rand(shape, device=device) > 0.3).index_fill_(-1, torch.tensor(0, device=device), True)
    if name in ("cu_seq_q", "cu_seq_k"):
        return (torch.arange(*shape, device=device) * 5 // 2).int()
    if name in ("seqused_k", "cache_seqlens"):
        return torch.ones(shape, dtype=torch.int32, device=device)
    if name == "block_table":
        return torch.arange(shape[0] * shape[1], dtype=torch.int32, device=device).view(shape)
    if name == "prepared":  # unused: neither the CPU nor float64 reads the copy
        return torch.empty(shape, dtype=torch.uint8, device=device)
    return randn(*shape, dtype=dtype, device=device)

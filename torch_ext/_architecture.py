"""The compute capability whose kernels a GPU is given, as csrc/device/properties.cpp has it."""

import os

import torch

from torch_ext._load import build_info


def architecture(device: torch.device) -> tuple[int, int] | None:
    """A GPU's compute capability, or what stands for it; None of other devices, and where there is no GPU.

    A GPU of 9.0 counts as 8.9 if the library has no machine code for it, and as what XGEMM_ARCH names.
    """
    if device.type != "cuda" or not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability(device)
    if major != 9:
        return major, minor
    if not any(arch.startswith("9.0") for arch in build_info()["architectures"].split()):
        return 8, 9
    wanted = os.environ.get("XGEMM_ARCH")
    return divmod(int(wanted), 10) if wanted else (major, minor)


def splits_gain(capability: tuple[int, int], parts: int) -> bool:
    """Does fp32 in so many fp16 parts take less time on such a GPU's tensor cores than on its CUDA cores?"""
    return torch.ops.xgemm_mode.splits_gain(10 * capability[0] + capability[1], parts)

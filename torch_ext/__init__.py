"""xgemm: hand-written CUDA kernels as ``torch.ops.xgemm.*``."""

from pathlib import Path

import torch

LIBRARY = Path(__file__).with_name("libxgemm.so")
torch.ops.load_library(str(LIBRARY))

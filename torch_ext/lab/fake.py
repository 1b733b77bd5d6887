"""Shapes of what ``torch.ops.xgemm_lab.*`` return, for torch.compile and fake tensors."""

from collections.abc import Callable

import torch

from torch_ext import _registered

_library = _registered.library(__name__, "xgemm_lab")
Fake = Callable[..., torch.Tensor]


def _same_shape(x: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _host_numbers(count: int) -> Fake:
    return lambda *_, **__: torch.empty(count, dtype=torch.int64, device="cpu")


def _product(a: torch.Tensor, b: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
    return a.new_empty(a.shape[0], b.shape[1])


def _product_of_rows(a: torch.Tensor, b: torch.Tensor, **_: object) -> torch.Tensor:
    return a.new_empty(a.shape[0], b.shape[0])


FAKES: dict[str, Fake] = {
    "sgemm": _product,
    "tensor_gemm": _product_of_rows,
    "fp32_gemm": _product_of_rows,
    "reduce_sum": lambda x, *_: x.new_empty(()),
    "softmax": _same_shape,
    "attention": _same_shape,
    "strided_copy": _same_shape,
    "empty_launch": _host_numbers(2),
    "best_block_size": _host_numbers(3),
    "kernel_attributes": _host_numbers(5),
    "concurrent_copy": _same_shape,
    "fma_chains": _same_shape,
    "intensity": _same_shape,
    "pointer_chase": lambda following, *_: following.new_empty(2, dtype=torch.int64),
    "read_rate": lambda x, level, blocks, *_: x.new_empty(256 * blocks),
    "register_bound": _same_shape,
    "who_am_i": lambda like, blocks, x, y=1, z=1, *_: like.new_empty(blocks, x * y * z, 5, dtype=torch.int64),
    "parity": _same_shape,
    "paths": _same_shape,
    "vector_add": _same_shape,
    "window_sum": _same_shape,
    "histogram": lambda x, bins, *_: x.new_empty(bins),
    "transpose": lambda x, variant: x.new_empty(x.shape[1], x.shape[0]),
    "tiled_matmul": _product,
}
for _op, _fake in FAKES.items():
    torch.library.register_fake(f"xgemm_lab::{_op}", _fake, lib=_library)

"""Shapes of what ``torch.ops.xgemm_lab.*`` return, for torch.compile and fake tensors."""

import torch

from torch_ext import _registered

_library = _registered.library(__name__, "xgemm_lab")


@torch.library.register_fake("xgemm_lab::sgemm", lib=_library)
def _sgemm(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None = None,
    *,
    step: int,
    alpha: float = 1,
    beta: float = 0,
) -> torch.Tensor:
    return a.new_empty(a.shape[0], b.shape[1])


@torch.library.register_fake("xgemm_lab::tensor_gemm", lib=_library)
def _tensor_gemm(a: torch.Tensor, b: torch.Tensor, *, step: int) -> torch.Tensor:
    return a.new_empty(a.shape[0], b.shape[0])


@torch.library.register_fake("xgemm_lab::fp32_gemm", lib=_library)
def _fp32_gemm(a: torch.Tensor, b: torch.Tensor, *, variant: str) -> torch.Tensor:
    return a.new_empty(a.shape[0], b.shape[0])


@torch.library.register_fake("xgemm_lab::reduce_sum", lib=_library)
def _reduce_sum(x: torch.Tensor, version: int, loads: int = 8, blocks_per_sm: int = 8) -> torch.Tensor:
    return x.new_empty(())


@torch.library.register_fake("xgemm_lab::softmax", lib=_library)
def _softmax(x: torch.Tensor, variant: str) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.register_fake("xgemm_lab::attention", lib=_library)
def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, step: int, is_causal: bool = False
) -> torch.Tensor:
    return torch.empty_like(query, memory_format=torch.contiguous_format)


def _same_shape(op: str) -> None:
    @torch.library.register_fake(f"xgemm_lab::{op}", lib=_library)
    def _(x: torch.Tensor, *arguments: object, **keywords: object) -> torch.Tensor:
        return torch.empty_like(x, memory_format=torch.contiguous_format)


for _op in (
    "strided_copy",
    "concurrent_copy",
    "fma_chains",
    "intensity",
    "register_bound",
    "parity",
    "paths",
    "vector_add",
    "window_sum",
):
    _same_shape(_op)


def _host_numbers(op: str, count: int) -> None:
    @torch.library.register_fake(f"xgemm_lab::{op}", lib=_library)
    def _(x: torch.Tensor, *arguments: object, **keywords: object) -> torch.Tensor:
        return torch.empty(count, dtype=torch.int64, device="cpu")


for _op, _count in (("best_block_size", 3), ("empty_launch", 2), ("kernel_attributes", 5)):
    _host_numbers(_op, _count)


@torch.library.register_fake("xgemm_lab::pointer_chase", lib=_library)
def _pointer_chase(next: torch.Tensor, steps: int, start: int = 0, shared: bool = False) -> torch.Tensor:
    return next.new_empty(2, dtype=torch.int64)


@torch.library.register_fake("xgemm_lab::read_rate", lib=_library)
def _read_rate(x: torch.Tensor, level: str, blocks: int, repeats: int = 1) -> torch.Tensor:
    return x.new_empty(256 * blocks)


@torch.library.register_fake("xgemm_lab::histogram", lib=_library)
def _histogram(x: torch.Tensor, bins: int, privatised: bool) -> torch.Tensor:
    return x.new_empty(bins)


@torch.library.register_fake("xgemm_lab::tiled_matmul", lib=_library)
def _tiled_matmul(a: torch.Tensor, b: torch.Tensor, variant: str, tile: int = 32) -> torch.Tensor:
    return a.new_empty(a.shape[0], b.shape[1])


@torch.library.register_fake("xgemm_lab::transpose", lib=_library)
def _transpose(x: torch.Tensor, variant: str) -> torch.Tensor:
    return x.new_empty(x.shape[1], x.shape[0])


@torch.library.register_fake("xgemm_lab::who_am_i", lib=_library)
def _who_am_i(like: torch.Tensor, blocks: int, x: int, y: int = 1, z: int = 1, nanoseconds: int = 0) -> torch.Tensor:
    return like.new_empty(blocks, x * y * z, 5, dtype=torch.int64)

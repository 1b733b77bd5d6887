"""The ladders but attention's: what runs, what it must equal, and what the documents measured."""

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial

import torch

from torch_ext.device import floor_seconds, limits
from torch_ext.lab.experiments import resources
from torch_ext.lab.measure import Row, amount, errors, floor_us, mm, product, require, row, time_us

lab = torch.ops.xgemm_lab

# name -> share of cuBLAS at n = 4096 by stored results that no document prints (xGeMM's, RTX 3090 / siboehm's, A6000)
SGEMM_STEPS: dict[str, str | None] = {
    "01_naive": "1.1 % / 1.3 %",
    "02_coalesced": "7.6 % / 8.5 %",
    "03_shared_tile": "10.0 % / 12.8 %",
    "04_block_tile_1d": "33.1 % / 36.5 %",
    "05_block_tile_2d": "53.5 % / 68.7 %",
    "06_vectorised": "69.0 % / 78.4 %",
    "07_warp_tile": "- / 93.7 %",
    "07a_conflict_free": "- / 70.8 %",
    "07b_double_buffer": "- / 74.3 %",
    "08_library": None,
    "cublas": None,
}
SGEMM_DOCUMENT = {"01_naive": "1 %", "02_coalesced": "9 %"}  # the same on an RTX 3090, as the document has it
# The lab's own, in the order in which xgemm_lab.sgemm counts them from 1; 08_library is the library.
SGEMM_KERNELS = tuple(step for step in SGEMM_STEPS if step not in ("08_library", "cublas"))

# Steps of the ladder on tensor cores, bf16, and what xgemm_lab.tensor_gemm calls them; no document has them. From 11 on
# they need sm_90.
TENSOR_KERNELS = {
    "09_wmma": 9,
    "10_mma_sync": 10,
    "11_wgmma_tma": 11,
    "11a_wgmma_cp_async": 14,
    "12_warp_specialised": 12,
    "13_persistent_cluster": 13,
    "13a_tma_store": 15,
}
TENSOR_STEPS = [*TENSOR_KERNELS, "14_library", "cublas"]

# fp32 from fp16 products, an idea a variant; cuBLAS in three precisions as points of comparison.
FP32_VARIANTS = ["fp16", "split", "promoted", "scaled", "library", "cublas", "cublas_tf32", "cublas_bf16"]

# version -> (GB/s, speed-up over v0) of 2^24 ints on an M2090; copy: what the slides compare with
REDUCTION_VERSIONS: dict[str, tuple[float, float] | None] = {
    "copy": (125.0, 0.0),
    "v0_interleaved_modulo": (8.7, 1.0),
    "v1_interleaved_strided": (12.0, 1.4),
    "v2_sequential": (17.0, 1.9),
    "v3_first_add": (31.0, 3.5),
    "v4_last_warp": (51.0, 5.9),
    "v5_unrolled": (54.0, 6.2),
    "v6_several_elements": (103.0, 11.8),
    "v6b_eight_loads": None,
    "v7_shuffle": None,
    "v8_last_block": None,
    "v9_cooperative_groups": None,
    "library": None,
    "torch": None,
}

# The lab's own begin with a number; copy: the rate to reach.
TRANSPOSE_STEPS = ["copy", "01_naive", "02_tiled", "03_padded", "04_swizzled", "torch"]

# variant -> memory accesses an element
SOFTMAX_VARIANTS: dict[str, int | None] = {
    "naive": 3,
    "safe": 4,
    "online": 3,
    "online4": 3,
    "library": None,
    "torch": None,
}


def sgemm_call(step: str, a: torch.Tensor, b: torch.Tensor) -> Callable[[], torch.Tensor]:
    if step == "cublas":
        return lambda: torch.mm(a, b)
    if step == "08_library":
        return lambda: torch.ops.xgemm.matmul(a, b, precision="ieee")
    number = SGEMM_KERNELS.index(step) + 1
    return lambda: lab.sgemm(a, b, step=number)


def sgemm_bound(k: int) -> float:
    """Largest |C - C64| / (|A||B|) of a sum of k products: 2 sqrt(k) + 8 roundings."""
    return (2 * math.sqrt(k) + 8) * 2**-24


def sgemm(sizes: list[int], budget_s: float) -> Iterator[Row]:
    """C = A B of square fp32 matrices, each step and cuBLAS (TF32 off)."""
    gpu = limits()
    for n in sizes:
        a, b = torch.randn(n, n, device="cuda"), torch.randn(n, n, device="cuda")
        reference, scale = product(a, b)
        flops, moved = 2 * n**3, 12 * n * n
        floor = floor_seconds(flops, moved, gpu.fp32_flops, gpu.bandwidth) * 1e6 if gpu.fp32_flops else None
        for step, elsewhere in SGEMM_STEPS.items():
            call = sgemm_call(step, a, b)
            c = call()
            worst = ((c.double() - reference).abs() / scale).max().item()
            require(worst <= sgemm_bound(n), f"SGEMM {step} at n = {n} (error {worst:.1e} of |A||B|)")
            yield row(
                f"{n}x{n}x{n}",
                step,
                time_us(call, budget_s),
                shape={"m": n, "n": n, "k": n, "batch": 1, "layout": "nn"},
                flops=flops,
                floor_us=floor,
                error=errors(c, reference),
                document=SGEMM_DOCUMENT.get(step) if n == 4096 else None,
                elsewhere=elsewhere if n == 4096 else None,
                **(resources(f"sgemm {step}") if step in SGEMM_KERNELS else {}),
            )


def tensor_call(step: str, a: torch.Tensor, b: torch.Tensor) -> Callable[[], torch.Tensor]:
    if step == "cublas":
        return lambda: torch.mm(a, b.mT)
    if step == "14_library":
        return lambda: torch.ops.xgemm.linear(a, b)
    return lambda: lab.tensor_gemm(a, b, step=TENSOR_KERNELS[step])


def tensor(sizes: list[int], budget_s: float) -> Iterator[Row]:
    """C = A B^T of square bf16 matrices, each step and cuBLAS."""
    hopper = torch.cuda.get_device_capability()[0] == 9
    peak = limits().tensor_flops
    for n in sizes:
        a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        reference, scale = product(a, b.mT)
        for step in TENSOR_STEPS:
            if TENSOR_KERNELS.get(step, 0) >= 11 and not hopper:
                continue
            call = tensor_call(step, a, b)
            c = call()
            # One rounding to bf16, and the sum's: the tensor cores round each addition toward zero.
            worst = ((c.double() - reference).abs() / (2**-8 * reference.abs() + n * 2**-23 * scale)).max().item()
            require(worst <= 1, f"tensor-core GEMM {step} at n = {n} ({worst:.2g} of its error bound)")
            yield row(
                f"{n}x{n}x{n}",
                step,
                time_us(call, budget_s),
                shape={"m": n, "n": n, "k": n, "batch": 1, "layout": "nt"},
                dtype="bfloat16",
                mode="default",
                flops=2 * n**3,
                floor_us=2 * n**3 / peak * 1e6 if peak else None,
                error=errors(c, reference),
                **(resources(f"tensor {step}") if step in TENSOR_KERNELS else {}),
            )


def fp32_call(variant: str, a: torch.Tensor, b: torch.Tensor) -> Callable[[], torch.Tensor]:
    if variant in ("cublas", "cublas_tf32"):
        return partial(mm, a, b.mT, tf32=variant == "cublas_tf32")
    if variant == "cublas_bf16":
        low = a.bfloat16(), b.bfloat16().mT
        return lambda: torch.mm(*low)
    if variant == "library":
        return lambda: torch.ops.xgemm.linear(a, b)
    return lambda: lab.fp32_gemm(a, b, variant=variant)


# Largest error of each variant over |A||B| on the ladder's data: fp16 keeps 11 bits of a factor, split and promoted
# lose lo's low bits where rows are small, scaled is fp32.
FP32_BOUNDS = {"fp16": 2**-9, "split": 2**-12, "promoted": 2**-12, "scaled": 2**-20, "library": 2**-20}
FP32_BOUNDS |= {"cublas": 2**-18, "cublas_tf32": 2**-9, "cublas_bf16": 2**-6}


def fp32(sizes: list[int], budget_s: float) -> Iterator[Row]:
    """fp32 products by fp16 ones: each variant's speed and its error against float64.

    Rows of A and of B differ by up to 2^8 in magnitude, as layers' weights and activations do: what scaling is for.
    """
    if torch.cuda.get_device_capability()[0] != 9:
        return
    for n in sizes:
        a, b = (torch.randn(n, n, device="cuda") * torch.exp2(-8 * torch.rand(n, 1, device="cuda")) for _ in range(2))
        reference, scale = product(a, b.mT)
        for variant in FP32_VARIANTS:
            call = fp32_call(variant, a, b)
            c = call()
            worst = ((c.double() - reference).abs() / scale).max().item()
            require(worst <= FP32_BOUNDS[variant], f"fp32 GEMM {variant} at n = {n} (error {worst:.1e} of |A||B|)")
            yield row(
                f"{n}x{n}x{n}",
                variant,
                time_us(call, budget_s),
                shape={"m": n, "n": n, "k": n, "batch": 1, "layout": "nt"},
                mode="bfloat16" if variant == "cublas_bf16" else "tf32" if variant == "cublas_tf32" else "highest",
                flops=2 * n**3,
                error={**errors(c, reference), "componentwise": worst},
                **(resources(f"fp32 {variant}") if variant in FP32_VARIANTS[:4] else {}),
            )


def reduction_call(version: str, x: torch.Tensor) -> Callable[[], torch.Tensor]:
    if version == "torch":
        return lambda: torch.sum(x, dtype=x.dtype)
    if version == "library":
        return lambda: torch.ops.xgemm.sum(x, dtype=x.dtype)
    if version == "copy":
        return lambda: lab.concurrent_copy(x.view(torch.float32), 1024, 1, 4, "full")
    number, loads = int(version[1]), 2 if version.startswith("v6_") else 8
    return lambda: lab.reduce_sum(x, number, loads)


def reduction_bound(n: int) -> float:
    """Largest |s - s64| / sum |x|: v6 and later add n / (threads on the GPU) numbers in order, then a tree."""
    return (64 + n / 2**17) * 2**-24


def reduction(sizes: list[int], budget_s: float) -> Iterator[Row]:
    """Sum of n float32 and of n int32, each version and torch.sum."""
    gpu = limits()
    for n in sizes:
        for dtype in (torch.float32, torch.int32):
            if dtype == torch.float32:
                x = torch.randn(n, device="cuda")
                reference, scale = x.sum(dtype=torch.float64), x.abs().sum(dtype=torch.float64)
            else:
                x = torch.randint(-(2**31), 2**31 - 1, (n,), dtype=torch.int32, device="cuda")
                reference = x.sum(dtype=torch.int64).to(torch.int32)
            for version, document in REDUCTION_VERSIONS.items():
                call = reduction_call(version, x)
                result = call()
                worst = 0.0
                if version == "copy":
                    require(torch.equal(result.view(dtype), x), "copy")
                elif dtype == torch.float32:
                    worst = ((result.double() - reference).abs() / scale).item()
                    require(
                        worst <= reduction_bound(n), f"reduction {version} at n = {n} (error {worst:.1e} of sum |x|)"
                    )
                else:
                    require(bool(result == reference), f"reduction {version} of int32 at n = {n}")
                same = n == 1 << 24 and dtype == torch.int32  # the document's set-up
                figure = f"{document[0]:g} GB/s" + f", {document[1]:g}x" * (version[0] == "v") if document else None
                moved = (8 if version == "copy" else 4) * n
                yield row(
                    amount(n),
                    version,
                    time_us(call, budget_s),
                    shape={"n": n},
                    dtype=str(dtype).removeprefix("torch."),
                    bytes_moved=moved,
                    floor_us=floor_us(moved, gpu.bandwidth),
                    error={"fro": worst, "max": worst},
                    document=figure if same else None,
                    **(resources(f"reduction {version}") if version[0] == "v" else {}),
                )


def reduction_grid(sizes: list[int], budget_s: float) -> Iterator[Row]:
    """v6 over blocks an SM, with two and with eight loads in flight a thread; `sizes`: elements."""
    for n, loads, blocks in itertools.product(sizes, (2, 8), (1, 2, 4, 8, 16, 32)):
        x = torch.randn(n, device="cuda")
        call = partial(lab.reduce_sum, x, 6, loads, blocks)
        worst = ((call().double() - x.sum(dtype=torch.float64)).abs() / x.abs().sum(dtype=torch.float64)).item()
        require(worst <= 16 * reduction_bound(n), f"v6 with {loads} loads, {blocks} blocks (error {worst:.1e})")
        yield row(
            f"{amount(n)}, {loads} loads a thread",
            f"{blocks} block{'s' * (blocks > 1)} an SM",
            time_us(call, budget_s),
            shape={"n": n, "loads": loads, "blocks_per_sm": blocks},
            bytes_moved=4 * n,
            error={"fro": worst, "max": worst},
        )


def transpose_call(step: str, x: torch.Tensor) -> Callable[[], torch.Tensor]:
    if step == "torch":
        return lambda: x.mT.contiguous()
    if step == "copy":
        return lambda: lab.concurrent_copy(x.view(-1), 1024, 1, 4 if x.numel() % 4 == 0 else 1, "full")
    return lambda: lab.transpose(x, step.partition("_")[2])


def transpose(sizes: list[int], budget_s: float) -> Iterator[Row]:
    """The transpose of a square fp32 matrix: each step, torch's, and a copy of the array; `sizes`: n."""
    gpu = limits()
    for n in sizes:
        x = torch.randn(n, n, device="cuda")
        expected = x.mT.contiguous()
        for step in TRANSPOSE_STEPS:
            call = transpose_call(step, x)
            require(torch.equal(call(), x.view(-1) if step == "copy" else expected), f"transpose {step} at n = {n}")
            yield row(
                f"{n}x{n}",
                step,
                time_us(call, budget_s),
                shape={"n": n},
                bytes_moved=8 * n * n,
                floor_us=floor_us(8 * n * n, gpu.bandwidth),
                error={"fro": 0.0, "max": 0.0},
                **(resources(f"transpose {step}") if step[0] == "0" else {}),
            )


def softmax_call(variant: str, x: torch.Tensor) -> Callable[[], torch.Tensor]:
    if variant == "torch":
        return lambda: torch.softmax(x, -1)
    if variant == "library":
        return lambda: torch.ops.xgemm.softmax(x, -1)
    return lambda: lab.softmax(x, variant)


def softmax_bound(cols: int) -> float:
    """Largest relative error of an element: exp and its argument, and cols / 256 terms a thread one after the other."""
    return (64 + cols / 256) * 2**-24


ROWS = 4096  # of the softmax ladder


def softmax(sizes: list[int], budget_s: float) -> Iterator[Row]:
    """Softmax of each of 4096 rows in fp32: the variants, the library's and torch's; `sizes`: columns."""
    gpu = limits()
    for rows, cols in itertools.product((ROWS,), sizes):
        x = torch.randn(rows, cols, device="cuda")
        reference = torch.softmax(x.double(), -1)
        for variant, accesses in SOFTMAX_VARIANTS.items():
            call = softmax_call(variant, x)
            y = call()
            worst = ((y.double() - reference).abs() / reference).max().item()
            require(worst <= softmax_bound(cols), f"softmax {variant} at {rows} x {cols} (relative error {worst:.1e})")
            yield row(
                f"{rows}x{cols}",
                variant,
                time_us(call, budget_s),
                shape={"rows": rows, "cols": cols},
                bytes_moved=8 * rows * cols,
                floor_us=floor_us(8 * rows * cols, gpu.bandwidth),
                error=errors(y, reference),
                accesses=accesses,
                **(resources(f"softmax {variant}") if accesses else {}),
            )

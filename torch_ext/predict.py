"""What the planner's model expects of a GPU: ``python -m torch_ext --predict``.

Products: the predicted time of the plan that such a GPU would get. Attention: the tensor cores' rate times the share
that the kernels reach on a Hopper GPU in the mode XGEMM_ARCH=80. Softmax and sums: their bytes at 0.9 of the bus.
No card but Hopper's has been measured: `make bench` prints both, compare and tell us.
"""

from dataclasses import dataclass

import torch

from torch_ext._architecture import architecture

DTYPES = {"float32": 0, "float16": 1, "bfloat16": 2, "float64": 3}  # csrc/device/dtype.h
PRECISIONS = {"highest": 0, "ieee": 1, "high": 2, "medium": 3}  # csrc/device/precision.h
ATTENTION_SHARE = {64: 0.50, 128: 0.60, 256: 0.50}  # of mma.sync's rate, by head size
BANDWIDTH_SHARE = 0.9


@dataclass(frozen=True)
class Gpu:
    """A card as data sheets have it: compute capability (80 for 8.0), SMs, boost clock, memory's bytes per second."""

    name: str
    arch: int
    sm_count: int
    clock_hz: float
    bytes_per_second: float


GPUS = (
    Gpu("A100 SXM", 80, 108, 1.41e9, 2.04e12),
    Gpu("RTX 3090", 86, 82, 1.70e9, 0.94e12),
    Gpu("RTX 4090", 89, 128, 2.52e9, 1.01e12),
    Gpu("L40S", 89, 142, 2.52e9, 0.86e12),
    Gpu("RTX 5090", 120, 170, 2.41e9, 1.79e12),
    Gpu("B200", 100, 148, 1.97e9, 8.0e12),
)


def this_gpu() -> Gpu | None:
    """The current CUDA device, as the architecture whose kernels it is given; or None."""
    if (capability := architecture(torch.device("cuda"))) is None:
        return None
    p = torch.cuda.get_device_properties()
    bytes_per_second = 2e3 * p.memory_clock_rate * p.memory_bus_width / 8
    major, minor = capability
    return Gpu(p.name, 10 * major + minor, p.multi_processor_count, 1e3 * p.clock_rate, bytes_per_second)


def product(gpu: Gpu, m: int, n: int, k: int, dtype: str, precision: str = "highest") -> float:
    """Predicted seconds of a contiguous product (m, k) (k, n)."""
    return torch.ops.xgemm_mode.product_seconds(
        *(m, n, k, DTYPES[dtype], PRECISIONS[precision]),
        *(gpu.arch, gpu.sm_count, gpu.clock_hz, gpu.bytes_per_second),
    )


def attention(gpu: Gpu, length: int, head_size: int, causal: bool, tokens: int = 16384, width: int = 2048) -> float:
    """Predicted seconds in bfloat16 of `tokens` positions in sequences of `length`; all heads are `width` wide."""
    multiply_adds = 2 * tokens * length * width / (2 if causal else 1)
    rate = torch.ops.xgemm_mode.mma_products(gpu.arch, gpu.sm_count, gpu.clock_hz)
    return multiply_adds / (rate * ATTENTION_SHARE[head_size])


def headline(gpu: Gpu) -> dict[str, tuple[float, float, str]]:
    """Seconds, rate and its unit of each headline case."""
    cases: dict[str, tuple[float, float, str]] = {}
    for n, dtype, precision in (
        *((4096, "bfloat16", "highest"), (8192, "bfloat16", "highest")),
        *((4096, "float32", "highest"), (4096, "float32", "high"), (4096, "float64", "highest")),
    ):
        seconds = product(gpu, n, n, n, dtype, precision)
        words = f" {precision}" if dtype == "float32" else ""
        cases[f"matmul {dtype}{words} {n}^3"] = seconds, 2e-12 * n**3 / seconds, "TFLOP/s"
    for head_size in ATTENTION_SHARE:
        seconds = attention(gpu, 4096, head_size, causal=True)
        operations = 4 * 16384 * 2048 * 4096 / 2
        cases[f"attention bfloat16 causal 4096, D {head_size}"] = seconds, 1e-12 * operations / seconds, "TFLOP/s"
    read = 4 * 8192 * 8192
    for name, moved in (("softmax float32 8192 x 8192", 2 * read), ("sum float32 8192 x 8192, dim 1", read)):
        seconds = moved / (BANDWIDTH_SHARE * gpu.bytes_per_second)
        cases[name] = seconds, 1e-12 * moved / seconds, "TB/s"
    return cases


def report() -> str:
    """The table that ``python -m torch_ext --predict`` prints: the six cards, and the current device."""
    own = this_gpu()
    gpus = (*GPUS, *([own] if own else []))
    columns = [headline(gpu) for gpu in gpus]
    width = max(map(len, columns[0]))
    lines = ["predicted, not measured: microseconds, and TFLOP/s or TB/s"]
    lines.append(" " * width + "".join(f"{gpu.name[:15]:>17}" for gpu in gpus))
    for case in columns[0]:
        cells = (f"{1e6 * column[case][0]:.0f} {column[case][1]:.3g}" for column in columns)
        lines.append(f"{case:{width}}" + "".join(f"{cell:>17}" for cell in cells))
    return "\n".join(lines)

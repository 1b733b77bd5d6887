"""Every operator on the CPU against torch's, small cases: there ours call ATen, and this is what the way there costs.

Writes `benchmarks/results/<cpu>/cpu.json`; the options are those of every benchmark, with a budget of 60 s.
"""

import importlib
import sys
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F

from benchmarks import attention, common, matmul
from benchmarks.common import Case, Contender, Options
from benchmarks.results import RESULTS, cpu_name, gpu_folder

OP = "cpu"
SOURCES = ["csrc"]
DTYPES = (torch.float32, torch.bfloat16)
SQUARE = (1024, 1024)
BUDGET_S = 60.0


def addmm(shape: matmul.Shape, dtype: torch.dtype, mode: str | None, options: Options) -> Case:
    product = matmul.case(shape, dtype, mode, options)

    def make(device: torch.device) -> tuple[torch.Tensor, ...]:
        return torch.randn(shape.m, shape.n, dtype=dtype, device=device), *product.make(device)

    def reference(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        expected, scale = matmul.reference(a, b)
        return expected + x, scale + x.abs()

    theirs = Contender("torch", torch.addmm, tolerance=product.contenders[1].tolerance)
    return replace(
        product, make=make, reference=reference, contenders=[Contender("xgemm", torch.ops.xgemm.addmm), theirs]
    )


def attention_case(sequence: int, causal: bool, dtype: torch.dtype, options: Options) -> Case:
    """Against SDPA as users call it, with the backend that torch chooses."""
    name = f"S{sequence} D64" + (" causal" if causal else "")
    case = attention.case(attention.Problem(1, 8, 8, sequence, sequence, 64, causal=causal), dtype, options)
    ours, math = case.contenders
    peer = Contender("torch", partial(F.scaled_dot_product_attention, is_causal=causal), tolerance=math.tolerance)
    return replace(case, name=name, contenders=[ours, peer], peak_memory=False, baseline=None)


def cases_by_op(dtype: torch.dtype, options: Options) -> dict[str, list[Case]]:
    mode = "highest" if dtype == torch.float32 else None
    products = [matmul.Shape(128, 128, 128), matmul.Shape(512, 512, 512), matmul.Shape(1, 1024, 1024)]
    layers = [(1, 384, 384, "none"), (128, 384, 1536, "gelu")]

    def case(benchmark: str, *problem: object, **more: object) -> Case:
        return importlib.import_module(f"benchmarks.{benchmark}").case(*problem, dtype, options, **more)

    return {
        "matmul": [matmul.case(shape, dtype, mode, options) for shape in products],
        "addmm": [addmm(shape, dtype, mode, options) for shape in products[:2]],
        "linear": [case("linear", *shape) for shape in layers],
        "gated_linear": [case("gated_linear", 128, 384, 1024, "silu")],
        "sum": [case("sum", SQUARE, dim) for dim in (None, 0, 1)],
        "mean": [case("sum", SQUARE, 1, mean=True)],
        "amax": [case("amax", SQUARE, 1)],
        "amin": [case("amax", SQUARE, 1, op="amin")],
        "argmax": [case("argmax", SQUARE, 1)],
        "argmin": [case("argmax", SQUARE, 1, op="argmin")],
        "logsumexp": [case("logsumexp", SQUARE)],
        "cross_entropy": [case("cross_entropy", 256, 10000)],
        "softmax": [case("softmax", SQUARE, dim=dim) for dim in (-1, 0)],
        "log_softmax": [case("log_softmax", SQUARE)],
        "topk_softmax": [case("topk_softmax", 1024, 64, 6)],
        "scaled_masked_softmax": [case("scaled_masked_softmax", (1, 8, 128, 128), (128, 128))],
        "attention": [attention_case(*of, dtype, options) for of in ((128, False), (512, True))],
    }


def cases(options: Options) -> list[Case]:
    found = []
    for dtype in DTYPES:
        # ATen's CPU kernels round some intermediate results to bfloat16; what is exact stays exact.
        rounding = torch.finfo(dtype).eps if dtype == torch.bfloat16 else 0.0
        for op, of_op in cases_by_op(dtype, options).items():
            for case in of_op:
                name, tolerance = f"{op} {case.name.removeprefix(op).strip()}", case.tolerance
                found.append(replace(case, name=name, tolerance=tolerance + rounding if tolerance else 0.0))
    return found


def main(argv: list[str] | None = None) -> int:
    given = sys.argv[1:] if argv is None else argv
    folder = RESULTS / gpu_folder(cpu_name())
    return common.main(
        sys.modules[__name__], ["--out", str(folder), "--budget", str(BUDGET_S), *given, "--device", "cpu"]
    )


if __name__ == "__main__":
    sys.exit(main())

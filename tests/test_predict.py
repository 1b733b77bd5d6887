"""python -m torch_ext --predict: what the planner expects of cards that nobody here has."""

import json

import pytest

from benchmarks import predicted
from benchmarks.results import RESULTS
from torch_ext import predict

PEAK = {"A100 SXM": 312, "RTX 3090": 71, "RTX 4090": 165, "L40S": 362, "RTX 5090": 210, "B200": 2250}  # TFLOP/s of bf16
FP64 = {"A100 SXM": 19.5, "RTX 3090": 0.56, "RTX 4090": 1.3, "L40S": 1.5, "RTX 5090": 1.65, "B200": 40}


def test_rates_are_below_the_data_sheets() -> None:
    for gpu in predict.GPUS:
        for case, (seconds, rate, unit) in predict.headline(gpu).items():
            peaks = FP64 if "float64" in case else PEAK
            most = peaks[gpu.name] if unit == "TFLOP/s" else 1e-12 * gpu.bytes_per_second
            assert seconds > 0 and 0.02 * most < rate < most, (gpu.name, case)


def test_three_products_in_fp16_gain_on_an_a100_alone_of_the_small_cards() -> None:
    """float32 in "highest" beside CUDA cores' peak: an A100 has 64 multiply-adds a clock and SM, the others 128."""
    for gpu in predict.GPUS[:5]:
        fma = 64 if gpu.arch == 80 else 128
        cuda_cores = 2e-12 * fma * gpu.sm_count * gpu.clock_hz
        assert (predict.headline(gpu)["matmul float32 highest 4096^3"][1] > cuda_cores) == (gpu.arch == 80), gpu.name


def test_fp64_takes_tensor_cores_where_they_are_faster_than_cuda_cores() -> None:
    """An A100 has 32 multiply-adds a clock and SM on CUDA cores and 64 by mma.sync, GeForce cards two on both."""
    for gpu in predict.GPUS[:5]:
        cuda_cores = 2e-12 * (32 if gpu.arch == 80 else 2) * gpu.sm_count * gpu.clock_hz
        assert (predict.headline(gpu)["matmul float64 4096^3"][1] > cuda_cores) == (gpu.arch == 80), gpu.name


def test_the_table_has_a_column_for_each_card() -> None:
    first, names, *cases = predict.report().splitlines()
    assert "not measured" in first and all(gpu.name in names for gpu in predict.GPUS)
    assert len(cases) == len(predict.headline(predict.GPUS[0]))


@pytest.mark.parametrize(("arch", "ops"), [(90, {"matmul", "softmax", "sum"}), (80, {"matmul", "attention"})])
def test_predicted_beside_measured(arch: int, ops: set[str]) -> None:
    """Each op's headline cases among the rows of an H200, whose plans the model knows."""
    measured = [
        (op, json.loads((RESULTS / "nvidia_h200" / f"{op}.json").read_text())["rows"])
        for op in ("matmul", "attention", "softmax", "sum")
    ]
    lines = predicted.beside(predict.Gpu("H200", arch, 132, 1.98e9, 4.8e12), measured)
    assert ops <= {line.split()[0] for line in lines} and len(lines) == len({line[:36] for line in lines})
    if arch == 90:
        assert {line.split()[0] for line in lines} == ops
        assert all(0.6 < float(line.split()[-2]) < 1.7 for line in lines), lines

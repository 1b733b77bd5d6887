"""Benchmarks of whole models on the CPU: what they run, and what they write."""

import importlib.util
import json
import pickle
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import stand_in
import torch
from torch.utils.benchmark import Measurement

from benchmarks import common, models
from benchmarks.results import dump, merge_rows

CPU = common.Options(device=torch.device("cpu"), quick=True)

needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)


def no_network(*arguments: object) -> None:
    raise AssertionError("a benchmark of random weights connects to nothing")


@needs_transformers
def test_models_end_to_end_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", no_network)
    saved = tmp_path / "saved.pkl"
    options = ["--device", "cpu", "--quick", "--filter", "^(BERT|Llama|BART).* 1x|^ViT-L 2"]
    assert models.main([*options, "--out", str(tmp_path), "--measurements", str(saved)]) == 0
    document = json.loads((tmp_path / "models.json").read_text())
    assert document["op"] == "models" and document["sources"]["paths"] == ["csrc", "torch_ext"]
    groups: dict[tuple, dict[str, dict]] = {}
    for row in document["rows"]:
        assert set(row) == {
            *("case", "shape", "dtype", "mode", "l2", "graph", "contender", "ms", "ms_quartiles", "error"),
            *("clock_mhz", "watts"),
        }
        assert 0 < row["ms_quartiles"][0] <= row["ms"] <= row["ms_quartiles"][1]
        groups.setdefault((row["case"], row["dtype"]), {})[row["contender"]] = row
    names = ["BERT-large 1x16", "ViT-L 2 images", "Llama-1B-like 1x16", "BART-large 1x16 to 16"]
    assert set(groups) == {(name, dtype) for name in names for dtype in ("float32", "bfloat16")}
    for (_, dtype), group in groups.items():
        assert set(group) == {"torch", "xgemm"}
        low, high = (1e-9, 1e-6) if dtype == "float32" else (1e-4, 0.1)
        assert all(low < row["error"]["fro"] < high for row in group.values()), group
    assert json.loads(dump(document)) == document and merge_rows(document["rows"], document["rows"][:2])
    measurements = pickle.loads(saved.read_bytes())
    assert [measurement.metadata for measurement in measurements] == document["rows"]
    assert all(isinstance(measurement, Measurement) for measurement in measurements)


@needs_transformers
@pytest.mark.parametrize("allowed", [False, True])
def test_convolutions_are_as_precise_as_products(
    allowed: bool, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    """In every call of a contender, also those of a CUDA graph, cuDNN has TF32 where matmul has it and nowhere else."""
    calls = set()

    def forward(model: torch.nn.Module, *inputs: torch.Tensor) -> torch.Tensor:
        if inputs[0].dtype == torch.float32:  # the reference's are float64
            settings = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
            calls.add((*settings, stand_in.Graph.capturing))
        return models_forward(model, *inputs)

    models_forward = models.forward
    monkeypatch.setattr(models, "forward", forward)
    options = common.Options(device=torch.device("cuda"), quick=True)
    vit = next(model for model in models.MODELS if model.name == "ViT-L")
    case = models.case(
        models.Subject(replace(vit, config=vit.config | vit.tiny), options.device, torch.float32),
        vit.inputs[1],
        options,
    )
    with models.convolutions(allowed), stand_in.installed(monkeypatch):
        bench = common.Benchmark("models", ["csrc"], options, common.Machine("Test GPU", 1 << 16), keep=False)
        rows = bench.measure(case)
        assert torch.backends.cudnn.allow_tf32 == allowed and torch.get_float32_matmul_precision() == "highest"
    assert not bench.failures and {row["contender"] for row in rows} == {"torch", "torch_tf32", "xgemm"}
    in_tf32, in_fp32 = ("high", True), ("highest", False)
    assert calls == {(*settings, captured) for settings in (in_tf32, in_fp32) for captured in (False, True)}


@needs_transformers
def test_a_graph_holds_what_eager_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a graph is captured transformers would make masks, with which torch's attention takes other kernels.

    Our contender alone runs on xgemm.
    """
    from transformers.utils import import_utils

    from torch_ext.demo import OperatorCounter

    masks = []

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: torch.Tensor | None = None, **kwargs):
        masks.append(attn_mask)
        return sdpa(q, k, v, attn_mask=attn_mask, **kwargs)

    sdpa = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
    monkeypatch.setattr(import_utils, "is_cuda_stream_capturing", lambda: True)
    for case in models.cases(CPU)[:4]:  # one of each model
        for contender in case.contenders:
            with torch.inference_mode(), contender.context(), OperatorCounter() as counter:
                contender.call(*case.make(torch.device("cpu")))
            assert set(masks) <= {None} and bool(masks) == (contender.name == "torch"), case.name
            assert bool(counter.xgemm()) == (contender.name == "xgemm"), case.name
            masks.clear()

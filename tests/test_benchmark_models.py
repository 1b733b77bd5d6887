"""Benchmarks of whole models and of training on the CPU: what they run, write and print; examples.train_fp32."""

import importlib.util
import json
import pickle
import re
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import stand_in
import torch
from torch.utils.benchmark import Measurement

import torch_ext
from benchmarks import common, models, plots, tables, training
from benchmarks.results import dump, merge_rows

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="no transformers"),
]
CPU = common.Options(device=torch.device("cpu"), quick=True)


def test_models_end_to_end_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", None)  # random weights: nothing is downloaded
    saved = tmp_path / "saved.pkl"
    options = ["--device", "cpu", "--quick", "--filter", "^(BERT|Llama|BART).* 1x|^ViT-L 2"]
    assert models.main([*options, "--out", str(tmp_path), "--measurements", str(saved)]) == 0
    document = json.loads((tmp_path / "models.json").read_text())
    assert document["op"] == "models" and document["sources"]["paths"] == ["csrc", "torch_ext"]
    groups: dict[tuple, dict[str, dict]] = {}
    columns = {"case", "shape", "dtype", "mode", "l2", "graph", "contender", "ms", "ms_quartiles", "error"}
    for row in document["rows"]:
        assert set(row) == columns | {"clock_mhz", "watts"}
        assert 0 < row["ms_quartiles"][0] <= row["ms"] <= row["ms_quartiles"][1]
        groups.setdefault((row["case"], row["dtype"]), {})[row["contender"]] = row
    names = ["BERT-large 1x16", "ViT-L 2 images", "Llama-1B-like 1x16", "BART-large 1x16 to 16"]
    assert set(groups) == {(name, dtype) for name in names for dtype in ("float32", "bfloat16")}
    for (_, dtype), group in groups.items():
        assert set(group) == {"torch", "xgemm"}
        low, high = (1e-9, 1e-6) if dtype == "float32" else (1e-4, 0.1)
        assert all(low < row["error"]["fro"] < high for row in group.values()), group
    assert json.loads(dump(document)) == document and merge_rows(document["rows"], document["rows"][:2])
    kept = [one.metadata for one in pickle.loads(saved.read_bytes()) if type(one) is Measurement]
    assert kept == document["rows"]


@pytest.mark.parametrize("allowed", [False, True])
def test_convolutions_are_as_precise_as_products(allowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
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
    subject = models.Subject(replace(vit, config=vit.config | vit.tiny), options.device, torch.float32)
    case = models.case(subject, vit.inputs[1], options)
    with models.convolutions(allowed), stand_in.installed(monkeypatch):
        bench = common.Benchmark("models", ["csrc"], options, common.Machine("Test GPU", 1 << 16), keep=False)
        rows = bench.measure(case)
        assert torch.backends.cudnn.allow_tf32 == allowed and torch.get_float32_matmul_precision() == "highest"
    assert not bench.failures and {row["contender"] for row in rows} == {"torch", "torch_tf32", "xgemm"}
    in_tf32, in_fp32 = ("high", True), ("highest", False)
    assert calls == {(*settings, captured) for settings in (in_tf32, in_fp32) for captured in (False, True)}


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


CURVES = ["BERT 4x256 2x16, 5 steps", "PINN 3x16 64 points, 5 steps"]
MIXER = "MLP-Mixer 2x32 2 images"
HEAD = {"case", "dtype", "launch", "contender", "loss"}


def test_training_end_to_end_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = "^(BERT|Llama|PINN).* (2x16|points|steps) fp32|^MLP.* images bf16"
    options = ["--device", "cpu", "--quick", "--steps", "5", "--filter", chosen, "--out", str(tmp_path)]
    assert training.main(options) == 0
    document = json.loads((tmp_path / "training.json").read_text())
    assert document["op"] == "training" and document["sources"]["paths"] == ["csrc", "torch_ext"]
    groups: dict[tuple, dict[str, dict]] = {}
    for row in document["rows"]:
        groups.setdefault((row["case"], row["dtype"], row["launch"]), {})[row["contender"]] = row
    names = ["BERT-large 2x16", "Llama of 8 layers 2x16", "PINN 3x16 64 points", *CURVES]
    assert set(groups) == {*((name, "float32", "eager") for name in names), (MIXER, "bfloat16", "eager")}
    for (case, _, _), group in groups.items():
        if case in CURVES:
            assert set(group) == {"torch_fp64", "torch", "xgemm"}
            assert set(group["torch_fp64"]) == HEAD
        else:
            assert set(group) == {"torch", "xgemm"}
            assert all(0 < row["ms_quartiles"][0] <= row["ms"] <= row["ms_quartiles"][1] for row in group.values())
            assert set(group["xgemm"]) == HEAD | {"ms", "ms_quartiles", "clock_mhz", "watts"}
        assert {len(row["loss"]) for row in group.values()} == {5 if case in CURVES else training.FIRST}
        torchs, ours = group["torch"]["loss"], group["xgemm"]["loss"]
        assert torchs[0] != torchs[-1], "it learns"
        assert ours == pytest.approx(torchs, rel=1e-2 if group["xgemm"]["dtype"] == "bfloat16" else 1e-5)
        if case in CURVES:
            assert set(group["xgemm"]) == HEAD | {"distance"}
            assert torchs != group["torch_fp64"]["loss"] and 0 < group["xgemm"]["distance"] < 1e-5
    assert merge_rows(document["rows"], document["rows"][:2]) and json.loads(dump(document)) == document
    printed = capsys.readouterr().out
    assert all(f"| {case} |" in printed for case in CURVES)
    figure = plots.figures(tables.Results(tmp_path, {"training": document}))["training"]
    assert len(figure.axes) == 1 + len(CURVES)


def test_compiled_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """One compiled loss calls our operators within our context alone, forward and backward, with eager's losses.

    Without Inductor, which takes a minute; tests/test_enable.py has its code.
    """
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    case = training.TrainingCase(training.problems(cuda=False)[3], torch.float32, "compiled")
    bench = training.Trainings("training", ["csrc"], CPU, common.Machine("Test", 0), keep=False)
    with torch_ext.enable(ops=[], device="cpu") as around:
        bench.run([case])
    assert not bench.failures
    rows = {row["contender"]: row for row in bench.rows}
    assert set(rows) == {"torch", "xgemm"} and rows["xgemm"]["launch"] == "compiled"
    made = case.problem.make(CPU.device, torch.float32)
    eager = [made.step(made.loss).item() for _ in range(training.FIRST)]
    assert rows["xgemm"]["loss"] == pytest.approx(eager, rel=1e-4)
    served = {server: n for (name, server), n in around.calls.items() if name in ("mm", "addmm")}
    assert served["xgemm"] > 0 and served["torch: not enabled"] > 0


def test_losses_of_ours_that_are_not_torchs_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = training.Trainings("training", ["csrc"], CPU, common.Machine("Test", 0), keep=False)
    ready = bench._ready

    def off(case, made, name, context):
        runner, losses = ready(case, made, name, context)
        return runner, [loss * (1.01 if name == "xgemm" else 1.0) for loss in losses]

    monkeypatch.setattr(bench, "_ready", off)
    problem = training.problems(cuda=False)[4]
    made = problem.make(CPU.device, torch.float32)
    assert made.losses(3) == made.losses(3), "a restored training repeats its losses"
    bench.run([training.TrainingCase(problem, torch.float32, "eager")])
    assert [row["contender"] for row in bench.rows] == ["torch"]
    assert len(bench.failures) == 1 and "xgemm on PINN 3x16 64 points fp32 eager: loss" in bench.failures[0]


def test_launches_and_contenders_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a stand-in: TF32 is a contender in float32, and a graph holds the whole step of each."""
    options = common.Options(device=torch.device("cuda"))
    launches = {case.launch for case in training.cases(options)}
    assert launches == {"eager", "graph"} and training.cases(options)[0].name == "BERT-large 16x512"
    compiled = {case.name for case in training.cases(replace(options, compile=True)) if case.launch == "compiled"}
    assert "ViT-L 32 images" in compiled and not any(name.startswith("PINN") for name in compiled)
    monkeypatch.setattr(torch_ext, "enable", partial(lambda enable, device: enable(device="cpu"), torch_ext.enable))
    captured = []
    step = training.Training.step

    def counted(self, loss, batch=0):
        if stand_in.Graph.capturing:
            captured.append(torch.get_float32_matmul_precision())
        return step(self, loss, batch)

    monkeypatch.setattr(training.Training, "step", counted)
    monkeypatch.setattr(training, "BLOCK_S", 0.001)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)  # what AdamW asks
    case = training.TrainingCase(training.problems(cuda=False)[3], torch.float32, "graph")
    with stand_in.installed(monkeypatch):
        bench = training.Trainings("training", ["csrc"], options, common.Machine("Test GPU", 1 << 16), keep=False)
        bench.run([case])
    assert not bench.failures and not bench.notes
    assert [row["contender"] for row in bench.rows] == ["torch", "torch_tf32", "xgemm"]
    assert captured == ["highest", "high", "highest"]


def test_example(capsys: pytest.CaptureFixture[str]) -> None:
    from examples import train_fp32

    train_fp32.main("cpu")
    printed = capsys.readouterr().out
    losses = re.findall(r"^(\w+) +[\d.]+ ms a step, loss ([\d.]+) after 20 steps$", printed, re.MULTILINE)
    assert [name for name, _ in losses] == ["torch", "enabled"]
    assert float(losses[0][1]) == pytest.approx(float(losses[1][1]), abs=1e-4) and float(losses[0][1]) < 4.605
    assert re.search(r"addmm +\d+  xgemm", printed)

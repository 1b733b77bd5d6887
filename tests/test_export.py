"""torch.export of whole models: the operators stay in the graph, are saved, and run in another process."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import torch
from common import randn

import torch_ext


def operators(program: torch.export.ExportedProgram) -> Counter[str]:
    return Counter(str(n.target) for n in program.graph.nodes if str(n.target).startswith("xgemm."))


def encoder(device: torch.device) -> torch.nn.Module:
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, device=device)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval().requires_grad_(False)


@torch.no_grad()
def test_a_replaced_model_with_dynamic_sizes(device: torch.device) -> None:
    model, x = encoder(device), randn(3, 5, 16, device=device)
    expected = {shape: model(torch.ones(*shape, 16, device=device)) for shape in [(3, 5), (2, 9)]}
    torch_ext.replace(model)
    sizes = {0: torch.export.Dim("batch", min=2, max=64), 1: torch.export.Dim("length", min=2, max=512)}
    program = torch.export.export(model, (x,), dynamic_shapes=(sizes,))
    assert operators(program) == {"xgemm.linear.default": 8, "xgemm.attention.default": 2}
    assert operators(program.run_decompositions()) == operators(program)  # no operator is decomposed
    for shape, wanted in expected.items():
        actual = program.module()(torch.ones(*shape, 16, device=device))
        torch.testing.assert_close(actual, wanted, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_dynamic_size_may_be_one() -> None:
    class Attention(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q = x.unflatten(-1, (2, 8)).transpose(1, 2)
            return torch_ext.attention(q, q, q).transpose(1, 2).flatten(2)

    model = Attention()
    program = torch.export.export(model, (randn(2, 5, 16),), dynamic_shapes=({1: torch.export.Dim("length", min=1)},))
    for length in (1, 2, 9):
        x = randn(2, length, 16)
        torch.testing.assert_close(program.module()(x), model(x))


@torch.no_grad()
def test_saved_and_loaded_by_another_process(tmp_path: Path) -> None:
    class Head(torch.nn.Module):
        """Needs of a schema: keyword tensors, two outputs, dims and dtypes."""

        def __init__(self) -> None:
            super().__init__()
            self.gated = torch.nn.Parameter(randn(2, 8, 16))
            self.out = torch_ext.nn.Linear(8, 16, activation="gelu_tanh", precision="high")

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = self.out(torch_ext.gated_linear(x, self.gated[0], self.gated[1], activation="relu"), residual=x)
            options = {"attn_mask": mask, "scale": 0.3, "precision": "high"}
            y, lse = torch_ext.attention(y[:, None], y[:, None], y[:, None], **options, return_lse=True)
            values, indices = torch_ext.topk_softmax(y, 3, renormalize=False, dtype=torch.float64)
            return torch_ext.sum(y, (0, -1), keepdim=True), torch_ext.argmax(y), lse, values, indices

    model, x, mask = Head().eval(), randn(2, 5, 16), torch.rand(5, 5) > 0.2
    expected = model(x, mask)
    torch.export.save(torch.export.export(model, (x, mask)), tmp_path / "model.pt2")
    torch.save((x, mask, expected), tmp_path / "tensors.pt")
    program = f"""
import torch, torch_ext
x, mask, expected = torch.load({str(tmp_path / "tensors.pt")!r})
loaded = torch.export.load({str(tmp_path / "model.pt2")!r}).module()
with torch.no_grad():
    torch.testing.assert_close(loaded(x, mask), expected)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@torch.no_grad()
def test_a_vmapped_model(device: torch.device) -> None:
    class Ensemble(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.Parameter(randn(3, 4, 6, device=device))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.vmap(lambda w: torch_ext.softmax(torch_ext.linear(x, w), -1))(self.weights)

    model, x = Ensemble(), randn(2, 6, device=device)
    program = torch.export.export(model, (x,))
    lowered = program.run_decompositions()  # removes vmap by the batching rules
    assert operators(lowered) == {"xgemm.matmul.default": 1, "xgemm.softmax.default": 1}
    for exported in (program, lowered):
        torch.testing.assert_close(exported.module()(x), torch.softmax(x @ model.weights.mT, -1))

"""torch_ext.replace: in place, reversible, complete, and honest about what torch still does."""

import copy
import os
import threading

import pytest
import torch
from common import randn
from test_nn import TorchMath
from torch.nn import functional as F

import torch_ext

os.environ.setdefault("HF_HUB_OFFLINE", "1")


class Block(torch.nn.Module):
    """Every spelling that replace() knows."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(16, 48)
        self.out = torch.nn.Linear(16, 16, bias=False)
        self.heads = torch.nn.MultiheadAttention(16, 4, dropout=dropout, batch_first=True)
        self.soft, self.log = torch.nn.Softmax(-1), torch.nn.LogSoftmax(dim=1)
        self.dropout = dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        y = self.out(y.transpose(1, 2).flatten(2)) + x
        y = self.heads(y, y, y, need_weights=False)[0] + y
        y = torch.addmm(y[0, 0], y[0], self.out.weight) + F.linear(y, self.out.weight)
        y = y + torch.softmax(y, -1) + F.softmax(y, dim=1) + y.softmax(2)
        y = y + torch.log_softmax(y, -1) + F.log_softmax(y, dim=1) + y.log_softmax(2, dtype=torch.float64)
        scores = torch.matmul(y, y.mT) + y @ y.mT + torch.bmm(y, y.mT) + y.matmul(y.mT)
        return self.soft(scores) + self.log(scores)


SERVED = {
    "linear": 3,
    "attention": 1,
    "multihead_attention": 1,
    "addmm": 1,
    "softmax": 4,
    "log_softmax": 4,
    "matmul": 4,
}


@pytest.fixture
def block(device: torch.device) -> Block:
    return Block().to(device, torch.float64).eval()


@torch.no_grad()
def test_swaps_everything_and_says_so(block: Block, device: torch.device) -> None:
    x = randn(3, 5, 16, dtype=torch.float64, device=device)
    expected, parameters, state = block(x), list(block.parameters()), list(block.state_dict())
    report = torch_ext.replace(block)
    with TorchMath() as counter:  # fails on a product, softmax or attention of torch's own
        actual = block(x)
    torch.testing.assert_close(actual, expected)
    assert counter.calls == sum(SERVED.values()) + 2  # the module's two linears
    assert report.calls == {(kind, "xgemm"): n for kind, n in SERVED.items()}
    assert report.modules == {"Linear": 2, "MultiheadAttention": 1, "Softmax": 1, "LogSoftmax": 1}
    assert "2 Linear" in str(report) and "attention" in str(report) and "xgemm.Linear(" in str(block)
    assert (
        all(a is b for a, b in zip(block.parameters(), parameters, strict=True)) and list(block.state_dict()) == state
    )

    report.undo()
    torch.testing.assert_close(block(x), expected, rtol=0, atol=0)
    assert report.calls == {(kind, "xgemm"): n for kind, n in SERVED.items()}  # no longer counting
    assert type(block.qkv) is torch.nn.Linear and type(block.heads) is torch.nn.MultiheadAttention
    assert "forward" not in vars(block) and "_xgemm_report" not in vars(block.qkv) and "xgemm" not in str(block)
    report.undo()  # twice does nothing
    torch_ext.replace(block)
    torch.testing.assert_close(block(x), expected)


def test_what_requires_grad_goes_to_torch_and_is_counted_once() -> None:
    block, x = Block(), randn(3, 5, 16)
    report = torch_ext.replace(block)
    block(x).sum().backward()
    assert all(p.grad is not None for p in block.parameters())
    assert report.calls == {(kind, "torch: requires grad"): n for kind, n in SERVED.items()}
    block.eval().requires_grad_(False)
    block(x)
    assert {k: n for k, n in report.calls.items() if k[1] == "xgemm"} == {(k, "xgemm"): n for k, n in SERVED.items()}


@torch.no_grad()
def test_other_reasons() -> None:
    block = Block(dropout=0.1)
    report = torch_ext.replace(block)
    block(randn(3, 5, 16))
    assert report.calls["attention", "torch: dropout"] == 1
    assert report.calls["multihead_attention", "torch: dropout"] == 1

    class Odd(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            wide = x.repeat(1, 1, 1, 100)
            return [
                torch.matmul(x.long(), x.long().mT),
                torch.matmul(torch.complex(x, x), torch.complex(x, x).mT),
                F.scaled_dot_product_attention(wide, wide, wide),
                F.softmax(x.flatten()),  # dim left to torch's old rule
                torch.matmul(x, x.mT, out=torch.empty(1, 2, 3, 3)),
                (x[0, 0].to_sparse() @ x[0, 0].mT),
                x.long().softmax(-1, dtype=torch.float32),
            ]

    odd, x = Odd(), randn(1, 2, 3, 4)
    with pytest.warns(UserWarning, match="Implicit dimension choice"):
        expected = odd(x)
        report = torch_ext.replace(odd)
        for ours, theirs in zip(odd(x), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert report.calls == {
        ("matmul", "torch: dtype int64"): 1,
        ("matmul", "torch: dtype complex64"): 1,
        ("matmul", "torch: not dense"): 1,
        ("matmul", "torch: out="): 1,
        ("attention", "torch: head size over 256"): 1,
        ("softmax", "torch: no dim"): 1,
        ("softmax", "torch: dtype int64"): 1,
    }


@torch.no_grad()
def test_tensor_subclasses_keep_their_own_functions() -> None:
    class Packed(torch.Tensor):
        """A weight as quantisation libraries have it: it answers F.linear itself."""

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is F.linear:
                return torch.full((2, 3), 7.0)
            return super().__torch_function__(func, types, args, kwargs)

    model = torch.nn.Sequential(torch.nn.Linear(4, 3, bias=False))
    model[0].weight = torch.nn.Parameter(randn(3, 4).as_subclass(Packed), requires_grad=False)
    report = torch_ext.replace(model)
    assert (model(randn(2, 4)) == 7).all()
    assert report.calls == {("linear", "torch: Packed"): 1}


@torch.no_grad()
def test_submodules_called_on_their_own(block: Block, device: torch.device) -> None:
    x = randn(3, 5, 16, dtype=torch.float64, device=device)
    expected = block.qkv(x), block.heads(x, x, x)
    report = torch_ext.replace(block)
    torch.testing.assert_close((block.qkv(x), block.heads(x, x, x)), expected)
    assert report.calls == {("linear", "xgemm"): 1, ("multihead_attention", "xgemm"): 1}


@torch.no_grad()
@pytest.mark.parametrize("module", [torch.nn.Linear(4, 3), torch.nn.Softmax(-1), torch.nn.LogSoftmax(-1)])
def test_a_single_module(module: torch.nn.Module) -> None:
    x = randn(2, 4)
    expected = module(x)
    report = torch_ext.replace(module)
    torch.testing.assert_close(module(x), expected)
    assert list(report.calls.values()) == [1]
    report.undo()
    assert type(module).__module__.startswith("torch.nn")


@torch.no_grad()
def test_hooks_shared_modules_copies_and_threads() -> None:
    shared = torch.nn.Linear(8, 8)
    model = torch.nn.Sequential(shared, shared, torch.nn.Softmax(-1)).eval()
    seen = []
    shared.register_forward_hook(lambda *_: seen.append(1))
    x = randn(3, 8)
    expected = model(x)
    report = torch_ext.replace(model)
    assert report.modules == {"Linear": 1, "Softmax": 1}
    torch.testing.assert_close(copy.deepcopy(model)(x), expected)
    results = []
    threads = [threading.Thread(target=lambda: results.append(model(x))) for _ in range(4)]
    with torch.no_grad():
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    for result in results:
        torch.testing.assert_close(result.detach(), expected)
    assert len(seen) == 2 * 6 and len(results) == 4


@torch.no_grad()
def test_functions_outside_the_model_stay_torchs(block: Block, device: torch.device) -> None:
    report, x = torch_ext.replace(block), randn(2, 5, 16, dtype=torch.float64, device=device)
    block(x)
    before = report.calls.copy()
    torch.softmax(x @ x.mT, -1)
    assert report.calls == before


@torch.no_grad()
def test_an_instances_own_forward_is_kept() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    inner = model.forward
    model.forward = lambda x: inner(x).softmax(-1) * 2
    own, x = model.forward, randn(2, 4)
    expected = model(x)
    report = torch_ext.replace(model)
    torch.testing.assert_close(model(x), expected)
    assert report.calls == {("linear", "xgemm"): 1, ("softmax", "xgemm"): 1}
    report.undo()
    assert model.forward is own


@torch.no_grad()
@pytest.mark.parametrize("nested", [False, True])
def test_torchs_transformer_encoder(nested: bool, device: torch.device) -> None:
    """Its fused kernel and its nested tensors would pass the swapped modules by."""
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, device=device)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).eval()
    x, padding = randn(2, 6, 16, device=device), torch.zeros(2, 6, dtype=torch.bool, device=device)
    padding[1, 4:] = True
    expected = model(x, src_key_padding_mask=padding)
    report = torch_ext.replace(model)
    actual = model(x, src_key_padding_mask=padding)
    torch.testing.assert_close(actual[0], expected[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(actual[1, :4], expected[1, :4], rtol=1e-4, atol=1e-5)
    assert report.calls == {("multihead_attention", "xgemm"): 2, ("linear", "xgemm"): 4}


@torch.no_grad()
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles(backend: str, block: Block, device: torch.device) -> None:
    torch._dynamo.reset()
    x = randn(3, 5, 16, dtype=torch.float64, device=device)
    expected = block(x)
    report = torch_ext.replace(block)
    graphs: list[set[str]] = []

    def spy(graph: torch.fx.GraphModule, inputs):
        graphs.append({str(n.target) for n in graph.graph.nodes if n.op == "call_function"})
        return torch._dynamo.lookup_backend(backend)(graph, inputs)

    torch.testing.assert_close(torch.compile(block, fullgraph=True, backend=spy)(x), expected)
    wanted = {f"xgemm.{op}.default" for op in ("linear", "attention", "matmul", "softmax", "log_softmax", "addmm")}
    assert len(graphs) == 1 and wanted <= graphs[0]
    assert not report.calls  # a compiled graph does not count
    program = torch.export.export(block, (x,))
    torch.testing.assert_close(program.module()(x), expected)
    torch._dynamo.reset()


def tiny(name: str, attention: str) -> torch.nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 99, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    if name == "bert":
        config = transformers.BertConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, **sizes
        )
        cls = transformers.BertModel
    elif name == "gpt2":
        config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=32, **sizes)
        cls = transformers.GPT2LMHeadModel
    else:
        config = transformers.LlamaConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=64,
            **sizes,
        )
        cls = transformers.LlamaForCausalLM
    config._attn_implementation = attention
    return cls(config).eval()


@torch.no_grad()
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_transformers(name: str, attention: str, device: torch.device) -> None:
    model = tiny(name, attention).to(device)
    tokens = torch.randint(3, 99, (2, 11), device=device)
    mask = torch.ones_like(tokens)
    mask[1, 7:] = 0
    expected = model(input_ids=tokens, attention_mask=mask)[0]
    report = torch_ext.replace(model)
    with TorchMath():
        actual = model(input_ids=tokens, attention_mask=mask)[0]
    torch.testing.assert_close(actual[0], expected[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(actual[1, :7], expected[1, :7], rtol=1e-4, atol=1e-5)
    assert {where for operator, where in report.calls if operator != "sum"} == {"xgemm"}  # sums of a mask, of bool
    assert report.calls["attention" if attention == "sdpa" else "softmax", "xgemm"] == 2
    if name == "llama":
        generated = model.generate(tokens[:, :5], attention_mask=mask[:, :5], max_new_tokens=3, do_sample=False)
        report.undo()
        again = model.generate(tokens[:, :5], attention_mask=mask[:, :5], max_new_tokens=3, do_sample=False)
        assert torch.equal(generated, again)


def test_refuses() -> None:
    with pytest.raises(TypeError, match=r"^xgemm.replace: expected a torch.nn.Module, got int$"):
        torch_ext.replace(3)
    for model in (torch.nn.Linear(3, 3), Block()):
        report = torch_ext.replace(model)
        with pytest.raises(ValueError, match=r"^xgemm.replace: this model runs on xgemm already"):
            torch_ext.replace(model)
        report.undo()
        torch_ext.replace(model)

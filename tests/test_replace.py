"""torch_ext.replace: in place, reversible, complete, and honest about what torch still does."""

import copy
import functools
import inspect
import itertools
import os
import pickle
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy
import pytest
import torch
from common import TorchMath, randn, saved_and_loaded
from torch.nn import functional as F
from torch.nn.utils import parametrize

import torch_ext
from torch_ext.replace import Replacement, operators
from torch_ext.replace.functions import Catching

os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytestmark = pytest.mark.usefixtures("no_grad")  # but for tests that enable it


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


class Calls(torch.nn.Module):
    def __init__(self, function: Callable) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> object:
        return self.function(*inputs)


class Holder(torch.nn.Module):
    """A replaced forward that calls one that may not be replaced."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).softmax(-1)


def autocast(function: Callable, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast(x.device.type, torch.bfloat16):
        return function(x)


def replaced(model: torch.nn.Module, *inputs: torch.Tensor, rtol=None, atol=None, **options) -> Replacement:
    """Replaces a model, whose result stays the same."""
    expected = model(*inputs)
    report = torch_ext.replace(model, **options)
    torch.testing.assert_close(model(*inputs), expected, rtol=rtol, atol=atol)
    return report


def spy(graphs: list[set[str]], backend: str = "eager") -> Callable:
    """A backend of torch.compile that notes what each graph calls."""

    def compile_graph(graph: torch.fx.GraphModule, inputs):
        graphs.append({str(n.target) for n in graph.graph.nodes if n.op == "call_function"})
        return torch._dynamo.lookup_backend(backend)(graph, inputs)

    return compile_graph


SERVED = {"softmax": 4, "log_softmax": 4, "matmul": 4, "linear": 3}
SERVED |= dict.fromkeys(("attention", "multihead_attention", "addmm"), 1)


@pytest.fixture
def block(device: torch.device) -> Block:
    return Block().to(device, torch.float64).eval()


@pytest.fixture
def x(device: torch.device) -> torch.Tensor:
    return randn(3, 5, 16, dtype=torch.float64, device=device)


def test_swaps_everything_and_says_so(block: Block, x: torch.Tensor) -> None:
    expected, parameters, state = block(x), list(block.parameters()), list(block.state_dict())
    report = torch_ext.replace(block)
    with TorchMath() as counter:  # fails on a product, softmax or attention of torch's own
        actual = block(x)
    torch.testing.assert_close(actual, expected)
    assert len(counter.ours) == sum(SERVED.values()) + 2  # the module's two linears
    assert report.calls == {(kind, "xgemm"): n for kind, n in SERVED.items()}
    assert report.modules == {"Linear": 2, "MultiheadAttention": 1, "Softmax": 1, "LogSoftmax": 1}
    assert "2 Linear" in str(report) and "attention" in str(report) and "xgemm.Linear(" in str(block)
    assert all(a is b for a, b in zip(block.parameters(), parameters, strict=True))
    assert list(block.state_dict()) == state

    report.undo()
    torch.testing.assert_close(block(x), expected, rtol=0, atol=0)
    assert report.calls == {(kind, "xgemm"): n for kind, n in SERVED.items()}  # no longer counting
    assert type(block.qkv) is torch.nn.Linear and type(block.heads) is torch.nn.MultiheadAttention
    assert "forward" not in vars(block) and "_xgemm_report" not in vars(block.qkv) and "xgemm" not in str(block)
    report.undo()  # twice does nothing
    torch_ext.replace(block)
    torch.testing.assert_close(block(x), expected)


@torch.enable_grad()
def test_what_requires_grad_goes_to_torch_and_is_counted_once() -> None:
    report, x = torch_ext.replace(block := Block()), randn(3, 5, 16)
    message = "Block is called in grad mode and linear has an input that requires grad"
    with pytest.warns(UserWarning, match=message) as w:
        block(x).sum().backward()
        block(x)
    assert len(w) == 1 and w[0].filename == __file__  # the line that calls the model
    report.calls.subtract({key: n // 2 for key, n in report.calls.items()})
    assert all(p.grad is not None for p in block.parameters())
    assert report.calls == {(kind, "torch: requires grad"): n for kind, n in SERVED.items()}
    block.eval().requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        block(x)
    assert {k: n for k, n in report.calls.items() if k[1] == "xgemm"} == {(k, "xgemm"): n for k, n in SERVED.items()}


def jvp(f: Callable, x: torch.Tensor) -> torch.Tensor:
    return torch.func.jvp(f, (x,), (x,))[1]


def grad_of_vmap(f: Callable, x: torch.Tensor) -> torch.Tensor:
    return torch.func.grad(lambda x: torch.vmap(f)(x).sum())(x)


def grad_of_inputs(f: Callable, x: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_()
    return torch.autograd.grad(torch.vmap(f)(x).sum(), x)[0]


@torch.enable_grad()
@pytest.mark.parametrize(
    ("transform", "reason"),
    [
        *((jvp, "tangent"), (torch.no_grad()(jvp), "tangent"), (lambda f, x: torch.func.jacfwd(f)(x), "tangent")),
        *((lambda f, x: torch.func.jacrev(f)(x), "requires grad"), (grad_of_vmap, "requires grad")),
        *((grad_of_inputs, "requires grad"), (lambda f, x: torch.vmap(f)(x), None)),
    ],
)
@pytest.mark.filterwarnings("ignore:xgemm.replace")
def test_derivatives_are_torchs(transform: Callable, reason: str | None) -> None:
    """Forward mode's too, and those of what torch.vmap wraps."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), Calls(lambda x: x.softmax(-1))).requires_grad_(False)
    x = randn(2, 3)
    expected = transform(model, x)
    report = torch_ext.replace(model)
    torch.testing.assert_close(transform(model, x), expected)
    where = f"torch: {reason}" if reason else "xgemm"
    assert report.calls == {("linear", where): 1, ("softmax", where): 1}


def test_a_scripted_submodule_runs_as_it_is() -> None:
    inner = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Sequential(torch.nn.Linear(3, 3)))
    model, x = torch.nn.Sequential(Calls(lambda x: x.softmax(-1)), Holder(torch.jit.script(inner))), randn(2, 3)
    expected, report = model(x), replaced(model, x)
    assert report.calls == {("softmax", "xgemm"): 2} and not report.modules
    report.undo()
    torch.testing.assert_close(model(x), expected, rtol=0, atol=0)


@torch.enable_grad()
@pytest.mark.parametrize("by_name", [False, True])
def test_a_mask_that_requires_grad_goes_to_torch(by_name: bool) -> None:
    model, x = torch.nn.MultiheadAttention(8, 2).requires_grad_(False), randn(3, 2, 8)
    mask = randn(3, 3).requires_grad_()
    report = torch_ext.replace(model)
    output, _ = model(x, x, x, attn_mask=mask) if by_name else model(x, x, x, None, True, mask)
    assert output.requires_grad
    assert report.calls == {("multihead_attention", "torch: requires grad"): 1}


def test_dropout_is_torchs() -> None:
    block = Block(dropout=0.1)
    report = torch_ext.replace(block)
    block(randn(3, 5, 16))
    assert report.calls["attention", "torch: dropout"] == 1
    assert report.calls["multihead_attention", "torch: dropout"] == 1


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


def test_submodules_called_on_their_own(block: Block, x: torch.Tensor) -> None:
    expected = block.qkv(x), block.heads(x, x, x)
    report = torch_ext.replace(block)
    torch.testing.assert_close((block.qkv(x), block.heads(x, x, x)), expected)
    assert report.calls == {("linear", "xgemm"): 1, ("multihead_attention", "xgemm"): 1}


@pytest.mark.parametrize("module", [torch.nn.Linear(4, 3), torch.nn.Softmax(-1), torch.nn.LogSoftmax(-1)])
def test_a_single_module(module: torch.nn.Module) -> None:
    x = randn(2, 4)
    report = replaced(module, x)
    assert list(report.calls.values()) == [1]
    report.undo()
    assert type(module).__module__.startswith("torch.nn")


def test_hooks_shared_modules_copies_and_threads() -> None:
    shared = torch.nn.Linear(8, 8)
    model = torch.nn.Sequential(shared, shared, torch.nn.Softmax(-1)).eval()
    seen = []
    shared.register_forward_hook(lambda *_: seen.append(1))
    x = randn(3, 8)
    expected, report = model(x), torch_ext.replace(model)
    assert report.modules == {"Linear": 1, "Softmax": 1}
    torch.testing.assert_close(copy.deepcopy(model)(x), expected)
    with ThreadPoolExecutor(4, initializer=threading.Barrier(4).wait) as pool:  # four threads at a time
        for result in pool.map(model, [x] * 4):
            torch.testing.assert_close(result.detach(), expected)
    assert len(seen) == 2 * 6


def test_functions_outside_the_model_stay_torchs(block: Block, x: torch.Tensor) -> None:
    report = replaced(block, x)
    before = report.calls.copy()
    torch.softmax(x @ x.mT, -1)
    assert report.calls == before


def test_an_instances_own_forward_is_kept() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    inner = model.forward
    model.forward = lambda x: inner(x).softmax(-1) * 2
    own, x = model.forward, randn(2, 4)
    report = replaced(model, x)
    assert report.calls == {("linear", "xgemm"): 1, ("softmax", "xgemm"): 1}
    report.undo()
    assert model.forward is own


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles(backend: str, block: Block, x: torch.Tensor) -> None:
    expected = block(x)
    report = torch_ext.replace(block)
    graphs: list[set[str]] = []
    torch.testing.assert_close(torch.compile(block, fullgraph=True, backend=spy(graphs, backend))(x), expected)
    wanted = {f"xgemm.{op}.default" for op in ("linear", "attention", "matmul", "softmax", "log_softmax", "addmm")}
    assert len(graphs) == 1 and wanted <= graphs[0]
    assert not report.calls  # a compiled graph does not count
    program = torch.export.export(block, (x,))
    torch.testing.assert_close(program.module()(x), expected)


def tiny(name: str, attention: str) -> torch.nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    kind, head, more = {
        "bert": ("Bert", "ForMaskedLM", sizes),
        "gpt2": ("GPT2", "LMHeadModel", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}),
        "llama": ("Llama", "ForCausalLM", sizes | {"num_key_value_heads": 2}),
    }[name]
    tokens = {"vocab_size": 99, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = getattr(transformers, f"{kind}Config")(**more, **tokens)
    config._attn_implementation = attention
    return getattr(transformers, kind + head)(config).eval()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_transformers(name: str, attention: str, device: torch.device) -> None:
    model = tiny(name, attention).to(device)
    tokens = torch.randint(3, 99, (2, 11), device=device)
    mask = torch.ones_like(tokens)
    mask[1, 7:] = 0
    expected = model(input_ids=tokens, attention_mask=mask)[0]
    report = torch_ext.replace(model, include="all")
    with TorchMath():
        actual = model(input_ids=tokens, attention_mask=mask)[0]
    torch.testing.assert_close(actual[0], expected[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(actual[1, :7], expected[1, :7], rtol=1e-4, atol=1e-5)
    assert {where for operator, where in report.calls if operator != "sum"} == {"xgemm"}  # torch sums the bool mask
    assert report.calls["attention" if attention == "sdpa" else "softmax", "xgemm"] == 2
    if name == "llama":
        generate = functools.partial(model.generate, tokens[:, :5], attention_mask=mask[:, :5])
        generated = generate(max_new_tokens=3, do_sample=False)
        report.undo()
        assert torch.equal(generated, generate(max_new_tokens=3, do_sample=False))


def test_refuses() -> None:
    with pytest.raises(TypeError, match=r"^xgemm.replace: expected a torch.nn.Module, got int$"):
        torch_ext.replace(3)
    for model in (torch.nn.Linear(3, 3), Block()):
        report = torch_ext.replace(model)
        with pytest.raises(ValueError, match=r"^xgemm.replace: this model runs on xgemm already"):
            torch_ext.replace(model)
        report.undo()
        torch_ext.replace(model)


X, Y, V = (3, 4), (4, 5), (4,)
BX, BY = (2, 3, 4), (2, 4, 5)
SPELLINGS = [
    *(("matmul", f, (X, Y)) for f in (torch.mm, torch.Tensor.mm, torch.linalg.matmul, lambda x, y: x @ y)),
    *(("matmul", f, (X, Y)) for f in (lambda x, y: torch.mm(x, mat2=y), lambda x, y: torch.matmul(input=x, other=y))),
    *(("matmul", f, (X, V)) for f in (torch.mv, torch.Tensor.mv, torch.inner, torch.Tensor.inner)),
    *(("matmul", f, (V, V)) for f in (torch.dot, torch.inner, torch.Tensor.dot)),
    *(("matmul", torch.inner, shapes) for shapes in ((BX, (5, 4)), (X, BX), (V, BX))),
    *(("matmul", f, (BX, BY)) for f in (torch.bmm, torch.Tensor.bmm)),
    ("matmul", torch.baddbmm, ((5,), BX, BY)),
    ("matmul", lambda c, x, y: c.baddbmm(x, y, beta=0.5, alpha=2), ((2, 3, 5), BX, BY)),
    ("matmul", lambda c, x, y: torch.baddbmm(c * float("nan"), x, y, beta=0, alpha=2), ((2, 3, 5), BX, BY)),
    *(("addmm", f, ((3,), X, V)) for f in (torch.addmv, lambda c, x, v: c.addmv(x, v, beta=2, alpha=0.5))),
    ("addmm", torch.addmv, ((), X, V)),
    *(("matmul", functools.partial(torch.einsum, e), (X, Y)) for e in ("ij,jk->ik", "ij, jk", "ij,jk->ki")),
    ("matmul", functools.partial(torch.einsum, "ij,j->i"), (X, V)),
    ("matmul", lambda x, y: torch.einsum("i,i", [x, y]), (V, V)),
    ("matmul", functools.partial(torch.einsum, "bhid,bhjd->bhij"), ((2, 3, 5, 4), (2, 3, 6, 4))),
    ("matmul", functools.partial(torch.einsum, "bihd,bjhd->hbij"), ((2, 5, 3, 4), (2, 6, 3, 4))),
    ("matmul", functools.partial(torch.einsum, "abc,bcde->dea"), ((2, 3, 4), (3, 4, 5, 6))),
    ("matmul", lambda x: torch.einsum(x, [0, 1], x, [2, 1], [0, 2]), (X,)),
    *((op, getattr(torch, op), (X,)) for op in ("sum", "mean", "amax", "amin", "argmax", "argmin")),
    *((op, getattr(torch.Tensor, op), (X,)) for op in ("sum", "mean", "amax", "amin", "argmax", "argmin")),
    ("sum", lambda x: x.sum(-1, True), (X,)),
    ("mean", lambda x: x.mean(-1, keepdim=True), (X,)),
    ("amax", lambda x: x.amax(dim=0), (X,)),
    ("argmin", lambda x: x.argmin(1, True), (X,)),
    ("logsumexp", lambda x: x.logsumexp(-1), (X,)),
    ("logsumexp", lambda x: torch.logsumexp(x, dim=(0, 1)), (BX,)),
    ("amin", lambda x: torch.amin(x, (0, 2)), (BX,)),
    ("sum", lambda x: getattr(x, "sum")(0), (X,)),  # noqa: B009
    ("sum", lambda x: x.sum(axis=0, keepdims=True), (X,)),
    ("mean", lambda x: x.mean(1, dtype=torch.float32), (X,)),
    ("logsumexp", lambda x: torch.special.logsumexp(x, 0), (X,)),
    ("softmax", lambda x: torch.special.softmax(x, 0), (X,)),
    ("log_softmax", lambda x: torch.special.log_softmax(x, 0, dtype=torch.float32), (X,)),
    ("cross_entropy", lambda x: F.cross_entropy(x, x.argsort()[:, 0], label_smoothing=0.1, reduction="sum"), (X,)),
]


@pytest.mark.parametrize(("operator", "function", "shapes"), SPELLINGS)
def test_every_spelling(operator: str, function: Callable, shapes, device: torch.device) -> None:
    inputs = [randn(*shape, dtype=torch.float64, device=device) for shape in shapes]
    model = Calls(function)
    assert replaced(model, *inputs).calls == {(operator, "xgemm"): 1}


@pytest.mark.parametrize(
    ("operator", "reason", "function"),
    [
        ("matmul", "not one product", lambda x: torch.einsum("ij,ik->", x, x)),
        ("matmul", "not one product", lambda x: torch.einsum("ij,kj->kj", x, x)),
        ("matmul", "not one product", lambda x: torch.einsum("...j,j->...", x, x[0])),
        ("matmul", "not one product", lambda x: torch.einsum("ij,ij->ij", x, x[:1])),
        ("matmul", "not one product", lambda x: torch.einsum("ij,jk->ik", x[:, :1], x)),
        ("matmul", "half precision", lambda x: torch.baddbmm(x[None].half(), x[None].half(), x.mT[None].half())),
        ("cross_entropy", "class weights", lambda x: F.cross_entropy(x, torch.tensor([0, 1, 2]), torch.ones(3))),
        ("cross_entropy", "class probabilities", lambda x: F.cross_entropy(x, x.softmax(-1).detach())),
        ("cross_entropy", "arguments", lambda x: F.cross_entropy(x, torch.tensor([0, 1, 2]), size_average=False)),
        ("matmul", "dtype int64", lambda x: torch.matmul(x.long(), x.long())),
        ("matmul", "dtype complex64", lambda x: torch.matmul(torch.complex(x, x), torch.complex(x, x))),
        ("matmul", "not dense", lambda x: x.to_sparse() @ x),
        ("matmul", "out=", lambda x: torch.matmul(x, x, out=torch.empty(3, 3))),
        ("attention", "head size over 256", lambda x: F.scaled_dot_product_attention(*[x.repeat(1, 100)[None]] * 3)),
        ("sum", "dtype int64", lambda x: x.long().sum()),
        ("sum", "dtype int32", lambda x: x.sum(dtype=torch.int32)),
        ("tensordot", "not covered", lambda x: torch.tensordot(x, x, 2)),
        ("addmm_", "not covered", lambda x: x.clone().addmm_(x, x)),
        ("multi_dot", "not covered", lambda x: torch.linalg.multi_dot([x, x, x])),
        ("linear", "shapes", lambda x: F.linear(x, x, x)),
        ("linear", "shapes", lambda x: F.linear(x, x, x[:1])),
        ("sum", "dim of type int64", lambda x: x.sum(numpy.int64(0))),
        ("amax", "dim of type int64", lambda x: x.amax(numpy.int64(0), True)),
        ("sum", "dim of type Tensor", lambda x: x.sum(torch.tensor(0))),
        ("softmax", "no dim", lambda x: F.softmax(x.flatten())),
        ("softmax", "dtype int64", lambda x: x.long().softmax(-1, dtype=torch.float32)),
        ("softmax", "dim of type int64", lambda x: x.softmax(numpy.int64(0))),
        ("softmax", "dtype <class 'float'>", lambda x: x.softmax(0, dtype=float)),
        ("softmax", "dtype int64", lambda x: x[:0].softmax(0, dtype=torch.int64)),
        ("cross_entropy", "shapes", lambda x: F.cross_entropy(x[0], torch.tensor([1]))),
        *(  # autocast has a dtype of its own for these
            (operator, "autocast", functools.partial(autocast, function))
            for operator, function in [
                *(("matmul", lambda x: torch.mv(x, x[0])), ("matmul", lambda x: torch.dot(x[0], x[0]))),
                *(("matmul", lambda x: torch.inner(x[0], x[0])), ("addmm", lambda x: torch.addmv(x[0], x, x[0]))),
                ("matmul", lambda x: torch.baddbmm(x[None], x[None], x[None])),
            ]
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:size_average", "ignore:Implicit dimension choice")
def test_what_stays_on_torch_is_listed(operator: str, reason: str, function: Callable) -> None:
    x, model = randn(3, 3), Calls(function)
    report = replaced(model, x, rtol=0, atol=0)
    assert report.calls[operator, f"torch: {reason}"] == 1
    assert f"torch: {reason}" in str(report)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.cross_entropy(x, None),
        lambda x: torch.einsum("ij,jk", x, 3),
        lambda x: torch.einsum("i1,1k", x, x),
        lambda x: torch.baddbmm(torch.zeros(1, 2, 3, 3), x.expand(2, 3, 3), x.expand(2, 3, 3)),
        lambda x: torch.baddbmm(torch.zeros(2, 3, 3), x[None], x[None]),
        lambda x: torch.baddbmm(x[None].double(), x[None], x[None]),
        lambda x: F.scaled_dot_product_attention(*[x[None, None]] * 3, dropout_p=-1.0),
        # functions that are stricter than ours
        *(lambda x, f=f: f(x.expand(2, 3, 3), x.expand(2, 3, 3)) for f in (torch.mm, torch.mv, torch.dot, torch.addmv)),
        lambda x: torch.bmm(x.expand(2, 3, 3), x.expand(1, 3, 3)),
    ],
)
def test_torchs_errors_stay(function: Callable) -> None:
    x, model = randn(3, 3), Calls(function)
    with pytest.raises((RuntimeError, TypeError)) as theirs:
        model(x)
    torch_ext.replace(model)
    with pytest.raises(theirs.type) as ours:
        model(x)
    assert str(ours.value).splitlines()[0] == str(theirs.value).splitlines()[0]


def test_a_mask_beside_is_causal_stays_on_torch() -> None:
    """torch 2.11 accepts a mask with is_causal on some devices; newer versions refuse it."""

    def outcome(x: torch.Tensor) -> torch.Tensor | str:
        try:
            return model(x)
        except RuntimeError as error:
            return str(error).splitlines()[0]

    x = randn(1, 1, 3, 3)
    model = Calls(lambda x: F.scaled_dot_product_attention(x, x, x, torch.ones(3, 3), is_causal=True))
    expected = outcome(x)
    report = torch_ext.replace(model)
    result = outcome(x)
    assert torch.equal(result, expected) if isinstance(expected, torch.Tensor) else result == expected
    assert report.calls == {("attention", "torch: attn_mask and is_causal"): 1}


@pytest.mark.parametrize("a", ["bij", "jbi", "ijb"])
@pytest.mark.parametrize("b", ["bjk", "kjb"])
def test_einsums_results_have_torchs_layout(a: str, b: str) -> None:
    """A forward may view them."""
    sizes = {"b": 2, "i": 3, "j": 4, "k": 5}
    x, y = (randn(*(sizes[label] for label in labels)) for labels in (a, b))
    for result in map("".join, itertools.permutations("bik")):
        model = Calls(functools.partial(torch.einsum, f"{a},{b}->{result}"))
        expected = model(x, y)
        assert replaced(model, x, y).calls == {("matmul", "xgemm"): 1}
        assert model(x, y).stride() == expected.stride(), result


def test_baddbmms_result_is_contiguous_whatever_the_input(device: torch.device) -> None:
    """As torch's: a forward may view it."""
    model = Calls(lambda x: torch.baddbmm(x.mT, x, x, beta=0.5, alpha=3).view(2, 9))
    assert replaced(model, randn(2, 3, 3, device=device)).calls == {("matmul", "xgemm"): 1}


def test_attentions_results_have_the_layout_of_the_query(device: torch.device) -> None:
    """As torch's: a forward may view them."""

    def function(q: torch.Tensor) -> torch.Tensor:
        q = q.transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q).transpose(1, 2).view(2, 5, -1)

    model, q = Calls(function), randn(2, 5, 3, 8, device=device)
    assert replaced(model, q).calls == {("attention", "xgemm"): 1}
    torch.testing.assert_close(torch.compile(model, backend="aot_eager", fullgraph=True)(q), function(q))


@pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="this torch has no grouped product")
def test_grouped_products_and_flex_attention_are_listed() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    def function(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor, q: torch.Tensor) -> tuple:
        return torch._grouped_mm(x, w, ends), flex_attention(q, q, q)

    inputs = randn(8, 16).bfloat16(), randn(2, 16, 16).bfloat16(), torch.tensor([3, 8], dtype=torch.int32)
    report = torch_ext.replace(model := Calls(function))
    model(*inputs, randn(1, 1, 128, 16))
    assert report.calls["grouped_mm", "torch: not covered"] == 1
    assert report.calls["flex_attention", "torch: not covered"] == 1


# ---- choice of operators ---------------------------------------------------------------------------------------------


def test_include_and_exclude(block: Block, x: torch.Tensor) -> None:
    report = replaced(block, x, include=["linear", "softmax"])
    assert report.modules == {"Linear": 2, "Softmax": 1}
    assert {op for (op, where), _ in report.calls.items() if where == "xgemm"} == {"linear", "softmax"}
    assert "left to torch: addmm, amax" in str(report)
    report.undo()
    report = torch_ext.replace(block, exclude="matmul")
    block(x)
    assert "matmul" not in {op for op, where in report.calls if where == "xgemm"}
    report.undo()
    for argument in ("include", "exclude"):
        with pytest.raises(ValueError, match=rf"^xgemm.replace: expected {argument} to be of linear, .*, got conv$"):
            torch_ext.replace(block, **{argument: ["linear", "conv"]})


V100, A100, GEFORCE, H100, B200 = (7, 0), (8, 0), (8, 6), (9, 0), (10, 0)


@pytest.fixture
def as_gpu(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> Callable[[tuple[int, int]], None]:
    key = randn(1, device=device).device
    return lambda capability: monkeypatch.setitem(operators._architectures, key, capability)


@pytest.mark.parametrize("capability", [V100, A100, H100, B200])
def test_half_precision_runs_on_tensor_cores_since_ampere(
    capability: tuple[int, int], as_gpu: Callable[[tuple[int, int]], None], device: torch.device
) -> None:
    """On older GPUs its products are torch's; bandwidth-bound operators and `include` do not ask."""
    as_gpu(capability)
    block, x = Block().eval().to(device, torch.bfloat16), randn(3, 5, 16, dtype=torch.bfloat16, device=device)
    report = torch_ext.replace(block)
    block(x)
    products = {call for call in report.calls if call[0] in operators.PRODUCTS}
    assert {call[0] for call in products} == operators.PRODUCTS
    why = f"xgemm has no faster kernels for compute capability {capability[0]}.{capability[1]}"
    ours = "xgemm" if capability >= (8, 0) else f"torch: {why}"
    assert {where for op, where in products if op != "matmul"} == {ours}
    of_fp64 = f"torch: {why}" if capability == V100 else "xgemm"
    assert {where for op, where in products if op == "matmul"} == {of_fp64}
    assert {where for op, where in report.calls if op not in operators.PRODUCTS} == {"xgemm"}
    report.undo()
    report = torch_ext.replace(block, include="all")
    block(x)
    assert {where for _, where in report.calls} == {"xgemm"}


def test_fp32_products_without_tensor_cores(
    as_gpu: Callable[[tuple[int, int]], None], device: torch.device, float32_precision: Callable[[str], None]
) -> None:
    """On CUDA cores as torch's are, unless torch may take TF32; attention by fp16 parts; float64 has tensor cores."""
    as_gpu(A100)
    model, x = Calls(lambda x: F.scaled_dot_product_attention(x @ x, x, x)), randn(2, 8, 8, device=device)
    report = torch_ext.replace(model)
    left = "torch: xgemm has no faster kernels for compute capability 8.0"
    for setting, where in ("medium", left), ("high", left), ("highest", "xgemm"):
        float32_precision(setting)
        report.calls.clear()
        model(x)
        assert report.calls == {("matmul", where): 1, ("attention", where): 1}
    report.calls.clear()
    model(x.double())
    assert report.calls == {("matmul", "xgemm"): 1, ("attention", left): 1}
    report.calls.clear()
    wide = randn(1, 136, 136, device=device)
    model(wide), as_gpu(GEFORCE), model(x)
    assert report.calls == {
        ("matmul", "xgemm"): 2,
        ("attention", "torch: head size over 128"): 1,
        ("attention", "torch: xgemm has no faster kernels for compute capability 8.6"): 1,
    }
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), model(x))


def test_multihead_attention_may_run_on_both(as_gpu: Callable[[tuple[int, int]], None], device: torch.device) -> None:
    """Its float32 projections on xgemm, its attention on torch."""
    as_gpu(GEFORCE)
    heads = torch.nn.MultiheadAttention(16, 4, batch_first=True, device=device).eval()
    report = replaced(heads, *[randn(2, 5, 16, device=device)] * 3, None, False)
    servers = {operator: where.partition(":")[0] for operator, where in report.calls}
    assert servers == {"multihead_attention": "xgemm", "attention": "torch"}


# ---- torch's own paths and tools -------------------------------------------------------------------------------------

_PADDING = torch.tensor([[False] * 6, [False] * 4 + [True] * 2, [False] + [True] * 5])


def encoder(**options) -> torch.nn.TransformerEncoder:
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2, **options).eval()


@torch.inference_mode()
@pytest.mark.parametrize(
    ("options", "padding"),
    [
        ({}, _PADDING),
        ({}, torch.zeros(3, 6).masked_fill(_PADDING, float("-inf"))),
        ({}, torch.zeros(3, 6, dtype=torch.bool)),
        ({}, _PADDING | torch.tensor([[True], [False], [False]])),  # nothing left of one
        ({}, _PADDING.flip(1)),  # not left-aligned: torch keeps padded rows
        ({"mask_check": False}, _PADDING),
        ({"enable_nested_tensor": False}, _PADDING),
        ({"norm": torch.nn.LayerNorm(16)}, _PADDING),
    ],
)
def test_padded_rows_of_an_encoder_are_torchs(options: dict, padding: torch.Tensor, device: torch.device) -> None:
    """Its fused kernel and its nested tensors would bypass the replaced modules."""
    model, x, padding = encoder(**options).to(device), randn(3, 6, 16, device=device), padding.to(device)
    expected = model(x, src_key_padding_mask=padding)
    report = torch_ext.replace(model)
    torch.testing.assert_close(model(x, src_key_padding_mask=padding), expected, rtol=1e-4, atol=1e-5)
    assert report.calls == {("multihead_attention", "xgemm"): 2, ("linear", "xgemm"): 4}
    report.undo()
    assert torch.equal(model(x, src_key_padding_mask=padding), expected)


def test_padded_rows_of_an_encoder_off_torchs_fast_path(device: torch.device) -> None:
    """In training, with a mask, with gradients, and in a subclass of the encoder."""

    class Derived(torch.nn.TransformerEncoder):
        pass

    x, padding, mask = randn(3, 6, 16, device=device), _PADDING.to(device), torch.zeros(6, 6, device=device)
    model, derived = encoder().to(device), Derived(encoder().layers[0], 1).eval().to(device)
    unpadded = model(x, mask=mask, src_key_padding_mask=padding)
    of_derived = derived(x, src_key_padding_mask=padding)
    with torch.enable_grad():
        with_grad = model(x, src_key_padding_mask=padding).detach()
    assert unpadded[padding].any() and with_grad[padding].any()
    torch_ext.replace(model)
    torch_ext.replace(derived)
    ours = model(x, mask=mask, src_key_padding_mask=padding)
    torch.testing.assert_close(ours, unpadded, rtol=1e-4, atol=1e-5)
    assert ours[padding].any()
    torch.testing.assert_close(derived(x, src_key_padding_mask=padding), of_derived, rtol=1e-4, atol=1e-5)
    with torch.enable_grad(), pytest.warns(UserWarning, match="grad mode"):
        torch.testing.assert_close(model(x, src_key_padding_mask=padding).detach(), with_grad, rtol=1e-4, atol=1e-5)


def test_tools_that_look_for_torchs_classes() -> None:
    """isinstance finds swapped modules; of what does not, quantize_dynamic, the report's first line says so."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    report = torch_ext.replace(model)
    assert [isinstance(module, torch.nn.Linear) for module in model] == [True, False]
    assert "call quantize_dynamic and its like before replace" in str(report).splitlines()[0]
    quantised = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear})
    assert type(quantised[0]).__module__ == "torch_ext.replace.modules"
    report.undo()
    before = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear})
    report = torch_ext.replace(before)
    assert type(before[0]) is torch.ao.nn.quantized.dynamic.Linear
    assert str(report).splitlines()[0] == "Sequential on xgemm"  # nothing was swapped
    assert before(torch.zeros(2, 8)).shape == (2, 8)


# ---- copies and pickles ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [lambda x: pickle.loads(pickle.dumps(x)), saved_and_loaded], ids=["pickle", "save"])
def test_pickles(again: Callable, block: Block, x: torch.Tensor) -> None:
    expected = block(x)
    report = torch_ext.replace(block)
    block(x)
    own = Replacement.of(loaded := again(block))
    assert own is not report and own.calls == report.calls and str(own) == str(report)
    with TorchMath():
        torch.testing.assert_close(loaded(x), expected)
    assert own.calls["linear", "xgemm"] == 2 * report.calls["linear", "xgemm"]
    own.undo()
    torch.testing.assert_close(loaded(x), expected, rtol=0, atol=0)
    assert type(loaded.qkv) is torch.nn.Linear and "forward" not in vars(loaded) and "xgemm" not in str(loaded)
    with pytest.raises(ValueError, match=r"^xgemm.replace: expected a model that runs on xgemm, got Block as it was$"):
        Replacement.of(loaded)
    assert report.calls["linear", "xgemm"] == 3 and Replacement.of(block) is report

    alone = pickle.loads(pickle.dumps(report))
    assert str(alone) == str(report)
    with pytest.raises(RuntimeError, match=r"^xgemm.replace: this report was loaded without its model"):
        alone.undo()


def test_a_copy_counts_into_the_same_report_and_can_be_undone(block: Block, x: torch.Tensor) -> None:
    expected = block(x)
    report = torch_ext.replace(block)
    other = copy.deepcopy(block)
    other.out.weight.zero_()
    torch.testing.assert_close(block(x), expected)  # a copy has a forward of its own
    assert not torch.equal(other(x), expected)
    assert report.calls["linear", "xgemm"] == 6
    report.undo(other)
    other(x)
    assert report.calls["linear", "xgemm"] == 6 and type(other.out) is torch.nn.Linear
    block(x)
    assert report.calls["linear", "xgemm"] == 9


# ---- where the mode is entered ---------------------------------------------------------------------------------------


def attend(x: torch.Tensor) -> torch.Tensor:
    return (x @ x.mT).exp() + 0


def decorated(function: Callable) -> Callable:
    def wrapper(self, x):
        return function(self, x) * 2

    return wrapper


class Processor:
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return attend(x)


class Named(torch.nn.Module):
    def forward(self, x):
        return torch.matmul(x, x)


class ByHelper(torch.nn.Module):
    def forward(self, x):
        return attend(x)


class Inherited(Named):
    def forward(self, x):
        return super().forward(x) + 1


class Unbound(Named):
    def forward(self, x):
        return Named.forward(self, x)


class Decorated(torch.nn.Module):
    @decorated
    def forward(self, x):
        return self.helper(x)

    def helper(self, x):
        return x.matmul(x)


class Inside(torch.nn.Module):
    def forward(self, x):
        def inner(y):
            return y @ x

        return inner(x)


class OfATable(torch.nn.Module):
    def forward(self, x):
        return TABLE["attend"](x)


class OfAProperty(torch.nn.Module):
    @property
    def function(self):
        return TABLE["attend"]

    def forward(self, x):
        return self.function(x)


class Shadowed(torch.nn.Module):
    """A module of a function's name beside the function."""

    def __init__(self) -> None:
        super().__init__()
        self.matmul = torch.nn.Identity()

    def forward(self, x):
        return torch.matmul(x, self.matmul(x))


class HiddenLayer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [Named()]  # no submodule

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


TABLE = {"attend": attend}
CATCHING = [Named, ByHelper, Inherited, Unbound, Decorated, Inside, OfATable, OfAProperty, Shadowed, HiddenLayer]
OBJECTS = [Processor(), functools.partial(lambda y, x: y(x), attend), lambda x: torch.einsum("ij,jk", x, x)]


@pytest.mark.parametrize("layer", [*(cls() for cls in CATCHING), *map(Calls, OBJECTS)])
def test_functions_are_caught_wherever_the_code_names_them(layer: torch.nn.Module) -> None:
    x = randn(3, 3)
    expected, model = layer(x), torch.nn.Sequential(layer)
    report = replaced(model, x)
    assert report.calls == {("matmul", "xgemm"): 1}
    torch.testing.assert_close(layer(x), expected)  # on its own
    assert report.calls == {("matmul", "xgemm"): 2}
    report.undo()
    assert all("forward" not in vars(m) and "_xgemm_report" not in vars(m) for m in model.modules())


class MakesItsLoss(torch.nn.Module):
    def forward(self, x):
        return torch.nn.CrossEntropyLoss()(x, torch.arange(len(x)))


def test_a_loss_that_a_forward_makes_is_caught() -> None:
    for exclude, calls in (((), {("cross_entropy", "xgemm"): 1}), ("cross_entropy", {})):
        assert replaced(torch.nn.Sequential(MakesItsLoss()), randn(3, 4), exclude=exclude).calls == calls


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_the_loss_of_transformers_is_caught(name: str) -> None:
    model, tokens = tiny(name, "sdpa"), torch.randint(0, 99, (2, 5))
    expected = model(tokens, labels=tokens).loss
    report = torch_ext.replace(model)
    torch.testing.assert_close(model(tokens, labels=tokens).loss, expected)
    assert report.calls["cross_entropy", "xgemm"] == 1


class Holds(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.hidden = [model]

    def forward(self, x):
        return self.hidden[0](x @ x)


def test_a_model_that_another_one_calls_keeps_its_own_choice() -> None:
    outer, x = Holds(inner := Calls(lambda x: (x @ x).softmax(-1))), randn(3, 3)
    expected = outer(x)
    of_inner, of_outer = torch_ext.replace(inner, exclude="matmul"), torch_ext.replace(outer)
    torch.testing.assert_close(outer(x), expected)
    assert of_inner.calls == {("matmul", "torch: excluded"): 1, ("softmax", "xgemm"): 1}
    assert of_outer.calls == {("matmul", "xgemm"): 1}


def test_undo_of_a_module_whose_class_was_changed_is_one_line() -> None:
    class Twice(torch.nn.Module):
        def forward(self, weight):
            return 2 * weight

    model, x = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Softmax(-1)), randn(2, 3)
    report = torch_ext.replace(model)
    parametrize.register_parametrization(model[0], "weight", Twice())
    expected = torch.softmax(torch.nn.functional.linear(x, model[0].weight, model[0].bias), -1)
    torch.testing.assert_close(model(x), expected)
    with pytest.raises(RuntimeError, match=r"^xgemm\.replace: expected 0 to be .*, got ParametrizedLinear; "):
        report.undo()
    model(x)
    assert report.calls == {("linear", "xgemm"): 2, ("softmax", "xgemm"): 2}  # nothing was undone
    parametrize.remove_parametrizations(model[0], "weight")
    report.undo()
    assert [type(module) for module in model] == [torch.nn.Linear, torch.nn.Softmax]
    torch.testing.assert_close(model(x), expected)


def test_replicas_of_data_parallel_use_their_own_parameters() -> None:
    """torch.nn.parallel.replicate's steps for one module, without the GPUs that it needs."""
    model, x = Holder(torch.nn.Linear(3, 3)), randn(2, 3)
    report = torch_ext.replace(model)
    replica, inner = model._replicate_for_data_parallel(), model.inner._replicate_for_data_parallel()
    inner.weight, inner.bias = 2 * model.inner.weight, 2 * model.inner.bias
    replica._modules["inner"] = inner
    torch.testing.assert_close(replica(x), (2 * model.inner(x)).softmax(-1))
    assert report.calls == {("linear", "xgemm"): 2, ("softmax", "xgemm"): 1}
    torch.testing.assert_close(pickle.loads(pickle.dumps(model))(x), model(x))
    report.undo()
    assert "_replicate_for_data_parallel" not in vars(model)


def hook(module: torch.nn.Module) -> None:
    """As accelerate's add_hook_to_module."""

    def new_forward(module: torch.nn.Module, *args):
        return module._old_forward(*args)

    module._old_forward = module.forward
    module.forward = functools.update_wrapper(functools.partial(new_forward, module), module._old_forward)


def test_modules_with_hooks_of_accelerate() -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(3, 3), Calls(lambda x: x.softmax(-1))), randn(2, 3)
    expected = model(x)
    for each in (*model, model):
        hook(each)
    own = [each.forward for each in (*model, model)]
    report = replaced(model, x)
    assert report.calls == {("linear", "xgemm"): 1, ("softmax", "xgemm"): 1} and not report.modules
    report.undo()
    assert [each.forward for each in (*model, model)] == own
    torch.testing.assert_close(model(x), expected, rtol=0, atol=0)

    model = torch.nn.Sequential(torch.nn.Linear(3, 3))
    report = torch_ext.replace(model)
    hook(model[0])
    model(x)
    with pytest.raises(RuntimeError, match=r"^xgemm\.replace: expected 0 to be .*, got a forward of its own; "):
        report.undo()
    model(x)
    assert report.calls == {("linear", "xgemm"): 2}


class Clean(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(3, 3), torch.nn.LayerNorm(3)

    def forward(self, x):
        return self.norm(self.linear(x).relu() + x).view(-1, 3).transpose(0, 1).contiguous().mT


def seen_by_the_mode(call: Callable[[], object]) -> list[str]:
    seen, real = [], Catching.__torch_function__

    def spy(self, func, types, args=(), kwargs=None):
        seen.append(func.__name__)
        return real(self, func, types, args, kwargs)

    with mock.patch.object(Catching, "__torch_function__", spy):
        call()
    return seen


class Mixed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = Clean(), Clean()

    def forward(self, x):
        return self.last(self.first(x).softmax(-1)) + x


def test_only_the_forwards_that_need_it_are_under_the_mode() -> None:
    clean, mixed, x = Clean(), Mixed(), randn(3, 3)
    for model, expected in ((clean, []), (mixed, ["softmax", "add"])):
        replaced(model, x)
        assert seen_by_the_mode(lambda model=model: model(x)) == expected


@pytest.mark.parametrize("attention", ["sdpa", "xgemm"])
@pytest.mark.parametrize(("name", "linears"), [("bert", 73), ("vit", 73), ("llama", 84)])
def test_transformers_run_without_the_mode(name: str, linears: int, attention: str) -> None:
    pytest.importorskip("transformers")
    from benchmarks.replace_host import model
    from torch_ext.integrations import transformers as integration

    integration.register()
    tested, inputs = model(name)
    if name == "llama" and " @ " in inspect.getsource(type(tested.rotary_emb)):
        pytest.skip("the installed transformers computes rotary embeddings by a product, which the mode catches")
    tested.set_attn_implementation(attention)
    expected = tested(**inputs)[0]
    report = torch_ext.replace(tested)
    loaded = pickle.loads(pickle.dumps(tested))
    for each, own in ((tested, report), (loaded, Replacement.of(loaded))):
        assert seen_by_the_mode(lambda each=each: torch.testing.assert_close(each(**inputs)[0], expected)) == []
        assert own.calls == {("linear", "xgemm"): linears, ("attention", "xgemm"): 12}
    assert report.spared == ({"LlamaRMSNorm": 25} if name == "llama" else {})
    report.undo()
    torch.testing.assert_close(tested(**inputs)[0], expected, rtol=0, atol=0)
    assert report.calls == {("linear", "xgemm"): linears, ("attention", "xgemm"): 12}


class Norm(torch.nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True))


class NormAndMore(Norm):
    def forward(self, x):
        return super().forward(x).softmax(-1)


def test_leaves_that_only_reduce_are_left_to_torch_unless_they_are_asked_for() -> None:
    """Under the mode a norm costs more host time than a faster mean saves."""
    x, forwards = randn(3, 3), [Norm(), NormAndMore(), Norm()]
    for include, means in ((None, 1), ("mean", 3), ("all", 3)):
        model = torch.nn.Sequential(*forwards)  # undo() finds it while it is kept
        report = replaced(model, x, include=include)
        assert report.calls["mean", "xgemm"] == means
        assert report.calls["softmax", "torch: excluded" if include == "mean" else "xgemm"] == 1
        assert report.spared == ({"Norm": 2} if include is None else {})
        said = "reductions left to torch to spare host time (include=[...] swaps them too): 2 Norm" in str(report)
        assert said == (include is None)
        report.undo()
    report = torch_ext.replace(norm := Norm())  # the model itself
    norm(x)
    assert report.calls == {("mean", "xgemm"): 1} and not report.spared


def test_transformers_own_attention_serves_what_xgemm_does_not() -> None:
    model = tiny("bert", "sdpa").train()
    report = torch_ext.replace(model)
    model(input_ids=torch.randint(3, 99, (2, 7)))
    assert report.calls["attention", "torch: dropout"] == 2 and report.calls["linear", "xgemm"] > 0


def test_script_of_a_swapped_model_is_one_line() -> None:
    for model in (torch.nn.Sequential(torch.nn.Linear(2, 2)), torch.nn.Sequential(torch.nn.ReLU())):
        report = torch_ext.replace(model)
        with pytest.raises(RuntimeError, match=r"^xgemm\.replace: torch\.jit\.script .* got Sequential; call undo\(\)"):
            torch.jit.script(model)
        report.undo()
        torch.jit.script(model)


def test_a_model_with_nothing_to_swap_says_so() -> None:
    assert "none; there is nothing to swap: " in str(torch_ext.replace(torch.nn.Sequential(torch.nn.ReLU())))
    assert "swapped: none\n" in str(torch_ext.replace(Calls(lambda x: x.softmax(-1))))


# ---- torch.compile on every torch ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        *(lambda x: 1 - x, lambda x: 2**x, lambda x: 1 / x, lambda x: 3 // x, lambda x: 3 % x, lambda x: x.norm()),
        *(lambda x: torch.norm(x, dim=0), lambda x: x.unflatten(-1, (2, 2)), lambda x: x.split(2, -1)[1]),
        lambda x: [row * 2 for row in x][1] + len(x),
    ],
)
def test_compiles_beside_methods_written_in_python(function: Callable) -> None:
    """Methods of Tensor that are Python functions, which Dynamo traces in ways of their own."""
    model, x = Calls(lambda x: function(x @ x)), randn(4, 4)
    expected = model(x)
    torch_ext.replace(model)
    for backend in ("eager", "aot_eager"):
        graphs: list[set[str]] = []
        torch.testing.assert_close(torch.compile(model, fullgraph=True, backend=spy(graphs, backend))(x), expected)
        assert "xgemm.matmul.default" in set().union(*graphs)
        torch._dynamo.reset()


def test_compiled_submodules_of_a_model_that_is_not_compiled() -> None:
    x, model = randn(3, 3), torch.nn.Sequential(Mixed(), Named())
    graphs: list[set[str]] = []
    expected = model(x)
    torch_ext.replace(model)
    for layer in model:
        layer.compile(backend=spy(graphs), fullgraph=True)
    torch.testing.assert_close(model(x), expected)
    assert {"xgemm.softmax.default", "xgemm.matmul.default", "xgemm.linear.default"} <= set().union(*graphs)


def test_torchs_message_of_an_operator_without_a_rule_is_kept() -> None:
    error = NotImplementedError("Operator xgemm.linear.default does not have a sharding strategy registered.")
    assert torch_ext.functional._call.python_error(torch.ops.xgemm.linear.default, error) is error


@torch.enable_grad()
@pytest.mark.parametrize("how", ["compile", "strict export", "export"])
def test_tracing_warns_and_counts(how: str) -> None:
    """Two models by one code, so that nothing of the first one's report is kept for the second."""
    x = randn(2, 4)
    for _ in range(2):
        report = torch_ext.replace(model := torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Softmax(-1)))

        def trace(model: torch.nn.Module = model) -> None:
            if how == "compile":
                torch.compile(model, backend="eager", fullgraph=True)(x)
            else:
                torch.export.export(model, (x,), strict=how == "strict export")

        with pytest.warns(UserWarning, match="Sequential is called in grad mode and linear") as warned:
            trace()
        assert [w.filename for w in warned if "grad mode" in str(w.message)] == [__file__]
        why = "torch: requires grad"
        assert report.traced == {("linear", why): 1, ("softmax", why): 1} and not report.calls
        with torch.no_grad():
            trace()
        assert report.traced["linear", "xgemm"] == report.traced["softmax", "xgemm"] == 1 and not report.calls
        assert "in graphs of torch.compile and torch.export, whose calls are not counted:\n    linear" in str(report)

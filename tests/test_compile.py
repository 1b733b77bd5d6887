"""Fakes, torch.library.opcheck, torch.compile and torch.export of every operator."""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch._dynamo.testing
from calls import CALLS, Call, name
from common import OPS_ALONG_DIMS, randn, sliced, transposed, tuple_of
from named import OPERATORS, cases_of, make
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import torch_ext


def metadata(result) -> list[tuple]:
    return [(t.shape, t.dtype, t.stride(), t.device.type) for t in tuple_of(result)]


@pytest.mark.parametrize("op", ["sum", "amax", "amin", "argmax", "logsumexp"])
def test_fake_of_integers(op: str, device: torch.device) -> None:
    raw = getattr(torch.ops.xgemm, op)
    for dtype in (torch.int64, torch.int32, torch.uint8, torch.bool):
        x = torch.randint(0, 2, (3, 4), device=device).to(dtype)
        if (op, dtype) == ("argmax", torch.bool):  # as in torch
            continue
        expected = metadata(raw(x))
        with FakeTensorMode() as mode:
            assert metadata(raw(mode.from_tensor(x))) == expected, dtype


def test_fake_says_what_it_got() -> None:
    """Of other operators: tests/test_errors.py."""
    x = torch.empty(2, 3, device="meta")
    for prepared, got in ((torch.empty(1, 0).byte(), r"uint8 of shape \[1, 0\]"), (torch.empty(3), "float32 of shape")):
        line = f"^xgemm::linear_prepared: expected .* got {got}"
        with pytest.raises(RuntimeError, match=line):
            torch.ops.xgemm.linear_prepared(torch.zeros(2, 3), torch.zeros(2, 3), prepared)
        with pytest.raises(RuntimeError, match=line):
            torch.ops.xgemm.linear_prepared(x, x, prepared.to("meta"))


@pytest.mark.parametrize("call", CALLS, ids=name)
def test_opcheck(call: Call, device: torch.device) -> None:
    for dtype in (torch.float32, torch.float16):
        torch.library.opcheck(call.raw, call.args(device, dtype), call.kwargs)


@pytest.mark.parametrize("op", OPERATORS)
def test_opcheck_with_options(op: str, device: torch.device) -> None:
    """Of fakes in any layout, with sizes of 0 and 1: tests/test_layouts.py. All of opcheck's tests of three cases."""
    cases = list(zip(cases_of(op), itertools.cycle((lambda x: x, transposed, sliced)), strict=False))
    for i, ((shapes, options), layout) in enumerate(cases):
        given = {name: make(name, shape, torch.float64, device) for name, shape in shapes.items()}
        given = {name: layout(x) if x.dim() > 1 else x for name, x in given.items()}
        few = {} if i >= len(cases) - 3 else {"test_utils": "test_faketensor"}
        torch.library.opcheck(getattr(torch.ops.xgemm, op), (), given | options, **few)


def test_opcheck_of_appending(device: torch.device) -> None:
    shapes = {"query": (2, 3, 4, 8), "key_cache": (3, 4, 2, 8), "value_cache": (3, 4, 2, 8), "cache_seqlens": (2,)}
    shapes |= {"block_table": (2, 2), "key": (2, 1, 2, 8), "value": (2, 1, 2, 8)}
    given = {name: make(name, shape, torch.float32, device) for name, shape in shapes.items()}
    for op in (torch.ops.xgemm.attention_with_cache, torch.ops.xgemm.attention_with_cache_lse):
        torch.library.opcheck(op, (), given | {"window": [2, 0]})


class Everything(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = torch_ext.nn.Linear(16, 48)
        self.feed = torch_ext.nn.Linear(16, 16, activation="gelu")
        self.heads = torch_ext.nn.MultiheadAttention(16, 2, batch_first=True)
        self.soft = torch_ext.nn.Softmax(-1)

    def sequences(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Packed, and appended to an empty cache: each twice what it is, less what it is."""
        batch, length = q.shape[:2]
        ends = torch.arange(batch + 1, dtype=torch.int32, device=q.device) * length
        packed = [t.flatten(0, 1) for t in (q, k, v)]
        y = torch_ext.attention_varlen(*packed, ends, ends, length, length).view_as(q)
        z, _ = torch_ext.attention_varlen(*packed, ends, ends, length, length, return_lse=True)
        caches, none = (torch.zeros_like(k), torch.zeros_like(v)), torch.zeros_like(ends[1:])
        u = torch_ext.attention_with_cache(q, *caches, none, key=k, value=v)
        w, _ = torch_ext.attention_with_cache(q, *caches, none + length, return_lse=True)
        return 2 * y - z.view_as(q) + 2 * u - w

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        q, k, v = self.project(x).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        y, lse = torch_ext.attention(q, k, v, is_causal=True, return_lse=True)
        y = y + self.sequences(*(t.transpose(1, 2) for t in (q, k, v))).transpose(1, 2)
        y = self.feed(y.transpose(1, 2).flatten(2), residual=x)
        y = y + self.heads(y, y, y, need_weights=False)[0]
        y = y - torch_ext.mean(y, -1, keepdim=True) + torch_ext.logsumexp(y, -1, keepdim=True)
        y = y + torch_ext.gated_linear(y, self.feed.weight, self.project.weight[:16], bias_up=self.feed.bias)
        y = torch_ext.addmm(y[0, 0], y.flatten(0, 1), self.feed.weight, alpha=0.5).view_as(y)
        spread = torch_ext.amax(y, (1, 2)) - torch_ext.amin(y, (1, 2))
        scores = torch_ext.log_softmax(torch_ext.matmul(y, y.mT), -1)
        scores = torch_ext.scaled_masked_softmax(scores, scores[:1, :1], 0.5)
        best = torch_ext.argmax(y, 1)
        loss, routed = torch_ext.cross_entropy(y, best), torch_ext.topk_softmax(y, 2)[0]
        return self.soft(scores), spread, torch_ext.sum(lse), best, torch_ext.argmin(y), routed, loss


@pytest.mark.parametrize(("backend", "dynamic"), [("aot_eager", False), ("inductor", True)])
def test_compile_a_model_of_all_operators(backend: str, dynamic: bool, device: torch.device) -> None:
    """Once for all shapes where they are dynamic. Inductor on a GPU: test_cuda_graph_of_a_compiled_model."""
    backend = "aot_eager" if device.type == "cuda" else backend
    counter = torch._dynamo.testing.CompileCounterWithBackend(backend)
    model = Everything().to(device).eval()
    compiled, first = torch.compile(model, fullgraph=True, backend=counter, dynamic=dynamic), None
    with torch.no_grad():
        for shape in [(2, 5, 16), (3, 7, 16), (4, 9, 16)] if dynamic else [(2, 5, 16)]:
            x = randn(*shape, device=device)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
            first = first or counter.frame_count  # two on torch 2.15, which may restart a process's first compilation
    assert counter.frame_count == first


@pytest.mark.parametrize("op", OPS_ALONG_DIMS)
def test_a_dim_that_changes_from_call_to_call(op: str) -> None:
    """The second value makes Dynamo treat the dim as dynamic."""
    function, x = getattr(torch_ext, op), randn(3, 4, 5)
    compiled = torch.compile(lambda x, dim: function(x, dim), backend="aot_eager", fullgraph=True)
    for dim in (0, 1, -1):
        torch.testing.assert_close(compiled(x, dim), function(x, dim))


def test_a_new_precision_recompiles(float32_precision: Callable[[str], None]) -> None:
    seen: list[str] = []

    def backend(graph: torch.fx.GraphModule, inputs):
        seen.extend(n.kwargs["precision"] for n in graph.graph.nodes if "precision" in n.kwargs)
        return graph.forward

    compiled = torch.compile(torch_ext.matmul, fullgraph=True, backend=backend)
    for setting in ("highest", "high"):
        float32_precision(setting)
        compiled(randn(3, 3), randn(3, 3))
    assert seen == ["highest", "high"]


@pytest.mark.parametrize("strict", [False, True])
def test_export(strict: bool, device: torch.device) -> None:
    model = Everything().to(device).eval()
    batch, length = torch.export.Dim("batch", min=2, max=64), torch.export.Dim("length", min=2, max=512)
    x = randn(2, 5, 16, device=device)
    with torch.no_grad():
        program = torch.export.export(model, (x,), dynamic_shapes=({0: batch, 1: length},), strict=strict)
        used = {str(n.target) for n in program.graph.nodes if "xgemm" in str(n.target)}
        assert used == {f"xgemm.{c.op}.default" for c in CALLS}
        for shape in [(2, 5, 16), (4, 11, 16)]:
            x = randn(*shape, device=device)
            torch.testing.assert_close(program.module()(x), model(x), rtol=1e-4, atol=1e-5)


class ChosenTokens(torch.nn.Module):
    """Attention over as many tokens as a mask keeps: a projection's heads, which lie beside each other."""

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q = x[keep].view(1, -1, 4, 16).transpose(1, 2)
        y = torch_ext.attention(q, q, q)
        return y, y.transpose(1, 2).flatten(2)


def kept(count: int, of: int = 40) -> torch.Tensor:
    return torch.arange(of) < count


@torch.no_grad()
@pytest.mark.parametrize("strict", [False, True])
def test_a_package_of_aotinductor(strict: bool, tmp_path: Path) -> None:
    """The dtypes of the calls, which torch 2.10 and 2.11 read wrong where an operator has such an argument; sizes that
    depend on data.
    """
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler")

    class Model(ChosenTokens):
        def forward(self, x: torch.Tensor, tokens: torch.Tensor, keep: torch.Tensor) -> tuple[torch.Tensor, ...]:
            small = (8 * x).to(torch.int8)
            values, indices = torch_ext.topk_softmax(x, 2, dtype=torch.float32)
            return (
                torch_ext.softmax(x, -1, dtype=torch.float32),
                torch_ext.log_softmax(x, 0, dtype=torch.float64),
                torch_ext.sum(small, [0], dtype=torch.int16),
                torch_ext.mean(small, dtype=torch.float32),
                values,
                indices,
                *super().forward(tokens, keep),
            )

    model, x, tokens = Model(), randn(4, 5, dtype=torch.bfloat16), randn(40, 64)
    program = torch.export.export(model, (x, tokens, kept(22)), strict=strict)
    run = program.module()
    if not strict:  # a package of one of the two is enough
        options = {"aot_inductor.precompile_headers": False}  # for one package it does not pay
        path = str(tmp_path / "model.pt2")
        package = torch._inductor.aoti_compile_and_package(program, package_path=path, inductor_configs=options)
        run = torch._inductor.aoti_load_package(package)
    for count in (22, 7, 1, 0):
        for found, expected in zip(run(x, tokens, kept(count)), model(x, tokens, kept(count)), strict=True):
            assert found.dtype is expected.dtype
            torch.testing.assert_close(found, expected)
    has_dtype = any(node.kwargs.get("dtype") for node in program.graph.nodes if "xgemm" in str(node.target))
    assert has_dtype == (torch.__version__ >= (2, 12))


def test_sizes_that_are_not_known_while_tracing() -> None:
    """A size depends on data, so no guard may need its value."""

    def chosen_rows(x: torch.Tensor, keep: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = x[keep]
        y = torch_ext.linear(rows, w, activation="relu")
        z = torch_ext.attention(y[None, None], y[None, None], y[None, None])[0, 0]
        return torch_ext.softmax(torch_ext.matmul(z, w), -1), torch_ext.sum(z, 1), torch_ext.logsumexp(z, (0, 1))

    x, keep, w = randn(9, 4), torch.rand(9) > 0.4, randn(4, 4)
    keep[:2] = True
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(chosen_rows, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x, keep, w), chosen_rows(x, keep, w))


@pytest.mark.parametrize("op", OPERATORS)
def test_no_fake_needs_the_value_of_a_size(op: str) -> None:
    """Sizes over 1 are unknown: those of one value are one unknown, then each is its own."""
    for (shapes, options), alike in itertools.product(cases_of(op), (True, False)):
        env, sizes, inputs = ShapeEnv(), {}, {}
        with FakeTensorMode(shape_env=env):
            for argument, shape in shapes.items():
                keys = [n if alike or n < 2 else (argument, i) for i, n in enumerate(shape)]
                for key in keys:
                    sizes.setdefault(key, key if key in (0, 1) else env.create_unbacked_symint())
                dtype = make(argument, shape, torch.float32, "cpu").dtype
                inputs[argument] = torch.empty([sizes[key] for key in keys], dtype=dtype)
            getattr(torch.ops.xgemm, op)(**inputs, **options)


@torch.no_grad()
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_attention_over_chosen_tokens(backend: str) -> None:
    model, x = ChosenTokens(), randn(40, 64)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(model, fullgraph=True, backend=backend)
        for count in (22, 7, 1, 0):
            torch.testing.assert_close(compiled(x, kept(count)), model(x, kept(count)))


def test_strides_that_depend_on_data_are_checked() -> None:
    """Nothing says while tracing which of two strides is larger: what is assumed then holds or is an error."""

    def f(x: torch.Tensor, strides: torch.Tensor) -> torch.Tensor:
        of_head, of_position = strides.tolist()
        q = x.as_strided((1, 3, 5, 8), (0, of_head, of_position, 1))
        return torch_ext.attention(q, q, q).contiguous()

    x = randn(200)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
        strides = torch.tensor([40, 8])
        torch.testing.assert_close(compiled(x, strides), f(x, strides))
        with pytest.raises(RuntimeError, match="u1 <= u0"):
            compiled(x, torch.tensor([8, 24]))


def test_compiled_errors_are_one_clear_line() -> None:
    compiled = torch.compile(torch_ext.softmax, backend="eager", fullgraph=True)
    with pytest.raises(Exception, match=r"xgemm::softmax: expected dim in \[-2, 1\], got 5"):
        compiled(randn(3, 4), 5)


@pytest.mark.cuda
@torch.no_grad()
def test_cuda_graph_of_a_compiled_model() -> None:
    model = Everything().cuda().eval()
    compiled = torch.compile(model, fullgraph=True, mode="reduce-overhead")
    for _ in range(4):  # warm-up, capture, replay
        x = randn(2, 5, 16, device="cuda")
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)

"""Bad input: one clear line from the raw operator and the function, and the next call works."""

import itertools
import math
import re
from pathlib import Path

import pytest
import torch
from calls import CALLS, Call, name
from common import OPS_ALONG_DIMS, compile_program, randn, run
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

import torch_ext

f32 = torch.float32


def check(op: str, error: type[Exception], pattern: str, *args, **kwargs) -> None:
    """The raw op raises RuntimeError, the function `error`, both with one line that names the op."""
    raws = [op, "attention_lse"] if op == "attention" else [op]
    calls = [(getattr(torch.ops.xgemm, raw), raw, RuntimeError) for raw in raws]
    for call, named, expected in (*calls, (getattr(torch_ext, op), op, error)):
        with pytest.raises(expected) as caught:
            call(*args, **kwargs)
        message = str(caught.value)
        assert type(caught.value) is expected, (call, caught.value)
        assert message.startswith(f"xgemm::{named}: expected ") and "\n" not in message, message
        assert re.search(pattern, message), message
        assert len(message) < 250 and ".cpp" not in message and ".py" not in message
    with torch.no_grad():  # the process still works
        torch_ext.matmul(randn(3, 3), randn(3, 3))


def check_fake_too(op: str, error: type[Exception], pattern: str, *args, **kwargs) -> None:
    """Of shapes, dims and dtypes: the operator's fake refuses them as well."""
    check(op, error, pattern, *args, **kwargs)
    with FakeTensorMode() as mode, pytest.raises(RuntimeError, match=f"^xgemm::{op}: expected "):
        args, kwargs = tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
        getattr(torch.ops.xgemm, op)(*args, **kwargs)


def replaced(args: tuple, index: int, change) -> tuple:
    return tuple(change(a) if i == index else a for i, a in enumerate(args))


def tensors(args: tuple) -> list[int]:
    return [i for i, a in enumerate(args) if isinstance(a, torch.Tensor)]


def floating(args: tuple) -> list[int]:
    return [i for i in tensors(args) if args[i].is_floating_point()]


SEVERAL = [c for c in CALLS if c.op in ("matmul", "addmm", "linear", "gated_linear", "attention")]
SOFTMAXES = ("softmax", "log_softmax")
SINGLE = [c for c in CALLS if not c.op.startswith("attention_") or c.op in ("attention_varlen", "attention_with_cache")]


def check_mixed(call: Call, device: torch.device | str, change, pattern: str, first: int = 1) -> None:
    """Each tensor from the `first` on is refused where it alone is changed."""
    args = call.args(torch.device(device), f32)
    for i in tensors(args)[first:]:
        check(call.op, RuntimeError, pattern, *replaced(args, i, change))


@pytest.mark.parametrize("call", SEVERAL, ids=name)
def test_mixed_dtypes(call: Call, device: torch.device) -> None:
    check_mixed(call, device, torch.Tensor.double, "of one dtype, got float(32 and float64|64 and float32)$")


@pytest.mark.cuda
@pytest.mark.parametrize("call", SEVERAL, ids=name)
def test_mixed_devices(call: Call) -> None:
    check_mixed(call, "cuda", torch.Tensor.cpu, "on one device, got (cuda:0 and cpu|cpu and cuda:0)")
    check_mixed(call, "cpu", torch.Tensor.cuda, "on one device, got cpu and cuda:0", first=-1)


@pytest.mark.parametrize("call", SEVERAL, ids=name)
def test_meta_and_cpu_tensors(call: Call) -> None:
    check_mixed(call, "cpu", lambda t: t.to("meta"), "on one device, got (cpu and meta|meta and cpu)")


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int32, torch.bool, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("call", SINGLE, ids=name)
def test_unsupported_dtypes(call: Call, dtype: torch.dtype, device: torch.device) -> None:
    reduces_integers = call.op in ("sum", "amax", "amin", "argmax", "argmin", "logsumexp")
    if reduces_integers and dtype in (torch.int32, torch.bool) and (dtype, call.op[:3]) != (torch.bool, "arg"):
        pytest.skip("a supported dtype")
    args = tuple(a.to(dtype) if isinstance(a, torch.Tensor) else a for a in call.args(device, f32))
    check(call.op, RuntimeError, f"got ({str(dtype)[6:]}|.*special)", *args)


@pytest.mark.parametrize("call", SINGLE, ids=name)
def test_sparse_and_opaque_layouts(call: Call, device: torch.device) -> None:
    args = call.args(device, f32)
    for i in tensors(args):
        check(call.op, RuntimeError, "dense", *replaced(args, i, torch.Tensor.to_sparse))
        if args[i].dim() == 2:
            check(call.op, RuntimeError, "dense", *replaced(args, i, torch.Tensor.to_sparse_csr))
        if device.type == "cpu" and torch.backends.mkldnn.is_available() and i in floating(args):
            check(call.op, RuntimeError, "dense", *replaced(args, i, torch.Tensor.to_mkldnn))


@pytest.mark.parametrize("call", SINGLE, ids=name)
def test_quantised_tensors(call: Call) -> None:
    args = call.args(torch.device("cpu"), f32)
    for i in floating(args):
        changed = replaced(args, i, lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8))
        check(call.op, RuntimeError, "plain floating|quantised", *changed)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
@pytest.mark.parametrize("call", SINGLE, ids=name)
def test_nested_tensors(call: Call, layout: torch.layout) -> None:
    """The raw operator's error is the dispatcher's; the function's is one line."""
    x = torch.nested.nested_tensor([randn(2, 3), randn(4, 3)], layout=layout)
    args = replaced(call.args(torch.device("cpu"), f32), 0, lambda _: x)
    with pytest.raises(RuntimeError):
        call.raw(*args)
    with pytest.raises(RuntimeError, match=f"^xgemm::{call.op}: expected dense tensors.*nested") as caught:
        getattr(torch_ext, call.op)(*args)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("call", SINGLE, ids=name)
def test_what_is_no_tensor(call: Call) -> None:
    args = call.args(torch.device("cpu"), f32)
    function = getattr(torch_ext, call.op)
    for wrong, what in ((None, "None"), (3, "int"), ([[1.0]], "List|list"), ("x", "str")):
        with pytest.raises(TypeError, match=rf"^xgemm::{call.op}: expected \w+ of type Tensor, got ({what})") as caught:
            function(wrong, *args[1:])
        assert "\n" not in str(caught.value)
    with pytest.raises(TypeError):
        function(*args, colour="red")
    with pytest.raises(TypeError):
        function()


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("call", CALLS, ids=name)
def test_a_tensor_that_is_missing(call: Call, device: str) -> None:
    args = [x.to(device) if isinstance(x, torch.Tensor) else x for x in call.args(torch.device("cpu"), f32)]
    for i, argument in enumerate(call.raw._schema.arguments[: len(args)]):
        if str(argument.type) == "Tensor":
            with pytest.raises(TypeError) as caught:
                call.function(*args[:i], None, *args[i + 1 :])
            assert str(caught.value) == f"xgemm::{call.op}: expected {argument.name} of type Tensor, got None"


Q, K = (2, 4, 5, 8), (2, 4, 6, 8)
QKV = [Q, K, K]
TARGET = torch.zeros(3, dtype=torch.int64)
# op, its tensors or their shapes, options, the line. Of cross_entropy's shapes: test_cross_entropy.py.
REFUSED = [
    ("matmul", [(2, 3), (4, 5)], {}, r"\[2, 3\] and \[4, 5\]"),
    ("matmul", [(), (4, 5)], {}, "dim"),
    ("matmul", [(2, 2, 3), (3, 3, 5)], {}, r"broadcast.*\[2, 2, 3\] and \[3, 3, 5\]"),
    ("addmm", [(4,), (2, 3), (2, 4)], {}, r"\[2, 3\] and \[2, 4\]"),
    ("addmm", [(2,), (2, 3), (3, 4)], {}, r"broadcast.*\[2, 4\].*\[2\]"),
    ("addmm", [(2, 2, 4), (2, 3), (3, 4)], {}, r"broadcast.*\[2, 4\].*\[2, 2, 4\]"),
    ("addmm", [(4,), (1, 2, 3), (3, 4)], {}, r"\[1, 2, 3\]"),
    ("addmm", [(4,), (3,), (3, 4)], {}, r"\[3\]"),
    ("linear", [(2, 3), (4, 2)], {}, r"\[2, 3\].*\[4, 2\]"),
    ("linear", [(2, 3), (4, 3), (3,)], {}, r"bias.*\[4\].*\[3\]"),
    ("linear", [(2, 3), (3,), (3,)], {}, "bias"),
    ("linear", [(2, 3), (4, 3), (1, 4)], {}, r"bias.*\[4\].*\[1, 4\]"),
    ("linear", [(), (4, 3)], {}, r"\[\]"),
    ("linear", [(2, 3), ()], {}, r"weight.*\[\]"),
    ("linear", [(2, 3), (4, 3, 3)], {}, r"weight.*\[4, 3, 3\]"),
    ("linear", [(2, 3), (4, 3)], {"residual": torch.zeros(5)}, r"residual.*broadcast.*\[2, 4\].*\[5\]"),
    ("linear", [(2, 3), (4, 3)], {"residual": torch.zeros(2, 2, 4)}, r"residual.*broadcast.*\[2, 4\].*\[2, 2, 4\]"),
    ("linear", [(2, 3), (4, 3)], {"residual": torch.zeros(2, 4).double()}, "one dtype, got float32 and float64"),
    ("linear", [(2, 3), (4, 3)], {"activation": "swish"}, "activation.*none, relu, gelu, gelu_tanh.*silu.*swish"),
    ("linear", [(2, 3), (4, 3)], {"activation": ""}, 'or silu, got ""$'),
    ("gated_linear", [(2, 3), (4, 2), (4, 2)], {}, r"\[2, 3\].*\[4, 2\]"),
    ("gated_linear", [(2, 3), (4, 3), (5, 3)], {}, r"weight_up of weight_gate's shape \[4, 3\], got \[5, 3\]"),
    ("gated_linear", [(2, 3), (3,), (3,)], {}, r"weight_gate.*2 dims.*\[3\]"),
    ("gated_linear", [(), (4, 3), (4, 3)], {}, r"\[\]"),
    ("gated_linear", [(2, 3), (4, 3), (4, 3), (3,)], {}, r"bias_gate.*\[4\].*\[3\]"),
    ("gated_linear", [(2, 3), (4, 3), (4, 3), (4,), (1, 4)], {}, r"bias_up.*\[4\].*\[1, 4\]"),
    ("gated_linear", [(2, 3), (4, 3), (4, 3)], {"activation": "swish"}, "none, relu, gelu, gelu_tanh.*silu.*swish"),
    ("sum", [(3, 4)], {"dtype": torch.complex64}, "dtype to be a real"),
    ("mean", [(3, 4)], {"dtype": torch.int64}, "dtype of a floating dtype, got int64"),
    *((op, [(3, 4)], {"dim": 0, "dtype": torch.int64}, "dtype of a floating dtype, got int64") for op in SOFTMAXES),
    ("topk_softmax", [(3, 4)], {"k": 2, "dtype": torch.int64}, "dtype of a floating dtype, got int64"),
    ("topk_softmax", [(3, 4)], {"k": 5}, r"k in \[0, 4\] for 4 elements in dim -1, got 5"),
    ("topk_softmax", [(3, 4)], {"k": -1}, r"k in \[0, 4\]"),
    ("topk_softmax", [(2, 100)], {"k": 65}, r"k in \[0, 64\] for 100 elements"),
    ("topk_softmax", [()], {"k": 0}, r"k in \[1, 1\]"),
    ("cross_entropy", [(3, 4), TARGET], {"reduction": "max"}, 'reduction to be none, mean or sum, got "max"'),
    ("cross_entropy", [(3, 4), TARGET], {"reduction": ""}, 'mean or sum, got ""$'),
    ("cross_entropy", [(3, 4), TARGET], {"label_smoothing": 2.0}, r"label_smoothing in \[0, 1\], got 2"),
    ("cross_entropy", [(3, 4), TARGET.int()], {}, "target of dtype int64.*, got int32"),
    ("cross_entropy", [(3, 4), (3,)], {}, "target of dtype int64.*, got float32"),
    ("scaled_masked_softmax", [(3, 4), (2, 4)], {}, r"mask to broadcast to .* shape \[3, 4\], got shape \[2, 4\]"),
    ("scaled_masked_softmax", [(3, 4), (1, 3, 4)], {}, r"mask to broadcast to .* \[3, 4\], got shape \[1, 3, 4\]"),
    ("scaled_masked_softmax", [(3, 4)], {"mask": torch.ones(4).int()}, "mask of dtype bool, .*float32, got int32"),
    ("scaled_masked_softmax", [(3, 4)], {"mask": torch.ones(4).half()}, "mask of dtype bool, .*float32, got float16"),
    ("attention", [(8,), K, K], {}, r"query of shape \(\.\.\., heads, length, head size\), got shape \[8\]"),
    ("attention", [Q, (2, 4, 6, 7), K], {}, "query and key of one head size, got 8 and 7"),
    ("attention", [Q, K, (2, 4, 7, 8)], {}, "key and value of one length, got 6 and 7"),
    ("attention", [(2, 4, 5, 577), (2, 4, 6, 577), K], {}, "head sizes up to 576, got query 577 and value 8"),
    ("attention", [Q, K, (2, 4, 6, 600)], {}, "head sizes up to 576, got query 8 and value 600"),
    ("attention", [Q, (2, 2, 6, 8), (2, 2, 6, 8)], {}, "query and key of equal heads .*enable_gqa"),
    ("attention", [Q, K, (2, 3, 6, 8)], {}, "query and value of equal heads"),
    ("attention", [Q, (3, 4, 6, 8), (3, 4, 6, 8)], {}, "query and key with dims that broadcast"),
    ("attention", [Q, (2, 3, 6, 8), K], {"enable_gqa": True}, "query heads to be a multiple of key heads"),
    ("attention", [Q, K, (2, 8, 6, 8)], {"enable_gqa": True}, "multiple of value heads with enable_gqa, got 4 and 8"),
    ("attention", [(5, 8), (6, 8), (6, 8)], {"enable_gqa": True}, "heads, length.*with enable_gqa, got shapes"),
    ("attention", QKV, {"is_causal": True, "attn_mask": torch.zeros(5, 6)}, "attn_mask or is_causal, got both"),
    ("attention", QKV, {"attn_mask": torch.zeros(6, 5)}, r"broadcast to \[2, 4, 5, 6\], got shape \[6, 5\]"),
    ("attention", QKV, {"attn_mask": torch.zeros(3, 1, 1, 5, 6)}, "attn_mask to broadcast"),
    ("attention", QKV, {"attn_mask": torch.zeros(5, 6).long()}, "attn_mask of dtype bool, float32 or .*int64"),
    ("attention", QKV, {"attn_mask": torch.zeros(5, 6).double()}, "query's float32, got float64"),
    ("attention", QKV, {"causal_alignment": "middle"}, 'causal_alignment to be "top_left" or .*, got "middle"'),
    ("attention", QKV, {"scale": math.nan}, "a finite scale, got nan"),
    ("attention", QKV, {"scale": -1e39}, r"scale within the range of float32, got -1e\+39"),
    ("attention", QKV, {"softcap": 1e39}, r"softcap within the range of float32, got 1e\+39"),
    ("attention", QKV, {"scale": 1.0, "softcap": 1e-39}, r"scale / softcap within the range of float32, got 1e\+39"),
    ("attention", QKV, {"scale": 1.0, "softcap": 1e-320}, "scale / softcap to be finite, got 1 / 9.99989e-321"),
    ("attention", QKV, {"softcap": math.inf}, "a finite softcap from 0 on, got inf"),
    ("attention", QKV, {"softcap": -1.0}, "a finite softcap from 0 on, got -1"),
    ("attention", QKV, {"window": (-2, 3)}, r"window to be two numbers of keys, -1 for no limit, got \[-2, 3\]"),
    ("attention", QKV, {"window": (1, 2, 3)}, r"window to be two numbers of keys, .*, got \[1, 2, 3\]"),
    ("attention", QKV, {"window": ()}, "window to be two numbers of keys"),
    ("attention", QKV, {"sinks": torch.zeros(3)}, r"sinks to broadcast to \[2, 4\], got shape \[3\]"),
    ("attention", QKV, {"sinks": torch.zeros(1, 2, 4)}, r"sinks to broadcast to \[2, 4\], got shape \[1, 2, 4\]"),
    ("attention", QKV, {"sinks": torch.zeros(4).long()}, "sinks of dtype float32 or .*, got int64"),
    ("attention", QKV, {"sinks": torch.zeros(4).half()}, "sinks of dtype float32 or .*, got float16"),
]


# Options whose values fakes do not look at.
VALUES = {"activation", "label_smoothing", "is_causal", "causal_alignment", "scale", "softcap", "window"}


@pytest.mark.parametrize("op", dict.fromkeys(op for op, *_ in REFUSED))
def test_shapes_and_options(op: str, device: torch.device) -> None:
    """A word that is no choice is a ValueError of the function."""
    for shapes, options, pattern in (row[1:] for row in REFUSED if row[0] == op):
        given = {name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in options.items()}
        error = ValueError if any(isinstance(x, str) for x in given.values()) else RuntimeError
        made = (randn(*x, device=device) if isinstance(x, tuple) else x.to(device) for x in shapes)
        refused = check if given.keys() & VALUES else check_fake_too
        refused(op, error, pattern, *made, **given)


@pytest.mark.parametrize("dim", [-4, 3, 1 << 40])
@pytest.mark.parametrize("op", OPS_ALONG_DIMS)
def test_dim_out_of_range(op: str, dim: int, device: torch.device) -> None:
    check_fake_too(op, IndexError, rf"dim in \[-3, 2\], got {dim}$", randn(2, 3, 4, device=device), dim)
    check_fake_too(op, IndexError, r"dim in \[-1, 0\], got 1$", randn(device=device), 1)


def test_dim_out_of_range_behind_other_arguments(device: torch.device) -> None:
    for op, more in (("topk_softmax", (1,)), ("scaled_masked_softmax", (None, 1.0))):
        check_fake_too(op, IndexError, r"dim in \[-3, 2\], got 3$", randn(2, 3, 4, device=device), *more, 3)


@pytest.mark.parametrize("dims", [[0, 0], [1, -2]])
@pytest.mark.parametrize("op", ["sum", "mean", "amax", "amin", "logsumexp"])
def test_dim_repeated(op: str, dims: list[int], device: torch.device) -> None:
    check_fake_too(op, RuntimeError, "every dim at most once, got", randn(2, 3, 4, device=device), dims)


@pytest.mark.parametrize("op", ["amax", "amin", "argmax", "argmin"])
def test_no_largest_of_nothing(op: str, device: torch.device) -> None:
    check_fake_too(op, IndexError, "non-empty, got dim 1 of size 0", randn(2, 0, device=device), 1)
    if op.startswith("arg"):
        check_fake_too(op, IndexError, "non-empty, got dim . of size 0", randn(0, device=device))
    else:
        line = r"dim to be given for an input of no elements, got shape \[0, 2\]"
        check(op, RuntimeError, line, randn(0, 2, device=device))
        check(op, IndexError, "non-empty, got dim 1 of size 0", randn(2, 0, device=device), [1, 1])


def outcome(function, *args, **kwargs) -> object:
    """The shape of a call's result, or the type of its error."""
    try:
        return function(*args, **kwargs).shape
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("op", ["sum", "mean", "amax", "amin", "logsumexp"])
def test_reductions_refuse_what_torchs_do(op: str, device: torch.device) -> None:
    shapes, dims = [(), (0,), (2, 0), (0, 3), (2, 3)], [(), 0, -1, 5, (0, 0), (0, -1), (1, 1), (0, 5), (0, 0, 5)]
    for shape, dim in itertools.product(shapes, dims):
        if op == "logsumexp" and dim == () and shape == (2, 3):
            continue  # torch's fails on its own: the output does not match
        x = randn(*shape, device=device)
        with torch.no_grad():
            ours, theirs = (outcome(getattr(library, op), x, dim) for library in (torch_ext, torch))
            fake = outcome(getattr(torch_ext, op), x.to("meta"), dim)
        assert ours == theirs == fake, (shape, dim)


def test_linear_refuses_what_torchs_does(device: torch.device) -> None:
    inputs, weights, biases = [(2, 3), (3,), (2, 2, 3)], [(3,), (4, 3), (1, 3)], [None, (), (1,), (2,), (4,)]
    for input, weight, bias in itertools.product(inputs, weights, biases):
        if len(input) == 2 and len(weight) == 1 and bias == ():
            continue  # torch refuses a 0-d bias of a 1-D weight for inputs of just 2 dims
        x, w = randn(*input, device=device), randn(*weight, device=device)
        b = None if bias is None else randn(*bias, device=device)
        ours = outcome(torch_ext.linear, x, w, b)
        fake = outcome(torch_ext.linear, x.to("meta"), w.to("meta"), None if b is None else b.to("meta"))
        assert ours == fake == outcome(torch.nn.functional.linear, x, w, b), (input, weight, bias)


def test_addmm_does_not_look_at_an_input_of_beta_0(device: torch.device) -> None:
    a, b = randn(3, 2, device=device), randn(2, 4, device=device)
    for shape in [(5,), (2, 5), (1, 3, 4)]:
        wrong = randn(*shape, device=device)
        torch.testing.assert_close(torch_ext.addmm(wrong, a, b, beta=0), a @ b)
        assert torch_ext.addmm(wrong.to("meta"), a.to("meta"), b.to("meta"), beta=0).shape == (3, 4)
        check("addmm", RuntimeError, r"input to broadcast to the output's shape \[3, 4\]", wrong, a, b)


@pytest.mark.parametrize("factor", ["alpha", "beta"])
def test_addmm_refuses_factors_that_float32_cannot_hold(factor: str, device: torch.device) -> None:
    c, a, b = randn(3, 4, device=device), randn(3, 2, device=device), randn(2, 4, device=device)
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.addmm(c, a, b, **{factor: 1e300})
    check("addmm", RuntimeError, rf"{factor} within the range of float32, got 1e\+300", c, a, b, **{factor: 1e300})
    exact = torch_ext.addmm(c.double(), a.double(), b.double(), **{factor: 1e300})
    torch.testing.assert_close(exact, torch.addmm(c.double(), a.double(), b.double(), **{factor: 1e300}))


@pytest.mark.parametrize("op", ["sum", "mean", "softmax", "log_softmax", "topk_softmax"])
@pytest.mark.parametrize("wrong", ["float32", 3, True])
def test_what_is_no_dtype(op: str, wrong: object) -> None:
    x, args = randn(2, 3), () if op in ("sum", "mean") else (1,)
    if hasattr(torch, op):
        with pytest.raises(TypeError):
            getattr(torch, op)(x, *args, dtype=wrong)
    line = f"^xgemm::{op}: expected dtype of type torch.dtype or None, got {type(wrong).__name__}$"
    with pytest.raises(TypeError, match=line):
        getattr(torch_ext, op)(x, *args, dtype=wrong)


ENDLESS = (1 << 20, 1 << 26)  # 2^48 bytes of fp32: no machine has room for a result of this shape
EXHAUSTED = r"out of memory\. Tried to allocate 281474976710656 bytes on "


@torch.no_grad()
@pytest.mark.parametrize(
    ("op", "shapes", "args", "line"),
    [
        ("matmul", [(ENDLESS[0], 1), (1, ENDLESS[1])], (), EXHAUSTED),
        ("linear", [(ENDLESS[0], 1), (ENDLESS[1], 1)], (), EXHAUSTED),
        ("scaled_masked_softmax", [ENDLESS], (), EXHAUSTED),
        (
            "matmul",
            [(1 << 40, 0), (0, 1 << 40)],
            (),
            r"expected a result of fewer than 2\^63 bytes, got shape \[109951",
        ),
        *(("softmax", [ENDLESS], (-1,), EXHAUSTED), ("topk_softmax", [ENDLESS], (3,), EXHAUSTED)),
    ],
)
def test_memory_that_is_exhausted(
    op: str, shapes: list, args: tuple, line: str, device: torch.device, capfd: pytest.CaptureFixture[str]
) -> None:
    """The line says what failed; on the CPU torch does not print its own, with a stack trace, on stderr."""
    if op == "topk_softmax" and device.type == "cuda":
        pytest.skip("copies nothing there, and would read for minutes")
    tensors = [torch.ones([min(n, 1) for n in shape], device=device).expand(shape) for shape in shapes]
    for call in (getattr(torch.ops.xgemm, op), getattr(torch_ext, op)):
        with pytest.raises(RuntimeError) as caught:
            call(*tensors, *args)
        message = str(caught.value)
        assert message.startswith(f"xgemm::{op}: ") and "\n" not in message and ".cpp" not in message, message
        assert re.search(line, message.removeprefix(f"xgemm::{op}: ")), message
    assert device.type == "cuda" or not capfd.readouterr().err


@pytest.mark.cuda
@torch.no_grad()
def test_a_gpu_whose_memory_is_exhausted() -> None:
    """What programs catch to go on with a smaller batch."""
    a, b = (torch.ones(shape, device="cuda") for shape in ((1 << 20, 1), (1, 1 << 20)))
    line = r"^xgemm::matmul: CUDA out of memory\. Tried to allocate 4398046511104"
    with pytest.raises(torch.OutOfMemoryError, match=line):
        torch_ext.matmul(a, b)
    torch.testing.assert_close(torch_ext.matmul(a[:8], b[:, :8]), a[:8] @ b[:, :8])


def test_integers_need_a_dtype(device: torch.device) -> None:
    x = torch.arange(4, device=device)
    for op, args in (("mean", ()), ("softmax", (0,)), ("log_softmax", (0,)), ("topk_softmax", (2,))):
        check(op, RuntimeError, "input of a floating dtype, got int64; pass dtype=", x, *args)


def test_inputs_that_are_too_large(device: torch.device) -> None:
    check("sum", RuntimeError, "input of at most 64 dims, got 65", randn(3, 4, *[1] * 63, device=device))
    x = randn(1, 1, device=device).expand(1, 2**31)
    check("topk_softmax", RuntimeError, r"rows of fewer than 2\^31 elements, got 2147483648", x, 2)


@pytest.mark.parametrize("call", SEVERAL, ids=name)
def test_unknown_precision(call: Call, device: torch.device) -> None:
    line = "precision to be highest, ieee, high or medium, got"
    for dtype, (wrong, got) in itertools.product((f32, torch.float16), {"exact": ".*", "": '""', "HIGH": ".*"}.items()):
        check(call.op, ValueError, f"{line} {got}$", *call.args(device, dtype), precision=wrong)


def test_arguments_of_another_type() -> None:
    q = randn(2, 4, 5, 8)
    with pytest.raises(TypeError, match=r"^xgemm::attention: expected window of two numbers of keys.*, got 4$"):
        torch_ext.attention(q, q, q, window=4)  # the operator's int[2] takes it twice, as torch's do
    with pytest.raises(TypeError, match=r"^xgemm::attention: expected window of type List\[int\], got \(1.5, 0\)$"):
        torch_ext.attention(q, q, q, window=(1.5, 0))
    with pytest.raises(TypeError, match=r"^xgemm::sum: expected dim of type Optional\[List\[int\]\], got \[1.5\]$"):
        torch_ext.sum(torch.ones(3), [1.5])


@pytest.mark.cuda
def test_keywords_on_another_device() -> None:
    x, q = randn(4, 4, device="cuda"), randn(2, 4, 5, 8, device="cuda")
    check("linear", RuntimeError, "on one device, got cuda:0 and cpu", x, x, residual=randn(4, 4))
    check("attention", RuntimeError, "one device", q, q, q, attn_mask=torch.ones(5, 5, dtype=torch.bool))
    check("attention", RuntimeError, "query and sinks on one device", q, q, q, sinks=torch.ones(4))


def test_views_that_torch_cannot_make_never_arrive() -> None:
    """torch refuses negative sizes and strides; flipped and conjugated tensors must give correct results."""
    with pytest.raises(RuntimeError):
        torch.empty(3).as_strided((-1,), (1,))
    x = randn(4, 4)
    torch.testing.assert_close(torch_ext.matmul(x.flip(0), x), x.flip(0) @ x)
    z = torch.complex(x, x)
    for lazy in (z.conj().imag, z.imag):  # a lazy negation must be resolved, not ignored
        torch.testing.assert_close(torch_ext.matmul(lazy, x), lazy @ x)
        torch.testing.assert_close(torch_ext.softmax(lazy, -1), lazy.softmax(-1))


def test_a_switch_of_the_environment_that_is_0_is_off(tmp_path: Path) -> None:
    main = 'int main() { std::cout << xgemm::switched_on("SWITCH") << xgemm::environment("SWITCH"); }\n'
    program = compile_program(tmp_path, f'#include <iostream>\n#include "device/environment.h"\n{main}')
    for value, expected in ((None, "0"), ("", "0"), ("0", "00"), ("1", "11"), ("on", "1on")):
        assert run(program, env={} if value is None else {"SWITCH": value}).stdout == expected


@pytest.mark.cuda
def test_an_unknown_plan_of_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    x = randn(8, 8, device="cuda")
    monkeypatch.setenv("XGEMM_ATTENTION_PLAN", "smit")
    check("attention", RuntimeError, "expected XGEMM_ATTENTION_PLAN to be simt, wgmma or mma, got smit$", x, x, x)


@pytest.mark.cuda
def test_the_cuda_context_lives_on() -> None:
    x = randn(8, 8, device="cuda")
    for _ in range(3):
        check("matmul", RuntimeError, "one dtype", x, x.double())
        check("softmax", IndexError, "dim in", x, 7)
        torch.cuda.synchronize()
        torch.testing.assert_close(torch_ext.matmul(x, x), x @ x)

"""The documented functions: torch's results, names and argument order, and the precision they pass on."""

import ctypes
import gc
import inspect
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import named
import pytest
import test_layouts
import torch
from calls import CALLS, Call, name
from common import Recorder, randn

import torch_ext
from torch_ext import functional


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("call", CALLS, ids=name)
def test_agrees_with_torch(call: Call, device: torch.device, dtype: torch.dtype) -> None:
    args, results = call.args(device, dtype), []
    for context in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with context():
            results.append(call.function(*args, **call.kwargs))
    expected = call.torch_op(*args, **call.kwargs)
    tolerance = {"rtol": 1.6e-2, "atol": 2e-2} if dtype is torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(results[0], expected, **tolerance)
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=0, atol=0)


def same_in_a_new_thread(call: Callable[[], object]) -> None:
    """A thread's first call makes the GPU current, before whatever of the driver's needs that."""
    with ThreadPoolExecutor(1) as pool:
        actual = pool.submit(call).result()
    torch.testing.assert_close(actual, call(), rtol=0, atol=0)


@pytest.mark.parametrize("call", CALLS, ids=name)
def test_the_first_call_of_a_thread(call: Call, device: torch.device) -> None:
    args = call.args(device, torch.float32)
    same_in_a_new_thread(lambda: call.raw(*args, **call.kwargs))


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_first_call_of_a_thread_by_tma(dtype: torch.dtype) -> None:
    """Tensor maps are encoded before anything is launched."""
    x = randn(2, 4, 512, 64, dtype=dtype, device="cuda")
    same_in_a_new_thread(lambda: torch_ext.attention(x, x, x))
    a = randn(1024, 1024, dtype=dtype, device="cuda")
    same_in_a_new_thread(lambda: torch_ext.matmul(a, a))


def test_calls_keep_no_memory() -> None:
    """A str argument once leaked 48 bytes per call."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = type("Info", (ctypes.Structure,), {"_fields_": [("fields", ctypes.c_size_t * 10)]})
    gc.collect()
    gc.freeze()  # skips existing objects: 100 collections in a whole test run take a minute
    for call in CALLS:
        args = call.args(torch.device("cpu"), torch.float32)
        has_precision = "precision" in inspect.signature(call.function).parameters
        kwargs = call.kwargs | ({"precision": "ieee"} if has_precision else {})
        held = []
        with torch.inference_mode():
            for count in (20, 200):
                for _ in range(count):
                    call.function(*args, **kwargs)
                gc.collect()
                held.append(mallinfo().fields[7])  # uordblks: bytes that malloc has given out
        assert held[1] - held[0] < 200 * 24, call.op
    gc.unfreeze()


def test_every_operator_is_in_every_list_and_has_a_documented_function() -> None:
    import torch_ext.distributed

    ops = {op.name.removeprefix("xgemm::") for op in torch._C._jit_get_all_schemas() if op.name.startswith("xgemm::")}
    assert ops == set(torch_ext.distributed._STRATEGIES) == set(torch_ext.vmap._RULES)
    assert ops == set(test_layouts.CALLS) == {*named.OPERATORS, "prepare"}
    assert {op for op in ops if not op.endswith("_lse")} - {"linear_prepared"} == set(functional.__all__)
    assert set(functional.__all__) <= set(torch_ext.__all__)
    for op in functional.__all__:
        assert getattr(torch_ext, op) is getattr(functional, op)
        text = inspect.getdoc(getattr(functional, op))
        assert "Source:" in text and ("Raises:" in text or "as in" in text), op


@pytest.mark.parametrize(
    ("op", "parameters"),
    [
        *(("addmm", ["input", "mat1", "mat2", "beta", "alpha"]), ("linear", ["input", "weight", "bias"])),
        *(("sum", ["input", "dim", "keepdim", "dtype"]), ("mean", ["input", "dim", "keepdim", "dtype"])),
        *((op, ["input", "dim", "keepdim"]) for op in ("amax", "amin", "argmax", "argmin", "logsumexp")),
        ("cross_entropy", ["input", "target", "ignore_index", "reduction", "label_smoothing"]),
        *(("softmax", ["input", "dim", "dtype"]), ("log_softmax", ["input", "dim", "dtype"])),
        ("scaled_masked_softmax", ["input", "mask", "scale", "dim"]),
        ("topk_softmax", ["input", "k", "dim", "renormalize", "dtype"]),
        ("attention", ["query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"]),
    ],
)
def test_arguments_have_torchs_names_and_order(op: str, parameters: list[str]) -> None:
    assert list(inspect.signature(getattr(torch_ext, op)).parameters)[: len(parameters)] == parameters


@pytest.mark.parametrize("setting", ["highest", "high", "medium"])
def test_precision_follows_torch(float32_precision: Callable[[str], None], setting: str) -> None:
    a, b, bias = randn(4, 4), randn(4, 4), randn(4)
    float32_precision(setting)
    with Recorder() as recorder:
        torch_ext.matmul(a, b)
        torch_ext.addmm(bias, a, b)
        torch_ext.linear(a, b, bias)
        torch_ext.attention(a, a, a)
        torch_ext.attention(a, a, a, return_lse=True)
        torch_ext.matmul(a, b, precision="ieee")
        torch_ext.attention(a, a, a, precision="ieee")
    # the dispatcher leaves out arguments that have their default
    assert [call.kwargs.get("precision", "highest") for call in recorder.ours] == [*[setting] * 5, "ieee", "ieee"]


@contextmanager
def fp32_precision(backend: object, value: str) -> Iterator[None]:
    """Of one backend: torch.get_float32_matmul_precision() then raises, the functions must not."""
    before, backend.fp32_precision = backend.fp32_precision, value
    try:
        yield
    finally:
        backend.fp32_precision = before


def test_precision_set_per_backend() -> None:
    with fp32_precision(torch.backends.cuda.matmul, "tf32"), Recorder() as recorder:
        torch_ext.matmul(randn(3, 3), randn(3, 3))
    assert recorder.ours[0].kwargs == {"precision": "high"}


@pytest.mark.parametrize("setting", ["high", "medium"])
def test_the_precision_asked_for_wins_on_the_cpu(float32_precision, setting: str) -> None:
    """torch's setting lets oneDNN round fp32 operands; on CPUs where it would, ours are fp64 products rounded once."""
    rounds = {"high": "_is_mkldnn_fp16_supported", "medium": "_is_mkldnn_bf16_supported"}[setting]
    a, b, w, bias = randn(4, 64, 300), randn(4, 300, 48), randn(48, 300), randn(48)
    wide = [x.double() for x in (a, b, w, bias)]
    exact = {
        "matmul": wide[0] @ wide[1],
        "mm": wide[0][0] @ wide[1][0],
        "addmm": torch.addmm(wide[3], wide[0][0], wide[1][0], alpha=0.5),
        "linear": torch.nn.functional.linear(wide[0], wide[2], wide[3]),
        "gated_linear": torch.nn.functional.linear(wide[0], wide[2], wide[3]).relu()
        * torch.nn.functional.linear(wide[0], wide[2]),
    }
    float32_precision(setting)
    for precision in ("highest", "ieee"):
        found = {
            "matmul": torch_ext.matmul(a, b, precision=precision),
            "mm": torch_ext.matmul(a[0], b[0], precision=precision),
            "addmm": torch_ext.addmm(bias, a[0], b[0], alpha=0.5, precision=precision),
            "linear": torch_ext.linear(a, w, bias, precision=precision),
            "gated_linear": torch_ext.gated_linear(a, w, w, bias, activation="relu", precision=precision),
        }
        for op, c in found.items():
            if getattr(torch.ops.mkldnn, rounds)():
                assert torch.equal(c, exact[op].float()), op
            torch.testing.assert_close(c.double(), exact[op], rtol=1e-4, atol=1e-4)
    half = torch_ext.linear(a.half(), w.half(), bias.half(), activation="relu")
    exact_half = torch.nn.functional.linear(*(x.half().double() for x in (a, w, bias))).relu()
    assert ((half.double() - exact_half).abs() <= 2**-11 * exact_half.abs() + 1e-4).all()


def test_the_precision_asked_for_wins_over_one_backends() -> None:
    a, b = randn(64, 300), randn(300, 48)
    with fp32_precision(torch.backends.mkldnn.matmul, "bf16"):
        found = torch.ops.xgemm.matmul(a, b)
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        assert torch.equal(found, (a.double() @ b.double()).float())


@pytest.mark.parametrize("dim", [1, (0, 2), [0, 1, 2], (), None, -1])
def test_dim_takes_what_torchs_takes(dim, device: torch.device) -> None:
    x = randn(3, 4, 5, device=device)
    torch.testing.assert_close(torch_ext.sum(x, dim), torch.sum(x, dim))
    torch.testing.assert_close(torch_ext.mean(x, dim, keepdim=True), torch.mean(x, dim, keepdim=True))
    torch.testing.assert_close(torch_ext.amax(x, dim), torch.amax(x, () if dim is None else dim))


# ---- errors in the words of torch's dispatcher, which this torch's are; newer ones may have others -------------------


@pytest.mark.parametrize("dtype", [torch.qint8, torch.float4_e2m1fn_x2], ids=str)
def test_a_dtype_that_the_stable_interface_has_no_name_for(dtype: torch.dtype) -> None:
    x, line = randn(3), r"^xgemm::\w+: expected dtype to be a real floating, integer or bool dtype, got \w+$"
    for call in (torch_ext.sum, torch_ext.mean, lambda x, dtype: torch_ext.softmax(x, 0, dtype=dtype)):
        with pytest.raises(RuntimeError, match=line):
            call(x, dtype=dtype)


def test_an_int_beyond_64_bits() -> None:
    with pytest.raises(TypeError, match=f"^xgemm::cross_entropy: expected ignore_index of type int, got {1 << 70}$"):
        torch_ext.cross_entropy(randn(3, 3), torch.arange(3), ignore_index=1 << 70)

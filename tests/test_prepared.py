"""torch_ext.prepare: a weight's split copy is kept, is never stale, and changes no bit."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from common import on_hopper, poison, randn, saved_and_loaded

import torch_ext
from torch_ext import _architecture, nn

STALE = "as it was when it was prepared"


def highest(x: torch.Tensor, w: torch.Tensor, *bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(x.double(), w.double(), *(b.double() for b in bias))


def layer(device: torch.device | str, **options) -> nn.Linear:
    return nn.Linear(136, 200, device=device, **options).requires_grad_(False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("precision", ["highest", "ieee", "high", "medium"])
def test_prepared_product(device: torch.device, dtype: torch.dtype, precision: str) -> None:
    w, bias = randn(200, 136, dtype=dtype, device=device), randn(200, dtype=dtype, device=device)
    prepared = torch_ext.prepare(w, precision)
    assert prepared.weight is w and prepared.precision == precision and prepared.memory == prepared.copy.numel()
    if device.type == "cpu" or dtype is not torch.float32 or precision == "ieee":
        assert prepared.memory == 0
    for m in (1, 16, 70, 300):
        x, residual = (randn(m, k, dtype=dtype, device=device) for k in (136, 200))
        ours = torch_ext.linear(x, prepared, bias, activation="relu", residual=residual)
        reference = torch.relu(highest(x, w, bias)) + residual.double()
        tolerance = {torch.bfloat16: 2e-2, torch.float64: 1e-12}.get(dtype, 1e-5 if precision == "highest" else 2e-2)
        torch.testing.assert_close(ours.double(), reference, rtol=tolerance, atol=10 * tolerance)


def test_precision_follows_torch(float32_precision: Callable[[str], None]) -> None:
    float32_precision("high")
    prepared = torch_ext.prepare(randn(4, 4))
    float32_precision("highest")
    assert prepared.precision == "high"
    torch_ext.linear(randn(4), prepared)
    with pytest.raises(ValueError, match=r"^xgemm::linear: expected precision 'high', .* got 'highest'$"):
        torch_ext.linear(randn(4), prepared, precision="highest")


def test_a_changed_weight_is_refused(device: torch.device) -> None:
    w, x = randn(200, 136, device=device), randn(3, 136, device=device)
    prepared = torch_ext.prepare(w)
    changes = [lambda: w.add_(1), lambda: w[3].zero_(), lambda: setattr(w, "data", randn(200, 136, device=device))]
    for change in changes:
        change()
        assert not prepared.is_fresh()
        with pytest.raises(RuntimeError, match=f"^xgemm::linear: expected the weight {STALE}[^\\n]*$"):
            torch_ext.linear(x, prepared)
        prepared.update()
        torch.testing.assert_close(torch_ext.linear(x, prepared).double(), highest(x, w), rtol=1e-5, atol=1e-4)


def test_another_storage_at_the_same_address_is_seen(device: torch.device) -> None:
    """The old storage's memory is not reused while its copy exists."""
    w, x = randn(200, 136, device=device), randn(3, 136, device=device)
    prepared = torch_ext.prepare(w)
    for _ in range(3):
        w.data = torch.empty(0, device=device)
        w.data = randn(200, 136, device=device)
        with pytest.raises(RuntimeError, match=STALE):
            torch_ext.linear(x, prepared)


def test_an_update_is_not_fresh_before_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may ask at any time."""
    prepared = torch_ext.prepare(randn(4, 3))
    prepared.weight.add_(1)
    seen = []

    def prepare(weight: torch.Tensor, precision: str) -> torch.Tensor:
        seen.append(prepared.is_fresh())
        return torch.ops.xgemm.prepare(weight, precision=precision)

    monkeypatch.setattr("torch_ext.prepared._prepare", prepare)
    prepared.update()
    assert seen == [False] and prepared.is_fresh()


def test_prepare_refuses() -> None:
    with torch.inference_mode():
        inference = randn(3, 4)
    for wrong, message in (
        (randn(3), r"2 dims, got shape \[3\]"),
        (randn(3, 4).to(torch.int32), "dtype float32.*got int32"),
        (inference, r"inference_mode\(\)"),
        (randn(3, 4).to_sparse(), r"dense \(strided\) tensor, got a sparse"),
        (randn(3, 4).to_sparse_csr(), r"dense \(strided\) tensor, got a sparse"),
    ):
        with pytest.raises(RuntimeError, match=f"^xgemm::prepare: expected .*{message}[^\\n]*$"):
            torch_ext.prepare(wrong)
    for nothing in (None, 3, "weight", [1.0]):
        got = type(nothing).__name__
        with pytest.raises(TypeError, match=f"^xgemm::prepare: expected weight to be a Tensor, got {got}$"):
            torch_ext.prepare(nothing)
    with pytest.raises(ValueError, match=r"^xgemm::prepare: expected precision"):
        torch_ext.prepare(randn(3, 4), "exact")
    x, w = randn(2, 4), randn(3, 4)
    with pytest.raises(RuntimeError, match=r"^xgemm::linear_prepared: expected prepared to be what prepare"):
        torch.ops.xgemm.linear_prepared(x, w, randn(3))
    with pytest.raises(RuntimeError, match=r"^xgemm::linear_prepared: expected weight and prepared on one device"):
        torch.ops.xgemm.linear_prepared(x.to("meta"), w.to("meta"), torch.ops.xgemm.prepare(w))
    with pytest.raises(RuntimeError, match=r"^xgemm::linear_prepared: has no backward"):
        torch_ext.linear(x, torch_ext.prepare(w.requires_grad_()))


@pytest.mark.parametrize(
    ("capability", "built_for", "copied"),
    [
        *(((9, 0), "8.0+PTX 9.0a", True), ((8, 0), "8.0+PTX 9.0a", True), ((12, 0), "8.0+PTX 9.0a", False)),
        ((9, 0), "8.0+PTX", False),  # it runs code for 8.9
        ((8, 6), "8.0+PTX 9.0a", False),  # three products in fp16 take longer than one in fp32
    ],
)
def test_the_fake_asks_for_the_gpu_and_the_librarys_code(
    capability: tuple[int, int], built_for: str, copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As csrc/device/properties.cpp: without code for Hopper the GPU counts as an older one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(_architecture, "build_info", lambda: {"architectures": built_for})
    assert _architecture.splits_gain(_architecture.architecture(torch.device("cuda")), 2) == copied


def test_deepcopy_has_its_own_weight(device: torch.device) -> None:
    prepared = torch_ext.prepare(randn(200, 136, device=device))
    again = copy.deepcopy(prepared)
    prepared.weight.zero_()
    assert again.is_fresh() and again.weight.any()


@torch.no_grad()
def test_pickled_it_is_fresh_where_it_is_loaded(device: torch.device) -> None:
    prepared, x = torch_ext.prepare(randn(200, 136, device=device), "highest"), randn(3, 136, device=device)
    again = pickle.loads(pickle.dumps(prepared))
    assert again.is_fresh() and again.precision == "highest" and again.memory == prepared.memory
    torch.testing.assert_close(torch_ext.linear(x, again), torch_ext.linear(x, prepared), rtol=0, atol=0)


def test_operators(device: torch.device) -> None:
    x, w = randn(5, 136, device=device), randn(200, 136, device=device)
    torch.library.opcheck(torch.ops.xgemm.prepare.default, (w,))
    prepared = torch.ops.xgemm.prepare(w)
    torch.library.opcheck(torch.ops.xgemm.linear_prepared.default, (x, w, prepared, randn(200, device=device)))
    options = {"activation": "gelu", "residual": randn(200, device=device)}
    torch.library.opcheck(torch.ops.xgemm.linear_prepared.default, (x, w, prepared), options)


def test_autocast_takes_the_plain_weight(device: torch.device) -> None:
    x, w = randn(5, 136, device=device), randn(200, 136, device=device)
    prepared = torch_ext.prepare(w)
    with torch.autocast(device.type, torch.bfloat16):
        ours = torch_ext.linear(x, prepared)
        assert torch.equal(ours, torch_ext.linear(x, w)) and ours.dtype is torch.bfloat16


def test_layer(device: torch.device) -> None:
    ours, x = layer(device, prepared=True), randn(3, 136, device=device)
    for _ in range(3):
        torch.testing.assert_close(ours(x).double(), highest(x, ours.weight, ours.bias), rtol=1e-5, atol=1e-4)
        ours.weight.mul_(-2)
    assert list(ours.state_dict()) == ["weight", "bias"]
    assert f"prepared, {ours.prepared_memory} bytes" in repr(ours)
    for again in (copy.deepcopy(ours), layer(device).prepare()):
        again.load_state_dict(ours.state_dict())
        assert torch.equal(again(x), ours(x))
    loaded = saved_and_loaded(ours)
    assert loaded.prepared and loaded.prepared_memory == 0 and torch.equal(loaded(x), ours(x))
    wide = ours.double()
    assert wide.prepared_memory == 0
    torch.testing.assert_close(wide(x.double()), highest(x, wide.weight, wide.bias))


def test_layer_takes_no_copy_where_none_is_used() -> None:
    ours = layer("cpu", prepared=True).prepare()
    ours(randn(3, 136))
    assert ours.prepared_memory == 0 and ours._copy is None


def test_layer_made_in_inference_mode(device: torch.device) -> None:
    with torch.inference_mode():
        ours, x = layer(device, prepared=True), randn(3, 136, device=device)
        torch.testing.assert_close(ours(x).double(), highest(x, ours.weight, ours.bias), rtol=1e-5, atol=1e-4)
    normal = layer(device, prepared=True)
    with torch.inference_mode():
        normal(x)
    normal.weight.mul_(2)
    with torch.no_grad():
        torch.testing.assert_close(normal(x).double(), highest(x, normal.weight, normal.bias), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_layer_compiles(backend: str, device: torch.device) -> None:
    ours, x = layer(device, prepared=True).prepare(), randn(70, 136, device=device)
    compiled = torch.compile(ours, fullgraph=True, backend=backend)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), ours(x), rtol=1e-5, atol=1e-4)
        ours.weight.neg_()


def test_a_compiled_product_takes_the_plain_weight(device: torch.device) -> None:
    w, x = randn(200, 136, device=device), randn(70, 136, device=device)
    prepared = torch_ext.prepare(w)
    compiled = torch.compile(lambda x: torch_ext.linear(x, prepared), fullgraph=True, backend="aot_eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(x).double(), highest(x, w), rtol=1e-5, atol=1e-4)
        w.neg_()


@on_hopper
@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize("transposed", [False, True])
def test_bits_are_those_of_the_plain_product(monkeypatch: pytest.MonkeyPatch, precision: str, transposed: bool) -> None:
    monkeypatch.setenv("XGEMM_MATMUL_PLAN", "wgmma")
    for n, k in [(200, 136), (1000, 4096), (129, 131)]:
        w = randn(k, n, device="cuda").t() if transposed else randn(n, k, device="cuda")
        w[7] *= torch.logspace(-12, 12, k, device="cuda")  # beyond the parts: computed by CUDA cores
        prepared = torch_ext.prepare(w, precision)
        parts = 2 if precision == "highest" else 1
        assert 2 * parts * n * k <= prepared.memory <= 2 * parts * n * (k + 7) + 256 + 16 * n
        for m in (1, 16, 64, 65, 300):
            x, bias = randn(m, k, device="cuda"), randn(n, device="cuda")
            poison("cuda", megabytes=1)
            ours = torch_ext.linear(x, prepared, bias, activation="silu")
            assert torch.equal(ours, torch_ext.linear(x, w, bias, activation="silu", precision=precision)), (m, n, k)


@on_hopper
def test_few_rows_are_as_exact_as_sgemm() -> None:
    for m, n, k in [(16, 4096, 4096), (64, 1024, 8192), (33, 768, 3072)]:
        x, w = randn(m, k, device="cuda"), randn(n, k, device="cuda")
        exact, scale = highest(x, w), highest(x.abs(), w.abs())
        ours, theirs = torch_ext.linear(x, torch_ext.prepare(w)), torch.nn.functional.linear(x, w)
        error, allowed = (((y.double() - exact) / scale).norm().item() for y in (ours, theirs))
        assert error <= 1.05 * allowed, (m, n, k, error / allowed)


@on_hopper
def test_a_row_has_the_same_bits_in_any_batch(batch_invariant: None) -> None:
    for n, k in [(1000, 4096), (512, 512)]:
        x, prepared = randn(600, k, device="cuda"), torch_ext.prepare(randn(n, k, device="cuda"))
        full = torch_ext.linear(x, prepared)
        for m in (1, 4, 16, 17, 64, 65, 300):
            assert torch.equal(torch_ext.linear(x[:m], prepared), full[:m]), (n, k, m)


@on_hopper
def test_layer_keeps_one_copy_and_gives_it_up() -> None:
    ours, x = layer("cuda", prepared=True), randn(3, 136, device="cuda")
    ours(x)
    copied = ours._copy
    assert ours.prepared_memory >= 4 * 200 * 136
    ours(x)
    assert ours._copy is copied
    address = copied.copy.data_ptr()
    ours.weight.mul_(2)
    torch.testing.assert_close(ours(x).double(), highest(x, ours.weight, ours.bias), rtol=1e-5, atol=1e-4)
    assert ours._copy.copy.data_ptr() == address  # a captured graph may read it
    ours.weight.data.mul_(3)
    before = ours._copy.copy.clone()
    ours.refresh()
    torch.testing.assert_close(ours(x).double(), highest(x, ours.weight, ours.bias), rtol=1e-5, atol=1e-4)
    assert not torch.equal(before, ours._copy.copy) and ours._copy.copy.data_ptr() == address
    ours.cpu()
    assert ours.prepared_memory == 0
    ours.cuda()(x)
    assert ours.prepared_memory >= 4 * 200 * 136
    ours.precision = "high"
    ours(x)
    assert 2 * 200 * 136 <= ours.prepared_memory < 4 * 200 * 136


@on_hopper
@torch.no_grad()
def test_a_layers_copy_is_whole_on_every_stream() -> None:
    """Its user does not see that the first call on one stream makes what a call on another stream reads."""
    ours, x = layer("cuda", prepared=True), randn(3, 136, device="cuda")
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    for _ in range(2):  # a new copy, and one that is made again
        expected = highest(x, ours.weight, ours.bias)
        torch.cuda.synchronize()
        with torch.cuda.stream(first):
            torch.cuda._sleep(200_000_000)  # about 0.1 s
            ours(x)
        with torch.cuda.stream(second):
            y = ours(x)
        torch.cuda.synchronize()
        torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-4)
        ours.weight.mul_(-2)


@on_hopper
def test_cuda_graph() -> None:
    ours, x = layer("cuda", prepared=True), randn(3, 136, device="cuda")
    for warm in (False, True):
        if warm:
            ours(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = ours(x)
        assert (ours.prepared_memory > 0) == warm  # a copy that only a graph's replay writes is not kept
        x.copy_(randn(3, 136, device="cuda"))
        graph.replay()
        torch.testing.assert_close(out.double(), highest(x, ours.weight, ours.bias), rtol=1e-5, atol=1e-4)
    ours.weight.mul_(3)
    ours(x)
    graph.replay()
    torch.testing.assert_close(out.double(), highest(x, ours.weight, ours.bias), rtol=1e-5, atol=1e-4)


@on_hopper
@pytest.mark.sanitize
def test_small_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against float64 on the CPU, so that the sanitizers see no kernels but ours."""
    for kernel in ("wgmma_64x64", "wgmma_128x128"):
        monkeypatch.setenv("XGEMM_MATMUL_PLAN", kernel)
        x, w = randn(3, 300), randn(37, 300)
        ours = torch_ext.linear(x.cuda(), torch_ext.prepare(w.cuda())).cpu()
        torch.testing.assert_close(ours.double(), highest(x, w), rtol=1e-5, atol=1e-4)

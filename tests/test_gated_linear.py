"""torch.ops.xgemm.gated_linear: activation(input @ weight_gate^T + bias_gate) * (input @ weight_up^T + bias_up)."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from common import (
    ACTIVATIONS,
    FLOATING,
    LAYOUTS,
    SANITIZED,
    assert_as_good_as,
    check_replays,
    poison,
    randn,
    sanitized,
    torchs_on,
    transposed,
)

gated_linear = torch.ops.xgemm.gated_linear
Tensors = tuple[torch.Tensor | None, ...]


def torchs(x, gate, up, bias_gate=None, bias_up=None, activation: str = "silu") -> torch.Tensor:
    return ACTIVATIONS[activation](F.linear(x, gate, bias_gate)) * F.linear(x, up, bias_up)


def wide(*tensors: torch.Tensor | None) -> Tensors:
    return tuple(None if t is None else t.double() for t in tensors)


def exact(*tensors: torch.Tensor | None, activation: str = "silu") -> torch.Tensor:
    return torchs(*wide(*tensors), activation=activation)


def bound(x, gate, up, bias_gate=None, bias_up=None, activation: str = "silu") -> torch.Tensor:
    """The error bound of fp32 sums, componentwise: each factor's error times the other factor."""

    x, gate, up, bias_gate, bias_up = wide(x, gate, up, bias_gate, bias_up)

    def size(weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return F.linear(x.abs(), weight.abs(), None if bias is None else bias.abs())

    g, u = ACTIVATIONS[activation](F.linear(x, gate, bias_gate)).abs(), F.linear(x, up, bias_up).abs()
    sums = 1.13 * size(gate, bias_gate) * u + g * size(up, bias_up)  # the activations' slopes are at most 1.13
    return (2 * math.sqrt(x.shape[-1]) + 8) * 2**-24 * sums + 2**-22 * g * u


def check(*tensors: torch.Tensor | None, activation: str = "silu") -> torch.Tensor:
    x = tensors[0]
    poison(x.device, megabytes=1)
    out = gated_linear(*tensors, activation=activation)
    reference = exact(*tensors, activation=activation)
    assert out.shape == reference.shape
    assert out.dtype == x.dtype
    assert out.is_contiguous()
    if x.dtype is torch.float32:
        error = (out.double() - reference).abs()
        assert not torch.isnan(error).any()
        assert (error <= bound(*tensors, activation=activation) + 1e-37).all()
        return out
    ulps = 2 * math.sqrt(x.shape[-1]) + 8 if x.dtype is torch.float64 else 4
    assert_as_good_as(out, torchs(*tensors, activation=activation), reference, ulps=ulps)
    return out


def arguments(m: int, n: int, k: int, dtype: torch.dtype, device: torch.device | str, biases: bool = True) -> Tensors:
    """Weights with rows of norm 1, so that the activations' arguments are around 1."""
    x = randn(m, k, dtype=dtype, device=device)
    gate, up = ((randn(n, k, dtype=torch.float64, device=device) / k**0.5).to(dtype) for _ in range(2))
    return x, gate, up, *((randn(n, dtype=dtype, device=device) if biases else None) for _ in range(2))


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_epilogues(device: torch.device, dtype: torch.dtype, activation: str) -> None:
    for m, n, k in [(5, 7, 9), (1, 40, 64), (65, 36, 20), (40, 2, 300), (33, 130, 520)]:
        x, gate, up, bias_gate, bias_up = arguments(m, n, k, dtype, device)
        for biases in itertools.product((None, bias_gate), (None, bias_up)):
            check(x, gate, up, *biases, activation=activation)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(9,), (5, 9), (2, 5, 9), (4, 1, 3, 9), (2, 1, 3, 2, 2, 2, 9)], ids=str)
def test_shapes(device: torch.device, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x, weights = randn(*shape, dtype=dtype, device=device), arguments(1, 7, 9, dtype, device)[1:]
    assert check(x, *weights).shape == (*shape[:-1], 7)
    if len(shape) > 1:  # batch dims that do not fold
        check(x.transpose(0, -2), *weights)
        check(x.expand(3, *shape), *weights)
    if len(shape) == 7:
        check(x.permute(5, 0, 4, 1, 3, 2, 6), *weights)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout_w", LAYOUTS)
@pytest.mark.parametrize("layout_x", LAYOUTS)
def test_layouts(device: torch.device, dtype: torch.dtype, layout_x: str, layout_w: str) -> None:
    for m, n, k in [(33, 20, 12), (1, 40, 64), (3, 36, 300), (130, 72, 136)]:
        x, gate, up, *biases = arguments(m, n, k, dtype, device)
        check(LAYOUTS[layout_x](torch.stack([x, x + 1])), LAYOUTS[layout_w](gate), up, *biases)
        check(LAYOUTS[layout_x](x), gate, LAYOUTS[layout_w](up), randn(2 * n, dtype=dtype, device=device)[::2])


def test_weights_aligned_differently(device: torch.device) -> None:
    """One plan serves both products, whose weights may be aligned differently."""
    for dtype in FLOATING:
        memory = randn(2, 64 * 32 + 1, dtype=dtype, device=device)
        gate, up = memory[0, :-1].view(64, 32), memory[1, 1:].view(64, 32)
        x = randn(33, 32, dtype=dtype, device=device)
        check(x, gate, up)
        check(x, up, gate)


@pytest.mark.parametrize("dtype", FLOATING)
def test_empty(device: torch.device, dtype: torch.dtype) -> None:
    def new(*shape: int) -> torch.Tensor:
        return randn(*shape, dtype=dtype, device=device)

    bias = new(7)
    out = gated_linear(new(3, 0), new(7, 0), new(7, 0), bias, bias)
    reference = F.silu(bias.double()) * bias.double()
    assert_as_good_as(out, (F.silu(bias) * bias).expand(3, 7), reference.expand(3, 7), ulps=8)
    assert not gated_linear(new(3, 0), new(7, 0), new(7, 0)).any()
    assert gated_linear(new(0, 5), new(7, 5), new(7, 5)).shape == (0, 7)
    assert gated_linear(new(2, 0, 5), new(7, 5), new(7, 5), bias).shape == (2, 0, 7)
    assert gated_linear(new(3, 5), new(0, 5), new(0, 5)).shape == (3, 0)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_special_values_go_through_as_torchs(device: torch.device, dtype: torch.dtype, activation: str) -> None:
    # None below -87: half precision's sigmoid is 0 there, torch's a denormal that 3e38 makes large again.
    special = [math.nan, math.inf, -math.inf, 0.0, -0.0, 88.0, -80.0, 3e38]
    x = torch.zeros(64, 136, device=device, dtype=dtype)
    x[:, 0] = torch.tensor(special, device=device).repeat(8)
    x[:, 1] = torch.tensor(special, device=device).repeat_interleave(8)
    x[3:, 2:] = 1e-3
    for n in (1, 200):
        gate, up = torch.zeros(n, 136, device=device, dtype=dtype), torch.zeros(n, 136, device=device, dtype=dtype)
        gate[:, 0], up[:, 1] = 1, 1
        floats = [t.float() for t in (x, gate, up)]
        ours = gated_linear(x, gate, up, activation=activation)
        exact = torchs(*floats, activation=activation).to(dtype)
        expected = torchs_on(device, ours, exact, torchs(x, gate, up, activation=activation))
        torch.testing.assert_close(ours, expected, equal_nan=True, rtol=1.6e-2, atol=1e-6)


def same_kind(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.isfinite(a), torch.isfinite(b), (a == b) | (torch.isnan(a) & torch.isnan(b)))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_any_gate_times_an_infinite_factor(device: torch.device, dtype: torch.dtype, activation: str) -> None:
    """NaN, Inf and their signs where torch's or float64's formula gives them: a GELU that is 0 gives NaN."""
    gates = [-math.inf, -3e4, -200.0, -20.0, *(-0.25 * i for i in range(60)), -0.0, 1.0, 20.0, 3e4, math.inf, math.nan]
    gate = torch.tensor(gates, device=device, dtype=dtype)
    zeros = torch.zeros(len(gates), 136, device=device, dtype=dtype)  # so that the biases are the sums
    for rows in (1, 8, 200):
        for factor in (math.inf, -math.inf, 2.0):
            up = torch.full_like(gate, factor)
            x = torch.zeros(rows, 136, device=device, dtype=dtype)
            ours = gated_linear(x, zeros, zeros, gate, up, activation=activation).double()
            wides = (ACTIVATIONS[activation](gate.to(t)) * factor for t in (torch.float32, torch.float64))
            as_one = [same_kind(ours, y.double().expand(rows, -1)) for y in wides]
            assert (as_one[0] | as_one[1]).all(), gate[~(as_one[0] | as_one[1])[0]]


TILES = [(1, 1000, 512), (64, 768, 4096), (70, 768, 1000), (129, 133, 100), (300, 520, 264), (260, 2304, 768)]


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_shapes_of_every_tensor_tile(dtype: torch.dtype, activation: str) -> None:
    """Few rows, ragged edges, odd n, large tiles."""
    for m, n, k in TILES:
        tensors = arguments(m, n, k, dtype, "cuda")
        check(*tensors, activation=activation)
        check(*tensors[:3], activation=activation)


F32, F16, BF16, F64 = FLOATING
TENSOR_KERNELS = ["wgmma_128x256", "wgmma_128x128", "wgmma_64x64", "simt_64x64"]
KERNELS = [*itertools.product(FLOATING[:3], TENSOR_KERNELS), (F64, "simt_16x128"), (F64, "gemv")]
SMALL = [*itertools.product((BF16, F32), TENSOR_KERNELS[1::2]), (BF16, "wgmma_128x256"), (F16, "wgmma_64x64")]


@pytest.mark.cuda
@pytest.mark.parametrize(("dtype", "kernel"), sanitized(KERNELS, *SMALL, *KERNELS[-2:]), ids=str)
def test_every_kernel(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, kernel: str) -> None:
    monkeypatch.setenv("XGEMM_MATMUL_PLAN", kernel)
    sizes = [(3, 40, 72)] if kernel == "gemv" else [(3, 37, 300), (20, 136, 136)]
    if not SANITIZED and kernel != "gemv":
        sizes += [(1, 8, 16), (64, 127, 129), (129, 136, 64), (200, 300, 1000), (40, 1304, 264)]
    for m, n, k in sizes:
        x, *others = arguments(m, n, k, dtype, "cuda")
        check(x, *others)
        check(torch.stack([x, x]).transpose(0, 1), *others)  # batches that do not fold


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["ieee", "high", "medium"])
def test_precisions(precision: str) -> None:
    for m, n, k in [(300, 520, 264), (1000, 1000, 512), (5, 1023, 1024)]:
        x, gate, *others = arguments(m, n, k, torch.float32, "cuda")
        for tensors in ((x, gate, *others), (x, transposed(gate), *others)):  # by two products, of kernels of their own
            out = gated_linear(*tensors, precision=precision)
            allowed = bound(*tensors) * (1 if precision == "ieee" else 2**11)
            assert ((out.double() - exact(*tensors)).abs() <= allowed).all()


@pytest.mark.cuda
def test_data_that_fp16_parts_cannot_represent() -> None:
    """Inf, NaN and lines of many decades in the input or either weight, in one, some or all rows."""
    m, n, k = 520, 640, 512
    for where in range(3):
        for rows in (slice(0, 1), slice(100, 140), slice(None)):
            tensors = [t for t in arguments(m, n, k, torch.float32, "cuda", biases=False) if t is not None]
            tensors[where][rows] *= torch.logspace(-12, 12, k, device="cuda")
            check(*tensors)
            for bad in (math.inf, math.nan):
                broken = [t.clone() for t in tensors]
                broken[where][rows, 7] = bad
                for tensor in broken:
                    tensor[3, 9] = 0
                ours, theirs = gated_linear(*broken), exact(*broken)
                assert torch.equal(torch.isnan(ours), torch.isnan(theirs))
                assert torch.equal(torch.isinf(ours), torch.isinf(theirs.float()))


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_cuda_graph(dtype: torch.dtype) -> None:
    for m in (4, 300):
        x, *weights = arguments(m, 1024, 512, dtype, "cuda")
        check_replays(lambda: gated_linear(x, *weights), x)  # noqa: B023

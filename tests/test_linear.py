"""torch.ops.xgemm.linear: activation(input @ weight^T + bias) + residual in one launch."""

import itertools
import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from common import (
    ACTIVATIONS,
    FLOATING,
    LAYOUTS,
    assert_as_good_as,
    check_replays,
    componentwise_error,
    kernels_of,
    poison,
    randn,
    torchs_on,
)
from torch import Tensor

linear = torch.ops.xgemm.linear


def torchs(x: Tensor, w: Tensor, bias: Tensor | None, activation: str, residual: Tensor | None) -> Tensor:
    y = x @ (w if w.dim() == 1 else w.t())
    y = ACTIVATIONS[activation](y if bias is None else y + bias)
    return y if residual is None else y + residual


def check(
    x: Tensor, w: Tensor, bias: Tensor | None = None, activation: str = "none", residual: Tensor | None = None
) -> Tensor:
    poison(x.device, megabytes=1)
    out = linear(x, w, bias, activation=activation, residual=residual)
    wide = [None if t is None else t.double() for t in (bias, residual)]
    exact = torchs(x.double(), w.double(), wide[0], activation, wide[1])
    assert out.shape == exact.shape
    assert out.dtype == x.dtype
    assert out.is_contiguous()
    # The activations' slopes are at most 1.13, which bounds how much they enlarge the sum's error.
    roundings = 2 * math.sqrt(x.shape[-1]) + 8
    if x.dtype is torch.float32:  # componentwise: |x||w| plus the addends' sizes, as in SGEMM's bound
        scale = torchs(x.double().abs(), w.double().abs(), None if bias is None else wide[0].abs(), "none", None)
        scale = 1.13 * scale if residual is None else 1.13 * scale + wide[1].abs()
        assert componentwise_error(out, exact, scale) <= roundings * 2**-24
        return out
    # In fp64 torch's result is the reference; its own error adds to ours.
    ulps = roundings if x.dtype is torch.float64 else 4
    assert_as_good_as(out, torchs(x, w, bias, activation, residual), exact, ulps=ulps)
    return out


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_epilogues(device: torch.device, dtype: torch.dtype, activation: str) -> None:
    for m, n, k in [(5, 7, 9), (1, 40, 64), (65, 36, 20), (40, 2, 300), (33, 130, 520)]:
        shapes = (m, k), (n, k), (n,), (m, n)
        x, w, bias, residual = (randn(*shape, dtype=dtype, device=device) for shape in shapes)
        for addends in itertools.product((None, bias), (None, residual)):
            check(x, w, addends[0], activation, addends[1])


SHAPES = [((9,), (7, 9)), ((9,), (9,)), ((5, 9), (9,)), ((2, 5, 9), (9,)), ((2, 5, 9), (7, 9)), ((4, 1, 3, 9), (7, 9))]


@pytest.mark.parametrize("shapes", [*SHAPES, ((3, 1, 9), (7, 9))], ids=str)
def test_shapes(device: torch.device, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    x, w = (randn(*shape, device=device) for shape in shapes)
    out = check(x, w)
    assert out.shape == F.linear(x, w).shape
    check(x, w, randn(device=device))
    for cut in range(out.dim() + 1):
        check(x, w, None, "gelu", randn(*out.shape[cut:], device=device))
        check(x, w, None, "none", randn(*(1 for _ in out.shape[cut:]), device=device))
    if w.dim() == 2:
        check(x, w, randn(7, device=device), "silu", out)
        check(x, w, randn(14, device=device)[::2])


@pytest.mark.parametrize("layout_w", LAYOUTS)
@pytest.mark.parametrize("layout_x", LAYOUTS)
def test_layouts(device: torch.device, layout_x: str, layout_w: str) -> None:
    for m, n, k in [(33, 20, 12), (1, 40, 64), (3, 36, 300)]:
        x, w = LAYOUTS[layout_x](randn(2, m, k, device=device)), LAYOUTS[layout_w](randn(n, k, device=device))
        check(x, w, randn(n, device=device), "relu", LAYOUTS[layout_x](randn(2, m, n, device=device)))


def test_residual_of_any_strides(device: torch.device) -> None:
    x, w = randn(4, 6, 20, device=device), randn(36, 20, device=device)
    check(x, w, None, "none", randn(6, 4, 36, device=device).transpose(0, 1))
    check(x, w, None, "none", randn(36, 6, 4, device=device).permute(2, 1, 0))
    check(x, w, None, "none", randn(4, 1, 36, device=device))
    check(x, w, None, "none", randn(6, 1, device=device))
    check(x, w, None, "none", randn(4, 6, 1, device=device).expand(4, 6, 36))
    check(x.transpose(0, 1), w, None, "none", randn(6, 4, 36, device=device))


@pytest.mark.parametrize("dtype", FLOATING)
def test_empty(device: torch.device, dtype: torch.dtype) -> None:
    x, w, bias, residual = (randn(*shape, dtype=dtype, device=device) for shape in ((3, 0), (7, 0), (7,), (3, 7)))
    out = linear(x, w, bias, residual=residual)
    assert_as_good_as(out, bias + residual, bias.double() + residual.double())
    assert linear(randn(0, 5, device=device), randn(7, 5, device=device)).shape == (0, 7)
    assert linear(randn(2, 0, 5, device=device), randn(7, 5, device=device), randn(7, device=device)).shape == (2, 0, 7)
    assert linear(randn(3, 5, device=device), randn(0, 5, device=device)).shape == (3, 0)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_special_values_go_through_as_torchs(device: torch.device, activation: str) -> None:
    x = torch.tensor(
        [[math.nan], [math.inf], [-math.inf], [0.0], [-0.0], [1e-40], [88.0], [-88.0], [-104.0], [3e38]], device=device
    )
    for w in (torch.ones(1, 1, device=device), torch.ones(40, 1, device=device)):
        ours, expected = linear(x, w, activation=activation), ACTIVATIONS[activation](x @ w.t())
        torch.testing.assert_close(ours, expected, equal_nan=True, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_infinite_sums_are_activated_as_torchs(device: torch.device, dtype: torch.dtype, activation: str) -> None:
    """GELU and SiLU of -Inf are NaN."""
    bias = torch.tensor([-math.inf, math.inf, math.nan, -3e4, 3e4, 0.0, 1.0] * 3, device=device, dtype=dtype)
    w = torch.zeros(len(bias), 136, device=device, dtype=dtype)
    for rows in (1, 8, 200):
        ours = linear(torch.zeros(rows, 136, device=device, dtype=dtype), w, bias, activation=activation)
        sums, wide = bias.expand(rows, -1).contiguous(), torch.promote_types(dtype, torch.float32)
        exact, its = (ACTIVATIONS[activation](sums.to(t)).to(dtype) for t in (torch.float64, wide))
        expected = torchs_on(device, ours, exact, its)
        torch.testing.assert_close(ours, expected, equal_nan=True, rtol=1.6e-2, atol=1e-6)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_shapes_of_every_tensor_tile(dtype: torch.dtype, activation: str) -> None:
    """The epilogue of the tensor-core kernels: few rows, ragged edges, odd n, splits of K, large tiles."""
    for m, n, k in [(1, 1000, 512), (70, 768, 5000), (129, 133, 100), (300, 520, 264), (260, 2304, 768)]:
        x, bias = randn(m, k, dtype=dtype, device="cuda"), randn(n, dtype=dtype, device="cuda")
        w = (randn(n, k, dtype=torch.float64, device="cuda") / k**0.5).to(dtype)
        for residual in (None, randn(m, n, dtype=dtype, device="cuda"), randn(n, m, dtype=dtype, device="cuda").t()):
            check(x, w, bias, activation, residual)


@pytest.mark.cuda
@pytest.mark.parametrize("tile", ["128x256", "128x128", "64x128", "64x64", "128x256/swapped", "64x128/swapped"])
def test_bias_of_several_tiles_per_cta(monkeypatch: pytest.MonkeyPatch, tile: str) -> None:
    """A half-precision CTA reloads the bias in shared memory for each of its tiles."""
    monkeypatch.setenv("XGEMM_MATMUL_PLAN", f"wgmma_{tile}")
    m, n, k = 2500, 4616, 72
    x, w, bias = (randn(*s, dtype=torch.bfloat16, device="cuda") for s in ((m, k), (n, k), (2 * n,)))
    for part in (bias[:n], bias[n:], bias[::2], bias[7:8].expand(n)):
        for activation in ("none", "gelu"):
            check(x, w, part, activation)
    wide = randn(m, 2 * n, dtype=torch.bfloat16, device="cuda")
    for residual in (wide[:, :n], wide[:, n:], wide[:, 1 : n + 1], wide[:1, :n].expand(m, n), wide[:, ::2]):
        check(x, w, bias[:n], "silu", residual)


@pytest.mark.cuda
def test_one_launch() -> None:
    x, w, bias, residual = (randn(*s, device="cuda") for s in ((300, 64), (512, 64), (512,), (300, 512)))
    for dtype in (torch.float32, torch.bfloat16):
        tensors = [t.to(dtype) for t in (x, w, bias, residual)]
        options = {"activation": "gelu", "residual": tensors[3], "precision": "ieee"}
        (name,) = kernels_of(partial(linear, *tensors[:3], **options))
        assert "xgemm" in name


@pytest.mark.cuda
def test_cuda_graph() -> None:
    x, w, bias = (randn(*s, device="cuda") for s in ((4, 4096), (512, 4096), (512,)))
    check_replays(lambda: linear(x, w, bias, activation="silu"), x)


@pytest.mark.cuda
@pytest.mark.sanitize
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_small_cases(activation: str) -> None:
    for m, n, k in [(19, 37, 300), (20, 36, 40), (3, 40, 300), (40, 1, 36)]:
        x, w, bias = (randn(*s, device="cuda") for s in ((m, k), (n, k), (n,)))
        check(x, w, bias, activation, randn(m, n, device="cuda"))
    shapes = (40, 72), (136, 72), (136,), (40, 136)
    x, w, bias, residual = (randn(*s, dtype=torch.bfloat16, device="cuda") for s in shapes)
    check(x, w, bias, activation)
    check(x, w, bias, activation, residual)

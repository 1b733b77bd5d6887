"""torch.ops.xgemm.scaled_masked_softmax against float64 and torch's own three calls."""

import pytest
import torch
from common import FLOATING, assert_as_good_as, check_replays, kernels_of, poison, randn
from reductions import CUDA, LAYOUTS, same_bits

op = torch.ops.xgemm.scaled_masked_softmax
INF = float("inf")

# Input's shape, mask's shape, dim.
CASES = [((), (), 0), ((7,), (1,), -1), ((3, 5), (5,), 1), ((3, 5), (3, 1), 0), ((4, 5, 6), (5, 6), 2)]
CASES += [((4, 5, 6), (4, 1, 6), 1), ((4, 5, 6), (1, 5, 1), 0), ((2, 3, 17, 33), (2, 1, 1, 33), -1)]
CASES += [((2, 3, 17, 33), (17, 33), -1), ((2, 3, 17, 33), (2, 3, 17, 33), 2), ((2, 1, 4, 1), (1, 4, 1), 3)]
CASES += [((0, 3), (3,), 1), ((3, 0), (1,), 1)]
LONG = [((5, 512), (512,), 1), ((5, 513), (5, 1), 1), ((3, 2048), (3, 1), 1), ((300, 577), (577,), 1)]
LONG += [((3, 5000), (3, 5000), 1), ((2, 16384), (16384,), 1), ((2, 16385), (2, 16385), 1), ((2, 60001), (60001,), 1)]
LONG += [((70, 3001, 40), (3001, 1), 1), ((3001, 77), (3001, 77), 0)]


def reference(x: torch.Tensor, mask: torch.Tensor | None, scale: float, dim: int, wide: torch.dtype) -> torch.Tensor:
    logits = x.to(wide) * scale
    if mask is not None:
        logits = logits.masked_fill(~mask, -INF) if mask.dtype is torch.bool else logits + mask.to(wide)
    return torch.softmax(logits, dim)


def mask_of(kind: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor | None:
    if kind == "none":
        return None
    keep = torch.rand(shape, device=device) > 0.3
    if kind == "bool":
        return keep
    return randn(*shape, dtype=torch.float32 if kind == "fp32" else dtype, device=device).masked_fill(~keep, -INF)


def check(x: torch.Tensor, mask: torch.Tensor | None, scale: float, dim: int) -> torch.Tensor:
    poison(x.device, 4)
    found = op(x, mask, scale, dim)
    exact = reference(x, mask, scale, dim, torch.float64)
    wide = torch.float64 if x.dtype is torch.float64 else torch.float32
    theirs = reference(x, mask, scale, dim, wide).to(x.dtype)
    assert found.shape == x.shape and found.dtype == x.dtype and found.is_contiguous()
    assert torch.equal(found.isnan(), exact.isnan())
    # fp32: the product with the scale rounds, in torch as well, and exp turns that into a relative error.
    ulps = {torch.float32: 4, torch.float64: 64}.get(x.dtype, 1)
    assert_as_good_as(found.nan_to_num(), theirs.nan_to_num(), exact.nan_to_num(), ulps=ulps)
    return found


@pytest.mark.sanitize
@pytest.mark.parametrize("kind", ["none", "own", "fp32", "bool"])
@pytest.mark.parametrize("dtype", FLOATING)
def test_masks(device, dtype, kind):
    for shape, mask_shape, dim in CASES + (LONG if device.type == "cuda" else []):
        x = 3 * randn(*shape, dtype=dtype, device=device)
        check(x, mask_of(kind, mask_shape, dtype, device), 0.37, dim)


@pytest.mark.parametrize("kind", ["none", "own", "bool"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cpu_in_pieces(dtype, kind, one_thread):
    """Tensors that the CPU path splits along one dim, two, or none; a shorter last piece."""
    piece = 1 << 17
    for shape, mask_shape, dim in (
        *(((3, piece // 64 + 5, 40), (piece // 64 + 5, 1), -1), ((1, 2, piece), (2, 1), 1)),
        *(((2, 3, piece // 4, 1), (1, 3, 1, 1), 0), ((2, 1, piece + 3), (piece + 3,), -1), ((piece + 7, 1), (1,), 0)),
    ):
        x = torch.randn(shape).to(dtype)
        check(x, mask_of(kind, mask_shape, dtype, x.device), 0.37, dim)
        transposed = x.transpose(0, -1)
        check(transposed, mask_of(kind, transposed.shape[-1:], dtype, x.device), 2.0, -1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATING)
def test_layouts(device, dtype, layout):
    for shape, mask_shape, dim in CASES:
        x = LAYOUTS[layout](randn(*shape, dtype=dtype, device=device))
        check(x, LAYOUTS[layout](mask_of("own", mask_shape, dtype, device)), -2.0, dim)
    x = randn(5, 1, 30, dtype=dtype, device=device).expand(5, 40, 30)
    check(x, mask_of("bool", (40, 1), dtype, device).expand(5, 40, 30), 1.0, 2)


def test_no_arguments_is_softmax(device):
    x = randn(6, 50, device=device)
    torch.testing.assert_close(op(x), torch.softmax(x, -1))


@pytest.mark.parametrize("dtype", FLOATING)
def test_special_values(device, dtype):
    rows = [[1, 2, 3, 4], [INF, 1, 1, 1], [torch.nan, 1, 1, 1], [-INF, 1, 2, 3], [-INF] * 4, [1, 1, 1, 1]]
    x = torch.tensor(rows, dtype=dtype)
    keep = torch.tensor([[0, 1, 1, 1], [0, 1, 1, 1], [0, 1, 1, 1], [1, 1, 1, 0], [1] * 4, [0] * 4]).bool()
    for n in (1, 50, 6000) if device.type == "cuda" else (1, 50):
        wide, mask = x.to(device).repeat(1, n), keep.to(device).repeat(1, n)
        found = check(wide, mask, 1.0, 1)
        assert found[:3].isfinite().all() and found[5].isnan().all()  # masked INF and NaN do not matter
        additive = torch.zeros_like(wide).masked_fill(~mask, -INF)
        check(wide, additive, 1.0, 1)
        check(wide.mT.contiguous(), additive.mT, 1.0, 0)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_promises(dtype):
    for n in (40, 600, 5000, 40000):
        x, mask = torch.randn(6, 4, n, device=CUDA).to(dtype), torch.randn(4, n, device=CUDA)
        y = op(x, mask, 0.5)
        assert same_bits(y, op(x, mask, 0.5))
        assert same_bits(y[2:3], op(x[2:3].clone(), mask, 0.5))
        assert same_bits(y, op(LAYOUTS["misaligned"](x), LAYOUTS["misaligned"](mask), 0.5))
        assert all("xgemm" in name for name in kernels_of(lambda x=x, mask=mask: op(x, mask, 0.5)))
        check_replays(lambda x=x, mask=mask: op(x, mask, 0.5), x)

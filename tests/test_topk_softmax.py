"""torch.ops.xgemm.topk_softmax against float64 softmax and a stable sort; indices are compared exactly, ties too."""

import pytest
import torch
from common import FLOATING, SANITIZED, poison, randn, sanitized
from reductions import CUDA, LAYOUTS, SMALL_LAYOUTS, check_promises, special_rows

op = torch.ops.xgemm.topk_softmax
RTOL = {torch.float32: 4e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float64: 1e-13}
ATOL = {torch.float16: 6e-8}

# Both kernels and their boundaries: 32, 64 and 128 for the rounds, then one warp, two, a block; partial tiles.
LENGTHS = [1, 2, 3, 7, 8, 9, 31, 33, 63, 64, 65, 127, 128, 129, 255, 257, 511, 512, 513, 1021, 1025]
LONG_LENGTHS = [2047, 2049, 4097, 8191, 8192, 10007, 32768, 50257, 131071, 131073]
KS = [0, 1, 2, 8, 31, 32, 33, 63, 64]


def lengths(device: torch.device) -> list[int]:
    return LENGTHS + LONG_LENGTHS if device.type == "cuda" else LENGTHS[::3]


def expected(x: torch.Tensor, k: int, dim: int, renormalize: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """In float64, which keeps every dtype's order; with NaN on the CPU, where torch's stable sort is stable."""
    wide = x.double().cpu() if x.isnan().any() else x.double()
    values, order = (t.to(x.device) for t in wide.sort(dim=dim, descending=True, stable=True))
    if x.dim() == 0:
        return torch.ones_like(values) * (values - values + 1), order
    indices = order.narrow(dim, 0, k)
    if renormalize:
        return torch.softmax(values.narrow(dim, 0, k), dim), indices
    return torch.softmax(x.double(), dim).gather(dim, indices), indices


def assert_topk(x: torch.Tensor, k: int, dim: int = -1, dtype: torch.dtype | None = None) -> None:
    for renormalize in (True, False):
        poison(x.device, 4)
        values, indices = op(x, k, dim, renormalize=renormalize, dtype=dtype)
        wanted, where = expected(x if dtype is None else x.to(dtype), k, dim, renormalize)
        kind = dtype or x.dtype
        assert values.dtype is kind and indices.dtype is torch.int64
        assert values.is_contiguous() and indices.is_contiguous()
        assert torch.equal(indices, where), (tuple(x.shape), k, dim, renormalize)
        torch.testing.assert_close(values, wanted.to(kind), rtol=RTOL[kind], atol=ATOL.get(kind, 1e-37), equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("layout", sanitized(LAYOUTS, *SMALL_LAYOUTS))
def test_dims_and_layouts(device, dtype, layout):
    # Both kernels: rows of a warp and of a block, few and many results, by vectors and by elements.
    shapes = [((3, 5), 0), ((150, 3), 0), ((3, 700), 1), ((2, 2600, 3), 1), ((3, 9001), 1)]
    if not SANITIZED:
        shapes += [((), 0), ((1,), 0), ((7,), -1), ((3, 5), 1), ((4, 1, 6), 1), ((4, 5, 6), 0), ((4, 5, 6), 1)]
        shapes += [((2, 3, 4, 5), -2), ((0, 3), 0), ((0, 3), 1), ((3, 0), 1), ((3, 0), 0), ((5, 70, 3), 1)]
    for shape, dim in shapes:
        x = LAYOUTS[layout](randn(*shape, dtype=dtype, device=device))
        n = x.shape[dim] if x.dim() else 1
        for k in {min(n, 1), min(n, 5)} if n < 100 else {6, 40}:
            if k > 0 or x.dim() > 0:
                assert_topk(x, k, dim)


@pytest.mark.parametrize("dtype", FLOATING)
def test_lengths_and_counts(device, dtype):
    for n in lengths(device):
        x = 3 * randn(5, n, dtype=dtype, device=device)
        for k in {*(k for k in KS if k <= n), min(n, 64)}:
            assert_topk(x, k)
        assert_topk(LAYOUTS["rows"](x), min(n, 7))
        assert_topk(LAYOUTS["strided"](x), min(n, 7))


@pytest.mark.parametrize("dtype", FLOATING)
def test_orders_that_are_hard_on_a_threshold(device, dtype):
    """Ascending, descending, constant, few distinct values, one large element at either end, almost all -inf."""
    for n in lengths(device):
        ramp = torch.linspace(-3, 3, n, dtype=torch.float64, device=device)
        rows = [ramp, -ramp, 0 * ramp, (2 * ramp).round(), torch.zeros_like(ramp), torch.zeros_like(ramp)]
        rows[4][0], rows[5][-1] = 5, 5
        masked = torch.full_like(ramp, float("-inf"))
        masked[n // 2 :: 97] = 1.5
        x = torch.stack([*rows, masked]).to(dtype)
        for k in {1, min(n, 8), min(n, 33), min(n, 64)}:
            assert_topk(x, k)


@pytest.mark.parametrize("dtype", FLOATING)
def test_special_values(device, dtype):
    inf, nan = float("inf"), float("nan")
    rows = [*special_rows(dtype), [nan] * 4, [-nan, -inf, nan, -inf], [-0.0, 0, -0.0, 0], [0, -80, -95, -100]]
    x = torch.tensor(rows, dtype=dtype, device=device)
    for repeat in (1, 5, 40, 600, 3000, 30000) if device.type == "cuda" else (1, 40):
        wide = x.repeat(1, repeat)
        for k in {1, 3, min(4 * repeat, 64)}:
            assert_topk(wide, k)
        assert_topk(wide.mT.contiguous(), 3, 0)
    single = torch.full((1, 3000), 1.0, dtype=dtype, device=device)
    for value in (nan, inf):
        for at in (0, 1500, 2999):
            x = single.clone()
            x[0, at] = value
            assert_topk(x, 4)
            assert op(x, 1)[1].item() == at


def test_denormals_keep_their_order(device):
    x = torch.tensor([[0.0, 1e-45, -1e-45, 3e-45, -0.0]], device=device)
    assert op(x, 5)[1].tolist() == [[3, 1, 0, 4, 2]]


@pytest.mark.sanitize
def test_dtype_argument(device):
    x = 3 * randn(12, 70, device=device)
    for source in (x, x.half(), x.bfloat16(), x.double(), x.int(), x > 0, x.mT.contiguous().mT, x.half().mT):
        for dtype in FLOATING:
            for dim in (0, 1):
                assert_topk(source, 4, dim, dtype)
    for n in (33, 1003, 20011):
        for dtype in (torch.float16, torch.bfloat16):
            assert_topk(randn(3, n, dtype=dtype, device=device), 9, 1, torch.float32)


def test_expanded(device):
    x = randn(5, 1, 30, device=device).expand(5, 40, 30)
    for dim in (0, 1, 2):
        assert_topk(x, 5, dim)
    assert_topk(randn(300, device=device).expand(70, 300), 5)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("k", [7, 40])
def test_promises(dtype, k):
    check_promises(lambda x, dim: op(x, k, dim, renormalize=False)[0], dtype)
    check_promises(lambda x, dim: op(x, k, dim)[1], dtype)


@pytest.mark.cuda
def test_more_than_2_31_elements():
    x = torch.randn(2**20 + 1, 2053, device=CUDA).half()
    values, indices = op(x, 5)
    for rows in (slice(0, 4), slice(2**19, 2**19 + 4), slice(-4, None)):
        wanted, where = expected(x[rows], 5, 1, True)
        assert torch.equal(indices[rows], where)
        torch.testing.assert_close(values[rows], wanted.half(), rtol=1e-3, atol=6e-8)
    del x, values, indices
    long = torch.zeros(2, 2**31 - 1, dtype=torch.float16, device=CUDA)
    long[0, -1], long[1, 2**30] = 2, 3
    values, indices = op(long, 3, renormalize=False, dtype=torch.float32)
    assert indices.tolist() == [[2**31 - 2, 0, 1], [2**30, 0, 1]]
    torch.testing.assert_close(values[1, 2].item(), 2.0**-31, rtol=1e-5, atol=0)
    del long
    many = torch.randn(64, device=CUDA).expand(2**27 + 3, 64)
    values, indices = op(many, 1)
    assert (values == 1).all() and (indices == many[0].argmax()).all()

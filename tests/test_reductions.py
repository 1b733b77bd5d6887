"""sum, mean, amax, amin, argmax, argmin and logsumexp against float64 and torch's."""

import ctypes

import pytest
import torch
from common import FLOATING, poison, randn
from reductions import (
    CUDA,
    INTEGERS,
    LAYOUTS,
    check_op_db,
    check_promises,
    dim_cases,
    dims_of,
    integers,
    row_lengths,
    small_cases,
    special_rows,
)

op = torch.ops.xgemm
F32, F16, BF16, F64 = FLOATING
INF, NAN = float("inf"), float("nan")


def accumulator_eps(dtype: torch.dtype) -> float:
    """Of the type in which a kernel adds numbers of this one."""
    return torch.finfo(torch.float64 if dtype is torch.float64 else torch.float32).eps


def assert_within(bound: torch.Tensor, found: torch.Tensor, exact: torch.Tensor, *what: object) -> None:
    error = (found.double() - exact).abs()
    assert (error <= bound).all(), (*what, (error / bound).max())


def assert_sum(name: str, x: torch.Tensor, dim, keepdim: bool = False) -> None:
    """Of sum and mean: the error is at most the output's rounding plus a few fp32 roundings of that of |x|."""
    torchs = getattr(torch, name)
    poison(x.device, 1)
    found, wanted = getattr(op, name)(x, dim, keepdim), torchs(x, dims_of(x, dim), keepdim)
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    exact, scale = (torchs(y, dims_of(x, dim), keepdim) for y in (x.double(), x.double().abs()))
    rounding = torch.finfo(found.dtype).eps * exact.abs() + torch.finfo(found.dtype).tiny
    if found.numel():
        assert_within(16 * accumulator_eps(found.dtype) * scale + rounding, found, exact, x.shape, dim)


def assert_extremum(name: str, x: torch.Tensor, dim, keepdim: bool = False) -> None:
    """Of amax and amin: exactly torch's."""
    poison(x.device, 1)
    found = getattr(op, name)(x, dim, keepdim)
    wanted = getattr(torch, name)(x, dims_of(x, dim), keepdim)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def assert_index(name: str, x: torch.Tensor, dim: int | None, keepdim: bool = False) -> None:
    """Of argmax and argmin: the first position in logical order, as torch's op on the CPU; NaN beats everything."""
    poison(x.device, 1)
    found, wanted = getattr(op, name)(x, dim, keepdim), getattr(torch, name)(x.cpu(), dim, keepdim)
    assert found.dtype is torch.int64 and found.shape == wanted.shape, (x.shape, dim)
    assert torch.equal(found.cpu(), wanted), (x.shape, x.stride(), dim)


def assert_logsumexp(name: str, x: torch.Tensor, dim, keepdim: bool = False) -> None:
    """Allows a few roundings of the result, the accumulator and the sum of exponentials (an absolute error)."""
    poison(x.device, 1)
    found = op.logsumexp(x, dim, keepdim)
    exact = torch.logsumexp(x.double(), dims_of(x, dim), keepdim)
    assert found.shape == exact.shape and found.dtype == x.dtype
    roundings = 1 if x.is_cuda else 4  # ATen's CPU path rounds intermediate results to the input's dtype
    rounding = roundings * torch.finfo(x.dtype).eps * (exact.abs() + roundings - 1)
    if found.numel():
        assert_within(4 * accumulator_eps(x.dtype) * (1 + exact.abs()) + rounding, found, exact, x.shape, dim)


CHECKS = {
    **dict.fromkeys(("sum", "mean"), assert_sum),
    **dict.fromkeys(("amax", "amin"), assert_extremum),
    **dict.fromkeys(("argmax", "argmin"), assert_index),
    "logsumexp": assert_logsumexp,
}
extrema = pytest.mark.parametrize("name", ["amax", "amin"])
indices = pytest.mark.parametrize("name", ["argmax", "argmin"])


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dims_and_layouts(device, name, dtype, layout):
    for shape, dim in dim_cases(device):
        if not (name.startswith("arg") and isinstance(dim, tuple)):
            x = randn(*shape, dtype=dtype, device=device)
            CHECKS[name](name, LAYOUTS[layout](x), dim, keepdim=len(shape) % 2 == 0)


@pytest.mark.sanitize
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *(("sum", dtype) for dtype in FLOATING),
        *((name, dtype) for name in ("amax", "amin") for dtype in (*FLOATING, *INTEGERS, torch.bool)),
        *((name, dtype) for name in ("argmax", "argmin") for dtype in (*FLOATING, *INTEGERS)),
    ],
)
def test_small_cases(device, name, dtype):
    for x, dim in small_cases(dtype, device):
        CHECKS[name](name, x, dim)
    if name == "sum":
        assert_sum(name, randn(3, 64, 40, dtype=dtype, device=device), (0, 2))


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", FLOATING)
def test_row_lengths(device, name, dtype):
    for n in row_lengths(device):
        x = randn(3, n, dtype=dtype, device=device)
        CHECKS[name](name, x, 1)
        CHECKS[name](name, LAYOUTS["misaligned"](x), 1)


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, dtype) for name in ("sum", "logsumexp") for dtype in FLOATING),
        *(("mean", dtype) for dtype in (F32, BF16)),
        *((name, F32) for name in ("amax", "amin", "argmax", "argmin")),
    ],
)
def test_promises(name, dtype):
    check_promises(lambda x, dim: getattr(op, name)(x, dim), dtype)


@pytest.mark.parametrize("name", CHECKS)
def test_torchs_own_samples(device, name):
    exact = name in ("sum", "amax", "amin")
    more = [torch.int32, torch.bool] if exact else [torch.int32] if name.startswith("arg") else []
    check_op_db(name, getattr(op, name), device, [F32, F64, *more])


@pytest.mark.cuda
def test_more_than_2_31_elements():
    x = torch.zeros(2**31 + 3, dtype=torch.float16, device=CUDA)
    torch.testing.assert_close(op.logsumexp(x).float().item(), 21.4876, rtol=1e-3, atol=0)
    x[-1], x[5] = 7, -3
    assert op.amax(x).item() == 7 and op.amin(x).item() == -3
    x[-2], x[5], x[2**31 - 1] = 7, 0, -3
    assert op.argmax(x).item() == 2**31 + 1 and op.argmin(x).item() == 2**31 - 1


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool])
def test_sums_of_integers_are_exact(device, dtype):
    for shape, dim in [*dim_cases(device), ((3, 1025), 1), ((40000, 17), 0)]:
        x = integers(shape, dtype, device)
        found = op.sum(x, dim)
        assert found.dtype is torch.int64
        assert torch.equal(found, torch.sum(x, dims_of(x, dim))), (shape, dim)


@pytest.mark.sanitize
@pytest.mark.parametrize("name", ["sum", "mean"])
def test_dtype_argument(device, name):
    x = 3 * randn(40, 70, device=device)
    kinds = (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64, torch.int8, torch.uint8)
    for source in (x, *(x.to(kind) for kind in kinds), x > 0, x.mT):
        for dtype in (*FLOATING, *INTEGERS, torch.bool) if name == "sum" else FLOATING:
            if source.is_floating_point() and dtype is torch.uint8:
                continue  # negative float to unsigned: undefined in C++, and differs between devices in torch
            found, wanted = (getattr(of, name)(source, 1, dtype=dtype) for of in (op, torch))
            atol = (0.5 if dtype in (F16, BF16) else 1e-4) / (1 if name == "sum" else 50)
            torch.testing.assert_close(found, wanted, rtol=2e-2 if dtype is BF16 else 4e-3, atol=atol)


@pytest.mark.parametrize(("name", "empty"), [("sum", 0.0), ("mean", NAN)])
def test_special_values(device, name, empty):
    reduce = getattr(op, name)
    rows = [[1, INF, 2], [INF, -INF, 0], [NAN, 1, 2], [-INF, 1, 1], [0, 0, 0]]
    for dtype in FLOATING:
        x = torch.tensor(rows, dtype=dtype, device=device)
        torch.testing.assert_close(reduce(x, 1), getattr(torch, name)(x, 1), equal_nan=True, rtol=0, atol=0)
    runs = torch.zeros(3, 0, 2, 1000, device=device)[..., :500]  # no rows
    nothing = (torch.zeros(0, 3, device=device), 0), (torch.zeros(0, device=device),), (runs,), (runs, (1, 2, 3))
    for found in (reduce(*args) for args in nothing):
        torch.testing.assert_close(found, torch.full_like(found, empty), equal_nan=True, rtol=0, atol=0)
    assert reduce(torch.zeros(3, 0, device=device), 0).shape == (0,)


def test_sums_of_denormals_and_of_no_integers(device):
    tiny = torch.full((1000,), 1e-40, device=device)
    torch.testing.assert_close(op.sum(tiny), tiny.double().sum().float(), rtol=1e-5, atol=0)
    assert op.sum(torch.zeros(0, 3, dtype=torch.int8, device=device), 0).tolist() == [0, 0, 0]


def test_expanded_and_overlapping(device):
    x = randn(5, 1, 300, device=device).expand(5, 40, 300)
    for dim in (0, 1, 2, (0, 1), (1, 2), None):
        assert_sum("sum", x, dim)
    windows = randn(1000, device=device).as_strided((900, 100), (1, 1))
    for dim in (0, 1, None):
        assert_sum("sum", windows, dim)
    for stride in (3, 9, 17):
        assert_sum("sum", randn(899 * stride + 300, device=device).as_strided((900, 300), (stride, 1)), 0)


@pytest.mark.cuda
def test_captured_calls_share_no_counters():
    """Concurrent graphs and calls, and more captured calls than there are counters for them."""
    x = torch.randn(1 << 20, device=CUDA)
    wanted, graphs = op.sum(x), []
    for _ in range(3):
        graph, stream, results = torch.cuda.CUDAGraph(), torch.cuda.Stream(), []
        with torch.cuda.graph(graph):
            results = [op.sum(x) for _ in range(400)]
        graphs.append((graph, stream, results))
    for _ in range(3):
        for _, _, results in graphs:
            for result in results:
                result.fill_(NAN)
        torch.cuda.synchronize()
        for graph, stream, _ in graphs:
            with torch.cuda.stream(stream):
                graph.replay()
        called = [op.sum(x) for _ in range(400)]
        torch.cuda.synchronize()
        assert all(torch.equal(r, wanted) for r in called)
        assert all(torch.equal(torch.stack(results), wanted.expand(400)) for _, _, results in graphs)


@pytest.mark.cuda
def test_counters_come_back_with_their_graph():
    """More captures in all than counters, one graph at a time: each sum stays one kernel without a memset."""
    x = torch.randn(1 << 20, device=CUDA)
    nodes_of, wanted, result = ctypes.CDLL("libcuda.so.1").cuGraphGetNodes, op.sum(x), None
    for _ in range(12):
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph):
            for _ in range(200):
                result = op.sum(x)
        count = ctypes.c_size_t()
        assert nodes_of(ctypes.c_void_p(graph.raw_cuda_graph()), None, ctypes.byref(count)) == 0
        assert count.value == 200
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(result, wanted)
        del graph


@pytest.mark.cuda
def test_sums_are_as_exact_as_torchs():
    """Against float64: full sums up to 2^31 + 3, rows and columns; our error is at most twice torch's."""
    shapes = [(((1 << 28) + 1,), None), ((64, 1 << 20), 1), ((1 << 20, 64), 0), ((4096, 4097), 1)]
    if torch.cuda.get_device_properties(CUDA).total_memory > 2**36:
        shapes += [(((1 << 31) + 3,), None), ((64, (1 << 25) + 1), 1)]
    for shape, dim in shapes:
        x = torch.randn(shape, device=CUDA) + 0.25
        exact = torch.sum(x, dim, dtype=torch.float64)
        ours, theirs = (op.sum(x, dim).double() - exact).abs().max(), (torch.sum(x, dim).double() - exact).abs().max()
        scale = torch.finfo(torch.float32).eps * exact.abs().max()
        print(shape, dim, f"ours {ours.item():.3g} torch {theirs.item():.3g} ulp {scale.item():.3g}")
        assert ours <= 2 * theirs + scale


@pytest.mark.cuda
def test_sums_of_more_than_2_31_elements():
    n = 2**31 + 3
    x = torch.ones(n, dtype=torch.float16, device=CUDA)
    x[-1] = 5
    assert abs(op.sum(x, dtype=torch.float32).item() - (n + 4)) <= 256
    rows = x[: 2**31].view(2**15, 2**16)
    assert (op.sum(rows, 1, dtype=torch.float32) == 2.0**16).all()
    many = x[:-1].view(-1, 2)
    out = op.sum(many, 1)
    assert out.numel() == many.shape[0] and (out == 2).all()
    assert (op.sum(x[: 2**31].view(2**12, 2**19), 0, dtype=torch.float32) == 2**12).all()
    x[2**31 - 1] = 4
    short = op.sum(x[: 2**31].view(8, 2**28), 0, dtype=torch.float32)
    assert (short[:-1] == 8).all() and short[-1] == 11


@extrema
def test_special_values_of_extrema(device, name):
    rows = [[1, INF, 2], [INF, -INF, 0], [NAN, 1, 2], [1, INF, NAN], [-INF] * 3, [INF] * 3, [-1e-7, 0, 1e-7]]
    for dtype in FLOATING:
        x = torch.tensor(rows, dtype=dtype, device=device)
        for wide in (x, x.repeat(1, 700), x.mT.contiguous().mT.repeat(1, 30)):
            assert_extremum(name, wide, 1)
            assert_extremum(name, wide.mT, 0)
            assert_extremum(name, wide, 0)
    for dtype in INTEGERS:
        info = torch.iinfo(dtype)
        for value in (info.min, info.max):
            assert getattr(op, name)(torch.full((3, 37), value, dtype=dtype, device=device)).item() == value
    empty = torch.zeros(0, 3, device=device)
    assert getattr(op, name)(empty, 1).shape == (0,)


@indices
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.int32])
def test_row_lengths_and_ties(device, name, dtype):
    for n in row_lengths(device):
        many_ties = torch.randint(-3, 3, (2, n), device=device).to(dtype)
        assert_index(name, many_ties, 1)
        assert_index(name, torch.full((2, n), -7, device=device).to(dtype), 1)
        assert_index(name, many_ties.mT.contiguous(), 0)


@indices
def test_special_values_of_indices(device, name):
    rows = [[1, INF, 2, INF], [INF, -INF, 0, -INF], [NAN, 1, 2, NAN], [1, INF, NAN, NAN]]
    rows += [[-INF] * 4, [INF] * 4, [0.0, -0.0, 0.0, -0.0]]
    for dtype in FLOATING:
        x = torch.tensor(rows, dtype=dtype, device=device)
        for wide in (x, x.repeat(1, 500), x.repeat(1, 40000)):
            assert_index(name, wide, 1)
            assert_index(name, wide.mT.contiguous(), 0)
    late = torch.full((70001,), 1.0, device=device)
    late[69999] = NAN
    assert getattr(op, name)(late).item() == 69999
    assert getattr(op, name)(torch.zeros(0, 3, device=device), 1).shape == (0,)


def test_all_dims_count_in_logical_order(device):
    x = randn(30, 40, 50, device=device)
    for view in (x.permute(2, 0, 1), x.mT, x[:, ::3], x.permute(1, 2, 0)[5:, :, ::2]):
        assert_index("argmax", view, None)
        assert_index("argmin", view, None, keepdim=True)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_blocks_of_more_than_2_16_positions(dtype):
    x = torch.zeros((1 << 25) + 5, 3, dtype=dtype, device=CUDA)
    x[70000, 0], x[-3, 1], x[66000, 2] = 1, 1, -1
    assert op.argmax(x, 0).tolist() == [70000, (1 << 25) + 2, 0]
    assert op.argmin(x, 0).tolist() == [0, 0, 66000]


@pytest.mark.parametrize("dtype", FLOATING)
def test_row_lengths_and_magnitudes(device, dtype):
    for n in row_lengths(device):
        x = randn(3, n, device=device)
        for scale, shift in ((1, 0), (30, 0), (1, 1000), (0.01, -300), (1, 1e4), (1, -3e4)):
            assert_logsumexp("logsumexp", (x * scale + shift).to(dtype), 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("magnitude", [6e4, 7e4, 1e6, 1e8, 3e9, 1e10, 1e20, 8.4e37, 8.6e37, 2e38])
def test_large_magnitudes(device, dtype, magnitude):
    """A large maximum times log2(e) rounds by far more than 1, so it must not become part of an exponent."""
    for n in (5, 700, 20000):
        x = randn(3, n, device=device, dtype=torch.float64) * 30
        for sign in (1, -1):
            mixed = torch.where(torch.rand(3, n, device=device) < 0.5, 0.999, 1.0) * magnitude
            assert_logsumexp("logsumexp", (x + sign * magnitude).to(dtype), 1)
            assert_logsumexp("logsumexp", (x + sign * mixed).to(dtype), 1)
            assert_logsumexp("logsumexp", (x + sign * mixed).to(dtype).mT.contiguous(), 0)


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", FLOATING)
def test_special_values_of_logsumexp(device, dtype):
    big = 6e4 if dtype is torch.float16 else 1e38
    rows = [*special_rows(dtype), [big, big, INF, 0], [INF, -INF, big, 200]]
    if dtype is not torch.float16:  # near the largest value, where a product with log2(e) overflows
        rows += [[3.3e38, 3.2e38, 0, -3.3e38], [-3.3e38, -3.3e38, -3e38, -INF], [8.4e37, 8.6e37, 1, -3.3e38]]
    x = torch.tensor(rows, dtype=dtype, device=device)
    repeats = (1, 40, 260, 3000, 30000) if device.type == "cuda" else (1, 40)
    for wide in (*(x.repeat(1, n) for n in repeats), x.repeat_interleave(61, 1)):
        for view, dim in ((wide, 1), (wide.mT.contiguous(), 0)):
            wanted = torch.logsumexp(view.double(), dim).to(dtype)
            torch.testing.assert_close(op.logsumexp(view, dim), wanted, equal_nan=True)
    assert op.logsumexp(torch.zeros(0, 3, device=device), 0).tolist() == [-INF] * 3
    assert op.logsumexp(torch.zeros(3, 0, device=device), 0).shape == (0,)


def test_integers_become_float32(device):
    x = torch.arange(12, device=device).view(3, 4)
    for source in (x, x.to(torch.uint8), x > 5):
        torch.testing.assert_close(op.logsumexp(source, [1]), torch.logsumexp(source, 1))
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # the same on every device and for fake tensors
    try:
        assert op.logsumexp(x, [1]).dtype == op.logsumexp(x.to("meta"), [1]).dtype == torch.float32
    finally:
        torch.set_default_dtype(before)

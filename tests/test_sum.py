"""torch.ops.xgemm.sum against float64 and torch.sum."""

import ctypes

import pytest
import torch
from common import FLOATING, poison, randn
from hypothesis import given, settings
from hypothesis import strategies as st
from reductions import (
    CUDA,
    INTEGERS,
    LAYOUTS,
    check_errors,
    check_op_db,
    check_promises,
    dim_cases,
    dims_of,
    integers,
    row_lengths,
    small_cases,
)

op = torch.ops.xgemm


def assert_sum(x: torch.Tensor, dim, keepdim: bool = False, dtype: torch.dtype | None = None) -> None:
    """|sum - sum64| is at most the output's rounding plus a few fp32 roundings of the sum of |x|."""
    poison(x.device, 1)
    found = op.sum(x, dim, keepdim, dtype=dtype)
    wanted = torch.sum(x, dims_of(x, dim), keepdim, dtype=dtype)
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    if found.numel() == 0:
        return
    exact = x.double().sum(dims_of(x, dim), keepdim)
    scale = x.double().abs().sum(dims_of(x, dim), keepdim)
    accumulate = torch.finfo(torch.float64 if found.dtype is torch.float64 else torch.float32).eps
    bound = 16 * accumulate * scale + torch.finfo(found.dtype).eps * exact.abs() + torch.finfo(found.dtype).tiny
    error = (found.double() - exact).abs()
    assert (error <= bound).all(), (x.shape, dim, (error / bound).max())


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dims_and_layouts(device, dtype, layout):
    for shape, dim in dim_cases(device):
        assert_sum(LAYOUTS[layout](randn(*shape, dtype=dtype, device=device)), dim, keepdim=len(shape) % 2 == 0)


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", FLOATING)
def test_small_cases(device, dtype):
    for x, dim in small_cases(dtype, device):
        assert_sum(x, dim)
    assert_sum(randn(3, 64, 40, dtype=dtype, device=device), (0, 2))


@pytest.mark.parametrize("dtype", FLOATING)
def test_row_lengths(device, dtype):
    for n in row_lengths(device):
        x = randn(3, n, dtype=dtype, device=device)
        assert_sum(x, 1)
        assert_sum(LAYOUTS["misaligned"](x), 1)


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool])
def test_integers_are_exact(device, dtype):
    for shape, dim in [*dim_cases(device), ((3, 1025), 1), ((40000, 17), 0)]:
        x = integers(shape, dtype, device)
        found = op.sum(x, dim)
        assert found.dtype is torch.int64
        assert torch.equal(found, torch.sum(x, dims_of(x, dim))), (shape, dim)


@pytest.mark.sanitize
def test_dtype_argument(device):
    x = 3 * randn(40, 70, device=device)
    for source in (x, x.half(), x.bfloat16(), x.double(), x.int(), x.long(), x.to(torch.uint8), x > 0, x.mT):
        for dtype in (*FLOATING, *INTEGERS, torch.bool):
            if source.is_floating_point() and dtype is torch.uint8:
                continue  # negative float to unsigned: undefined in C++, and differs between devices in torch
            found, wanted = op.sum(source, 1, dtype=dtype), torch.sum(source, 1, dtype=dtype)
            torch.testing.assert_close(
                found,
                wanted,
                rtol=2e-2 if dtype is torch.bfloat16 else 4e-3,
                atol=0.5 if dtype in FLOATING[1:3] else 1e-4,
            )


def test_special_values(device):
    inf, nan = float("inf"), float("nan")
    for dtype in FLOATING:
        x = torch.tensor(
            [[1, inf, 2], [inf, -inf, 0], [nan, 1, 2], [-inf, 1, 1], [0, 0, 0]], dtype=dtype, device=device
        )
        torch.testing.assert_close(op.sum(x, 1), torch.sum(x, 1), equal_nan=True, rtol=0, atol=0)
    tiny = torch.full((1000,), 1e-40, device=device)
    torch.testing.assert_close(op.sum(tiny), tiny.double().sum().float(), rtol=1e-5, atol=0)  # denormals count
    assert op.sum(torch.zeros(0, 3, device=device), 0).tolist() == [0, 0, 0]
    assert op.sum(torch.zeros(0, device=device)).item() == 0
    assert op.sum(torch.zeros(3, 0, device=device), 0).shape == (0,)
    assert op.sum(torch.zeros(0, 3, dtype=torch.int8, device=device), 0).tolist() == [0, 0, 0]
    runs = torch.zeros(3, 0, 2, 1000, device=device)[..., :500]  # no rows
    assert op.sum(runs).item() == 0 and op.sum(runs, (1, 2, 3)).tolist() == [0, 0, 0]


def test_expanded_and_overlapping(device):
    x = randn(5, 1, 300, device=device).expand(5, 40, 300)
    for dim in (0, 1, 2, (0, 1), (1, 2), None):
        assert_sum(x, dim)
    windows = randn(1000, device=device).as_strided((900, 100), (1, 1))
    for dim in (0, 1, None):
        assert_sum(windows, dim)
    for stride in (3, 9, 17):
        assert_sum(randn(899 * stride + 300, device=device).as_strided((900, 300), (stride, 1)), 0)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_random_views(data):
    rank = data.draw(st.integers(1, 5))
    shape = data.draw(st.lists(st.integers(0, 9), min_size=rank, max_size=rank))
    order = data.draw(st.permutations(range(rank)))
    x = torch.randn(shape, dtype=torch.float64).permute(order)
    start = data.draw(st.integers(0, 2))
    x = x[(slice(None),) * (rank - 1) + (slice(start, None, data.draw(st.integers(1, 3))),)]
    dims = data.draw(st.lists(st.integers(0, rank - 1), unique=True))
    keepdim = data.draw(st.booleans())
    torch.testing.assert_close(op.sum(x, dims, keepdim), torch.sum(x, dims, keepdim))
    if torch.cuda.is_available():
        y = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=CUDA).copy_(x)
        torch.testing.assert_close(op.sum(y, dims, keepdim), torch.sum(y, dims, keepdim))


def test_bad_arguments(device):
    x = randn(3, 4, device=device)
    check_errors(
        [
            (lambda: op.sum(x, 2), "xgemm::sum: expected dim in [-2, 1], got 2"),
            (lambda: op.sum(x, [0, -2]), "xgemm::sum: expected every dim at most once, got -2 twice"),
            (lambda: op.sum(x.to(torch.complex64)), "xgemm::sum: expected input of dtype float32"),
            (lambda: op.sum(x, dtype=torch.complex64), "xgemm::sum: expected dtype to be a real"),
            (lambda: op.sum(x.view(3, 4, *[1] * 63)), "xgemm::sum: expected input of at most 64 dims, got 65"),
            (lambda: op.sum(x.to_sparse()), "xgemm::sum: expected input to be a dense (strided) tensor"),
        ]
    )
    assert_sum(x, 0)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", FLOATING)
def test_promises(dtype):
    check_promises(lambda x, dim: op.sum(x, dim), dtype)


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
                result.fill_(float("nan"))
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


def test_torchs_own_samples(device):
    dtypes = [torch.float32, torch.float64, torch.int32, torch.bool]
    check_op_db("sum", op.sum, device, dtypes)


@pytest.mark.cuda
def test_as_exact_as_torch():
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
def test_more_than_2_31_elements():
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

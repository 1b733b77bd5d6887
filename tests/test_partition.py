"""Every operator on part of a GPU: green contexts of few SMs, where a plan for the whole GPU may not run."""

from collections.abc import Iterator

import pytest
import torch
from calls import CALLS, Call, name
from common import randn, tuple_of
from torch.cuda import green_contexts

op = torch.ops.xgemm
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.usefixtures("no_grad"),
    pytest.mark.skipif(not green_contexts.SUPPORTED, reason="this torch has no green contexts"),
]

SMS = [8, 16, 64]


@pytest.fixture(params=SMS)
def partition(request: pytest.FixtureRequest) -> Iterator[int]:
    context = green_contexts.GreenContext.create(request.param, 0)
    torch.cuda.synchronize()
    context.set_context()
    yield request.param
    context.pop_context()
    torch.cuda.synchronize()


def check(call, *args: torch.Tensor) -> None:
    """Against the same call in float64, both in the partition, and the same bits on repeat."""
    wide = tuple_of(call(*(a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args)))
    first, second = tuple_of(call(*args)), tuple_of(call(*args))
    for wanted, found, again in zip(wide, first, second, strict=True):
        eps = torch.finfo(found.dtype).eps if found.is_floating_point() else 0
        scale = wanted.abs().max().item() if wanted.numel() else 0
        torch.testing.assert_close(found.double(), wanted.double(), rtol=8 * eps, atol=64 * eps * scale)
        assert torch.equal(found, again)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("call", CALLS, ids=name)
def test_every_op(partition: int, call: Call, dtype: torch.dtype) -> None:
    args = call.args(torch.device("cuda"), dtype)
    if call.op.startswith(("arg", "topk")):  # indices: of the same numbers
        torch.testing.assert_close(call.raw(*args, **call.kwargs), call.torch_op(*args, **call.kwargs))
    else:
        check(lambda *a: call.raw(*a, **call.kwargs), *args)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(64, 70001), (8, 300000), (3, 1 << 20), (512, 4096), (16, 5, 100000)], ids=str)
def test_long_rows_and_columns(partition: int, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """What clusters of up to 16 CTAs compute on the whole GPU."""
    x = randn(*shape, dtype=dtype, device="cuda")
    for dim in range(len(shape)):
        check(lambda x, dim=dim: op.softmax(x, dim), x)
        check(lambda x, dim=dim: op.log_softmax(x, dim), x)
        for reduce in (op.logsumexp, op.amax, op.sum):
            check(lambda x, dim=dim, reduce=reduce: reduce(x.abs(), [dim]), x)
        assert torch.equal(op.argmax(x, dim), torch.argmax(x, dim))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize(
    "shape",
    [(1024, 1024, 1024), (64, 64, 65536), (16, 4096, 4096), (1, 4096, 4096), (512, 64, 8192), (255, 511, 257)],
    ids=str,
)
def test_matmul(partition: int, shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    """Splits of K whose CTAs wait for each other, clusters, persistent CTAs."""
    m, n, k = shape
    a, b = randn(m, k, dtype=dtype, device="cuda"), randn(n, k, dtype=dtype, device="cuda")
    check(lambda a, b: op.matmul(a, b.mT), a, b)
    check(lambda a, b: op.matmul(a, b), a, b.mT.contiguous())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("queries", "keys"), [(300, 300), (1, 9000), (2000, 2000)])
def test_attention(partition: int, queries: int, keys: int, dtype: torch.dtype) -> None:
    q, k, v = (randn(2, 4, length, 64, dtype=dtype, device="cuda") for length in (queries, keys, keys))
    check(lambda q, k, v: op.attention(q, k, v, is_causal=queries == keys), q, k, v)


@pytest.mark.parametrize("sms", SMS)
def test_two_partitions_at_a_time(sms: int) -> None:
    """Their default streams run kernels side by side: memory that outlives a call belongs to one of them."""
    contexts = [green_contexts.GreenContext.create(sms, 0) for _ in range(2)]
    x = [randn(64, 65536, device="cuda") for _ in contexts]
    found = [[], []]
    torch.cuda.synchronize()
    for _ in range(20):
        for context, a, results in zip(contexts, x, found, strict=True):
            context.set_context()
            results.append([op.sum(a, [1]), op.matmul(a, a.mT), op.softmax(a, 1)])
            context.pop_context()
    torch.cuda.synchronize()
    for a, results in zip(x, found, strict=True):
        for wanted, first in zip([a.sum(1), a.double() @ a.mT.double(), a.softmax(1)], results[0], strict=True):
            torch.testing.assert_close(first.double(), wanted.double(), rtol=1e-4, atol=1e-3)
        for later in results[1:]:
            assert all(map(torch.equal, later, results[0]))


def test_the_whole_gpu_afterwards() -> None:
    """The first call of a thread inside a partition, and one outside after it."""
    x = randn(8, 300000, device="cuda")
    wanted = op.softmax(x, 1)
    context = green_contexts.GreenContext.create(8, 0)
    context.set_context()
    torch.testing.assert_close(op.softmax(x, 1), wanted)
    context.pop_context()
    assert torch.equal(op.softmax(x, 1), wanted)

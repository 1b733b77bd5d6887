"""The processes of the tests in test_distributed.py: each runs every check of this file.

python distributed_worker.py <backend> <folder> <world size>... imports torch once and forks the processes.
"""

import contextlib
import itertools
import os
import random
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

import pytest
import torch
import torch.distributed as dist
from common import randn, tuple_of
from named import OPERATORS, cases_of, make
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.nn import functional as F

import torch_ext

R = Replicate()
op = torch.ops.xgemm
CHECKS: dict[str, Callable[[DeviceMesh], None]] = {}


def check(f: Callable[[DeviceMesh], None]) -> Callable[[DeviceMesh], None]:
    CHECKS[f.__name__] = f
    return f


def place(x: torch.Tensor, mesh: DeviceMesh, placements: tuple[Placement, ...]) -> DTensor:
    """Distributes a tensor that is equal in every process. Partial: unequal addends of the tensor."""
    kept = [R if p.is_partial() else p for p in placements]
    whole = distribute_tensor(x, mesh, kept)
    local = whole.to_local()
    for i, p in enumerate(placements):
        if p.is_partial():
            share = 0.25 if mesh.get_local_rank(i) == 0 else 0.75 / (mesh.size(i) - 1)
            local = local * share
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=x.shape, stride=x.stride())


def whole(x: object) -> tuple[torch.Tensor, ...]:
    return tuple(y.full_tensor() for y in tuple_of(x))


def same(actual: object, expected: object) -> None:
    """Values, and strides: the plain operator's, and of the local tensors the same order of dims."""
    for ours, values, reference in zip(tuple_of(actual), whole(actual), tuple_of(expected), strict=True):
        torch.testing.assert_close(values, reference, rtol=1e-4, atol=1e-4, equal_nan=True)
        if isinstance(ours, DTensor):
            assert ours.stride() == reference.stride(), (ours.stride(), reference.stride())
            order = sorted(range(reference.dim()), key=reference.stride().__getitem__, reverse=True)
            local = ours.to_local()
            assert local.permute(order).is_contiguous(), (local.shape, local.stride(), reference.stride())


def in_any_order(x: torch.Tensor, order: random.Random) -> torch.Tensor:
    dims = order.sample(range(x.dim()), x.dim())
    return x.permute(dims).contiguous().permute(sorted(range(x.dim()), key=dims.__getitem__))


def choices(x: torch.Tensor) -> list[Placement]:
    sums = [Partial()] if x.is_floating_point() else []
    return [R, *sums, *(Shard(d) for d in range(x.dim()))]


def sweep(name: str) -> Callable[[DeviceMesh], None]:
    def run(mesh: DeviceMesh) -> None:
        order = random.Random(mesh.size())  # the same in every process, other placements for another number of them
        for shapes, options in cases_of(name):
            tensors = {n: make(n, shape, torch.float32, mesh.device_type) for n, shape in shapes.items()}
            tensors = {n: in_any_order(x, order) for n, x in tensors.items()}
            expected = getattr(op, name)(**tensors, **options)
            combinations = list(itertools.product(*(choices(x) for x in tensors.values() for _ in range(mesh.ndim))))
            # More processes: for shards that are uneven or empty.
            count = max(2, (32 if mesh.size() == 2 else 12) // len(cases_of(name)))
            for i, combination in enumerate(order.sample(combinations, min(len(combinations), count))):
                placements = [combination[d : d + mesh.ndim] for d in range(0, len(combination), mesh.ndim)]
                given = {n: place(x, mesh, p) for (n, x), p in zip(tensors.items(), placements, strict=True)}
                for x in given.values():  # as parameters do
                    x.requires_grad_(x.is_floating_point())
                try:
                    # Every other call as the functions call them.
                    with torch._C._AutoDispatchBelowAutograd() if i % 2 else contextlib.nullcontext():
                        actual = getattr(op, name)(**given, **options)
                    same(actual, expected)
                except Exception as error:
                    raise AssertionError(f"{name} {shapes} {options} {placements}: {error}") from error

    return run


for _name in OPERATORS:
    CHECKS[f"{_name}_of_any_placements"] = sweep(_name)


def local_only(call: Callable[[], object], expected: object, *placements: Placement) -> None:
    with CommDebugMode() as communication:
        actual = call()
    assert communication.get_total_counts() == 0, communication.get_comm_counts()
    assert [y.placements for y in tuple_of(actual)] == [(p,) for p in placements]
    same(actual, expected)


@check
def columns_then_rows(mesh: DeviceMesh) -> None:
    """A feed-forward layer as in Megatron: one all-reduce, bias and residual added once."""
    device = mesh.device_type
    x, up, down = randn(3, 6, device=device), randn(8, 6, device=device), randn(6, 8, device=device)
    up_bias, down_bias = randn(8, device=device), randn(6, device=device)
    hidden = op.linear(x, up, up_bias, activation="relu")
    expected = op.linear(hidden, down, down_bias, residual=x)
    given, columns = place(x, mesh, (R,)), [place(t, mesh, (Shard(0),)) for t in (up, up_bias)]
    rows = [place(down, mesh, (Shard(1),)), place(down_bias, mesh, (R,))]
    local_only(lambda: op.linear(given, *columns, activation="relu"), hidden, Shard(1))
    sharded = op.linear(given, *columns, activation="relu")
    local_only(lambda: op.linear(sharded, *rows, residual=given), expected, Partial())


@check
def heads(mesh: DeviceMesh) -> None:
    device = mesh.device_type
    q, k = randn(2, 4, 5, 8, device=device), randn(2, 2, 6, 8, device=device)
    mask = torch.rand(2, 1, 5, 6, device=device) > 0.3
    given = [place(x, mesh, (Shard(1),)) for x in (q, k, k)]
    expected = op.attention_lse(q, k, k, attn_mask=mask, enable_gqa=True)
    options = {"attn_mask": place(mask, mesh, (R,)), "enable_gqa": True}
    local_only(lambda: op.attention_lse(*given, **options), expected, Shard(1), Shard(1))
    with CommDebugMode() as communication:  # three key heads on two processes: a shard needs the other's keys
        k = randn(2, 3, 6, 8, device=device)
        q = randn(2, 6, 5, 8, device=device)
        given = [place(x, mesh, (Shard(1),)) for x in (q, k, k)]
        same(op.attention(*given, enable_gqa=True), op.attention(q, k, k, enable_gqa=True))
    assert communication.get_total_counts() > 0


@check
def caches(mesh: DeviceMesh) -> None:
    """What is appended goes to each process' part of the cache, by heads or by sequences, and never to a copy."""
    device, options = mesh.device_type, {"is_causal": True}
    q, new = randn(2, 3, 4, 8, device=device), randn(2, 3, 2, 8, device=device)
    lengths = torch.tensor([2, 0], dtype=torch.int32, device=device)
    wanted = torch.zeros(2, 2, 6, 2, 8, device=device).unbind()
    expected = op.attention_with_cache_lse(q, *wanted, lengths, key=new, value=new + 1, **options)
    for heads in (True, False):
        at = Shard(2 if heads else 0)
        kept = [place(torch.zeros_like(x), mesh, (at,)) for x in wanted]
        given = [place(x, mesh, (at,)) for x in (q, new, new + 1)]
        numbers = place(lengths, mesh, (R if heads else at,))
        new_rows = {"key": given[1], "value": given[2], **options}
        call = partial(op.attention_with_cache_lse, given[0], *kept, numbers, **new_rows)
        local_only(call, expected, at, Shard(1 if heads else 0))
        same(tuple(kept), wanted)
    whole_caches = [place(x, mesh, (R,)) for x in wanted]
    with pytest.raises(RuntimeError, match=r"^xgemm::attention_with_cache: expected key_cache, which it writes to"):
        op.attention_with_cache(given[0], *whole_caches, numbers, key=given[1], value=given[2])


@check
def sums(mesh: DeviceMesh) -> None:
    x = randn(4, 6, device=mesh.device_type)
    given = place(x, mesh, (Shard(0),))
    for _ in range(2):  # a cached plan must be for its own dims
        local_only(lambda: op.sum(given, [0]), x.sum(0), Partial())
        local_only(lambda: op.sum(given, [1]), x.sum(1), Shard(0))
        local_only(lambda: op.sum(given, [1], True), x.sum(1, True), Shard(0))
    local_only(lambda: op.mean(given, [0]), x.mean(0), Partial("avg"))
    local_only(lambda: op.amax(given, [0]), x.amax(0), Partial("max"))
    local_only(lambda: op.softmax(given, -1), x.softmax(-1), Shard(0))
    target = torch.randint(0, 6, (4,), device=mesh.device_type)
    expected = F.cross_entropy(x, target, reduction="sum")
    classes = place(target, mesh, (Shard(0),))
    local_only(lambda: op.cross_entropy(given, classes, reduction="sum"), expected, Partial())


def extrema(mesh: DeviceMesh) -> None:
    """Of shards that may be empty: 4 rows on 3 processes are 2, 2 and none."""
    device = mesh.device_type
    for rows, name in itertools.product((1, 4, 5), ("amax", "amin")):
        keepdim = rows == 4
        for x in (
            randn(rows, 3, device=device).abs() * (-1 if name == "amax" else 1),
            randn(rows, 3, device=device, dtype=torch.bfloat16),
            torch.full((rows, 3), -torch.inf if name == "amax" else torch.inf, device=device),
            torch.full((rows, 3), torch.nan, device=device),
            torch.randint(-100, -5, (rows, 3), device=device) * (1 if name == "amax" else -1),
            torch.randint(5, 100, (rows, 3), device=device, dtype=torch.uint8),
            torch.full((rows, 3), name == "amin", device=device),
        ):
            for dim in (None, [0], [-1, 0], [1]):
                expected = getattr(torch, name)(x, dim if dim is not None else (), keepdim)
                given = place(x, mesh, (Shard(0),) * mesh.ndim)
                actual = getattr(op, name)(given, dim, keepdim)
                if rows >= mesh.size(0) and dim != [1]:
                    assert actual.placements[0].is_partial(), actual.placements
                same(actual, expected)


CHECKS["extrema_of_any_placements"] = extrema


class Block(torch.nn.Module):
    """Of torch's modules, or of torch_ext's."""

    def __init__(self, linear: type[torch.nn.Linear]) -> None:
        super().__init__()
        self.ours = linear is torch_ext.nn.Linear
        self.norm1, self.norm2 = torch.nn.LayerNorm(16), torch.nn.LayerNorm(16)
        self.q, self.k, self.v, self.out = linear(16, 16), linear(16, 8), linear(16, 8), linear(16, 16)
        self.up, self.down = linear(16, 32), linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        q, k, v = (f(y).unflatten(-1, (-1, 4)).transpose(1, 2) for f in (self.q, self.k, self.v))
        if self.ours:
            y = torch_ext.attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def blocks(mesh: DeviceMesh, linear: type[torch.nn.Linear] = torch.nn.Linear) -> tuple[torch.nn.Module, ...]:
    """Two blocks, an input, and torch's output in one process."""
    model = torch.nn.Sequential(Block(linear), Block(linear)).to(mesh.device_type).eval()
    reference = torch.nn.Sequential(Block(torch.nn.Linear), Block(torch.nn.Linear)).to(mesh.device_type).eval()
    for parameter in reference.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.load_state_dict(reference.state_dict())
    x = randn(2, 6, 16, device=mesh.device_type)
    return model, x, reference(x)


SERVED = {("linear", "xgemm"): 12, ("attention", "xgemm"): 2}  # of the two blocks


def ours_and_replaced(mesh: DeviceMesh) -> Iterator[tuple[torch.nn.Module, ...]]:
    """blocks() of our modules, and of torch's that are replaced, in which we serve everything."""
    yield blocks(mesh, torch_ext.nn.Linear)
    report = torch_ext.replace((made := blocks(mesh))[0], include="all")
    yield made
    assert report.calls == SERVED, report


def parallelize(model: torch.nn.Module, mesh: DeviceMesh, sequence: bool = False, local: bool = True) -> None:
    columns = ColwiseParallel(input_layouts=Shard(1) if sequence else R, use_local_output=local)
    rows = RowwiseParallel(output_layouts=Shard(1) if sequence else R, use_local_output=local)
    plan = {"q": columns, "k": columns, "v": columns, "out": rows, "up": columns, "down": rows}
    if sequence:
        plan |= {"norm1": SequenceParallel(), "norm2": SequenceParallel()}
    for block in model:
        parallelize_module(block, mesh, plan)


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


@check
def tensor_parallel(mesh: DeviceMesh) -> None:
    for model, x, expected in ours_and_replaced(mesh):
        parallelize(model, mesh)
        assert isinstance(model[0].q.weight, DTensor) and model[0].q.weight.to_local().shape == (16 // mesh.size(), 16)
        close(model(x), expected)
    model, x, expected = blocks(mesh, torch_ext.nn.Linear)
    parallelize(model, mesh)
    with torch.inference_mode():
        close(model(x), expected)


@check
def a_parallel_model_is_replaced(mesh: DeviceMesh) -> None:
    model, x, expected = blocks(mesh)
    parallelize(model, mesh)
    report = torch_ext.replace(model, include="all")
    close(model(x), expected)
    assert report.calls == SERVED, report


@check
def sequence_parallel(mesh: DeviceMesh) -> None:
    for model, x, expected in ours_and_replaced(mesh):
        parallelize(model, mesh, sequence=True)
        mine = mesh.get_local_rank()
        close(model(x.chunk(mesh.size(), 1)[mine]), expected.chunk(mesh.size(), 1)[mine])


@check
def dtensors_from_end_to_end(mesh: DeviceMesh) -> None:
    """Attention sees DTensors too, sharded by heads: nothing but the two row-parallel layers communicates."""
    model, x, expected = blocks(mesh)
    report = torch_ext.replace(model, include="all")
    parallelize(model, mesh, local=False)
    distribute_module(model, mesh)
    given = place(x, mesh, (R,))
    with CommDebugMode() as communication:
        actual = model(given)
    same(actual, expected)
    assert report.calls == SERVED, report
    assert communication.get_total_counts() == 4, communication.get_comm_counts()


@check
def fully_sharded(mesh: DeviceMesh) -> None:
    for model, x, expected in ours_and_replaced(mesh):
        for block in model:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        assert isinstance(model[0].q.weight, DTensor)
        close(model(x), expected)


@check
def compiled(mesh: DeviceMesh) -> None:
    """One block: a second one takes as many seconds and has the same calls."""
    model, x, _ = blocks(mesh, torch_ext.nn.Linear)
    parallelize(model, mesh)
    close(torch.compile(model[0], backend="aot_eager", dynamic=True)(x), model[0](x))


@check
def errors_are_one_line(mesh: DeviceMesh) -> None:
    x = randn(4, 6, device=mesh.device_type)
    given = place(x, mesh, (Shard(0),))
    for call, message in [
        (lambda: op.matmul(given, x.mT), "matmul: expected all tensors to be DTensors where one is, got b of type"),
        (lambda: op.matmul(given, given), "matmul: expected a's last dim to equal b's second-to-last dim"),
        (lambda: torch_ext.softmax(given, 2), "softmax: expected dim in [-2, 1], got 2"),
        (lambda: torch_ext.softmax(given.clone().requires_grad_(), 0), "softmax: has no backward"),
    ]:
        with torch.enable_grad(), pytest.raises((RuntimeError, IndexError)) as error:
            call()
        assert str(error.value).startswith(f"xgemm::{message}") and "\n" not in str(error.value), error.value


def main(rank: int, size: int, backend: str, folder: str) -> None:
    torch.set_num_threads(1)
    device = "cpu" if backend == "gloo" else "cuda"
    if device == "cuda":
        torch.cuda.set_device(rank)
    meeting = f"file://{folder}/meeting_of_{size}"
    dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=size, timeout=timedelta(minutes=2))
    mesh = init_device_mesh(device, (size,) if size < 4 else (2, size // 2))
    for number, (name, run) in enumerate(CHECKS.items()):
        if size > 2 and not name.endswith("any_placements"):
            continue
        torch.manual_seed(number)
        try:
            with torch.no_grad():
                run(mesh)
        except Exception as error:  # ends all of them, since processes may be out of step
            raise AssertionError(f"{name}, process {rank} of {size}") from error
    dist.destroy_process_group()
    os._exit(0)  # as in examples/tensor_parallel.py, which says why


if __name__ == "__main__":
    fork = partial(torch.multiprocessing.start_processes, start_method="fork")
    for size in map(int, sys.argv[3:]):
        fork(main, (size, *sys.argv[1:3]), size)
    if sys.argv[1] == "gloo":
        from examples import tensor_parallel

        torch.multiprocessing.spawn = fork
        sys.argv[1:] = ["--processes", "2", "--width", "128", "--layers", "1", "--length", "32", "--seconds", "0.1"]
        tensor_parallel.main()

"""What batch-invariant mode costs: `xgemm` in the mode, `xgemm_default` without it, and torch.

`xgemm_enabled` is torch's own call in the mode and within `torch_ext.enable()`, as a whole program has it; its peer is
batch_invariant_ops (products of bf16 matrices, mean, log_softmax), if that library is installed.

Groups: products of up to 64 rows and of 512 rows and more (layers and random shapes), attention, reductions.
"""

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch

import torch_ext
from benchmarks import attention, log_softmax, logsumexp, matmul, random_shapes, softmax
from benchmarks import sum as sum_benchmark
from benchmarks.common import Case, Contender, Options, main
from benchmarks.tables import BATCH_INVARIANT, ENABLED_MODE, OTHER_MODE

OP = BATCH_INVARIANT
SOURCES = random_shapes.SOURCES

BF16, FP32 = torch.bfloat16, torch.float32
FEW, MANY = (1, 8, 16, 64), (512, 1024, 4096)
LAYERS = [(4096, 4096), (14336, 4096), (4096, 14336), (6144, 4096), (768, 3072)]  # N, K
ROWS = [(32768, 1024), (4096, 32768), (4096, 50257)]
CPU = matmul.Shape(64, 97, 33)


def named(rows: int) -> str | None:
    return "up to 64 rows" if rows <= FEW[-1] else "512 rows and more" if rows >= MANY[0] else None


@contextlib.contextmanager
def enabled(device: torch.device) -> Iterator[None]:
    with torch_ext.enable(device=device.type), torch_ext.batch_invariant():
        yield


def of_whole_programs(case: Case, device: torch.device) -> list[Contender]:
    """torch's call while aten is replaced: by this library, and by batch_invariant_ops, if that is there."""
    contexts: dict[str, Callable] = {ENABLED_MODE: partial(enabled, device)}
    matrices = case.dtype == BF16 and "m" in case.shape and case.shape["batch"] == 1
    if (matrices or case.name.startswith(("mean", "log_softmax"))) and importlib.util.find_spec(OTHER_MODE):
        contexts[OTHER_MODE] = importlib.import_module(OTHER_MODE).set_batch_invariant_mode
    torchs = [peer for peer in case.contenders if peer.name == "torch"]
    return [replace(peer, name=name, context=context) for name, context in contexts.items() for peer in torchs]


def in_the_mode(case: Case, group: str, device: torch.device) -> Case:
    """The case with our call in the mode, the same call without it, and torch's operators."""
    ours, *peers = case.contenders
    peers = [peer for peer in peers if not peer.name.startswith("xgemm")] + of_whole_programs(case, device)
    mine = replace(ours, context=torch_ext.batch_invariant)
    contenders = [mine, replace(ours, name="xgemm_default"), *peers]
    return replace(case, contenders=contenders, groups=(group,), rotating=True, eager=False, baseline=None)


def products(options: Options) -> list[tuple[str, Case]]:
    layers = [matmul.Shape(m, n, k, layout="nt") for m in (*FEW, *MANY) for n, k in LAYERS]
    drawn = random_shapes.products(options.seed or 1)
    kinds: list[tuple[torch.dtype, str | None]] = [(BF16, None), (FP32, "highest")]
    return [
        (f"{group}, {'layers' if shape in layers else 'random'}", matmul.case(shape, dtype, mode, options))
        for dtype, mode in kinds
        for shape in [*layers, *drawn]
        if (group := named(shape.m))
    ]


def attentions(options: Options) -> list[tuple[str, Case]]:
    prefill = [attention.prefill(2048, 128, causal) for causal in (False, True)]
    decode = [attention.decode(*sizes) for sizes in attention.DECODING[:4]]
    chunks = [attention.Problem(b, 32, 8, 64, 16384, 128, causal=True) for b in (1, 4)]
    return [
        (group, attention.case(problem, BF16, options))
        for group, problems in (("prefill", prefill), ("decode", decode), ("chunked", chunks))
        for problem in problems
    ]


def rows(options: Options) -> list[tuple[str, Case]]:
    of_ops: dict[str, Callable[..., Case]] = {
        "sum": partial(sum_benchmark.case, dim=-1),
        "mean": partial(sum_benchmark.case, dim=-1, mean=True),
        "logsumexp": logsumexp.case,
        "softmax": softmax.case,
        "log_softmax": log_softmax.case,
    }
    found = []
    for op, case in of_ops.items():
        for made in (case(shape, dtype=dtype, options=options) for dtype in (FP32, BF16) for shape in ROWS):
            found.append(("rows", replace(made, name=f"{op} {made.name.removeprefix('mean ')}")))
    return found


def cases(options: Options) -> list[Case]:
    if not options.cuda:
        kinds: list[tuple[torch.dtype, str | None]] = [(FP32, "highest"), (BF16, None)]
        found = [("up to 64 rows", matmul.case(CPU, dtype, mode, options)) for dtype, mode in kinds]
    else:
        found = [*products(options), *attentions(options), *rows(options)]
    return [in_the_mode(case, group, options.device) for group, case in found]


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))

"""Runs all benchmarks within one time budget and writes their results (`make bench`)."""

import dataclasses
import importlib
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import common, predicted
from benchmarks.common.command import some_of
from benchmarks.results import RESULTS, gpu_folder
from torch_ext import predict

# Each op's part of the budget; what one leaves over the next ones share.
SHARES = {
    "host": 1,
    "softmax": 3,
    "sum": 4,
    "logsumexp": 2,
    "cross_entropy": 1,
    "amax": 1,
    "argmax": 1,
    "log_softmax": 2,
    "scaled_masked_softmax": 1,
    "topk_softmax": 2,
    "matmul": 18,
    "linear": 5,
    "gated_linear": 3,
    "attention": 12,
    "batch_invariant": 4,
}
# Where torch.compile makes another kernel of the peer (--compile; the others call the same library either way), and the
# cases in which it does: each costs seconds of the budget.
COMPILED = {
    "softmax": "^(32768x1024|4096x32768|8192x8192 dim0) ",
    "log_softmax": "^(32768x1024|4096x32768) ",
    "logsumexp": "^(32768x1024|4096x32768) ",
    "cross_entropy": "^(8192x128256|65536x1000) ",
    "scaled_masked_softmax": "^8x16x2048x2048 ",
    "topk_softmax": "^(16384x128|8192x32768) ",
    "linear": "^(8192x|2048x4096x1024|4096x1536x384)",
    "gated_linear": "^(8192x14336x4096|16x14336x4096) ",
}
GROUPS = {"attention": ("prefill", "decode")}  # of cases, where all would take minutes
BUDGET_S, QUICK_BUDGET_S = 450.0, 90.0


def main(argv: list[str] | None = None) -> int:
    started = time.monotonic()
    command = common.parser(__doc__ or "")
    of_ops = some_of(*SHARES)
    command.add_argument("--ops", default=(), type=of_ops, help="comma-separated: these only, e.g. matmul,linear")
    arguments = command.parse_args(argv)
    options = common.options_of(arguments)
    shares = {op: share for op, share in SHARES.items() if not arguments.ops or op in arguments.ops}
    if options.budget == float("inf"):
        options.budget = QUICK_BUDGET_S if options.quick else BUDGET_S
    if not options.cuda:
        print("No NVIDIA GPU here: small cases on the CPU, where xgemm calls ATen; ratios near 1 are expected.")
    where = common.machine(options.device)
    finished: list[common.Benchmark] = []
    columns = TextColumn("{task.fields[op]:>11}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    bar = Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty()
    )  # tables that go to a file stay out of the bar's way
    with bar as progress:
        task = progress.add_task("", total=len(shares), op="")
        left = float(sum(shares.values()))
        for op, share in shares.items():
            budget = (options.budget - (time.monotonic() - started)) * share / left
            left -= share
            progress.update(task, op=op)
            mine = dataclasses.replace(options, budget=budget, compile=options.compile and op in COMPILED)
            mine.compile_filter = options.compile_filter or COMPILED.get(op, "")
            mine.groups = options.groups or GROUPS.get(op, ())
            module = importlib.import_module(f"benchmarks.{op}")
            benchmark = common.run_op(module, mine, where, lambda text: progress.update(task, description=text))
            progress.advance(task)
            if benchmark.rows or benchmark.failures or benchmark.notes:
                common.show(benchmark)
            finished.append(benchmark)
            if options.measurements:
                every = [measurement for done in finished for measurement in done.measurements]
                common.save_measurements(options.measurements, every)
            if benchmark.lost:
                break
    print("\n== their time over ours: geometric mean, worst")
    for benchmark in finished:
        if text := common.summary(benchmark):
            print(text)
    if options.cuda and (gpu := predict.this_gpu()):
        print("\n== predicted beside measured (python -m torch_ext --predict)")
        print(*predicted.beside(gpu, [(benchmark.op, benchmark.rows) for benchmark in finished]), sep="\n")
    failures = [failure for benchmark in finished for failure in benchmark.failures]
    if failures:
        print(f"FAILED: {len(failures)} contenders of ours, as listed above; the first: {failures[0]}")
    where_to = options.out or (RESULTS / gpu_folder(where.name) if options.cuda else None)
    print(
        f"{time.monotonic() - started:.0f} s; " + (f"results in {where_to}" if where_to else "nothing written (--out)")
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

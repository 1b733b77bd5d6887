"""Experiments on memory: what strides, loads in flight and distance cost.

Each function yields the rows of one experiment, as in experiments.py. See docs/lab.md.
"""

import itertools
import statistics
from collections.abc import Iterator
from functools import partial

import torch

from torch_ext import device
from torch_ext.lab.experiments import attributes
from torch_ext.lab.measure import Call, Row, close, exact, randn, require, row, share, time_us

lab = torch.ops.xgemm_lab


STRIDES = (1, 2, 4, 8, 16, 32)


def strided(x: torch.Tensor, stride: int) -> torch.Tensor:
    """What strided_copy must give: x[(i * stride) % n]."""
    return x[torch.arange(x.numel(), device=x.device) * stride % x.numel()]


def coalescing(sizes: list[int], budget: float) -> Iterator[Row]:
    """Copies of stride 1 to 32, one load or eight in flight a thread, and an empty kernel."""
    documents = {1: "T4 559 us, 4090 119 us", 2: "T4 764 us, 4090 205 us"}
    n = 1 << 24  # of the document
    x = randn(n)
    best = lab.best_block_size(x)[0].item()
    for stride, threads in ((1, 128), (2, 128), (1, best)):
        call = partial(lab.strided_copy, x, stride, threads)
        exact(call, strided(x, stride), f"copy of stride {stride}")
        document = documents[stride] if threads == 128 else "4090 118.7 us (block 768)"
        yield row(
            f"the document's kernel, 2^24 elements, block {threads}" + (" (the API's best)" if threads == best else ""),
            f"stride {stride}",
            time_us(call, budget),
            shape={"n": n, "stride": stride, "threads": threads, "loads": 1},
            bytes_moved=8 * n,
            document=document,
        )
    for n in sizes:
        x = randn(n)
        expected = {stride: strided(x, stride) for stride in STRIDES}
        for loads, threads in [(1, 128), (1, 1024), *((8, threads) for threads in (128, 256, 512, 1024))]:
            case = f"{loads} load{'s' * (loads > 1)} a thread, block {threads}"
            shape = {"n": n, "threads": threads, "loads": loads}
            blocks = -(-n // (threads * loads))
            nothing = partial(lab.empty_launch, x[: -(-n // loads)], threads)
            require(nothing().tolist() == [blocks, threads], "grid of the empty kernel")
            yield row(case, "empty kernel", time_us(nothing, budget), shape=shape | {"stride": 0, "blocks": blocks})
            for stride in STRIDES:
                call = partial(lab.strided_copy, x, stride, threads, loads)
                exact(call, expected[stride], f"copy of stride {stride}, {loads} loads")
                yield row(
                    case,
                    f"stride {stride}",
                    time_us(call, budget),
                    shape=shape | {"stride": stride},
                    bytes_moved=8 * n,
                )


COPY_THREADS = (32, 64, 128, 256, 512, 1024)
COPY_VARIANTS = ((1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (1, 4))


def copy(sizes: list[int], budget: float) -> Iterator[Row]:
    """Copy rate over threads, loads in flight and their width, by three grids."""
    gpu = device.limits()
    grids = {"full": "full grid", "resident": "as many blocks as fit", "one_per_sm": "one block an SM"}
    # The slides' set-up has a full grid; "small blocks" on their axis.
    documents = {(1, 1): 0.25, (2, 1): 0.41, (4, 1): 0.62, (8, 1): 0.64, (1, 2): 0.43, (1, 4): 0.65}
    for n, grid in itertools.product(sizes, grids):
        x = randn(n)
        for threads, (loads, width) in itertools.product(COPY_THREADS, COPY_VARIANTS):
            registers = attributes(f"copy {loads}x{width}")["registers"]
            resident = device.occupancy(gpu, threads, registers)
            blocks = 1 if grid == "one_per_sm" else resident.blocks
            call = partial(lab.concurrent_copy, x, threads, loads, width, grid)
            exact(call, x, f"copy of {loads} x {width}")
            timing = time_us(call, budget / 2)
            document = documents[loads, width] if grid == "full" and threads == 32 else None
            yield row(
                f"{grids[grid]}, blocks of {threads}",
                f"{loads} load{'s' * (loads > 1)} of {4 * width} B",
                timing,
                shape={"n": n, "grid": grid, "threads": threads, "loads": loads, "width": width},
                bytes_moved=8 * n,
                of_peak=share(8 * n, timing, gpu.bandwidth),
                registers=registers,
                occupancy=round(blocks * threads / gpu.threads, 4),
                in_flight=blocks * threads * loads * width * 4,
                document=f"{document:.2f} of peak (M2090)" if document else None,
            )


READ_CHUNK = 4096  # elements that a block of read_rate keeps in L1 or in shared memory
IN_L2 = 1 << 22  # elements of an array that any L2 of a data-centre GPU holds


def bandwidth(sizes: list[int], budget: float) -> Iterator[Row]:
    """What registers, shared memory, L1, L2 and memory deliver, against what multiply-adds would need.

    y <- a b + c takes 12 bytes in and gives 4 out. `sizes`: elements of the array in memory.
    """
    gpu = device.limits()
    needed = gpu.fp32_flops / 2 * 16  # bytes a second at the peak

    def measured(level: str, n: int, call: Call, moved: int, document: str | None) -> Row:
        timing = time_us(call, budget)
        case = "16 chains of a b + c" if level == "registers" else f"{4 * n >> 10:,} KiB"
        found = row(case, level, timing, shape={"level": level, "n": n}, bytes_moved=moved, document=document)
        return found | {"needed_gbps": round(needed * 1e-9, 1), "gap": round(needed * timing[0] * 1e-6 / moved, 1)}

    steps, chains, factors = 1 << 16, 16, torch.tensor([0.5, 1.0], device="cuda")
    x = randn(gpu.multiprocessors * 1024)
    multiply = partial(lab.fma_chains, x, factors, 1024, chains, steps, 64)
    fixed = torch.full_like(x, 2.0 * chains, dtype=torch.float64)  # y <- y / 2 + 1 forgets its start
    close(multiply, fixed, fixed, 4, "chains of multiply-adds")
    yield measured("registers", x.numel(), multiply, 16 * steps * chains * x.numel(), "8.1 TB/s in, 2.7 out (GF100)")
    documents = {"shared memory": "1.3 TB/s (GF100)", "memory": "177 GB/s (GF100)"}
    grids = {name: attributes(f"read {name}")["blocks"] * gpu.multiprocessors for name in ("shared", "l1", "global")}
    cases = [
        ("shared memory", "shared", READ_CHUNK * grids["shared"], 256),
        ("L1", "l1", READ_CHUNK * grids["l1"], 256),
        ("L2", "global", IN_L2, 16),
        *(("memory", "global", n, 1) for n in sizes),
    ]
    for level, name, n, repeats in cases:
        y = torch.randint(-8, 8, (n,), device="cuda").float()  # sums of whole numbers: exact
        read = partial(lab.read_rate, y, name, grids[name], repeats)
        require(read().double().sum() == repeats * y.double().sum(), f"sum of what is read from {level}")
        yield measured(level, n, read, 4 * repeats * n, documents.get(level))


def cycle(lines: int, stride: int, where: torch.device | str) -> torch.Tensor:
    """next[] of one cycle through every `stride`-th of lines * stride elements, in random order, from 0."""
    order = torch.randperm(lines, device=where)
    order = order.roll(-int((order == 0).nonzero())) * stride
    following = torch.zeros(lines * stride, dtype=torch.int32, device=where)
    following[order] = order.roll(-1).int()
    return following


WARM_UP = 4096  # steps that pointer_chase takes before it looks at the clock


def latency(sizes: list[int], budget: float) -> Iterator[Row]:
    """Cycles of a dependent load, over the size of the array that it walks through; `sizes`: bytes."""
    documents = {"shared": "23 (Ampere)", 1 << 14: "33 (Ampere, L1)", 1 << 22: "200 (Ampere, L2)"}
    documents |= {1 << 30: "290 (Ampere, global)"}
    for bytes_, shared in [(1 << 14, True), *((size, False) for size in sizes)]:
        stride = 32  # a line of 128 bytes a step
        following = cycle(bytes_ // (4 * stride), stride, "cuda")
        steps = 4096 if bytes_ > 1 << 25 else 16384
        # Where the walk ends, by doubling the step on the GPU.
        count = bytes_ // (4 * stride)
        position = torch.randint(count, (5,), device="cuda")
        starts, jump, left = (position * stride).tolist(), following[::stride].long() // stride, WARM_UP + steps
        while left:
            if left & 1:
                position = jump[position]
            jump, left = jump[jump], left >> 1
        walks, times = [], []
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        lab.pointer_chase(following, steps, starts[0], shared)  # module load
        for start in starts[1:]:  # elsewhere each time: what a walk has read is in L2 afterwards
            begin.record()
            walks.append(lab.pointer_chase(following, steps, start, shared))
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / (WARM_UP + steps))
        ends, cycles = torch.stack(walks).cpu().T
        require(torch.equal(ends, position[1:].cpu() * stride), f"walk through {bytes_} bytes")
        low, median, high = statistics.quantiles(times, n=4)
        yield row(
            "shared memory" if shared else f"{bytes_ >> 10} KiB",
            "a dependent load",
            (median, (low, high)),
            shape={"bytes": bytes_, "shared": shared, "steps": steps},
            dtype="int32",
            cycles=round(cycles.double().median().item() / steps, 1),
            document=documents.get("shared" if shared else bytes_),
        )

"""The documents' single experiments: what runs, what it must equal, what was measured.

Each function yields the rows of one experiment. ``document`` in a row is a document's figure for the same set-up,
``remark`` a word of ours. See docs/lab.md.
"""

import ctypes
import itertools
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator

import torch

from torch_ext import device
from torch_ext.lab.measure import Row, errors, require, row, time_us

lab = torch.ops.xgemm_lab
Call = Callable[[], torch.Tensor]


def _randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda")


def _exact(call: Call, expected: torch.Tensor, what: str) -> None:
    require(torch.equal(call(), expected), what)


def _close(call: Call, reference: torch.Tensor, scale: torch.Tensor, roundings: float, what: str) -> dict[str, float]:
    """Every element within `roundings` roundings of `scale`; returns the error for the row."""
    result = call()
    difference = (result.double() - reference).abs()
    require(bool((difference <= roundings * 2**-24 * scale).all()), what)
    return errors(result, reference)


def attributes(name: str) -> dict[str, int]:
    """Registers, shared and local memory in bytes, threads of a block, blocks an SM, of a kernel of the lab."""
    values = lab.kernel_attributes(torch.empty(1, device="cuda"), name).tolist()
    return dict(zip(("registers", "shared", "local", "threads", "blocks"), values, strict=True))


def window_reference(x: torch.Tensor, window: int) -> torch.Tensor:
    """Sums over a centred window by differences of prefix sums; exact for integers in float64."""
    half, n = window // 2, x.numel()
    prefix = torch.cat([x.new_zeros(1), x.cumsum(0)])
    index = torch.arange(n, device=x.device)
    return prefix[(index + half + 1).clamp_max(n)] - prefix[(index - half).clamp_min(0)]


STRIDES = (1, 2, 4, 8, 16, 32)


def strided(x: torch.Tensor, stride: int) -> torch.Tensor:
    """What strided_copy must give: x[(i * stride) % n]."""
    return x[torch.arange(x.numel(), device=x.device) * stride % x.numel()]


def coalescing(sizes: list[int], budget: float) -> Iterator[Row]:
    """S1-04 to S1-06: copies of stride 1 to 32, one load or eight in flight a thread, and an empty kernel."""
    documents = {1: "T4 559 us, 4090 119 us", 2: "T4 764 us (1.37x), 4090 205 us (1.72x)"}
    n = 1 << 24  # of the document
    x = _randn(n)
    best = lab.best_block_size(x)[0].item()
    for stride, threads in ((1, 128), (2, 128), (1, best)):

        def call(stride: int = stride, threads: int = threads) -> torch.Tensor:
            return lab.strided_copy(x, stride, threads)

        _exact(call, strided(x, stride), f"copy of stride {stride}")
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
        x = _randn(n)
        expected = {stride: strided(x, stride) for stride in STRIDES}
        for loads, threads in [(1, 128), (1, 1024), *((8, threads) for threads in (128, 256, 512, 1024))]:
            case = f"{loads} load{'s' * (loads > 1)} a thread, block {threads}"
            shape = {"n": n, "threads": threads, "loads": loads}
            blocks = -(-n // (threads * loads))

            def nothing(threads: int = threads, loads: int = loads, x: torch.Tensor = x) -> torch.Tensor:
                return lab.empty_launch(x[: -(-x.numel() // loads)], threads)

            require(nothing().tolist() == [blocks, threads], "grid of the empty kernel")
            yield row(case, "empty kernel", time_us(nothing, budget), shape=shape | {"stride": 0, "blocks": blocks})
            for stride in STRIDES:

                def call(stride: int = stride, threads: int = threads, loads: int = loads, x: torch.Tensor = x):
                    return lab.strided_copy(x, stride, threads, loads)

                _exact(call, expected[stride], f"copy of stride {stride}, {loads} loads")
                yield row(
                    case,
                    f"stride {stride}",
                    time_us(call, budget),
                    shape=shape | {"stride": stride},
                    bytes_moved=8 * n,
                )


def divergence(sizes: list[int], budget: float) -> Iterator[Row]:
    """S1-13, S1-14 (a negative control) and S2-07 (real divergence)."""
    n = sizes[0]
    x = torch.randint(-1000, 1000, (n,), dtype=torch.int32, device="cuda")
    expected = torch.where(x % 2 == 0, x * 2, x + 1)
    for name, branch, document in (
        ("branch", True, "T4 74 us, 4090 32 us, at the first launch"),
        ("arithmetic", False, "T4 25 us, 4090 108 us, at the first launch"),
    ):

        def call(branch: bool = branch) -> torch.Tensor:
            return lab.parity(x, branch)

        _exact(call, expected, f"parity by {name}")
        timing = time_us(call, budget)
        yield row(
            "parity", name, timing, shape={"n": x.numel()}, dtype="int32", bytes_moved=8 * x.numel(), document=document
        )
    y = _randn(n)
    index = torch.arange(y.numel(), device="cuda")
    for count in (1, 2, 4, 8, 16, 32):
        for per_lane in (True, False):
            chosen = ((index if per_lane else index // 32) % count).double()

            def call(count: int = count, per_lane: bool = per_lane) -> torch.Tensor:
                return lab.paths(y, count, per_lane)

            # 256 halvings forget x: the result is the fixed point 2 b of y <- y / 2 + b.
            error = _close(call, 2 * chosen, 2 * chosen + 1, 4, f"paths {count} {per_lane}")
            yield row(
                f"{count} paths",
                "by lane" if per_lane else "by warp",
                time_us(call, budget),
                shape={"n": y.numel(), "paths": count},
                error=error,
                remark=f"expected {count}x of one path" if per_lane else "expected 1x of one path",
            )


# In a process of its own: each kernel's first launch, in the order that is asked for, then both again and again.
FIRST_LAUNCHES = """
import json, statistics, sys, torch, torch_ext.lab
x = torch.randint(-1000, 1000, (int(sys.argv[1]),), dtype=torch.int32, device="cuda")
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
begin.record(), end.record(), torch.cuda.synchronize()

def us(name):
    begin.record()
    torch.ops.xgemm_lab.parity(x, name == "branch")
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3

first = {name: us(name) for name in sys.argv[2:]}
print(json.dumps([first, {name: statistics.median(us(name) for _ in range(50)) for name in first}]))
"""


def first_launch(sizes: list[int], budget: float) -> Iterator[Row]:
    """S1-13 to S1-16, D6: the first launch of a kernel in a process, which the documents timed, against later ones."""
    documents = {"branch": "T4 74 us, 4090 32 us", "arithmetic": "T4 25 us, 4090 108 us"}
    for n, order in itertools.product(sizes, (("branch", "arithmetic"), ("arithmetic", "branch"))):
        command = [sys.executable, "-c", FIRST_LAUNCHES, str(n), *order]
        done = subprocess.run(command, capture_output=True, text=True)
        require(done.returncode == 0, f"process that times first launches ({done.stderr[-200:]})")
        first, warm = json.loads(done.stdout)
        for name in order:
            for when, times in (("first launch", first), ("warm", warm)):
                yield row(
                    f"parity, {order[0]} first, launched from Python",
                    f"{name}, {when}",
                    (times[name], (times[name], times[name])),
                    shape={"n": n, "first": order[0], "when": when},
                    dtype="int32",
                    document=documents[name] if when == "first launch" and order[0] == "branch" else None,
                ) | {"graph": False}


def coarsening(sizes: list[int], budget: float) -> Iterator[Row]:
    """S1-15 to S1-17: vector addition plain, coarsened, with vector accesses, and 'privatised' (a negative control)."""
    documents = {
        ("plain", 1024): "ncu T4 4.19 us, 4090 1.95 us",
        ("coarsened2", 1024): "ncu T4 4.54 us, 4090 2.02 us",
        ("plain", 1 << 20): "4090 11.1 us",
        ("privatised", 1 << 20): "4090 12.9 us",
    }
    for size in (1024, 1 << 20, *sizes):
        a, b = _randn(size), _randn(size)
        expected = a + b
        for variant in ("plain", "privatised", "coarsened2", "coarsened4", "vector2", "vector4"):

            def call(variant: str = variant, a: torch.Tensor = a, b: torch.Tensor = b) -> torch.Tensor:
                return lab.vector_add(a, b, variant)

            _exact(call, expected, f"vector_add {variant}")
            yield row(
                f"vector add {size}",
                variant,
                time_us(call, budget),
                shape={"n": size},
                bytes_moved=12 * size,
                document=documents.get((variant, size)),
            )


def privatisation(sizes: list[int], budget: float) -> Iterator[Row]:
    """S1-18, S1-19 (with the halo that the document forgets) and the histogram of part B4."""
    n, x = sizes[0], _randn(1 << 20)
    for window in (5, 129):
        reference, scale = window_reference(x.double(), window), window_reference(x.double().abs(), window)
        for name, shared, document in (("direct", False, "4090 7.39 us"), ("shared", True, "4090 8.10 us")):

            def call(window: int = window, shared: bool = shared) -> torch.Tensor:
                return lab.window_sum(x, window, shared)

            error = _close(call, reference, scale, window, f"window sum {name}")
            yield row(
                f"window sum {window}",
                name,
                time_us(call, budget),
                shape={"n": x.numel(), "window": window},
                bytes_moved=8 * x.numel(),
                error=error,
                document=document if window == 5 else None,
            )
    for bins in (7, 256, 4096):
        values = torch.randint(0, bins, (n,), dtype=torch.int32, device="cuda")
        expected = torch.bincount(values, minlength=bins).int()
        for name, private in (("global atomics", False), ("privatised", True)):

            def call(bins: int = bins, private: bool = private, values: torch.Tensor = values) -> torch.Tensor:
                return lab.histogram(values, bins, private)

            _exact(call, expected, f"histogram {name}")
            yield row(
                f"histogram {bins} bins", name, time_us(call, budget), shape={"n": n}, dtype="int32", bytes_moved=4 * n
            )


def tiling(sizes: list[int], budget: float) -> Iterator[Row]:
    """S3-02 to S3-16: Sheffield's kernels: tile sizes, static and dynamic shared memory, bank conflicts."""
    gpu = device.limits()
    automatic, _ = device.max_potential_block_size(gpu, 32, device.tile_shared_memory)
    best = int(device.largest_power_of_four(automatic) ** 0.5)
    n = sizes[0]
    cases = [
        (n, "naive", 8, "the exercise's start"),
        *((n, "fixed", tile, "") for tile in (8, 16, 32)),
        *(
            (n, "dynamic", tile, "the tile that the calculator's block size gives" if tile == best else "")
            for tile in (8, 16, 32)
        ),
        (n, "conflicting", 32, "32-way bank conflicts"),
        (n, "padded", 32, "rows of 33 words: no conflicts"),
        (32, "single_block", 32, "one SM busy"),
        (32, "fixed", 32, ""),
    ]
    for size, variant, tile, remark in cases:
        a, b = _randn(size, size), _randn(size, size)
        reference, scale = a.double() @ b.double(), a.double().abs() @ b.double().abs()

        def call(variant: str = variant, tile: int = tile, a: torch.Tensor = a, b: torch.Tensor = b) -> torch.Tensor:
            return lab.tiled_matmul(a, b, variant, tile)

        error = _close(call, reference, scale, 2 * size**0.5 + 8, f"tiled_matmul {variant} {tile}")
        yield row(
            f"lab 6, {size}x{size}",
            f"{variant} {tile}",
            time_us(call, budget),
            shape={"m": size, "n": size, "k": size, "tile": tile},
            flops=2 * size**3,
            error=error,
            remark=remark,
        )


FMA_THREADS = (1, 32, 64, 96, 128, 192, 256, 384, 512, 640, 768, 896, 1024)
CHAINS = (1, 2, 4, 8, 16)


def fma(sizes: list[int], budget: float) -> Iterator[Row]:
    """S4-06 to S4-10: multiply-add rate over threads and chains, one block an SM; `sizes`: steps of a chain."""
    gpu = device.limits()
    # The slides' kernel: unrolled by 8, factors known at run time, on an M2090.
    documents = {(32, 1): 0.05, (32, 2): 0.09, (32, 4): 0.13, (32, 8): 0.15}
    documents |= {(1024, 1): 0.63, (1024, 2): 0.73, (1024, 4): 0.89, (1024, 8): 0.94, (1024, 16): 0.96}
    variants = [(chains, unroll, 3) for unroll in (8, 64) for chains in CHAINS] + [(1, 64, 2)]
    three, two = torch.tensor([0.5, 1.0], device="cuda"), torch.tensor([0.5, 0.5], device="cuda")
    for iterations, threads in itertools.product(sizes, FMA_THREADS):
        x = _randn(gpu.multiprocessors * threads)
        for chains, unroll, registers in variants:
            factors = three if registers == 3 else two

            def call(
                factors: torch.Tensor = factors, shape: tuple = (threads, chains, iterations, unroll, registers), x=x
            ) -> torch.Tensor:
                return lab.fma_chains(x, factors, *shape)

            # Every chain forgets its start and arrives at the fixed point of y <- y / 2 + c: 2 c.
            fixed = torch.full_like(x, 2.0 * factors[1].item() * chains, dtype=torch.float64)
            error = _close(call, fixed, fixed, 4, f"{chains} chains of FMAs")
            flops = 2 * iterations * chains * x.numel()
            timing = time_us(call, budget / 4)
            document = documents.get((threads, chains)) if unroll == 8 else None
            yield row(
                f"{threads} threads an SM",
                f"{chains} chain{'s' * (chains > 1)}, unrolled {unroll}" + ", 2 registers" * (registers == 2),
                timing,
                shape={
                    "threads": threads,
                    "chains": chains,
                    "unroll": unroll,
                    "registers": registers,
                    "iterations": iterations,
                },
                flops=flops,
                error=error,
                of_peak=round(flops / timing[0] * 1e6 / gpu.fp32_flops, 4) if gpu.fp32_flops else None,
                document=f"{document:.2f} of peak (M2090)" if document else None,
            )


COPY_THREADS = (32, 64, 128, 256, 512, 1024)
COPY_VARIANTS = ((1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (1, 4))


def copy(sizes: list[int], budget: float) -> Iterator[Row]:
    """S4-11 to S4-14: copy rate over threads, loads in flight and their width, with a full grid and a block an SM."""
    gpu = device.limits()
    # The slides' set-up has a full grid; "small blocks" on their axis.
    documents = {(1, 1): 0.25, (2, 1): 0.41, (4, 1): 0.62, (8, 1): 0.64, (1, 2): 0.43, (1, 4): 0.65}
    for n, grid in itertools.product(sizes, ("full", "one_per_sm")):
        x = _randn(n)
        for threads, (loads, width) in itertools.product(COPY_THREADS, COPY_VARIANTS):
            registers = attributes(f"copy {loads}x{width}")["registers"]
            resident = device.occupancy(gpu, threads, registers)
            blocks = resident.blocks if grid == "full" else 1

            def call(shape: tuple = (threads, loads, width, grid), x: torch.Tensor = x) -> torch.Tensor:
                return lab.concurrent_copy(x, *shape)

            _exact(call, x, f"copy of {loads} x {width}")
            timing = time_us(call, budget / 2)
            document = documents[loads, width] if grid == "full" and threads == 32 else None
            yield row(
                f"{'full grid' if grid == 'full' else 'one block an SM'}, blocks of {threads}",
                f"{loads} load{'s' * (loads > 1)} of {4 * width} B",
                timing,
                shape={"n": n, "grid": grid, "threads": threads, "loads": loads, "width": width},
                bytes_moved=8 * n,
                of_peak=round(8 * n / timing[0] * 1e6 / gpu.bandwidth, 4) if gpu.bandwidth else None,
                registers=registers,
                occupancy=round(blocks * threads / gpu.threads, 4),
                in_flight=blocks * threads * loads * width * 4,
                document=f"{document:.2f} of peak (M2090)" if document else None,
            )


TILE = 128  # of step 07 of the SGEMM ladder


def quantisation(sizes: list[int], budget: float) -> Iterator[Row]:
    """S1-07 to S1-09 on a kernel whose tile is known: step 07 of the SGEMM ladder, 128 x 128; `sizes`: k.

    Tiles around multiples of the block slots, n one off a multiple of the tile, k, and padding of k.
    """
    sms = device.limits().multiprocessors
    slots = sms * attributes("sgemm 07_warp_tile")["blocks"]

    def one(case: str, name: str, m: int, n: int, k: int, call: Call, a: torch.Tensor, b: torch.Tensor, **more) -> Row:
        reference, scale = a.double() @ b.double(), a.double().abs() @ b.double().abs()
        error = _close(call, reference, scale, 2 * k**0.5 + 8, f"{name}, {case}")
        shape = {"m": m, "n": n, "k": k}
        return row(case, name, time_us(call, budget), shape=shape, flops=2 * m * n * k, error=error, **more)

    for k in sizes:
        # One row of tiles: m = 128 and n = 128 t has t tiles.
        waves = sorted({t + extra for t in (sms, 2 * sms, slots // 2 * 3) for extra in (0, 1)} | {slots // 4})
        waves = sorted({*waves, *(i * slots + extra for i in (1, 2, 3, 4) for extra in (0, 1))})
        for tiles in waves:
            a, b = _randn(TILE, k), _randn(k, TILE * tiles)
            yield one(
                f"{tiles} tiles",
                "07_warp_tile",
                TILE,
                TILE * tiles,
                k,
                lambda a=a, b=b: lab.sgemm(a, b, step=7),
                a,
                b,
                tiles=tiles,
                slots=slots,
                predicted=round(device.wave_utilisation(tiles, slots), 4),
            )
        for n in (16 * TILE - 1, 16 * TILE, 16 * TILE + 1):
            a, b = _randn(n, k), _randn(k, n)
            yield one(
                f"m = n = {n}",
                "07_warp_tile",
                n,
                n,
                k,
                lambda a=a, b=b: lab.sgemm(a, b, step=7),
                a,
                b,
                predicted=round(device.tile_utilisation(n, n, TILE, TILE), 4),
            )
        for rest in (0, 1, 2, 4, 8, 64):
            long = k + rest
            to = -(-long // 64) * 64
            a, b = _randn(16 * TILE, long), _randn(long, 16 * TILE)
            padded = torch.nn.functional.pad(a, (0, to - long)), torch.nn.functional.pad(b, (0, 0, 0, to - long))
            calls: dict[str, Call] = {
                "07_warp_tile": lambda a=a, b=b: lab.sgemm(a, b, step=7),
                "07_warp_tile, k padded to 64": lambda p=padded: lab.sgemm(*p, step=7),
                "cublas": lambda a=a, b=b: torch.mm(a, b),
                "cublas, k padded to 64": lambda p=padded: torch.mm(*p),
            }
            for name, call in calls.items():
                yield one(f"k = {long}", name, 16 * TILE, 16 * TILE, long, call, a, b)


def cycle(lines: int, stride: int, where: torch.device | str) -> torch.Tensor:
    """next[] of one cycle through every `stride`-th of lines * stride elements, in random order, from 0."""
    order = torch.randperm(lines, device=where)
    order = order.roll(-int((order == 0).nonzero())) * stride
    following = torch.zeros(lines * stride, dtype=torch.int32, device=where)
    following[order] = order.roll(-1).int()
    return following


WARM_UP = 4096  # steps that pointer_chase takes before it looks at the clock


def latency(sizes: list[int], budget: float) -> Iterator[Row]:
    """S1-02: cycles of a dependent load, over the size of the array that it walks through; `sizes`: bytes."""
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


BLOCKS = ((64,), (16, 4), (8, 4, 2), (5, 7), (100,))


def scheduling(sizes: list[int], budget: float) -> Iterator[Row]:
    """S0-11, S0-12, S2-03, S2-06: which threads are a warp, where and when blocks run; `sizes`: their nanoseconds."""
    anything = torch.empty(1, device="cuda")
    for block in BLOCKS:
        threads = math.prod(block)

        def call(block: tuple[int, ...] = block) -> torch.Tensor:
            return lab.who_am_i(anything, 3, *block)

        thread = torch.arange(threads)
        seen = call().cpu()
        what = f"warps of a block of {' x '.join(map(str, block))}"
        require(bool((seen[..., 0] == thread % 32).all() and (seen[..., 1] == thread - thread % 32).all()), what)
        warps = -(-threads // 32)
        yield row(
            "warps are 32 threads in the order x, y, z",
            f"block of {' x '.join(map(str, block))}",
            time_us(call, budget / 4),
            shape={"threads": threads},
            dtype="int64",
            remark=f"{warps} warps, the last of {threads - 32 * (warps - 1)} lanes",
        )
    gpu = device.limits()
    sms, slots = gpu.multiprocessors, 2 * gpu.multiprocessors  # blocks of 1024 threads: two an SM
    for stay, blocks in itertools.product(sizes, (1, sms, slots, slots + 1, 2 * slots)):
        lab.who_am_i(anything, blocks, 1024, 1, 1, stay)
        runs = []
        for _ in range(5):
            block = lab.who_am_i(anything, blocks, 1024, 1, 1, stay)
            begin, end, where = block[..., 3].amin(1), block[..., 4].amax(1), block[:, 0, 2]
            require(bool((block[..., 2] == where[:, None]).all()), "one block on one SM")
            first = begin.min()
            together = (begin[:, None] >= begin) & (begin[:, None] < end) & (where[:, None] == where)
            lines = torch.stack([where, begin - first, end - first], 1)[where < 8].tolist()
            runs.append(((end.max() - first).item() / 1e3, where.unique().numel(), together.sum(1).max().item(), lines))
        low, median, high = statistics.quantiles([r[0] for r in runs], n=4)
        _, used, most, lines = min(runs, key=lambda r: abs(r[0] - median))
        yield row(
            f"blocks of 1024 threads that stay {stay / 1e3:g} us",
            f"{blocks} blocks",
            (median, (low, high)),
            shape={"blocks": blocks, "stay": stay},
            dtype="int64",
            remark=f"on {used} SMs, at most {most} at a time on one",
            used=used,
            most=most,
            timeline=lines,
        )


REGISTERS = (31, 33, 40, 41, 64, 65, 128)


def registers(sizes: list[int], budget: float) -> Iterator[Row]:
    """S2-15 to S2-18: one kernel of 512 threads bound to 31 to 128 registers; `sizes`: elements."""
    gpu = device.limits()
    documents = {31: "4 blocks, 100 % (A100)", 33: "3 blocks, 75 % (A100)"}
    for n, bound in itertools.product(sizes, ("memory", "arithmetic")):
        x = _randn(n)
        iterations = 0 if bound == "memory" else 512
        fixed = torch.full_like(x, 2, dtype=torch.float64)
        for count in REGISTERS:

            def call(count: int = count, bound: str = bound, iterations: int = iterations, x=x) -> torch.Tensor:
                return lab.register_bound(x, count, bound, iterations)

            if bound == "memory":
                _exact(call, x, f"copy with {count} registers")
            else:
                _close(call, fixed, fixed, 4, f"FMAs with {count} registers")
            found = attributes(f"registers {count} {bound}")
            predicted = device.occupancy(gpu, 512, found["registers"])
            yield row(
                f"{bound}, 2^{n.bit_length() - 1} elements",
                f"{count} registers",
                time_us(call, budget),
                shape={"n": n, "bound": bound, "limit": count},
                bytes_moved=8 * n if bound == "memory" else None,
                flops=2 * iterations * n if iterations else None,
                registers=found["registers"],
                local=found["local"],
                blocks=found["blocks"],
                calculated=predicted.blocks,
                occupancy=round(found["blocks"] * 512 / gpu.threads, 4),
                document=documents.get(count),
            )


STEPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def roofline(sizes: list[int], budget: float) -> Iterator[Row]:
    """S4-01 to S4-04, S1-10: multiply-adds between load and store, float and double, and the library's ops beside them.

    `sizes`: elements of float; double has half as many.
    """
    gpu = device.limits()
    peaks = {torch.float32: gpu.fp32_flops, torch.float64: gpu.fp64_flops}
    with Energy() as energy:
        for n, dtype in itertools.product(sizes, (torch.float32, torch.float64)):
            size = torch.finfo(dtype).bits // 8
            x = torch.randn(n * 4 // size, device="cuda", dtype=dtype)
            for steps in STEPS:

                def call(steps: int = steps, x: torch.Tensor = x) -> torch.Tensor:
                    return lab.intensity(x, steps)

                # y <- y / 2 + 1 halves the distance to 2 each time.
                reference = 2 + (x.double() - 2) * 2.0**-steps
                difference = (call().double() - reference).abs()
                require(bool((difference <= 8 * torch.finfo(dtype).eps * (x.abs() + 2)).all()), f"intensity {steps}")
                flops, moved = 2 * steps * x.numel(), 2 * size * x.numel()
                timing = time_us(call, budget)
                attainable = min(peaks[dtype], flops / moved * gpu.bandwidth)
                yield row(
                    f"{str(dtype).removeprefix('torch.')}, {moved >> 20} MiB",
                    f"{steps} steps",
                    timing,
                    shape={"n": x.numel(), "steps": steps},
                    dtype=str(dtype).removeprefix("torch."),
                    flops=flops,
                    bytes_moved=moved,
                    intensity=flops / moved,
                    attainable_tflops=round(attainable * 1e-12, 4) if steps else None,
                    joules=energy.of(call, timing[0]),
                )
        yield from _marks(sizes[0], budget)


MARKED = 4096  # n of the products that are marked on the roofline, rows of the softmax


def _marks(n: int, budget: float) -> Iterator[Row]:
    """Kernels of the ladders to be marked on the roofline: operations and bytes by their floors."""
    x, y = _randn(n), _randn(MARKED, n // MARKED)
    a, b = _randn(MARKED, MARKED), _randn(MARKED, MARKED)
    product, bytes_of_product = 2 * MARKED**3, 12 * MARKED**2
    calls: list[tuple[str, Call, int, int]] = [
        ("copy", lambda: lab.concurrent_copy(x, 1024, 1, 4, "full"), 0, 8 * n),
        ("reduction v7", lambda: lab.reduce_sum(x, 7), n - 1, 4 * n),
        ("softmax online4", lambda: lab.softmax(y, "online4"), 5 * n, 8 * n),  # maximum, difference, exp, sum, product
        *(
            (f"SGEMM {step:02}", lambda step=step: lab.sgemm(a, b, step=step), product, bytes_of_product)
            for step in range(1, 8)
        ),
        ("SGEMM 08", lambda: torch.ops.xgemm.matmul(a, b, precision="ieee"), product, bytes_of_product),
    ]
    exact, scale = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    for name, call, flops, moved in calls:
        if name.startswith("SGEMM"):
            _close(call, exact, scale, 2 * MARKED**0.5 + 8, name)
        elif name == "copy":
            _exact(call, x, name)
        elif name == "reduction v7":
            require(bool((call().double() - x.double().sum()).abs() <= 2**-14 * x.abs().sum()), name)
        else:
            reference = torch.softmax(y.double(), -1)
            _close(call, reference, reference, 64 + y.shape[1] / 256, name)
        yield row(
            "kernels of the ladders",
            name,
            time_us(call, budget),
            shape={"n": n},
            flops=flops or None,
            bytes_moved=moved,
            intensity=flops / moved,
        )


class Energy:
    """The GPU's energy counter by NVML; measures nothing where there is none."""

    SECONDS = 0.4  # of work a measurement: the counter moves every 20 to 100 ms

    def __init__(self) -> None:
        self._read: Callable[[], float] | None = None

    def __enter__(self) -> "Energy":
        try:
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
            handle, millijoules = ctypes.c_void_p(), ctypes.c_ulonglong()
            uuid = f"GPU-{torch.cuda.get_device_properties().uuid}".encode()
            if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(handle)):
                return self

            def read() -> float:
                torch.cuda.synchronize()
                nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(millijoules))
                return millijoules.value / 1e3

            if nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(millijoules)) == 0:
                self._read = read
        except (OSError, AttributeError):
            pass
        return self

    def __exit__(self, *_: object) -> None:
        self._read = None

    def of(self, call: Call, us: float) -> float | None:
        """Joules of a call that takes `us`, from many of them."""
        if self._read is None:
            return None
        count = max(1, round(self.SECONDS / us * 1e6))
        before = self._read()
        for _ in range(count):
            call()
        return (self._read() - before) / count


def fit_energy(rows: list[Row]) -> tuple[float, float, float, float] | None:
    """(joules a flop, joules a byte, watts at rest, largest relative residual) of E = W e_f + Q e_m + P0 T (S4-03)."""
    used = [r for r in rows if r.get("joules") and r["dtype"] == "float32"]
    if len(used) < 5:
        return None
    energy = torch.tensor([r["joules"] for r in used], dtype=torch.float64)
    seconds = [r["us"] * 1e-6 for r in used]
    terms = torch.tensor(
        [[(r["tflops"] or 0) * 1e12 * t, r["gbps"] * 1e9 * t, t] for r, t in zip(used, seconds, strict=True)],
        dtype=torch.float64,
    )
    weighted = terms / energy[:, None]  # relative residuals
    scale = weighted.norm(dim=0)
    solution = (
        torch.linalg.lstsq(weighted / scale, torch.ones(len(used), 1, dtype=torch.float64)).solution[:, 0] / scale
    )
    residual = (weighted @ solution - 1).abs().max().item()
    return (*solution.tolist(), residual)

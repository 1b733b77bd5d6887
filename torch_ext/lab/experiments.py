"""The documents' single experiments: what runs, what it must equal, what was measured.

Each function yields the rows of one experiment. ``document`` in a row is a document's figure for the same set-up,
``remark`` a word of ours. See docs/lab.md.
"""

import itertools
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

from torch_ext import device
from torch_ext.lab.measure import Row, amount, close, exact, randn, require, row, share, time_us, times_us

lab = torch.ops.xgemm_lab
PACKAGES = str(Path(__file__).resolve().parents[2])  # the folder of torch_ext


def attributes(name: str) -> dict[str, int]:
    """Registers, shared and local memory in bytes, threads of a block, blocks an SM, of a kernel of the lab."""
    values = lab.kernel_attributes(torch.empty(1, device="cuda"), name).tolist()
    return dict(zip(("registers", "shared", "local", "threads", "blocks"), values, strict=True))


def resources(name: str) -> dict[str, int]:
    """Registers and blocks an SM of a kernel of the lab, for its rows."""
    found = attributes(name)
    return {"registers": found["registers"], "blocks": found["blocks"]}


def window_reference(x: torch.Tensor, window: int) -> torch.Tensor:
    """Sums over a centred window by differences of prefix sums; exact for integers in float64."""
    half, n = window // 2, x.numel()
    prefix = torch.cat([x.new_zeros(1), x.cumsum(0)])
    index = torch.arange(n, device=x.device)
    return prefix[(index + half + 1).clamp_max(n)] - prefix[(index - half).clamp_min(0)]


def divergence(sizes: list[int], budget: float) -> Iterator[Row]:
    """A branch on the data, by `if` and by arithmetic (a negative control), and real divergence."""
    n = sizes[0]
    x = torch.randint(-1000, 1000, (n,), dtype=torch.int32, device="cuda")
    expected = torch.where(x % 2 == 0, x * 2, x + 1)
    for name, branch, document in (
        ("branch", True, "T4 74 us, 4090 32 us, at the first launch"),
        ("arithmetic", False, "T4 25 us, 4090 108 us, at the first launch"),
    ):
        call = partial(lab.parity, x, branch)
        exact(call, expected, f"parity by {name}")
        timing = time_us(call, budget)
        yield row(
            "parity", name, timing, shape={"n": x.numel()}, dtype="int32", bytes_moved=8 * x.numel(), document=document
        )
    y = randn(n)
    index = torch.arange(y.numel(), device="cuda")
    for count in (1, 2, 4, 8, 16, 32):
        for per_lane in (True, False):
            chosen = ((index if per_lane else index // 32) % count).double()
            call = partial(lab.paths, y, count, per_lane)
            # 256 halvings forget x: the result is the fixed point 2 b of y <- y / 2 + b.
            error = close(call, 2 * chosen, 2 * chosen + 1, 4, f"paths {count} {per_lane}")
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
import json, statistics, sys, torch
sys.path.append(sys.argv[1])  # wherever this program was started
import torch_ext.lab
lab = torch.ops.xgemm_lab
torch.cuda.set_device(int(sys.argv[2]))
x = torch.randint(-1000, 1000, (int(sys.argv[3]),), dtype=torch.int32, device="cuda")
a = torch.ones(1024, device="cuda")
calls = {"branch": lambda: lab.parity(x, True), "arithmetic": lambda: lab.parity(x, False)}
calls |= {name: lambda name=name: lab.vector_add(a, a, name) for name in ("plain", "coarsened2")}
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
begin.record(), end.record(), torch.cuda.synchronize()

def us(name):
    begin.record()
    calls[name]()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3

first = {name: us(name) for name in sys.argv[4:]}
print(json.dumps([first, {name: statistics.median(us(name) for _ in range(50)) for name in first}]))
"""


def first_launch(sizes: list[int], budget: float) -> Iterator[Row]:
    """The first launch of a kernel in a process, which the documents timed, against later ones."""
    documents = {"branch": "T4 74 us, 4090 32 us", "arithmetic": "T4 25 us, 4090 108 us"}
    documents |= {"plain": "T4 235 us, 4090 83 us", "coarsened2": "T4 20 us, 4090 8 us"}
    pairs = ("branch", "arithmetic"), ("plain", "coarsened2")  # in the documents' order
    for n, order in itertools.product(sizes, [order for a, b in pairs for order in ((a, b), (b, a))]):
        kernels = "parity" if "branch" in order else "vector add 1024"
        command = [sys.executable, "-c", FIRST_LAUNCHES, PACKAGES, str(torch.cuda.current_device()), str(n), *order]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        require(
            done.returncode == 0, f"process that times first launches ({done.stderr.strip().rpartition(chr(10))[2]})"
        )
        first, warm = json.loads(done.stdout)
        for name in order:
            for when, times in (("first launch", first), ("warm", warm)):
                yield row(
                    f"{kernels}, {order[0]} first, launched from Python",
                    f"{name}, {when}",
                    (times[name], (times[name], times[name])),
                    shape={"n": n if kernels == "parity" else 1024, "first": order[0], "when": when},
                    dtype="int32" if kernels == "parity" else "float32",
                    document=documents[name] if when == "first launch" and order in pairs else None,
                ) | {"graph": False}


def coarsening(sizes: list[int], budget: float) -> Iterator[Row]:
    """Vector addition plain, coarsened, with vector accesses, and 'privatised' (a negative control)."""
    documents = {
        ("plain", 1024): "ncu T4 4.19 us, 4090 1.95 us",
        ("coarsened2", 1024): "ncu T4 4.54 us, 4090 2.02 us",
        ("plain", 1 << 20): "4090 11.1 us",
        ("privatised", 1 << 20): "4090 12.9 us",
    }
    variants = "plain", "privatised", "coarsened2", "coarsened4", "vector2", "vector4"
    for size in (1024, 1 << 20, *sizes):
        a, b = randn(size), randn(size)
        calls = {name: partial(lab.vector_add, a, b, name) for name in variants}
        for name, call in calls.items():
            exact(call, a + b, f"vector_add {name}")
        for name, timed in times_us(calls, budget).items():
            shape, document = {"n": size}, documents.get((name, size))
            yield row(f"vector add {size}", name, shape=shape, bytes_moved=12 * size, document=document, **timed)


def privatisation(sizes: list[int], budget: float) -> Iterator[Row]:
    """Window sums, with the halo that the document forgets, and histograms."""
    n, lecture = sizes[0], 1 << 20
    documents = {("direct", 5, lecture): "4090 7.39 us", ("shared", 5, lecture): "4090 8.10 us"}
    for size, window in itertools.product(dict.fromkeys((lecture, n)), (5, 129)):
        x = randn(size)
        calls = {name: partial(lab.window_sum, x, window, name == "shared") for name in ("direct", "shared")}
        reference, scale = window_reference(x.double(), window), window_reference(x.double().abs(), window)
        error = {name: close(call, reference, scale, window, f"window sum {name}") for name, call in calls.items()}
        for name, timed in times_us(calls, budget).items():
            yield row(
                f"window sum {window} of {amount(size)}",
                name,
                shape={"n": size, "window": window},
                bytes_moved=8 * size,
                error=error[name],
                document=documents.get((name, window, size)),
                **timed,
            )
    for bins in (7, 256, 4096):
        values = torch.randint(0, bins, (n,), dtype=torch.int32, device="cuda")
        expected = torch.bincount(values, minlength=bins).int()
        for name, private in (("global atomics", False), ("privatised", True)):
            call = partial(lab.histogram, values, bins, private)
            exact(call, expected, f"histogram {name}")
            yield row(
                f"histogram {bins} bins", name, time_us(call, budget), shape={"n": n}, dtype="int32", bytes_moved=4 * n
            )


FMA_THREADS = (1, 32, 64, 96, 128, 192, 256, 384, 512, 640, 768, 896, 1024)
CHAINS = (1, 2, 4, 8, 16)


def fma(sizes: list[int], budget: float) -> Iterator[Row]:
    """Multiply-add rate over threads and chains, one block an SM; `sizes`: steps of a chain."""
    gpu = device.limits()
    # The slides' kernel: unrolled by 8, factors known at run time, on an M2090.
    documents = {(32, 1): 0.05, (32, 2): 0.09, (32, 4): 0.13, (32, 8): 0.15}
    documents |= {(1024, 1): 0.63, (1024, 2): 0.73, (1024, 4): 0.89, (1024, 8): 0.94, (1024, 16): 0.96}
    variants = [(chains, unroll, 3) for unroll in (8, 64) for chains in CHAINS] + [(1, 64, 2)]
    three, two = torch.tensor([0.5, 1.0], device="cuda"), torch.tensor([0.5, 0.5], device="cuda")
    for iterations, threads in itertools.product(sizes, FMA_THREADS):
        x = randn(gpu.multiprocessors * threads)
        for chains, unroll, registers in variants:
            factors = three if registers == 3 else two
            call = partial(lab.fma_chains, x, factors, threads, chains, iterations, unroll, registers)
            # Every chain forgets its start and arrives at the fixed point of y <- y / 2 + c: 2 c.
            fixed = torch.full_like(x, 2.0 * factors[1].item() * chains, dtype=torch.float64)
            error = close(call, fixed, fixed, 4, f"{chains} chains of FMAs")
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
                of_peak=share(flops, timing, gpu.fp32_flops),
                document=f"{document:.2f} of peak (M2090)" if document else None,
            )


BLOCKS = ((64,), (16, 4), (8, 4, 2), (5, 7), (100,))
BOUNDARY = "with i < n, one element less", "with i < n", "without"  # the test of a thread-per-element kernel
ADDITIONS = (1 << 10, 1 << 20, 1 << 26)  # elements: whole blocks, so that the test may be left out


def scheduling(sizes: list[int], budget: float) -> Iterator[Row]:
    """Which threads are a warp, where and when blocks run; `sizes`: their nanoseconds."""
    anything = torch.empty(1, device="cuda")
    for block in BLOCKS:
        threads = math.prod(block)
        call = partial(lab.who_am_i, anything, 3, *block)
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
            block=list(block),
            lanes=seen[0, :, 0].tolist(),
            warps=(seen[0, :, 1] // 32).tolist(),
        )
    gpu = device.limits()
    sms = gpu.multiprocessors
    slots = sms * attributes("who am i")["blocks"]  # of 1024 threads: two an SM, or one where it holds 1536
    for stay, blocks in itertools.product(sizes, dict.fromkeys((1, sms, slots, slots + 1, 2 * slots))):
        lab.who_am_i(anything, blocks, 1024, 1, 1, stay)
        runs = []
        for _ in range(5):
            block = lab.who_am_i(anything, blocks, 1024, 1, 1, stay)
            begin, end, where = block[..., 3].amin(1), block[..., 4].amax(1), block[:, 0, 2]
            require(bool((block[..., 2] == where[:, None]).all()), "one block on one SM")
            first = begin.min()
            together = (begin[:, None] >= begin) & (begin[:, None] < end) & (where[:, None] == where)
            shown = (where < 7) | (where == where[end.argmax()])  # the first seven SMs, and that of the last block
            lines = torch.stack([where, begin - first, end - first], 1)[shown].tolist()
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
    for n in ADDITIONS:
        a, b = randn(n), randn(n)
        calls = {
            BOUNDARY[0]: partial(lab.vector_add, a[:-1], b[:-1], "plain"),
            BOUNDARY[1]: partial(lab.vector_add, a, b, "plain"),
            BOUNDARY[2]: partial(lab.vector_add, a, b, "unguarded"),
        }
        for name, call in calls.items():
            exact(call, (a + b)[: call().numel()], f"vector_add {name}")
        for name, timed in times_us(calls, budget).items():
            used = n - (name == BOUNDARY[0])
            share = f"{device.boundary_share(used):.2g} of the warps diverge"
            yield row(
                f"vector addition of {amount(n)}", name, shape={"n": n}, bytes_moved=12 * used, remark=share, **timed
            )


REGISTERS = (31, 33, 40, 41, 64, 65, 128)


def registers(sizes: list[int], budget: float) -> Iterator[Row]:
    """One kernel of 512 threads bound to 31 to 128 registers; `sizes`: elements."""
    gpu = device.limits()
    documents = {31: "4 blocks, 100 % (A100)", 33: "3 blocks, 75 % (A100)"}
    for n, bound in itertools.product(sizes, ("memory", "arithmetic")):
        x = randn(n)
        iterations = 0 if bound == "memory" else 512
        fixed = torch.full_like(x, 2, dtype=torch.float64)
        for count in REGISTERS:
            call = partial(lab.register_bound, x, count, bound, iterations)
            if bound == "memory":
                exact(call, x, f"copy with {count} registers")
            else:
                close(call, fixed, fixed, 4, f"FMAs with {count} registers")
            found = attributes(f"registers {count} {bound}")
            predicted = device.occupancy(gpu, 512, found["registers"])
            yield row(
                f"{bound}, {amount(n)} elements",
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

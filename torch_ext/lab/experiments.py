"""The documents' single experiments: what runs, what it must equal, and what they measured.

See docs/lab_experiments.md.
"""

from collections.abc import Callable, Iterator

import torch
from rich.console import Console
from rich.table import Table

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


def window_reference(x: torch.Tensor, window: int) -> torch.Tensor:
    """Sums over a centred window by differences of prefix sums; exact for integers in float64."""
    half, n = window // 2, x.numel()
    prefix = torch.cat([x.new_zeros(1), x.cumsum(0)])
    index = torch.arange(n, device=x.device)
    return prefix[(index + half + 1).clamp_max(n)] - prefix[(index - half).clamp_min(0)]


def coalescing(n: int, budget: float) -> Iterator[Row]:
    """S1-04, S1-05, S1-06: the strided and the coalesced copy, also with the occupancy API's block size."""
    x = _randn(n)
    best = lab.best_block_size(x)[0].item()
    twice = x.view(-1, 2)[:, 0].repeat(2)
    for name, stride, threads, document in (
        ("non-coalesced", 2, 128, "T4 764 us, 4090 205 us"),
        ("coalesced", 1, 128, "T4 559 us (1.37x), 4090 119 us (1.72x)"),
        (f"coalesced, best block {best}", 1, best, "4090 118.7 us (block 768)"),
    ):

        def call(stride: int = stride, threads: int = threads) -> torch.Tensor:
            return lab.strided_copy(x, stride, threads)

        _exact(call, x if stride == 1 else twice, name)
        timing = time_us(call, budget)
        yield row("coalescing", name, timing, shape={"n": n}, bytes_moved=8 * n, document=document)


def divergence(n: int, budget: float) -> Iterator[Row]:
    """S1-13, S1-14 (a negative control) and S2-07 (real divergence)."""
    x = torch.randint(-1000, 1000, (1 << 20,), dtype=torch.int32, device="cuda")
    expected = torch.where(x % 2 == 0, x * 2, x + 1)
    for name, branch, document in (
        ("branch", True, "T4 74 us, 4090 32 us (cold start)"),
        ("arithmetic", False, "T4 25 us, 4090 108 us (cold start)"),
    ):

        def call(branch: bool = branch) -> torch.Tensor:
            return lab.parity(x, branch)

        _exact(call, expected, f"parity by {name}")
        timing = time_us(call, budget)
        yield row(
            "parity", name, timing, shape={"n": x.numel()}, dtype="int32", bytes_moved=8 * x.numel(), document=document
        )
    y = _randn(1 << 20)
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
                document=f"expected {count}x" if per_lane else "expected 1x",
            )


def coarsening(n: int, budget: float) -> Iterator[Row]:
    """S1-15 to S1-17: vector addition plain, coarsened, with vector accesses, and 'privatised' (a negative control)."""
    documents = {
        ("plain", 1024): "ncu T4 4.19 us, 4090 1.95 us",
        ("coarsened2", 1024): "ncu T4 4.54 us, 4090 2.02 us",
        ("plain", 1 << 20): "4090 11.1 us",
        ("privatised", 1 << 20): "4090 12.9 us",
    }
    for size in (1024, 1 << 20, n):
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


def privatisation(n: int, budget: float) -> Iterator[Row]:
    """S1-18, S1-19 (with the halo that the document forgets) and the histogram of part B4."""
    x = _randn(1 << 20)
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


def tiling(n: int, budget: float) -> Iterator[Row]:
    """S3-02 to S3-16: Sheffield's kernels: tile sizes, static and dynamic shared memory, bank conflicts."""
    gpu = device.limits()
    automatic, _ = device.max_potential_block_size(gpu, 32, device.tile_shared_memory)
    best = int(device.largest_power_of_four(automatic) ** 0.5)
    cases = [
        (n, "naive", 8, "lab's start, tile 8"),
        *((n, "fixed", tile, "") for tile in (8, 16, 32)),
        *(
            (n, "dynamic", tile, f"automatic block size gives tile {best}" if tile == best else "")
            for tile in (8, 16, 32)
        ),
        (n, "conflicting", 32, "32-way bank conflicts"),
        (n, "padded", 32, "none"),
        (32, "single_block", 32, "one SM busy"),
        (32, "fixed", 32, ""),
    ]
    for size, variant, tile, document in cases:
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
            document=document,
        )


def latency(n: int, budget: float) -> Iterator[Row]:
    """S4-06 to S4-13: FMA rate over threads and chains, copy rate over threads, loads and width."""
    gpu = device.limits()
    sms = gpu.multiprocessors
    documents = {(32, 1): 0.05, (32, 2): 0.09, (32, 4): 0.13, (32, 8): 0.15}
    documents |= {(1024, 1): 0.63, (1024, 2): 0.73, (1024, 4): 0.89, (1024, 8): 0.94, (1024, 16): 0.96}
    iterations = 4096
    for threads in (32, 64, 128, 256, 512, 640, 768, 1024):
        x = _randn(sms * threads)
        for chains in (1, 2, 4, 8, 16):

            def call(threads: int = threads, chains: int = chains, x: torch.Tensor = x) -> torch.Tensor:
                return lab.fma_chains(x, threads, chains, iterations)

            # Every chain forgets its start and arrives at the fixed point 2 of y <- y / 2 + 1.
            error = _close(
                call, torch.full_like(x, 2.0 * chains, dtype=torch.float64), torch.full_like(x, 2.0 * chains), 4, "FMA"
            )
            flops = 2 * iterations * chains * x.numel()
            timing = time_us(call, budget / 4)
            yield row(
                f"FMA, {threads} threads",
                f"{chains} chains",
                timing,
                shape={"threads": threads, "chains": chains},
                flops=flops,
                error=error,
                of_peak=round(flops / timing[0] * 1e6 / gpu.fp32_flops, 3) if gpu.fp32_flops else None,
                document=f"{d:.2f} of peak" if (d := documents.get((threads, chains))) else None,
            )
    documents = {
        (32, 1, 1): 0.25,
        (32, 2, 1): 0.41,
        (32, 4, 1): 0.62,
        (32, 8, 1): 0.64,
        (32, 1, 2): 0.43,
        (32, 1, 4): 0.65,
    }
    documents |= {(1024, 1, 1): 0.71, (1024, 1, 4): 0.72}
    x = _randn(n)
    for threads in (32, 128, 512, 1024):
        for loads, width in ((1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (1, 4)):

            def call(threads: int = threads, loads: int = loads, width: int = width) -> torch.Tensor:
                return lab.concurrent_copy(x, threads, loads, width)

            _exact(call, x, f"copy of {loads} x {width}")
            timing = time_us(call, budget / 2)
            yield row(
                f"copy, {threads} threads",
                f"{loads} loads of {4 * width} B",
                timing,
                shape={"n": n, "threads": threads, "loads": loads, "width": width},
                bytes_moved=8 * n,
                of_peak=round(8 * n / timing[0] * 1e6 / gpu.bandwidth, 3) if gpu.bandwidth else None,
                document=f"{d:.2f} of peak" if (d := documents.get((threads, loads, width))) else None,
            )


def quantisation(budget: float) -> Iterator[Row]:
    """S1-07, S1-08: ragged tiles and waves of the library's fp32 product (predicted for 128 x 128 tiles)."""
    sms = device.limits().multiprocessors
    shapes = [(n, n, 1024) for n in (2047, 2048, 2049)] + [(2048, 2048, k) for k in (1023, 1025)]
    # One row of tiles: m = 128 and n = 128 t has exactly t tiles.
    shapes += [(128, 128 * t, 1024) for t in (sms, sms + 1, 2 * sms, 2 * sms + 1)]
    for m, n, k in shapes:
        a, b = _randn(m, k), _randn(k, n)
        reference, scale = a.double() @ b.double(), a.double().abs() @ b.double().abs()
        tiles = -(-m // 128) * -(-n // 128)
        predicted = device.tile_utilisation(m, n, 128, 128) * device.wave_utilisation(tiles, sms)
        calls: dict[str, Call] = {
            "library": lambda a=a, b=b: torch.ops.xgemm.matmul(a, b, precision="ieee"),
            "cublas": lambda a=a, b=b: torch.mm(a, b),
        }
        for name, call in calls.items():
            error = _close(call, reference, scale, 2 * k**0.5 + 8, f"matmul by {name}")
            yield row(
                f"quantisation {m}x{n}x{k}",
                name,
                time_us(call, budget),
                shape={"m": m, "n": n, "k": k},
                flops=2 * m * n * k,
                error=error,
                document=f"{100 * predicted:.0f} % useful",
            )


def run(quick: bool, budget: float) -> Iterator[Row]:
    """All experiments; arrays of 2^24 elements when quick, else 2^26 (256 MiB, beyond any L2)."""
    n = 1 << 24 if quick else 1 << 26
    budget /= 4
    yield from coalescing(n, budget)
    yield from divergence(n, budget)
    yield from coarsening(n, budget)
    yield from privatisation(n, budget)
    yield from tiling(512 if quick else 1024, budget)
    yield from latency(1 << 22 if quick else n, budget)
    yield from quantisation(budget)


def show(console: Console, rows: list[Row]) -> None:
    table = Table(title="Experiments (hot L2)", title_justify="left", title_style="bold")
    for column, justify in (
        ("case", "left"),
        ("variant", "left"),
        ("us", "right"),
        ("rate", "right"),
        ("document", "left"),
    ):
        table.add_column(column, justify=justify, no_wrap=True)
    previous = None
    for r in rows:
        rate = f"{r['gbps']:,.0f} GB/s" if r["gbps"] else f"{r['tflops'] * 1e3:,.0f} GFLOP/s" if r["tflops"] else ""
        if r.get("of_peak") is not None:
            rate += f", {r['of_peak']:.2f} of peak"
        if previous not in (None, r["case"]):
            table.add_section()
        table.add_row(
            "" if previous == r["case"] else r["case"], r["contender"], f"{r['us']:,.1f}", rate, r.get("document") or ""
        )
        previous = r["case"]
    console.print(table)


def calculators() -> list[tuple[str, str, str]]:
    """(what, ours, document's): the arithmetic of the documents, which needs no GPU."""
    known = device.KNOWN
    percent = "{:.2f} %".format

    def occupancy(gpu: str, threads: int, registers: int = 16) -> str:
        return percent(100 * device.occupancy(known[gpu], threads, registers).fraction)

    return [
        ("occupancy, A100, 768 threads (S2-14)", occupancy("A100", 768), "75 %"),
        ("occupancy, A100, 700 threads (S0-10)", occupancy("A100", 700), "68.35 % by threads, 68.75 % by warps"),
        ("occupancy, A100, 512 threads, 31 registers (S2-18)", occupancy("A100", 512, 31), "100 %"),
        ("occupancy, A100, 512 threads, 33 registers (S2-18)", occupancy("A100", 512, 33), "75 %"),
        ("occupancy, H200, 512 threads, 65 registers", occupancy("H200", 512, 65), "-"),
        ("best block and grid, T4 (S1-06)", "{}, {}".format(*device.max_potential_block_size(known["T4"])), "1024, 40"),
        (
            "best block and grid, RTX 4090 (S1-06)",
            "{}, {}".format(*device.max_potential_block_size(known["RTX 4090"])),
            "768, 256",
        ),
        ("best block and grid, H200 (S1-06)", "{}, {}".format(*device.max_potential_block_size(known["H200"])), "-"),
        ("square block of 768 threads (S3-15)", str(device.largest_power_of_four(768)), "256"),
        ("shared memory of two 32 x 32 tiles (S3-11)", f"{device.tile_shared_memory(1024)} B", "8192 B"),
        ("residual addition in fp16, flop a byte (S1-10)", f"{device.pointwise_intensity(1, 2, 1, 2):.3f}", "0.166"),
        ("ReLU in fp16, flop a byte (S1-10)", f"{device.pointwise_intensity(1, 1, 1, 2):.3f}", "0.25"),
        ("4096^3 product, flop an element (S1-11)", f"{device.matmul_intensity(4096, 4096, 4096, 1):.1f}", "2730.7"),
        (
            "4096^3 product without reuse (S0-05)",
            f"{device.naive_matmul_traffic(4096, 4096, 4096) / 2**30:.1f} GiB",
            "512 GB",
        ),
        ("FMAs in flight, M2090 (S4-06)", f"{device.littles_law(20, 32):.0f}", "640"),
        ("KiB in flight, M2090 (S4-11)", f"{device.littles_law(800 / 1.3e9, 177e9) / 1024:.0f}", "106"),
        ("balance, H200, fp32 flop a byte (S4-04)", f"{known['H200'].balance:.1f}", "3.6 (Fermi, fp64)"),
        ("threads a core, A100 (S2-10)", f"{known['A100'].oversubscription:.0f}x", "32x"),
    ]


def show_calculators(console: Console) -> None:
    table = Table(title="Calculators (torch_ext.device)", title_justify="left", title_style="bold")
    for column in ("what", "ours", "document"):
        table.add_column(column, justify="left" if column == "what" else "right", no_wrap=True)
    for line in calculators():
        table.add_row(*line)
    console.print(table)

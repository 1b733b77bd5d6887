"""The arithmetic of the documents, with their numbers or with yours; needs no GPU.

``python -m torch_ext.lab occupancy --gpu A100 --threads 700``; likewise ``intensity``, ``little``, ``quantisation``.
"""

import argparse
from collections.abc import Callable

from torch_ext import device


def calculators() -> list[tuple[str, str, str, str]]:
    """(what, ours, what the document prints, what follows from the document or is from elsewhere)."""
    known = device.KNOWN
    percent = "{:.2f} %".format

    def occupancy(gpu: str, threads: int, registers: int = 16) -> str:
        return percent(100 * device.occupancy(known[gpu], threads, registers).fraction)

    def best(gpu: str) -> str:
        return "{}, {}".format(*device.max_potential_block_size(known[gpu]))

    def pointwise(reads: int, writes: int, size: int) -> str:
        return f"{device.pointwise_intensity(1, reads, writes, size):.3f}"

    a100, h200, product = known["A100"], known["H200"], (4096, 4096, 4096)
    blocks = [str(device.occupancy(a100, threads).blocks) for threads in (1024, 512, 256, 64)]
    full = max(r for r in range(1, 256) if device.occupancy(a100, 1024, r).fraction == 1)
    sheet = f"{device.naive_occupancy(h200, 64):.4f}, meant: {device.occupancy_bound(h200, 64):g}"
    reuse, traffic = f"{device.matmul_intensity(*product, 1):.1f}", device.naive_matmul_traffic(*product)
    tiles = f"{device.tile_shared_memory(1024)} B"
    diverging = f"{percent(100 * device.boundary_share(1000))}, {100 * device.boundary_share(10**8 + 1):.5f} %"
    return [
        ("occupancy, A100, 768 threads", occupancy("A100", 768), "75 %", ""),
        ("occupancy, A100, 700 threads", occupancy("A100", 700), "68.35 % by threads", "68.75 % by warps"),
        ("blocks an SM, A100, of 1024, 512, 256, 64 threads", ", ".join(blocks), "2, 4, 8, 32", ""),
        ("registers a thread that leave full occupancy, A100", str(full), "32", ""),
        ("occupancy, A100, 512 threads, 64 registers", occupancy("A100", 512, 64), "50 %", ""),
        ("occupancy, A100, 512 threads, 31 registers", occupancy("A100", 512, 31), "100 %", ""),
        ("occupancy, A100, 512 threads, 33 registers", occupancy("A100", 512, 33), "75 %", ""),
        ("occupancy, H200, 512 threads, 65 registers", occupancy("H200", 512, 65), "", ""),
        ("best block and grid, T4", best("T4"), "1024, 40", ""),
        ("best block and grid, RTX 4090", best("RTX 4090"), "768, 256", ""),
        ("best block and grid, H200", best("H200"), "", ""),
        ("square block of 768 threads", str(device.largest_power_of_four(768)), "", "256, by the sheet's formula"),
        ("shared memory of two 32 x 32 tiles", tiles, "", "8192 B, by the sheet's text"),
        ("residual addition in fp16, flop a byte", pointwise(2, 1, 2), "0.166", ""),
        ("ReLU in fp16, flop a byte", pointwise(1, 1, 2), "0.25", ""),
        ("ReLU in fp32, flop a byte", pointwise(1, 1, 4), "1/8", ""),
        ("ReLU in fp32 that need not write, flop a byte", pointwise(1, 0, 4), "1/4", ""),
        ("4096^3 product, flop an element", reuse, "2 m n k / (m n + n k + m k)", "2730.7"),
        ("4096^3 product without reuse", f"{traffic / 2**30:.1f} GiB", "512 GB", ""),
        ("FMAs in flight, M2090", f"{device.littles_law(20, 32):.0f}", "640", ""),
        ("KiB in flight, M2090", f"{device.littles_law(800 / 1.3e9, 177e9) / 1024:.0f}", "106", ""),
        ("balance, H200, fp32 flop a byte", f"{h200.balance:.1f}", "3.6 (Fermi, fp64)", ""),
        ("threads a core, A100", f"{a100.oversubscription:.0f}x", "32x", ""),
        ("occupancy by the sheet's formula, H200, 64 threads", sheet, "", ""),
        ("warps that diverge at i < n, n = 1000 and 10^8 + 1", diverging, "", ""),
    ]


def _occupancy(given: argparse.Namespace, gpu: device.Limits) -> str:
    found = device.occupancy(gpu, given.threads, given.registers, given.shared)
    best, grid = device.max_potential_block_size(gpu, given.registers, given.shared)
    return (
        f"{found.blocks} blocks of {given.threads} threads an SM of {gpu.name}: {found.warps} of {found.max_warps} "
        f"warps, {found.fraction:.2%} ({found.thread_fraction:.2%} by threads); limited by {found.limited_by}.\n"
        f"Highest occupancy: {best} threads a block, a grid of {grid} fills the GPU."
    )


def _intensity(given: argparse.Namespace, gpu: device.Limits) -> str:
    if given.product:
        found = device.matmul_intensity(*given.product, given.bytes)
    else:
        found = device.pointwise_intensity(given.ops, given.reads, given.writes, given.bytes)
    bound = "memory" if found < gpu.balance else "arithmetic"
    return (
        f"{found:.4g} flop a byte; {gpu.name} bends at {gpu.balance:.1f} in fp32 on CUDA cores: bound by {bound}, "
        f"at most {device.attainable(gpu, found) / 1e12:.2f} TFLOP/s."
    )


def _little(given: argparse.Namespace, gpu: device.Limits) -> str:
    nanoseconds, rate = given.latency, given.rate or gpu.bandwidth / 1e9
    needed = device.littles_law(nanoseconds, rate)  # ns times a billion a second
    sms = gpu.multiprocessors
    return (
        f"{nanoseconds:g} ns at {rate:,g} billion a second: {needed:,.0f} in flight, {needed / sms:,.0f} an SM of "
        f"{gpu.name}, {needed / sms / gpu.threads:.1f} a thread where all {gpu.threads} are resident."
    )


def _quantisation(given: argparse.Namespace, gpu: device.Limits) -> str:
    (m, n), (tile_m, tile_n) = given.shape, given.tile
    tiles, slots = -(-m // tile_m) * -(-n // tile_n), gpu.multiprocessors * given.blocks
    waves = device.wave_utilisation(tiles, slots)
    share = device.tile_utilisation(m, n, tile_m, tile_n)
    return (
        f"{tiles:,} tiles, {share:.1%} of their elements exist; {-(-tiles // slots)} waves of {slots} blocks, "
        f"{waves:.1%} full: {share * waves:.1%} of the rate of full tiles and waves."
    )


Calculator = Callable[[argparse.Namespace, device.Limits], str]
# What it calculates, how, and its options: (names, default, help).
COMMANDS: dict[str, tuple[str, Calculator, tuple[tuple, ...]]] = {
    "occupancy": (
        "blocks an SM, and what limits them",
        _occupancy,
        (
            ("--threads", 256, "of a block"),
            ("--registers", 16, "of a thread"),
            ("--shared", 0, "bytes of shared memory of a block"),
        ),
    ),
    "intensity": (
        "operations a byte, of an elementwise function or of a product, and what bounds it",
        _intensity,
        (
            ("--ops", 1, "operations an element"),
            ("--reads", 1, "elements read for each"),
            ("--writes", 1, "elements written for each"),
            ("--bytes", 4, "of an element"),
            ("--product", ("M", "N", "K"), "of a matrix product"),
        ),
    ),
    "little": (
        "what must be in flight: latency times rate",
        _little,
        (("--latency", 350.0, "nanoseconds"), ("--rate", 0.0, "billions a second (default: the GPU's bytes)")),
    ),
    "quantisation": (
        "tiles and waves that are not full",
        _quantisation,
        (
            ("--shape", ("M", "N"), "of the result"),
            ("--tile", ("M", "N"), "of a block"),
            ("--blocks", 1, "that an SM holds at once"),
        ),
    ),
}


def main(argv: list[str]) -> int:
    """A calculator with numbers of one's own; `argv` begins with its name."""
    what, calculate, options = COMMANDS[argv[0]]
    parser = argparse.ArgumentParser(prog=f"python -m torch_ext.lab {argv[0]}", description=what)
    parser.add_argument("--gpu", choices=list(device.KNOWN), default="H200", help="default: %(default)s")
    for name, default, text in options:
        if isinstance(default, tuple):
            needed = name != "--product"
            parser.add_argument(name, nargs=len(default), metavar=default, type=int, required=needed, help=text)
        else:
            shown = text if "default" in text else f"{text} (default: {default})"
            parser.add_argument(name, type=type(default), default=default, metavar="N", help=shown)
    given = parser.parse_args(argv[1:])
    if any(value <= 0 for name, value in vars(given).items() if name in ("threads", "bytes", "blocks", "latency")):
        parser.error("expected positive numbers")
    try:
        print(calculate(given, device.KNOWN[given.gpu]))
    except (ValueError, ZeroDivisionError) as error:
        parser.error(str(error))
    return 0

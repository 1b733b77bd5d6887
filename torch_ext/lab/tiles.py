"""Experiments on tiles: Sheffield's lab 6, and what tiles and waves that are not full cost.

Each function yields the rows of one experiment, as in experiments.py. See docs/lab.md.
"""

import itertools
from collections.abc import Iterator
from functools import partial

import torch

from torch_ext import device
from torch_ext.lab.experiments import attributes
from torch_ext.lab.measure import Call, Row, close, errors, mm, product, randn, require, row, time_us

lab = torch.ops.xgemm_lab


def _resident(name: str, gpu: device.Limits) -> dict[str, int | float]:
    """Registers, blocks an SM by the API, and their share of the SM's threads."""
    found = attributes(name)
    share = round(found["blocks"] * found["threads"] / gpu.threads, 4)
    return {"registers": found["registers"], "blocks": found["blocks"], "occupancy": share}


EPSILON = 1e-3  # by which the sheet's solution lets a result differ from a loop's


def in_order(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A B by a loop in the order of k, whose products and sums are rounded each for itself: what a CPU's loop gives."""
    total = a.new_zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        product = a[:, k, None] * b[k]  # an operation of its own, which nothing contracts
        total += product
    return total


def tiling(sizes: list[int], budget: float) -> Iterator[Row]:
    """Sheffield's kernels: tiles, static and dynamic shared memory, bank conflicts, contraction."""
    gpu = device.limits()
    automatic, _, needed = lab.best_block_size(torch.empty(1, device="cuda"), "tiled dynamic 32").tolist()
    calculated, _ = device.max_potential_block_size(gpu, needed, device.tile_shared_memory)
    best = int(device.largest_power_of_four(automatic) ** 0.5)
    chosen = f"the tile of the occupancy API's {automatic} threads a block (calculator: {calculated})"
    n = sizes[0]
    cases = [
        (n, "naive", 8, "the exercise's start"),
        *((n, "fixed", tile, "") for tile in (8, 16, 32)),
        *((n, "dynamic", tile, chosen if tile == best else "") for tile in (8, 16, 32)),
        (n, "conflicting", 32, "32-way bank conflicts"),
        (n, "padded", 32, "rows of 33 words: no conflicts"),
        (32, "single_block", 32, "one SM busy"),
        (32, "fixed", 32, ""),
    ]
    for size, variant, tile, remark in cases:
        a, b = randn(size, size), randn(size, size)
        call = partial(lab.tiled_matmul, a, b, variant, tile)
        error = close(call, *product(a, b), 2 * size**0.5 + 8, f"tiled_matmul {variant} {tile}")
        yield row(
            f"lab 6, {size}x{size}",
            f"{variant} {tile}",
            time_us(call, budget),
            shape={"m": size, "n": size, "k": size, "tile": tile},
            flops=2 * size**3,
            error=error,
            **_resident(f"tiled {variant} {tile}", gpu),
            remark=remark,
        )
    a, b = randn(n, n), randn(n, n)
    loop, references = in_order(a, b), product(a, b)
    for variant in ("fixed", "uncontracted"):
        multiply = partial(lab.tiled_matmul, a, b, variant, 32)
        error = close(multiply, *references, 2 * n**0.5 + 8, f"tiled_matmul {variant}")
        difference = (multiply() - loop).abs()
        differs, worst = (difference > 0).double().mean().item(), difference.max().item()
        require(variant == "fixed" or differs == 0, "product without contraction against a loop in the order of k")
        yield row(
            f"contraction to multiply-adds, {n}x{n}",
            f"{variant} 32",
            time_us(multiply, budget),
            shape={"m": n, "n": n, "k": n, "tile": 32, "contracted": variant == "fixed"},
            flops=2 * n**3,
            error=error,
            differs=round(differs, 4),
            worst=worst,
            remark=f"{differs:.0%} of the elements differ from a loop in k's order, by up to {worst:.1e}"
            if differs
            else "the bits of a loop in k's order",
            document="a small epsilon",
        )


# Elements of k to which the document pads: 16 bytes, or 128 on an A100.
PADDED = {
    "float16": (torch.float16, 8),
    "tf32": (torch.float32, 4),
    "float64": (torch.float64, 2),
    "int8": (torch.int8, 16),
}
EXTRA = (-64, 0, 1, 2, 4, 8, 16, 64)


def _product(name: str, a: torch.Tensor, b: torch.Tensor, library: bool) -> Call:
    """Torch's product, or the library's of the same accuracy."""
    if library:
        precision = "high" if name == "tf32" else "highest"
        return lambda: torch.ops.xgemm.matmul(a, b, precision=precision)
    if name == "int8":
        return lambda: torch._int_mm(a, b)
    return partial(mm, a, b, tf32=name == "tf32")


def padding(sizes: list[int], budget: float) -> Iterator[Row]:
    """Products on tensor cores over k, as it is and padded (padding itself is not timed); `sizes`: m, n and about k.

    A product that torch refuses gives no row.
    """
    for n, (name, (dtype, unit)), extra in itertools.product(sizes, PADDED.items(), EXTRA):
        k = n + extra
        whole = dtype == torch.int8
        a, b = (
            torch.randint(-8, 8, shape, device="cuda").to(dtype) if whole else randn(*shape).to(dtype)
            for shape in ((n, k), (k, n))
        )
        more = -k % unit
        wide = torch.nn.functional.pad(a, (0, more)), torch.nn.functional.pad(b, (0, 0, 0, more))
        calls = {"torch": _product(name, a, b, False)}
        calls |= {} if whole else {"library": _product(name, a, b, True)}
        calls |= {f"torch, k padded to {unit}": _product(name, *wide, False)} if more else {}
        reference, scale = product(a, b)
        roundings = {"float16": 2**-10, "tf32": 2**-9, "float64": k * 2**-52, "int8": 0.0}[name]
        for contender, call in calls.items():
            try:
                result = call()
            except RuntimeError as refused:
                known = "multiple of" in str(refused) or "CUBLAS" in str(refused)
                require(whole and known, f"{contender} of {name}, k = {k} ({refused})")
                continue
            difference = (result.double() - reference).abs()
            require(bool((difference <= roundings * scale).all()), f"{contender} of {name}, k = {k}")
            yield row(
                f"{name}, k = {k}",
                contender,
                time_us(call, budget / 2),
                shape={"m": n, "n": n, "k": k, "padded": k + more if "padded" in contender else k},
                dtype="float32" if name == "tf32" else name,
                mode="tf32" if name == "tf32" else "default",
                flops=2 * n * n * k,
                error=errors(result, reference),
            )


TILE = 128  # of step 07 of the SGEMM ladder


def quantisation(sizes: list[int], budget: float) -> Iterator[Row]:
    """Quantisation on a kernel whose tile is known: step 07 of the SGEMM ladder, 128 x 128; `sizes`: k.

    Tiles around multiples of the block slots, n one off a multiple of the tile, k, and padding of k.
    """
    sms = device.limits().multiprocessors
    slots = sms * attributes("sgemm 07_warp_tile")["blocks"]

    def one(case: str, name: str, call: Call, a: torch.Tensor, b: torch.Tensor, **more) -> Row:
        (m, k), n = a.shape, b.shape[1]
        error = close(call, *product(a, b), 2 * k**0.5 + 8, f"{name}, {case}")
        shape = {"m": m, "n": n, "k": k}
        return row(case, name, time_us(call, budget), shape=shape, flops=2 * m * n * k, error=error, **more)

    for k in sizes:
        # One row of tiles: m = 128 and n = 128 t has t tiles.
        waves = sorted({t + extra for t in (sms, 2 * sms, slots // 2 * 3) for extra in (0, 1)} | {1, slots // 4})
        waves = sorted({*waves, *(i * slots + extra for i in (1, 2, 3, 4) for extra in (0, 1))})
        for tiles in waves:
            a, b = randn(TILE, k), randn(k, TILE * tiles)
            predicted = round(device.wave_utilisation(tiles, slots), 4)
            call = partial(lab.sgemm, a, b, step=7)
            yield one(f"{tiles} tiles", "07_warp_tile", call, a, b, tiles=tiles, slots=slots, predicted=predicted)
        for n in (t * TILE + extra for t in (8, 16) for extra in (-1, 0, 1)):
            a, b = randn(n, k), randn(k, n)
            predicted = round(device.tile_utilisation(n, n, TILE, TILE), 4)
            yield one(f"m = n = {n}", "07_warp_tile", partial(lab.sgemm, a, b, step=7), a, b, predicted=predicted)
        for long in (k + rest for rest in (-64, 0, 1, 2, 4, 8, 64) if k + rest > 0):
            to = -(-long // 64) * 64
            a, b = randn(16 * TILE, long), randn(long, 16 * TILE)
            padded = torch.nn.functional.pad(a, (0, to - long)), torch.nn.functional.pad(b, (0, 0, 0, to - long))
            calls: dict[str, Call] = {
                "07_warp_tile": partial(lab.sgemm, a, b, step=7),
                "07_warp_tile, k padded to 64": partial(lab.sgemm, *padded, step=7),
                "cublas": partial(torch.mm, a, b),
                "cublas, k padded to 64": partial(torch.mm, *padded),
            }
            for name, call in calls.items():
                yield one(f"k = {long}", name, call, a, b)

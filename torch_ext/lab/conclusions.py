"""What each experiment's rows say: a sentence or two made from the figures, and whether the effect was there."""

import itertools

from torch_ext.lab.experiment import Conclusion, find, need
from torch_ext.lab.experiments import BOUNDARY
from torch_ext.lab.measure import Row, amount
from torch_ext.lab.roofline import fit_energy
from torch_ext.lab.tiles import EPSILON, TILE


def _largest(rows: list[Row], key: str) -> float:
    return max(r["shape"][key] for r in rows if key in r["shape"])


def _spread(r: Row) -> str:
    """How far apart repeats of a measurement are, of its median; empty where it was not repeated."""
    return f" (repeats within {(r['spread_us'][1] - r['spread_us'][0]) / r['us']:.0%})" if "spread_us" in r else ""


def sgemm(rows: list[Row]) -> Conclusion:
    n = _largest(rows, "n")
    at = {r["contender"]: r for r in rows if r["shape"]["n"] == n}
    gain = at["01_naive"]["us"] / at["02_coalesced"]["us"]
    shares = {step: at["cublas"]["us"] / r["us"] for step, r in at.items()}
    steps = [step for step in at if step[:2].isdigit()]
    rising = all(at[a]["us"] >= 0.97 * at[b]["us"] for a, b in itertools.pairwise(steps))
    named = {
        "07_warp_tile": "step 07",
        "07a_conflict_free": "07a",
        "07b_double_buffer": "07b",
        "08_library": "the library",
    }
    tops = [f"{shares[step]:.0%} ({name})" for step, name in named.items() if step in shares]
    return Conclusion(
        f"At n = {n} coalesced accesses are worth {gain:.1f}x, and the steps climb from {shares['01_naive']:.1%} of "
        f"cuBLAS to {', '.join(tops[:-1])} and {tops[-1]}"
        + ("." if rising else "; not every step is faster than the one before."),
        gain >= 4 and shares["07_warp_tile"] > shares["03_shared_tile"],
    )


def tensor(rows: list[Row]) -> Conclusion:
    n = _largest(rows, "n")
    at = {r["contender"]: r for r in rows if r["shape"]["n"] == n}
    best = max((step for step in at if step[:2].isdigit()), key=lambda step: at[step]["tflops"])
    return Conclusion(
        f"At n = {n} the steps go from {at['09_wmma']['tflops']:.0f} to {at[best]['tflops']:.0f} TFLOP/s ({best}), "
        f"{at['cublas']['us'] / at[best]['us']:.0%} of cuBLAS.",
        at[best]["tflops"] > 4 * at["09_wmma"]["tflops"],
    )


def fp32(rows: list[Row]) -> Conclusion:
    n = _largest(rows, "n")
    at = {r["contender"]: r for r in rows if r["shape"]["n"] == n}
    error = {name: r["error"]["fro"] for name, r in at.items()}
    return Conclusion(
        f"At n = {n} three fp16 products with scaling give fp32's accuracy (error {error['scaled']:.1e}, cuBLAS "
        f"{error['cublas']:.1e}) at {at['cublas']['us'] / at['scaled']['us']:.1f} times cuBLAS's speed.",
        error["scaled"] <= error["cublas"] and at["scaled"]["us"] < at["cublas"]["us"],
    )


def reduction(rows: list[Row]) -> Conclusion:
    def speedup(n: int, dtype: str) -> float:
        v0, v6 = (need(rows, v, n=n, dtype=dtype) for v in ("v0_interleaved_modulo", "v6_several_elements"))
        return v0["us"] / v6["us"]

    n = _largest(rows, "n")
    at = {r["contender"]: r for r in rows if r["shape"]["n"] == n and r["dtype"] == "float32"}
    best = max(at[v]["gbps"] for v in at if v >= "v6")
    small = min(r["shape"]["n"] for r in rows)
    return Conclusion(
        f"Of {amount(small)} ints v6 is {speedup(small, 'int32'):.1f}x as fast as v0 (document, 2^24 ints on an "
        f"M2090: 11.8x), of {amount(n)} floats {speedup(n, 'float32'):.1f}x; of these the best version reads "
        f"{best:,.0f} GB/s where a copy moves {at['copy']['gbps']:,.0f}. {n - 1:,} additions in "
        f"{(n - 1).bit_length()} dependent steps at least, whatever the version.",
        speedup(n, "float32") > 4 and best > 0.8 * at["copy"]["gbps"],
    )


def transpose(rows: list[Row]) -> Conclusion:
    n = _largest(rows, "n")
    at = {r["contender"]: r for r in rows if r["shape"]["n"] == n}
    share = {step: at["copy"]["us"] / r["us"] for step, r in at.items()}
    return Conclusion(
        f"At n = {n} the naive transpose moves {share['01_naive']:.0%} of what a copy moves, a tile with bank "
        f"conflicts {share['02_tiled']:.0%}, padded {share['03_padded']:.0%}, swizzled {share['04_swizzled']:.0%}, "
        f"torch's {share['torch']:.0%}.",
        at["04_swizzled"]["us"] < min(at["02_tiled"]["us"], at["01_naive"]["us"]),
    )


def reduction_grid(rows: list[Row]) -> Conclusion:
    n = _largest(rows, "n")
    rows = [r for r in rows if r["shape"]["n"] == n]
    best = {loads: max((r for r in rows if r["shape"]["loads"] == loads), key=lambda r: r["gbps"]) for loads in (2, 8)}
    few = {loads: need(rows, loads=loads, blocks_per_sm=1)["gbps"] for loads in (2, 8)}
    return Conclusion(
        f"Of {amount(n)} numbers: with one block an SM eight loads in flight a thread read {few[8]:,.0f} GB/s and two "
        f"{few[2]:,.0f}; enough blocks make up for it ({best[8]['gbps']:,.0f} and {best[2]['gbps']:,.0f} at "
        f"{best[8]['contender']} and {best[2]['contender']}): bytes in flight count, however they come about.",
        few[8] > 1.5 * few[2],
    )


COLUMNS_IN_L1 = 2048  # 8 KiB a row, and 8 rows an SM at a time


def softmax(rows: list[Row]) -> Conclusion:
    columns = sorted({r["shape"]["cols"] for r in rows})
    gain = {
        (name, n): need(rows, "safe", cols=n)["us"] / need(rows, name, cols=n)["us"]
        for name in ("online", "online4")
        for n in columns
    }
    least, most = columns[0], columns[-1]
    text = (
        f"At {most} columns online is {gain['online', most]:.2f}x and online4 {gain['online4', most]:.2f}x "
        "as fast as safe (paper: up to 1.3x)"
    )
    if least <= COLUMNS_IN_L1 and least < most:
        text += (
            f"; at {least} columns, where a row stays in a cache between the passes, "
            f"{gain['online', least]:.2f}x and {gain['online4', least]:.2f}x"
        )
    return Conclusion(
        text + ".",
        max(gain["online", most], gain["online4", most]) > 1.1,
    )


def attention(rows: list[Row]) -> Conclusion:
    s = _largest(rows, "s")
    at = {r["contender"]: r for r in rows if r["shape"] | {"s": s, "d": 128, "causal": False} == r["shape"]}
    best = max((step for step in at if step[:2].isdigit()), key=lambda step: at[step]["tflops"])
    ratio = at["01_materialised"]["peak_bytes"] / at["02_row_a_warp"]["peak_bytes"]
    return Conclusion(
        f"At S = {s}, D = 128 the fused form takes {ratio:.0f} times less memory than stored scores, and the steps go "
        f"from {at['01_materialised']['tflops']:.1f} to {at[best]['tflops']:.0f} TFLOP/s ({best}).",
        ratio > 4 and at[best]["us"] < at["01_materialised"]["us"],
    )


def coalescing(rows: list[Row]) -> Conclusion:
    n = _largest([r for r in rows if "2^24" not in r["case"]], "n")

    def us(stride: int, loads: int) -> float:
        return need(rows, stride=stride, loads=loads, threads=128, n=n)["us"]

    twice, most = us(2, 8) / us(1, 8), us(32, 8) / us(1, 8)
    return Conclusion(
        f"With eight loads in flight a thread, stride 2 takes {twice:.2f} times as long as stride 1 and stride 32 "
        f"{most:.1f} times (documents, stride 2: 1.37x on a T4, 1.72x on a 4090). The documents' kernel, one load a "
        f"thread, shows {us(2, 1) / us(1, 1):.2f}x at this size: an empty kernel with its grid takes {us(0, 1):.0f} "
        f"of its {us(1, 1):.0f} us.",
        twice > 1.2 and most > 4,
    )


def divergence(rows: list[Row]) -> Conclusion:
    by_lane = need(rows, "by lane", paths=32)["us"] / need(rows, "by lane", paths=1)["us"]
    by_warp = need(rows, "by warp", paths=32)["us"] / need(rows, "by warp", paths=1)["us"]
    parity = need(rows, "branch", case="parity")["us"] / need(rows, "arithmetic", case="parity")["us"]
    why = ": the compiler predicates it, and their figures are single first launches" if 0.8 < parity < 1.25 else ""
    return Conclusion(
        f"32 ways within a warp cost {by_lane:.0f} times one, 32 ways between warps {by_warp:.1f} times. "
        f"The documents' even-or-odd branch costs {parity:.2f} times its arithmetic form{why}.",
        by_lane > 10 and by_warp < 3,
    )


def first_launch(rows: list[Row]) -> Conclusion:
    def us(order: str, name: str, when: str) -> float:
        return need(rows, f"{name}, {when}", first=order)["us"]

    ratio = us("branch", "branch", "first launch") / us("branch", "arithmetic", "first launch")
    turned = us("arithmetic", "arithmetic", "first launch") / us("arithmetic", "branch", "first launch")
    warm = us("branch", "branch", "warm") / us("branch", "arithmetic", "warm")
    text = ""
    if find(rows, first="plain"):
        first, later = (us("plain", "plain", w) / us("plain", "coarsened2", w) for w in ("first launch", "warm"))
        text = (
            f" Vector addition: {first:.1f} times its coarsened form, warm {later:.2f} times (documents: 11x and 10x)."
        )
    return Conclusion(
        f"In a fresh process the form with the branch takes {ratio:.1f} times as long as the arithmetic one when "
        f"it is launched first, and the arithmetic one {turned:.1f} times as long as the branch when that order is "
        f"turned round; warm, {warm:.2f} times. The documents' figures are single first launches, each of which loads "
        "its own kernel, the branch first on both GPUs: 3x (T4), and 3.3x the other way (4090), which no order "
        "explains." + text,
        ratio > 1.3 and turned > 1.3 and 0.7 < warm < 1.4,
    )


def coarsening(rows: list[Row]) -> Conclusion:
    n = _largest(rows, "n")

    def us(variant: str, size: int = n) -> float:
        return need(rows, variant, n=size)["us"]

    same = us("privatised") / us("plain")
    text = (
        f"At {amount(n)} elements four neighbours a thread take {us('coarsened4') / us('plain'):.2f} times as long as "
        f"one when they are loaded one by one, and {us('vector4') / us('plain'):.2f} times in 16-byte accesses. The "
        f'documents\' "privatised" addition takes {same:.2f} times as long: it is the same machine code.'
    )
    if few := find(rows, "plain", n=1024):
        noise = us("privatised", 1024) / few["us"]
        text += (
            f" At 1024 that same code takes {noise:.2f} times as long{_spread(few)}, the coarsened kernel "
            f"{us('coarsened2', 1024) / few['us']:.2f} times: launch and latency, and noise of this size."
        )
    return Conclusion(text, us("coarsened4") > 1.1 * us("vector4") and abs(same - 1) < 0.05)


def privatisation(rows: list[Row]) -> Conclusion:
    def gain(window: int, n: int) -> str:
        direct, shared = (need(rows, name, window=window, n=n) for name in ("direct", "shared"))
        return f"{direct['us'] / shared['us']:.2f} at {amount(n)}{_spread(direct)}"

    sizes = sorted({r["shape"]["n"] for r in rows if "window" in r["shape"]})
    few, wide = (" and ".join(gain(window, n) for n in sizes) for window in (5, 129))
    most = [need(rows, name, window=129, n=sizes[-1])["us"] for name in ("direct", "shared")]
    counts = [need(rows, name, case="histogram 256 bins")["us"] for name in ("global atomics", "privatised")]
    return Conclusion(
        f"The speed of a window of 5 staged in shared memory over direct loads is {few} (document: 0.91 at 2^20 on a "
        f"4090, with wrong sums at block edges), of a window of 129 {wide}. Private counters make a histogram of 256 "
        f"bins {counts[0] / counts[1]:.0f} times as fast.",
        most[0] > 1.2 * most[1] and counts[0] > 4 * counts[1],
    )


def tiling(rows: list[Row]) -> Conclusion:
    n = _largest(rows, "n")

    def us(contender: str) -> float:
        return need(rows, contender, n=n)["us"]

    ratio = us("conflicting 32") / us("padded 32")
    used = {need(rows, contender, n=n).get("registers") for contender in ("conflicting 32", "padded 32")}
    if len(used) == 1 and None not in used:
        conflicts = f"32-way bank conflicts cost {ratio:.1f} times the padded form"
    else:
        conflicts = (
            f"The form with bank conflicts takes {ratio:.1f} times as long as the padded one, not for its banks alone"
        )
    text = ""
    if contracted := find(rows, contracted=True):
        text = (
            f" Contraction to multiply-adds changes {contracted['differs']:.0%} of the elements, by up to "
            f"{contracted['worst']:.0e} (the sheet's solution allows {EPSILON:g}); without it the bits are those of a "
            "loop in the order of k."
        )
    return Conclusion(
        f"Tiles of 8, 16 and 32 take {us('fixed 8'):.0f}, {us('fixed 16'):.0f} and {us('fixed 32'):.0f} us of the "
        f"{us('naive 8'):.0f} of the kernel without shared memory; a tile known at run time only costs "
        f"{us('dynamic 32') / us('fixed 32'):.2f} times as much. {conflicts}.{text}",
        us("fixed 32") < us("naive 8")
        and us("conflicting 32") > 2 * us("padded 32")
        and (contracted is None or contracted["worst"] <= EPSILON),
    )


def fma(rows: list[Row]) -> Conclusion:
    def share(threads: int, chains: int, unroll: int = 8, registers: int = 3) -> float:
        return need(rows, threads=threads, chains=chains, unroll=unroll, registers=registers)["of_peak"]

    full = [share(1024, chains) for chains in (1, 2, 4, 8, 16)]
    few = [share(32, chains) for chains in (1, 2, 4, 8)]
    one, two = share(1024, 1, 64), share(1024, 1, 64, 2)
    if two > 1.2 * one:
        limit = (
            f"One chain stays at {one:.2f} however far it is unrolled, and reaches {two:.2f} with two different "
            "registers an instruction instead of three: it is bound by reads of the register file."
        )
    else:
        limit = (
            f"One chain unrolled by 64 reaches {one:.2f}, and {two:.2f} with two different registers an instruction "
            "instead of three: reads of the register file do not bind it."
        )
    return Conclusion(
        f"At 1024 threads an SM, 1 to 16 chains reach {', '.join(f'{x:.3f}' for x in full)} of the peak (document: "
        f"0.63, 0.73, 0.89, 0.94, 0.96), at 32 threads 1 to 8 chains {', '.join(f'{x:.3f}' for x in few)} (0.05, "
        f"0.09, 0.13, 0.15). {limit}",
        full[-1] > 1.2 * full[0] and few[-1] > 2 * few[0],
    )


def copy(rows: list[Row]) -> Conclusion:
    grid = "resident" if find(rows, grid="resident") else "one_per_sm"

    def row(loads: int, width: int = 1, grid: str = grid) -> Row:
        return need(rows, grid=grid, threads=32, loads=loads, width=width)

    few = [row(loads)["of_peak"] for loads in (1, 2, 4, 8)]
    blocks = "as many blocks of 32 threads as an SM holds" if grid == "resident" else "one block of 32 threads an SM"
    text = (
        f"With {blocks}, 1, 2, 4 and 8 loads in flight reach {', '.join(f'{x:.3f}' for x in few)} of the peak "
        f"(document, full grid: 0.25, 0.41, 0.62, 0.64), one load of 8 and of 16 bytes {row(1, 2)['of_peak']:.3f} and "
        f"{row(1, 4)['of_peak']:.3f} (0.43, 0.65); the best plateau is {max(r['of_peak'] for r in rows):.2f} (0.72)."
    )
    full = {loads: row(loads, grid="full") for loads in (1, 2, 4)}
    starts = [r["us"] * 1e3 / (r["shape"]["n"] / (32 * loads)) for loads, r in full.items()]  # ns a block
    if max(starts) < 1.1 * min(starts):
        text += (
            f" A full grid of such blocks takes {starts[0]:.2f} ns a block, whether it loads 1, 2 or 4 words a thread: "
            "starting blocks is its limit, not latency."
        )
    return Conclusion(text, few[-1] > 1.4 * few[0])


def quantisation(rows: list[Row]) -> Conclusion:
    waves = [r for r in rows if "tiles" in r]
    slots = waves[0]["slots"]

    def drop(k: int) -> float:
        return need(waves, tiles=k * slots + 1)["tflops"] / need(waves, tiles=k * slots)["tflops"]

    predicted = need(waves, tiles=slots + 1)["predicted"]
    edge = 16 * TILE
    ragged = need(rows, case=f"m = n = {edge + 1}")["tflops"] / need(rows, case=f"m = n = {edge}")["tflops"]
    why = ": a lone block runs faster than one that shares its SM" if drop(1) > predicted + 0.02 else ""
    return Conclusion(
        f"One tile more than the {slots} slots of the GPU leaves {drop(1):.0%} of the rate where the calculator "
        f"predicts {predicted:.0%} (after four waves {drop(4):.0%}){why}. One row and column more than {edge} leave "
        f"{ragged:.0%}.",
        drop(1) < 0.9 and drop(4) > drop(1),
    )


def padding(rows: list[Row]) -> Conclusion:
    n = _largest(rows, "m")

    def part(name: str) -> str:
        at = {
            r["contender"].partition(",")[0] + "+" * ("padded" in r["contender"]): r["tflops"]
            for r in rows
            if odd(r, name)
        }
        whole = need(rows, "torch", case=f"{name}, k = {n}")["tflops"]
        text = f"{name} {at['torch']:.0f} of {whole:.0f} TFLOP/s ({at['torch+']:.0f} padded"
        return text + (f"; the library unpadded {at['library']:.0f})" if "library" in at else ")")

    def odd(r: Row, name: str) -> bool:
        return r["case"] == f"{name}, k = {n + 1}"

    names = [name for name in ("float16", "tf32", "float64") if any(odd(r, name) for r in rows)]
    half = {r["contender"]: r["tflops"] for r in rows if odd(r, "float16")}
    return Conclusion(
        f"With k = {n + 1} instead of {n} torch's products give {', '.join(map(part, names))}.",
        half["torch"] < 0.7 * half["torch, k padded to 8"],
    )


def latency(rows: list[Row]) -> Conclusion:
    cycles = {r["shape"]["bytes"]: r["cycles"] for r in rows if not r["shape"]["shared"]}
    shared = need(rows, shared=True)["cycles"]
    low, high = min(cycles), max(cycles)
    middle = min(cycles, key=lambda b: abs(b - (1 << 22)))
    if low > 1 << 16 or not 1 << 20 <= middle <= 1 << 24:
        raise ValueError("none of these arrays is surely in L1, or none in L2")
    return Conclusion(
        f"A dependent load takes {shared:.0f} cycles from shared memory, {cycles[low]:.0f} from L1, "
        f"{cycles[middle]:.0f} from L2 and "
        f"{cycles[high]:.0f} from an array of {high >> 20} MiB (documents, Ampere: 23, 33, 200, 290).",
        shared < cycles[middle] and cycles[low] < cycles[middle] < cycles[high],
    )


def bandwidth(rows: list[Row]) -> Conclusion:
    n = max(r["shape"]["n"] for r in rows if r["contender"] == "memory")
    rate = {r["contender"]: r["gbps"] / 1e3 for r in rows if r["contender"] != "memory" or r["shape"]["n"] == n}
    shared, memory = rate["shared memory"], rate["memory"]
    operands = rate["registers"] * 12 / 16  # what goes in, as the document counts
    text = (
        f"Shared memory delivers {shared:.0f} TB/s, L1 {rate['L1']:.0f}, L2 {rate['L2']:.1f} and memory {memory:.1f}; "
        f"multiply-adds take {operands:,.0f} TB/s of operands, {operands / shared:.1f} times what shared memory "
        f"delivers, and that is {shared / memory:.1f} times memory (document, GF100: 8.1, 1.3 and 0.177 TB/s, 6 and "
        "7.6 times)."
    )
    return Conclusion(text, operands > 4 * shared and shared > 2 * rate["L2"] and rate["L2"] > memory)


def scheduling(rows: list[Row]) -> Conclusion:
    by_blocks = {r["shape"]["blocks"]: r for r in rows if "blocks" in r["shape"]}
    slots = max(by_blocks) // 2  # the last grid fills the GPU twice
    one, full, more = (by_blocks[blocks] for blocks in (1, slots, slots + 1))
    sms, most = full["used"], full["most"]
    few = by_blocks[sms]
    later = more["us"] / full["us"]
    text = f"{sms} blocks of 1024 threads run on {few['used']} SMs and take {few['us'] / one['us']:.2f} times "
    text += "as long as one"
    if slots > sms:
        text += f"; {slots} run at once, at most {most} on an SM, and one more takes"
    else:
        text += ", one on each; one more takes"
    text = f"{text} {later:.1f} times as long: it waits until a block has ended."
    tested = [r for r in rows if r["contender"] == BOUNDARY[0]] or [r for r in rows if r["contender"] == BOUNDARY[1]]
    if tested:
        cost = [(r, need(rows, BOUNDARY[2], n=r["shape"]["n"])) for r in tested]
        each = ", ".join(f"{r['us'] / b['us'] - 1:+.0%}{_spread(b)} at {amount(r['shape']['n'])}" for r, b in cost)
        where = ", of n - 1 elements, whose last warp diverges," if tested[0]["contender"] == BOUNDARY[0] else ""
        text += f" The test i < n{where} changes the time of a vector addition by {each}."
    return Conclusion(
        text,
        few["used"] == sms and most * sms == slots and more["us"] - full["us"] > one["us"] / 2,
    )


def registers(rows: list[Row]) -> Conclusion:
    def time(bound: str, count: int) -> float:
        return need(rows, bound=bound, limit=count)["us"]

    agree = all(r["blocks"] == r["calculated"] for r in rows)
    blocks = [need(rows, bound="memory", limit=r)["blocks"] for r in (31, 33, 40, 41, 64, 65, 128)]
    cliff = time("memory", 33) / time("memory", 31)
    return Conclusion(
        f"31, 33, 40, 41, 64, 65 and 128 registers leave {', '.join(map(str, blocks))} blocks of 512 threads an SM, "
        + ("as the calculator says" if agree else "not what the calculator says")
        + f". Two registers more than 31 cost the memory-bound kernel {cliff - 1:.0%}, 128 of them "
        f"{time('memory', 128) / time('memory', 31):.1f} times the time; the arithmetic one, "
        f"{time('arithmetic', 128) / time('arithmetic', 31):.2f} times.",
        agree and cliff > 1.05,
    )


def spilling(rows: list[Row]) -> Conclusion:
    n = _largest(rows, "n")
    at = {r["shape"]["limit"]: r for r in rows if r["shape"]["n"] == n}
    whole, least = at[max(at)], at[min(at)]
    return Conclusion(
        f"With {whole['registers']} registers nothing spills and {whole['occupancy']:.0%} of the SM's threads are "
        f"resident; {least['registers']} registers give {least['occupancy']:.0%}, spill {least['spilled']} bytes "
        f"(stores and loads in the code), and take {least['us'] / whole['us']:.1f} times as long.",
        whole["spilled"] == 0 and least["spilled"] > 0 and least["us"] > 1.1 * whole["us"],
    )


def roofline(rows: list[Row]) -> Conclusion:
    sweep = [r for r in rows if r["dtype"] == "float32" and r["contender"].endswith("steps")]
    best, moved = max(r["tflops"] or 0 for r in sweep), max(r["gbps"] for r in sweep)
    knee = best * 1e3 / moved
    text = (
        f"float: {moved:,.0f} GB/s at the left, {best:.1f} TFLOP/s at the right; the measured roofline bends at "
        f"{knee:.0f} operations a byte"
    )
    double = [r for r in rows if r["dtype"] == "float64"]
    if double:
        of_double = max(r["tflops"] or 0 for r in double) * 1e3 / max(r["gbps"] for r in double)
        text += f" (double: {of_double:.0f}; document: 3.6 for Fermi in double)"
    if fitted := fit_energy(rows):
        flop, byte, watts, residual = fitted
        text += (
            f". Energy: {flop * 1e12:.1f} pJ an operation, {byte * 1e12:.0f} pJ a byte and {watts:.0f} W while a "
            "kernel "
            + (
                f"runs fit every point within {residual:.0%}"
                if residual <= 0.05
                else f"runs miss a point by {residual:.0%}"
            )
            + f". Operations and bytes take equal energy at {byte / flop:.0f} operations a byte"
        )
    low = find(sweep, "1 steps")
    return Conclusion(text + ".", low is not None and (low["tflops"] or 0) < 0.1 * best)

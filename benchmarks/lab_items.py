"""Every item of the catalogue of the documents: the command that shows it, our figure and the document's.

``python -m benchmarks.report`` makes a table for the page of each document from these and the lab's result files. A
figure is a function of one GPU's rows; where it is a text, it does not depend on a GPU, and a test holds it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

Row = dict


@dataclass
class Measured:
    """What the lab has measured on one GPU: rows and the conclusion's text by experiment."""

    documents: dict[str, dict] = field(default_factory=dict)

    def rows(self, experiment: str, **match: object) -> list[Row]:
        """The rows whose fields, or whose shape's, have these values; KeyError where there is none."""
        found = [
            row
            for row in self.documents[experiment]["rows"]
            if all(row.get(key, row["shape"].get(key)) == value for key, value in match.items())
        ]
        if not found:
            raise KeyError(experiment, match)
        return found

    def row(self, experiment: str, contender: str, **match: object) -> Row:
        return self.rows(experiment, contender=contender, **match)[0]

    def us(self, experiment: str, contender: str, **match: object) -> float:
        return self.row(experiment, contender, **match)["us"]

    def ratio(self, experiment: str, contender: str, other: str, **match: object) -> float:
        """The first one's time over the other's."""
        return self.us(experiment, contender, **match) / self.us(experiment, other, **match)


Figure = str | Callable[[Measured], str]


@dataclass(frozen=True)
class Item:
    id: str
    what: str
    command: str
    figure: Figure
    document: str = "-"

    def measured(self, gpu: Measured) -> str:
        if isinstance(self.figure, str):
            return self.figure
        try:
            return self.figure(gpu)
        except KeyError:
            return "not measured yet"


CALCULATORS = "[calculators](lab.md#what-needs-no-gpu)"
DEVICE = "`python -m torch_ext.device`"
SANITIZE = "`make sanitize`"


def only(*names: str) -> str:
    return f"`--only {' '.join(names)}`"


def test(file: str, name: str) -> str:
    return f"`pytest tests/{file}.py -k {name}`"


def us(value: float) -> str:
    return f"{value:,.0f} us" if value >= 100 else f"{value:.1f} us"


def share(step: str, n: int = 4096) -> Callable[[Measured], float]:
    return lambda m: m.ratio("sgemm", "cublas", step, n=n)


SGEMM = (
    "01_naive",
    "02_coalesced",
    "03_shared_tile",
    "04_block_tile_1d",
    "05_block_tile_2d",
    "06_vectorised",
    "07_warp_tile",
    "07a_conflict_free",
    "07b_double_buffer",
)
VERSIONS = (
    "v0_interleaved_modulo",
    "v1_interleaved_strided",
    "v2_sequential",
    "v3_first_add",
    "v4_last_warp",
    "v5_unrolled",
    "v6_several_elements",
)
LARGE = {"n": 1 << 28, "dtype": "float32"}


def climb(m: Measured) -> str:
    return ", ".join(f"{share(step)(m):.0%}" for step in SGEMM)


def reduction(version: int) -> Callable[[Measured], str]:
    def figure(m: Measured) -> str:
        row = m.row("reduction", VERSIONS[version], **LARGE)
        return f"{row['gbps']:,.0f} GB/s, {m.us('reduction', VERSIONS[0], **LARGE) / row['us']:.1f}x"

    return figure


def fma(*chains: int) -> Callable[[Measured], str]:
    def figure(m: Measured) -> str:
        few, many = (
            ", ".join(f"{m.rows('fma', threads=t, chains=k, unroll=8)[0]['of_peak']:.3f}" for k in chains)
            for t in (32, 1024)
        )
        return f"{few} of the peak at 32 threads, {many} at 1024"

    return figure


def copies(grid: str, *variants: tuple[int, int]) -> Callable[[Measured], str]:
    def figure(m: Measured) -> str:
        found = [m.rows("copy", grid=grid, threads=32, loads=loads, width=width)[0] for loads, width in variants]
        return ", ".join(f"{row['of_peak']:.2f}" for row in found)

    return figure


def both(m: Measured) -> str:
    full, walking = (copies(grid, (1, 1), (2, 1), (4, 1), (8, 1))(m) for grid in ("full", "resident"))
    return f"full grid {full} (starting blocks binds); as many blocks as fit {walking}"


def widths(m: Measured) -> str:
    full, walking = (copies(grid, (1, 1), (1, 2), (1, 4))(m) for grid in ("full", "resident"))
    return f"full grid {full}; as many blocks as fit {walking}"


def copy_registers(m: Measured) -> str:
    rows = [m.rows("copy", grid="full", threads=256, loads=loads, width=1)[0] for loads in (1, 2, 4, 8)]
    used = ", ".join(str(row["registers"]) for row in rows)
    return f"{used} registers for 1, 2, 4, 8 loads, all at {rows[-1]['occupancy']:.0%} occupancy"


def latency(m: Measured) -> str:
    at = [m.rows("latency", bytes=b, shared=s)[0] for b, s in ((1 << 14, True), (1 << 14, False), (1 << 22, False))]
    far = max(m.rows("latency", shared=False), key=lambda row: row["shape"]["bytes"])
    return "{:.0f}, {:.0f}, {:.0f}, {:.0f} cycles".format(*(row["cycles"] for row in [*at, far]))


def strided(m: Measured) -> str:
    first = m.ratio("coalescing", "stride 2", "stride 1", n=1 << 24, threads=128)
    rows = {s: m.rows("coalescing", stride=s, loads=8, threads=128)[0]["us"] for s in (1, 2, 32)}
    return f"one load a thread {first:.2f}x; eight {rows[2] / rows[1]:.2f}x, stride 32 {rows[32] / rows[1]:.1f}x"


def coalesced(m: Measured) -> str:
    small = m.row("coalescing", "stride 1", n=1 << 24, threads=128)
    large = m.rows("coalescing", stride=1, loads=8, threads=128)[0]
    return f"{us(small['us'])}, {small['gbps']:,.0f} GB/s; eight loads {large['gbps']:,.0f} GB/s"


def best_block(m: Measured) -> str:
    gain = m.us("coalescing", "stride 1", n=1 << 24, threads=128) / m.us(
        "coalescing", "stride 1", n=1 << 24, threads=1024
    )
    return f"1024 threads a block, {gain:.2f}x as fast as 128; T4 1024, 40; 4090 768, 256"


def tile_quantum(m: Measured) -> str:
    whole, more = (m.row("quantisation", "07_warp_tile", case=f"m = n = {n}") for n in (2048, 2049))
    return f"m = n = 2049: {more['tflops'] / whole['tflops']:.0%} of 2048's rate, predicted {more['predicted']:.0%}"


def wave_quantum(m: Measured) -> str:
    slots = next(row["slots"] for row in m.rows("quantisation") if "slots" in row)
    full, more = (m.rows("quantisation", tiles=slots + extra)[0] for extra in (0, 1))
    kept = more["tflops"] / full["tflops"]
    return f"{slots + 1} tiles: {kept:.0%} of the rate of {slots}, predicted {more['predicted']:.0%}"


def padding(m: Measured) -> str:
    gains = [
        m.ratio("quantisation", step, f"{step}, k padded to 64", case="k = 1025") for step in ("07_warp_tile", "cublas")
    ]
    return f"k = 1025 padded to 1088: step 07 {gains[0]:.2f}x as fast, cuBLAS {gains[1]:.2f}x"


def parity(form: str, branches: str) -> Callable[[Measured], str]:
    return lambda m: (
        f"{us(m.us('divergence', form, case='parity'))} warm, "
        f"{us(m.us('first_launch', f'{form}, first launch', first='branch'))} at the first launch; {branches} (SASS)"
    )


def addition(variant: str) -> Callable[[Measured], str]:
    def figure(m: Measured) -> str:
        large = max(row["shape"]["n"] for row in m.rows("coarsening"))
        ratio = m.us("coarsening", variant, n=large) / m.us("coarsening", "plain", n=large)
        return f"{us(m.us('coarsening', variant, n=1024))}; {ratio:.2f} times plain's time at {large:,}"

    return figure


def online(m: Measured) -> str:
    cols = max(row["shape"]["cols"] for row in m.rows("softmax"))
    gains = [m.ratio("softmax", "safe", name, cols=cols) for name in ("online", "online4")]
    return "3 accesses; {:.2f}x, online4 {:.2f}x safe's speed at {} columns".format(*gains, cols)


def softmax(variant: str, accesses: int) -> Callable[[Measured], str]:
    def figure(m: Measured) -> str:
        cols = max(row["shape"]["cols"] for row in m.rows("softmax"))
        return f"{accesses} accesses; {us(m.us('softmax', variant, cols=cols))} at 4096 x {cols}"

    return figure


def attention(m: Measured) -> str:
    s = max(row["shape"]["s"] for row in m.rows("attention"))
    at = {"s": s, "d": 128, "causal": False}
    stored, fused = (m.row("attention", step, **at)["peak_bytes"] for step in ("01_materialised", "02_row_a_warp"))
    best = max(m.row("attention", step, **at)["tflops"] for step in ("07_ping_pong", "08_library"))
    return f"{stored / fused:.0f} times less memory at S = {s}; up to {best:.0f} TFLOP/s"


def histogram(m: Measured) -> str:
    gain = m.ratio("privatisation", "global atomics", "privatised", case="histogram 256 bins")
    return f"{gain:.0f}x with a private copy a block"


def ways(m: Measured) -> str:
    cost = [m.us("divergence", how, paths=32) / m.us("divergence", how, paths=1) for how in ("by lane", "by warp")]
    return f"32 ways: {cost[0]:.0f}x within a warp, {cost[1]:.1f}x between warps"


def boundary(m: Measured) -> str:
    text = "3.12 % of the warps at n = 1000, 0.00003 % at 10^8 + 1"
    try:
        tested = m.rows("scheduling", contender="with i < n")
    except KeyError:
        return text
    cost = [row["us"] / m.us("scheduling", "without", n=row["shape"]["n"]) - 1 for row in tested]
    sizes = ", ".join(f"{row['shape']['n']:,}" for row in tested)
    return f"{text}; time {', '.join(f'{c:+.0%}' for c in cost)} at {sizes}"


def warps(m: Measured) -> str:
    count = len([row for row in m.rows("scheduling") if "lanes" in row])
    return f"lanes and warps of {count} shapes of blocks as numbered"


def blocks(m: Measured) -> str:
    by = {row["shape"]["blocks"]: row for row in m.rows("scheduling") if "blocks" in row["shape"]}
    slots = max(by) // 2
    later = by[slots + 1]["us"] / by[slots]["us"]
    return f"{slots} blocks at once on {by[slots]['used']} SMs; one more takes {later:.1f}x"


def cliff(m: Measured) -> str:
    at = {count: m.rows("registers", bound="memory", limit=count)[0] for count in (31, 33, 65)}
    found = ", ".join(f"{count}: {row['blocks']} blocks, {row['us'] / at[31]['us']:.2f}x" for count, row in at.items())
    return f"registers {found} of the time"


def all_blocks(m: Measured) -> str:
    rows = m.rows("registers", bound="memory")
    agree = all(row["blocks"] == row["calculated"] for row in rows)
    return f"{', '.join(str(row['blocks']) for row in rows)} blocks by the API" + (
        ", as calculated" if agree else ", NOT as calculated"
    )


def spilled(m: Measured) -> str:
    rows = m.rows("spilling")
    whole, least = (pick(rows, key=lambda row: row["shape"]["limit"]) for pick in (max, min))
    return (
        f"{whole['registers']} registers, 0 bytes; {least['registers']}: {least['spilled']:,} bytes, "
        f"{least['occupancy']:.0%} occupancy, {least['us'] / whole['us']:.1f}x the time"
    )


def tiled(*variants: str) -> Callable[[Measured], str]:
    return lambda m: ", ".join(us(m.us("tiling", variant)) for variant in variants)


def times(contender: str, other: str, text: str) -> Callable[[Measured], str]:
    return lambda m: text.format(m.ratio("tiling", contender, other))


def contraction(m: Measured) -> str:
    row = m.rows("tiling", contracted=True)[0]
    return f"with it {row['differs']:.0%} of the elements differ, by up to {row['worst']:.0e}; without it none"


def knee(m: Measured) -> str:
    by = {
        dtype: [row for row in m.rows("roofline", dtype=dtype) if row["contender"].endswith("steps")]
        for dtype in ("float32", "float64")
    }
    bends = [max(r["tflops"] or 0 for r in rows) * 1e3 / max(r["gbps"] for r in rows) for rows in by.values()]
    return "the measured line bends at {:.0f} operations a byte, in double at {:.0f}".format(*bends)


def balance(m: Measured) -> str:
    row = m.row("roofline", "1024 steps", dtype="float32")
    return f"{row['tflops'] / row['attainable_tflops']:.0%} of max(W tf, Q tm) at 256 operations a byte"


def energy(m: Measured) -> str:
    _, found, text = m.documents["roofline"]["conclusion"]["text"].partition("Energy: ")
    if not found:
        raise KeyError("energy")
    return text.rstrip(".")


def one_chain(m: Measured) -> str:
    three, two = (m.rows("fma", threads=1024, chains=1, unroll=64, registers=r)[0]["of_peak"] for r in (3, 2))
    return f"one chain {three:.2f}, {two:.2f} where an instruction reads two registers: the register file, not issue"


def volkov_rerun(m: Measured) -> str:
    many, few = (m.rows("fma", threads=t, chains=c, unroll=64)[0]["of_peak"] for t, c in ((128, 8), (768, 1)))
    return f"8 chains at 128 threads {many:.2f} of the peak, one chain at 768 {few:.2f}"


def bandwidths(m: Measured) -> str:
    return ", ".join(f"{row['contender']} {row['gbps'] / 1e3:,.1f}" for row in m.rows("bandwidth")) + " TB/s"


def cublas(m: Measured) -> str:
    rates = [m.row("sgemm", "cublas", n=n)["tflops"] for n in (128, 4096)]
    return "{:.2f} TFLOP/s at 128, {:.1f} at 4096".format(*rates)


def growth(m: Measured) -> str:
    rates = [m.row("sgemm", "02_coalesced", n=n)["tflops"] for n in (128, 256, 512, 1024)]
    return f"step 02: {', '.join(f'{rate:.2f}' for rate in rates)} TFLOP/s at 128 to 1024"


def sectors(m: Measured) -> str:
    rates = [m.rows("coalescing", stride=s, loads=8, threads=128)[0]["gbps"] for s in (1, 8)]
    return "useful GB/s {:,.0f} at stride 1, {:,.0f} at 8".format(*rates)


def wmma(m: Measured) -> str:
    n = max(row["shape"]["n"] for row in m.rows("tensor"))
    first, last = (m.ratio("tensor", "cublas", step, n=n) for step in ("09_wmma", "14_library"))
    return f"WMMA {first:.1%} of cuBLAS at {n}, the library {last:.0%}"


def copy_rate(m: Measured) -> str:
    return f"{m.row('reduction', 'copy', **LARGE)['gbps']:,.0f} GB/s (a copy of 2^28)"


def in_flight(m: Measured) -> str:
    few, many = (m.rows("copy", grid="one_per_sm", threads=1024, loads=k, width=1)[0] for k in (1, 8))
    return (
        f"106 KiB; here {few['in_flight'] >> 10} KiB an SM reach {few['of_peak']:.2f} of the peak, "
        f"{many['in_flight'] >> 10} KiB {many['of_peak']:.2f}"
    )


def counters(m: Measured) -> str:
    counted = {row["case"]: row["counters"] for row in m.documents["counters"]["rows"]}
    branches = [f"{counted[name]['branches']:,.0f}" for name in ("parity_branch", "parity_arithmetic")]
    sectors = [f"{counted[name]['sectors_a_request']:.1f}" for name in ("sgemm_01", "sgemm_02")]
    return f"{' and '.join(branches)} branches in parity; {' and '.join(sectors)} sectors a request in SGEMM 01 and 02"


def banks(m: Measured) -> str:
    return f"v2 {m.ratio('reduction', VERSIONS[1], VERSIONS[2], **LARGE):.2f}x v1's speed"


def dynamic(m: Measured) -> str:
    row = next(row for row in m.rows("tiling") if "occupancy API" in (row.get("remark") or ""))
    return f"{row['contender']}: {row['remark'].removeprefix('the tile of ')}"


def window(name: str, more: str = "") -> Callable[[Measured], str]:
    return lambda m: us(m.us("privatisation", name, case="window sum 5")) + more


ITEMS = (
    Item(
        "S0-01",
        "copies are not timed",
        "[how it is measured](lab.md#how-it-is-measured)",
        "kernels alone, in a CUDA graph",
    ),
    Item(
        "S0-02", "alpha, beta; C unread at beta = 0", test("test_lab_ladders", "beta_zero"), "a C of NaN changes no bit"
    ),
    Item("S0-03", "naive SGEMM", only("sgemm"), lambda m: f"{share(SGEMM[0])(m):.1%} of cuBLAS at 4096", "1 %"),
    Item(
        "S0-04",
        "coalesced SGEMM",
        only("sgemm"),
        lambda m: (
            f"{share(SGEMM[1])(m):.0%} at 4096, {share(SGEMM[1], 128)(m):.0%} at 128, "
            f"{m.ratio('sgemm', SGEMM[0], SGEMM[1], n=4096):.1f}x naive"
        ),
        "9 %; almost level at 128; 6.7x",
    ),
    Item("S0-05", "traffic without reuse, 4096^3", CALCULATORS, "512.1 GiB", "512 GB"),
    Item("S0-06", "cuBLAS beside it", only("sgemm"), cublas, "0.34 and 26.5 TFLOP/s (RTX 3090)"),
    Item("S0-07", "the rate grows with n", only("sgemm"), growth, "0.27, 1.35, 1.65, 2.03 (RTX 3090)"),
    Item("S0-08", "occupancy", only("registers"), all_blocks),
    Item("S0-09", "blocks an SM, A100, 1024 to 64 threads", CALCULATORS, "2, 4, 8, 32", "2, 4, 8, 32"),
    Item("S0-10", "700 threads, A100", CALCULATORS, "68.75 %", "68.35 % by threads, 68.75 % by warps"),
    Item("S0-11", "how warps are formed", only("scheduling"), warps),
    Item("S0-12", "blocks wait for room", only("scheduling"), blocks),
    Item("S0-13", "bursts", only("coalescing"), sectors),
    Item("S0-14", "registers limit blocks", only("registers"), cliff),
    Item("S0-15", "tensor cores", only("tensor"), wmma, "WMMA 27.9 % of cuBLAS (tGeMM, RTX 3090)"),
    Item("S0-16", "files named", "[SGEMM](lab_sgemm.md)", "`csrc/lab/sgemm/01_naive.cu` to `07b_double_buffer.cu`"),
    Item("S1-01", "profile first", "`make profile`, `make lab ARGS=--counters`", counters, "98,304 and 65,536"),
    Item("S1-02", "latency of shared memory, L1, L2, memory", only("latency"), latency, "23, 33, 200, 290 (Ampere)"),
    Item(
        "S1-03",
        "eight tricks",
        "[table](lab.md#the-documents-tricks-and-where-they-are)",
        "an op, a file and a figure each",
    ),
    Item("S1-04", "strided copy over coalesced", only("coalescing"), strided, "1.37x (T4), 1.72x (4090)"),
    Item("S1-05", "coalesced copy", only("coalescing"), coalesced, "T4 559 us, 240 GB/s; 4090 119 us, 1,128 GB/s"),
    Item("S1-06", "the occupancy API's block", only("coalescing"), best_block, "T4 1024, 40; 4090 768, 256"),
    Item("S1-07", "tile quantisation", only("quantisation"), tile_quantum, "up to 4x over k"),
    Item("S1-08", "wave quantisation", only("quantisation"), wave_quantum),
    Item("S1-09", "padding", only("quantisation"), padding, "multiples of 4 (TF32), 8 (fp16), 16 (int8)"),
    Item("S1-10", "intensity: residual addition, ReLU in fp16", CALCULATORS, "0.167, 0.250", "0.166, 0.25"),
    Item("S1-11", "intensity of 4096^3, flop an element", CALCULATORS, "2730.7", "2730.7"),
    Item(
        "S1-12",
        "fusion, compilation",
        "`make bench`",
        "epilogues of [linear](matmul.md); `torch_compile` beside each op",
    ),
    Item(
        "S1-13",
        "even or odd by a branch",
        f"{only('divergence', 'first_launch')}, {test('test_lab_kernels', 'parity')}",
        parity("branch", "98,304 branch instructions"),
        "T4 74 us, 4090 32 us; 98,304",
    ),
    Item(
        "S1-14",
        "the same by arithmetic",
        f"{only('divergence', 'first_launch')}, {test('test_lab_kernels', 'parity')}",
        parity("arithmetic", "65,536 branch instructions"),
        "T4 25 us, 4090 108 us; 65,536",
    ),
    Item("S1-15", "vector addition of 1024", only("coarsening"), addition("plain"), "T4 4.19 us, 4090 1.95 us"),
    Item("S1-16", "coarsened by 2", only("coarsening"), addition("coarsened2"), "T4 4.54 us, 4090 2.02 us"),
    Item(
        "S1-17",
        '"privatised" addition',
        f"{only('coarsening')}, {test('test_lab_kernels', 'same_machine_code')}",
        lambda m: (
            f"{us(m.us('coarsening', 'privatised', n=1 << 20))}, plain {us(m.us('coarsening', 'plain', n=1 << 20))}, "
            f"at 2^20; the same machine code"
        ),
        "4090 12.9 us, plain 11.1, at 2^20",
    ),
    Item("S1-18", "window sum, direct", only("privatisation"), window("direct"), "4090 7.39 us"),
    Item(
        "S1-19",
        "window sum, staged",
        f"{only('privatisation')}, {test('test_lab_kernels', 'halo')}",
        window("shared", ", right at block edges"),
        "4090 8.10 us, 4 of 256 wrong",
    ),
    Item(
        "S1-20",
        "naive softmax",
        f"{only('softmax')}, {test('test_lab_ladders', 'naive_overflows')}",
        softmax("naive", 3),
        "3 accesses",
    ),
    Item("S1-21", "safe softmax", only("softmax"), softmax("safe", 4), "4 accesses"),
    Item("S1-22", "online softmax", only("softmax"), online, "3 accesses; up to 1.3x (paper)"),
    Item("S1-23", "flash attention", only("attention"), attention, "O(N) memory"),
    Item(
        "S1-24",
        "table 6.1; privatisation proper",
        f"[table](lab.md#the-documents-tricks-and-where-they-are), {only('privatisation')}",
        histogram,
    ),
    Item("S1-25", "papers and tools linked", "the pages' sources", "cited where their idea is used"),
    Item(
        "S2-01",
        "cores of an SM",
        DEVICE,
        "multiprocessors and clocks; 64 (A100) or 128 cores in `KNOWN`",
        "64 = 4 x 16 (A100)",
    ),
    Item("S2-02", "kinds of memory", DEVICE, "memory, its clock and bus, L2, shared memory"),
    Item("S2-03", "a block waits for all its resources", only("scheduling"), blocks),
    Item(
        "S2-04",
        "barriers outside of branches",
        SANITIZE,
        "synccheck over v4, v5 and every marked test: [results](results.md)",
    ),
    Item(
        "S2-05",
        "any order of blocks",
        test("test_emulation", "lab"),
        "the same results in every order that a seed draws",
    ),
    Item("S2-06", "a warp is 32 consecutive threads", only("scheduling"), warps, "32"),
    Item("S2-07", "divergence costs a pass a way", only("divergence"), ways),
    Item("S2-08", "the test i < n fades", f"{CALCULATORS}, {only('scheduling')}", boundary, "fades"),
    Item("S2-09", "no lock step", SANITIZE, "`__syncwarp` and `*_sync` alone; racecheck: [results](results.md)"),
    Item("S2-10", "threads a core, A100", CALCULATORS, "32x", "32x"),
    Item("S2-11", "registers of all threads stay", DEVICE, "registers per multiprocessor"),
    Item(
        "S2-12",
        "resources of an SM",
        CALCULATORS,
        "blocks, threads, registers, shared memory: `torch_ext.device.occupancy`",
    ),
    Item("S2-13", "blocks an SM, A100, 1024 to 64 threads", CALCULATORS, "2, 4, 8, 32", "2 of 1024"),
    Item("S2-14", "768 threads, A100", CALCULATORS, "75.00 %", "75 %"),
    Item("S2-15", "registers for full occupancy", CALCULATORS, "32", "32"),
    Item("S2-16", "64 registers, A100", CALCULATORS, "50.00 %", "50 %"),
    Item("S2-17", "spilling", only("spilling"), spilled, "time may go up"),
    Item("S2-18", "31 and 33 registers", only("registers"), cliff, "4 blocks, then 3 (100 %, 75 %)"),
    Item(
        "S2-19",
        "tools that show occupancy",
        "`make sass`, `torch_ext.lab.attributes`",
        "registers and blocks of every kernel on the ladders' pages",
    ),
    Item("S2-20", "device query", DEVICE, "every GPU; of several the one with the most resources is named"),
    Item("S2-21", "its fields", DEVICE, "all of them, and registers per multiprocessor"),
    Item(
        "S3-01",
        "the sheet's goals",
        "[exercises](lab.md#exercises) 02 and 05",
        "skeletons that `check` compiles and compares",
    ),
    Item("S3-02", "without shared memory", only("tiling"), tiled("naive 8")),
    Item("S3-03", "one block for all", only("tiling"), tiled("single_block 32")),
    Item(
        "S3-04",
        "tiles of 8, 16, 32",
        f"{only('tiling')}, {test('test_lab_kernels', 'loads_fall')}",
        lambda m: f"{tiled('fixed 8', 'fixed 16', 'fixed 32')(m)}; loads a multiply-add 2/8, 2/16, 2/32 (SASS)",
        "loads fall by the tile",
    ),
    Item(
        "S3-05",
        "tiles of k, the last not full",
        test("test_lab_kernels", "tiled_matmul"),
        "k = 3, 65, 100 against float64",
    ),
    Item(
        "S3-06",
        "bank conflicts, padding",
        f"{only('tiling')}, {test('test_lab_kernels', 'differ_in_banks')}",
        times("conflicting 32", "padded 32", "32 ways cost {:.1f}x the padded tile's time"),
    ),
    Item("S3-07", "contraction", only("tiling"), contraction, "EPSILON 0.001"),
    Item("S3-08", "occupancy as printed, H200, 64 threads", CALCULATORS, "0.0076, meant: 1"),
    Item("S3-09", "registers and spills by the compiler", only("spilling"), spilled),
    Item(
        "S3-10",
        "shared memory limits blocks, H200, tiles 8, 16, 32",
        test("test_device", "tiles_fill"),
        "32, 8, 2 blocks",
    ),
    Item("S3-11", "requiredSM(1024)", CALCULATORS, "8192 B", "8192 B"),
    Item(
        "S3-12",
        "dynamic shared memory",
        only("tiling"),
        times("dynamic 32", "fixed 32", "tile 32: {:.2f}x the static tile's time"),
    ),
    Item(
        "S3-13",
        "the tile at run time",
        test("test_lab_kernels", "tiled_matmul"),
        "`blockDim.x`, safe on several streams",
    ),
    Item("S3-14", "best block by the API", only("tiling"), dynamic),
    Item("S3-15", "4^floor(log4 768)", CALCULATORS, "256", "256"),
    Item(
        "S3-16",
        "best tile over 8 x 8",
        only("tiling"),
        times("dynamic 8", "dynamic 32", "{:.2f}x as fast, both at 100 % occupancy"),
    ),
    Item(
        "S3-17",
        "indices of tiles",
        "[exercise](lab.md#exercises) 02",
        "`csrc/lab/experiments/tiling.cu`, ragged sizes against float64",
    ),
    Item("S3-18", "time and verify", "[how it is measured](lab.md#how-it-is-measured)", "what is wrong is not timed"),
    Item("S4-01", "W operations, Q bytes", only("roofline"), knee),
    Item("S4-02", "time is the larger of two", only("roofline"), balance),
    Item("S4-03", "energy is their sum", only("roofline"), energy),
    Item("S4-04", "roofline", only("roofline"), knee, "3.6 (Fermi, double)"),
    Item("S4-05", "Little's law", CALCULATORS, "640 multiply-adds, 106 KiB (M2090)", "640, 106 KiB"),
    Item("S4-06", "multiply-adds in flight, M2090", CALCULATORS, "640", "640"),
    Item("S4-07", "one chain", only("fma"), fma(1), "0.05, 0.63"),
    Item("S4-08", "two chains", only("fma"), fma(2), "0.09, 0.73"),
    Item("S4-09", "4, 8 and 16 chains", only("fma"), fma(4, 8, 16), "0.13, 0.15, -; 0.89, 0.94, 0.96"),
    Item("S4-10", "why one chain stays low", only("fma"), one_chain, "0.67 by issue (Fermi)"),
    Item("S4-11", "bytes in flight", f"{CALCULATORS}, {only('copy')}", in_flight, "106 KiB"),
    Item("S4-12", "loads in flight 1, 2, 4, 8, blocks of 32", only("copy"), both, "0.25, 0.41, 0.62, 0.64"),
    Item("S4-13", "4, 8, 16 bytes a load, blocks of 32", only("copy"), widths, "0.25, 0.43, 0.65"),
    Item("S4-14", "registers of loads in flight", only("copy"), copy_registers, "20 to 63 (GF100)"),
    Item("S4-15", "bandwidth of each level", only("bandwidth"), bandwidths, "10.8, 1.3, 0.18 TB/s (GF100)"),
    Item("S4-16", "the rate to reach", only("reduction"), copy_rate, "125 GB/s of 177 (M2090)"),
    *(
        Item(id_, what, only("reduction"), reduction(version), document)
        for id_, what, version, document in (
            ("S4-17", "v0, interleaved, divergent", 0, "8.7 GB/s"),
            ("S4-18", "v1, not divergent", 1, "12 GB/s, 1.4x"),
        )
    ),
    Item("S4-19", "bank conflicts of v1", only("reduction"), banks, "1.4x"),
    *(
        Item(id_, what, only("reduction"), reduction(version), document)
        for id_, what, version, document in (
            ("S4-20", "v2, sequential", 2, "17 GB/s, 1.9x"),
            ("S4-21", "v3, first addition on load", 3, "31 GB/s, 3.5x"),
            ("S4-22", "v4, last warp", 4, "51 GB/s, 5.9x"),
            ("S4-23", "v5, unrolled", 5, "54 GB/s, 6.2x"),
            ("S4-24", "v6, more a thread", 6, "103 GB/s, 11.8x"),
        )
    ),
    Item(
        "S4-25",
        "work and depth",
        "[reduction](lab_reduction.md)",
        "n - 1 additions, log2 n steps at least",
        "O(n), O(log n)",
    ),
    Item("S4-26", "several GPUs", "[distributed](distributed.md)", "operators over DTensor"),
    Item("S4-27", "links", "the pages' sources", "cited where their idea is used"),
    Item(
        "B1, B2",
        "the SGEMM steps, of cuBLAS at 4096",
        only("sgemm"),
        climb,
        "1, 9, 13, 37, 69, 78, 94, 71, 74 % (A6000)",
    ),
    Item("B4", "histogram with private counters", only("privatisation"), histogram),
    Item("B6", "the reduction's v6 over v0", only("reduction"), reduction(6), "11.8x; G80 (Harris) 30x"),
    Item("B7", "ILP in place of threads", only("fma"), volkov_rerun, "as fast (Titan X)"),
    Item("B8", "online over safe softmax", only("softmax"), online, "up to 1.3x"),
)

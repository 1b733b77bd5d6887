"""Plots made from rows, one function an experiment; each fills a matplotlib figure."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch_ext import device
from torch_ext.lab import ladders, memory
from torch_ext.lab.experiment import find
from torch_ext.lab.measure import Row
from torch_ext.lab.roofline import fit_energy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

OFFSET = {"textcoords": "offset points"}
DOCUMENT = {"color": "0.55", "linestyle": ":", "marker": "x"}


def _lines(axes: "Axes", rows: list[Row], x: Callable[[Row], float], y: Callable[[Row], float | None]) -> None:
    """A line a contender."""
    for name in dict.fromkeys(r["contender"] for r in rows):
        points = [(x(r), value) for r in rows if r["contender"] == name and (value := y(r)) is not None]
        if points:
            style = {"cublas": "k--", "torch": "k--", "torch_math": "k:"}.get(name, "o-")
            axes.plot(*zip(*points, strict=True), style, markersize=4, label=name)


def _finish(axes: "Axes", x: str, y: str, *, log_x: bool = True, log_y: bool = False, legend: bool = True) -> None:
    if log_x:
        axes.set_xscale("log", base=2)
    if log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set(xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    if legend:
        axes.legend(fontsize=7)


# Stored results of the documents' code bases: share of cuBLAS over n (xGeMM on an RTX 3090).
XGEMM = {
    "01_naive": (0.122, 0.083, 0.019, 0.012, 0.012, 0.011),
    "02_coalesced": (0.777, 0.541, 0.173, 0.108, 0.085, 0.076),
    "03_shared_tile": (0.886, 0.639, 0.200, 0.142, 0.104, 0.100),
    "04_block_tile_1d": (0.624, 0.210, 0.428, 0.290, 0.296, 0.331),
    "05_block_tile_2d": (0.291, 0.200, 0.237, 0.465, 0.416, 0.535),
    "06_vectorised": (0.314, 0.223, 0.251, 0.501, 0.544, 0.690),
}


def sgemm(rows: list[Row], figure: "Figure") -> None:
    rate, share = figure.subplots(1, 2)
    _lines(rate, rows, lambda r: r["shape"]["n"], lambda r: r["tflops"] * 1e3)
    _finish(rate, "n (square, fp32)", "GFLOP/s", log_y=True)
    cublas = {r["case"]: r["us"] for r in rows if r["contender"] == "cublas"}
    ours = [r for r in rows if r["case"] in cublas]
    _lines(share, ours, lambda r: r["shape"]["n"], lambda r: cublas[r["case"]] / r["us"])
    colours = {line.get_label(): line.get_color() for line in share.lines}
    for i, step in enumerate(step for step in ladders.SGEMM_KERNELS if step in colours):
        labels = ("dotted: xGeMM, RTX 3090", "+: siboehm, RTX A6000") if i == 0 else (None, None)
        style = DOCUMENT | {"color": colours[step], "alpha": 0.6}
        if step in XGEMM:
            share.plot([128 << e for e in range(6)], XGEMM[step], **style, label=labels[0])
        siboehm = float((ladders.SGEMM_STEPS[step] or "").partition("/")[2].split()[0]) / 100
        share.plot(4096, siboehm, **style | {"marker": "+"}, label=labels[1])
    _finish(share, "n (square, fp32)", "share of cuBLAS", log_y=True)


def tensor(rows: list[Row], figure: "Figure") -> None:
    axes = figure.subplots()
    _lines(axes, rows, lambda r: r["shape"]["n"], lambda r: r["tflops"])
    _finish(axes, "n (square, bf16)", "TFLOP/s")


def fp32(rows: list[Row], figure: "Figure") -> None:
    case = rows[-1]["case"]
    axes = figure.subplots()
    for r in (r for r in rows if r["case"] == case):
        variant = r["contender"]
        at = r["tflops"], r["error"]["fro"]
        kind = "library" if variant == "library" else "peer" if variant.startswith("cublas") else "step"
        style = {"library": ("*", "tab:red", 12), "peer": ("s", "0.4", 8), "step": ("o", "tab:green", 8)}[kind]
        axes.plot(*at, style[0], color=style[1], markersize=style[2])
        left = variant in ("fp16", "promoted", "cublas_bf16")  # their neighbours' names go to the right
        place = (-8, 5) if left else (8, -4)
        axes.annotate(variant, at, place, textcoords="offset points", ha="right" if left else "left", fontsize=9)
    axes.margins(x=0.15)
    _finish(axes, f"TFLOP/s, {case}", "relative error (Frobenius)", log_x=False, log_y=True, legend=False)
    axes.set_xlim(left=0)


def reduction(rows: list[Row], figure: "Figure") -> None:
    rows = [r for r in rows if r["dtype"] == "float32"]
    names = list(ladders.REDUCTION_VERSIONS)
    series = [
        (f"{case} float32", [(r["gbps"] if (r := find(rows, name, case=case)) else 0) for name in names])
        for case in dict.fromkeys(r["case"] for r in rows)
    ]
    documents = [d[0] if d else 0 for d in ladders.REDUCTION_VERSIONS.values()]
    series.append(("2^24 int32, M2090 (document)", documents))
    axes = figure.subplots()
    width = 0.8 / len(series)
    for i, (label, heights) in enumerate(series):
        places = [x + (i - (len(series) - 1) / 2) * width for x in range(len(names))]
        bars = axes.bar(places, heights, width, label=label)
        axes.bar_label(bars, [f"{h:,.0f}" if h else "" for h in heights], fontsize=6)
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
    axes.set(yscale="log", ylabel="GB/s")
    axes.set_ylim(top=4 * axes.get_ylim()[1])  # room for the legend
    axes.legend(fontsize=8)


def reduction_grid(rows: list[Row], figure: "Figure") -> None:
    axes = figure.subplots()
    for case in dict.fromkeys(r["case"] for r in rows):
        points = [(r["shape"]["blocks_per_sm"], r["gbps"]) for r in rows if r["case"] == case]
        axes.plot(*zip(*points, strict=True), "o-", label=case)
    _finish(axes, "blocks of 256 threads an SM", "GB/s")


def softmax(rows: list[Row], figure: "Figure") -> None:
    rate, gain = figure.subplots(1, 2)
    _lines(rate, rows, lambda r: r["shape"]["cols"], lambda r: r["gbps"])
    _finish(rate, "columns (4096 rows, fp32)", "GB/s of 8 bytes an element")
    safe = {r["case"]: r["us"] for r in rows if r["contender"] == "safe"}
    ours = [r for r in rows if r["contender"] in ("naive", "online", "online4") and r["case"] in safe]
    _lines(gain, ours, lambda r: r["shape"]["cols"], lambda r: safe[r["case"]] / r["us"])
    gain.axhline(1.3, **DOCUMENT | {"marker": ""}, label="paper: up to 1.3x")
    gain.axhline(1, color="k", linewidth=0.6)
    _finish(gain, "columns", "safe's time over this")


def attention(rows: list[Row], figure: "Figure") -> None:
    kinds: dict[str, list[Row]] = {}
    for r in rows:
        kinds.setdefault(f"D {r['shape']['d']}" + (", causal" if r["shape"]["causal"] else ""), []).append(r)
    for (rate, peak), (kind, of_kind) in zip(
        figure.subplots(2, len(kinds), squeeze=False).T, kinds.items(), strict=True
    ):
        _lines(rate, of_kind, lambda r: r["shape"]["s"], lambda r: r["tflops"])
        _lines(peak, of_kind, lambda r: r["shape"]["s"], lambda r: r["peak_bytes"] / 2**20)
        _finish(rate, "S", f"TFLOP/s, bf16, {kind}", log_y=True, legend=kind == next(iter(kinds)))
        _finish(peak, "S", "memory of a call, MiB", log_y=True, legend=False)


def coalescing(rows: list[Row], figure: "Figure") -> None:
    axes = figure.subplots()
    swept = [r for r in rows if r["gbps"] and "2^24" not in r["case"]]
    for case in dict.fromkeys(r["case"] for r in swept):
        points = [(r["shape"]["stride"], r["gbps"]) for r in swept if r["case"] == case]
        axes.plot(*zip(*points, strict=True), "o-", markersize=4, label=case)
    _finish(axes, "stride, elements", "useful GB/s")


def fma(rows: list[Row], figure: "Figure") -> None:
    documents = {1: (0.05, 0.63), 2: (0.09, 0.73), 4: (0.13, 0.89), 8: (0.15, 0.94)}
    for axes, unroll in zip(figure.subplots(1, 2, sharey=True), (8, 64), strict=True):
        of_unroll = [r for r in rows if r["shape"]["unroll"] == unroll and r.get("of_peak")]
        _lines(axes, of_unroll, lambda r: r["shape"]["threads"], lambda r: r["of_peak"])
        if unroll == 8:
            for chains, ends in documents.items():
                label = {"label": "document, M2090"} if chains == 1 else {}
                axes.plot((32, 1024), ends, **DOCUMENT | {"linestyle": "none"}, **label)
        _finish(axes, "threads an SM (one block)", "share of the peak", log_x=False)


def copy(rows: list[Row], figure: "Figure") -> None:
    threads, flight = figure.subplots(1, 2, sharey=True)
    rows = [r for r in rows if r.get("of_peak")]
    by_grid: dict[str, list[Row]] = {}
    for r in rows:
        by_grid.setdefault(r["shape"]["grid"], []).append(r)
    for grid, dots in (("resident", "o-"), ("full", ".:")):
        for (loads, width), colour in zip(memory.COPY_VARIANTS, ("C0", "C1", "C2", "C3", "C4", "C5"), strict=True):
            line = [r for r in by_grid.get(grid, []) if (r["shape"]["loads"], r["shape"]["width"]) == (loads, width)]
            label = f"{loads} load{'s' * (loads > 1)} of {4 * width} B" + ", full grid" * (grid == "full")
            points = [(r["shape"]["threads"], r["of_peak"]) for r in line]
            if points:
                threads.plot(*zip(*points, strict=True), dots, color=colour, markersize=4, label=label)
    for r in by_grid.get("full", []):
        if r["document"]:
            threads.plot(32, float(r["document"].split()[0]), **DOCUMENT | {"linestyle": "none"})
    _finish(threads, "threads a block (as many as fit; dotted: full grid; x: document)", "share of the peak bandwidth")
    for (grid, found), marker in zip(by_grid.items(), "o^s", strict=False):
        points = [(r["in_flight"] / 1024, r["of_peak"]) for r in found]
        flight.plot(*zip(*points, strict=True), marker, markersize=4, label=grid, alpha=0.7)
    if gpu := _of_bandwidth(rows):
        needed = device.littles_law(LATENCY_NS * 1e-9, gpu.bandwidth) / gpu.multiprocessors / 1024
        flight.axvline(needed, color="0.5", linestyle=":", label=f"latency x bandwidth, {gpu.name}: {needed:.0f} KiB")
    _finish(flight, "KiB of loads in flight an SM", "")


LATENCY_NS = 350  # of a load from an H200's or H100's memory: some 650 cycles at 1.85 GHz (the latency experiment)


def _of_bandwidth(rows: list[Row]) -> device.Limits | None:
    """The Hopper GPU whose peak bandwidth the rows' shares are of."""
    best = max(rows, key=lambda r: r["of_peak"], default=None)
    peak = best["gbps"] * 1e9 / best["of_peak"] if best else 0.0
    hopper = [gpu for gpu in device.KNOWN.values() if gpu.capability == (9, 0)]
    return next((gpu for gpu in hopper if abs(peak / gpu.bandwidth - 1) < 0.02), None)


def divergence(rows: list[Row], figure: "Figure") -> None:
    axes = figure.subplots()
    ways = [r for r in rows if "paths" in r["shape"]]
    one = {r["contender"]: r["us"] for r in ways if r["shape"]["paths"] == 1}
    _lines(axes, ways, lambda r: r["shape"]["paths"], lambda r: r["us"] / one[r["contender"]])
    axes.plot((1, 32), (1, 32), color="0.5", linestyle=":", label="a pass a way")
    _finish(axes, "ways", "time over one way", log_y=True)


def quantisation(rows: list[Row], figure: "Figure") -> None:
    axes = figure.subplots()
    waves = [r for r in rows if "tiles" in r]
    best = max(r["tflops"] for r in waves)
    slots = waves[0]["slots"]
    axes.plot([r["tiles"] for r in waves], [r["tflops"] / best for r in waves], "o-", markersize=4, label="measured")
    tiles = range(1, max(r["tiles"] for r in waves) + 1)
    axes.plot(tiles, [device.wave_utilisation(t, slots) for t in tiles], color="0.5", linewidth=0.8, label="predicted")
    _finish(axes, "tiles", "share of the best rate", log_x=False)


def latency(rows: list[Row], figure: "Figure") -> None:
    axes = figure.subplots()
    points = [(r["shape"]["bytes"] / 1024, r["cycles"]) for r in rows if not r["shape"]["shared"]]
    axes.plot(*zip(*points, strict=True), "o-", label="global memory, a line of 128 bytes a step")
    if shared := find(rows, shared=True):
        axes.axhline(shared["cycles"], color="C1", label="shared memory")
    for name, cycles in (("L1", 33), ("L2", 200), ("global", 290)):
        axes.axhline(cycles, **DOCUMENT | {"marker": ""}, label=f"document (Ampere), {name}")
    _finish(axes, "KiB of the array", "cycles a load", log_y=True)


def bandwidth(rows: list[Row], figure: "Figure") -> None:
    axes = figure.subplots()
    bars = axes.bar([f"{r['contender']}\n{r['case']}" for r in rows], [r["gbps"] / 1e3 for r in rows])
    axes.bar_label(bars, [f"{r['gbps'] / 1e3:,.1f}" for r in rows])
    if needed := rows[0]["needed_gbps"]:
        axes.axhline(needed / 1e3, color="0.5", linestyle="--", label="a b + c at the peak: 12 bytes in, 4 out")
        axes.axhline(needed / 4e3, color="0.5", linestyle=":", label="its results alone, 4 bytes")
        axes.legend(fontsize=8)
    axes.set(yscale="log", ylabel="TB/s of the whole GPU")


def scheduling(rows: list[Row], figure: "Figure") -> None:
    found = [r for r in rows if "timeline" in r and r["shape"]["blocks"] > 1]
    maps = [r for r in rows if len(r.get("block", ())) > 1]
    above, below = figure.subfigures(2, 1, height_ratios=(1, 2)) if maps else (None, figure)
    if above:
        _thread_maps(maps, above)
    most = max(r["most"] for r in found)
    for axes, r in zip(below.subplots(1, len(found), sharex=True, sharey=True), found, strict=True):
        for place_of_sm, sm in enumerate(sorted({line[0] for line in r["timeline"]})):
            lines = sorted((begin, end) for where, begin, end in r["timeline"] if where == sm)
            for i, (begin, end) in enumerate(lines):
                place = (place_of_sm + 0.9 / most * (i % most), 0.8 / most)
                axes.broken_barh([(begin / 1e3, (end - begin) / 1e3)], place, color=f"C{i // most % 10}")
        axes.set(title=r["contender"], xlabel="us")
        axes.title.set_fontsize(9)
        axes.set_ylabel(f"eight SMs; blocks at once on each: {most}" if r is found[0] else "")


def _thread_maps(rows: list[Row], figure: "SubFigure") -> None:
    """The lane of each thread of a block, coloured by warp: x to the right, y and then z down."""
    for axes, r in zip(figure.subplots(1, len(rows)), rows, strict=True):
        across = r["block"][0]
        lines = [r["warps"][i : i + across] for i in range(0, len(r["warps"]), across)]
        axes.imshow(lines, cmap="Pastel1", vmin=0, vmax=8, aspect="auto")
        for i, lane in enumerate(r["lanes"]):
            axes.text(i % across, i // across, lane, ha="center", va="center", fontsize=5)
        axes.set(title=f"lanes of a {r['contender']}", xticks=[], yticks=[])
        axes.title.set_fontsize(8)


def registers(rows: list[Row], figure: "Figure") -> None:
    axes = figure.subplots()
    for bound in ("memory", "arithmetic"):
        found = [r for r in rows if r["shape"]["bound"] == bound]
        first = found[0]["us"]
        axes.plot([r["registers"] for r in found], [r["us"] / first for r in found], "o-", label=f"{bound}: time")
    found = [r for r in rows if r["shape"]["bound"] == "memory"]
    most = found[0]["occupancy"]
    axes.step(
        [r["registers"] for r in found], [most / r["occupancy"] for r in found], ":", where="post", color="0.5",
        label="blocks at 31 registers over blocks",
    )  # fmt: skip
    _finish(axes, "registers a thread (blocks of 512)", "time over that of 31 registers")


def spilling(rows: list[Row], figure: "Figure") -> None:
    axes = figure.subplots()
    n = rows[0]["shape"]["n"]
    found = [r for r in rows if r["shape"]["n"] == n]
    x, first = [r["shape"]["limit"] for r in found], found[0]
    axes.plot(x, [r["us"] / first["us"] for r in found], "o-", label="time over that without spills")
    axes.plot(x, [r["occupancy"] for r in found], "s:", color="0.5", label="occupancy")
    for r in found:
        axes.annotate(f"{r['spilled']} B", (r["shape"]["limit"], r["us"] / first["us"]), (3, 4), fontsize=7, **OFFSET)
    _finish(axes, "registers a thread at most; beside the points: bytes spilled", "")


def roofline(rows: list[Row], figure: "Figure") -> None:
    fitted = fit_energy(rows)
    first, *rest = figure.subplots(1, 2 if fitted else 1, squeeze=False)[0]
    for dtype in ("float32", "float64"):
        sweep = [r for r in rows if r["dtype"] == dtype and r["contender"].endswith("steps") and r["tflops"]]
        if sweep:
            points = [(r["intensity"], r["tflops"]) for r in sweep]
            first.plot(*zip(*points, strict=True), "o-", markersize=4, label=f"measured, {dtype}")
            line = [(r["intensity"], r["attainable_tflops"]) for r in sweep if r.get("attainable_tflops")]
            first.plot(*zip(*line, strict=True), ":", color="0.5", label=f"attainable, {dtype}")
    for r in rows:
        if r["case"] == "kernels of the ladders" and r["tflops"]:
            first.plot(r["intensity"], r["tflops"], "k.", markersize=5)
            first.annotate(r["contender"], (r["intensity"], r["tflops"]), (4, -2), fontsize=6, **OFFSET)
    copied = find(rows, "copy", case="kernels of the ladders")
    swept = [r for r in rows if r["dtype"] == "float32" and r.get("intensity") and r["contender"].endswith("steps")]
    if copied and swept:  # a copy has no operations: its rate is a slope
        slope = copied["gbps"] / 1e3
        ends = min(r["intensity"] for r in swept), max(r["tflops"] for r in swept) / slope
        first.plot(ends, [x * slope for x in ends], "k-", linewidth=0.6, label=f"a copy's {copied['gbps']:,.0f} GB/s")
    _finish(first, "operations a byte", "TFLOP/s", log_y=True)
    for axes in rest:
        flop = fitted[0]
        found = [r for r in rows if r.get("joules") and r["dtype"] == "float32" and r["tflops"]]
        x = [r["intensity"] for r in found]
        useful = [flop * r["tflops"] * 1e12 * r["us"] * 1e-6 / r["joules"] for r in found]
        peak = max(r["tflops"] for r in found)
        axes.plot(x, useful, "o-", label="energy: operations' share of the whole (arch line)")
        axes.plot(x, [r["tflops"] / peak for r in found], "s--", label="time: share of the peak (roofline)")
        _finish(axes, "operations a byte", "", log_y=True)

"""Plots made from rows, one function an experiment; each fills a matplotlib figure."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch_ext import device
from torch_ext.lab import ladders
from torch_ext.lab.experiment import find
from torch_ext.lab.measure import Row, amount
from torch_ext.lab.roofline import fit_energy

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure, SubFigure

OFFSET = {"textcoords": "offset points"}
DOCUMENT = {"color": "0.55", "linestyle": ":", "marker": "x"}


def _styles(rows: list[Row]) -> dict[str, dict[str, str]]:
    """One colour and dash for each contender of an experiment, in every panel the same; black: peers."""
    peers = {"cublas": "--", "torch": "--", "torch_math": ":"}
    names = dict.fromkeys(r["contender"] for r in rows)
    ours = [name for name in names if name not in peers]
    styles = {name: {"color": f"C{i % 10}", "marker": "o" if i < 10 else "s"} for i, name in enumerate(ours)}
    return styles | {name: {"color": "k", "linestyle": peers[name]} for name in names if name in peers}


def _lines(
    axes: "Axes",
    rows: list[Row],
    x: Callable[[Row], float],
    y: Callable[[Row], float | None],
    styles: dict[str, dict[str, str]] | None = None,
) -> None:
    """A line a contender; `styles` of all rows of the experiment, where a panel has some of them."""
    for name, style in (styles or _styles(rows)).items():
        points = [(x(r), value) for r in rows if r["contender"] == name and (value := y(r)) is not None]
        if points:
            axes.plot(*zip(*points, strict=True), **style, markersize=4, label=name)


def _plain(axis: "Axis") -> None:
    """Plain numbers on a logarithmic axis: of base 2 the powers, else 1, 2 and 5 of each decade."""
    axis.set_major_formatter("{x:,g}")
    axis.set_minor_formatter("{x:,g}" if axis.get_scale() == "log" and axis.get_transform().base == 10 else "")
    axis.set_tick_params(which="minor", labelsize=7)


def _beside(figure: "Figure", *axes: "Axes") -> None:
    """One legend of all panels, outside of the data."""
    found: dict[str, Artist] = {}
    for of in axes:
        found |= dict(zip(*reversed(of.get_legend_handles_labels()), strict=True))
    figure.legend(list(found.values()), list(found), loc="outside right center", fontsize=7)


def _finish(axes: "Axes", x: str, y: str, *, log_x: bool = True, log_y: bool = False, legend: bool = True) -> None:
    if log_x:
        axes.set_xscale("log", base=2)
        _plain(axes.xaxis)
    if log_y:
        axes.set_yscale("log", subs=[2, 5])
        _plain(axes.yaxis)
    else:
        axes.set_ylim(bottom=0)
    axes.set(xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    if legend and axes.get_legend_handles_labels()[0]:
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
    _finish(rate, "n (square, fp32)", "GFLOP/s", log_y=True, legend=False)
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
    _finish(share, "n (square, fp32)", "share of cuBLAS", log_y=True, legend=False)
    _beside(figure, rate, share)


def tensor(rows: list[Row], figure: "Figure") -> None:
    axes = figure.subplots()
    _lines(axes, rows, lambda r: r["shape"]["n"], lambda r: r["tflops"])
    _finish(axes, "n (square, bf16)", "TFLOP/s", legend=False)
    _beside(figure, axes)


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
    measured = {r["contender"] for r in rows}
    names = [name for name in ladders.REDUCTION_VERSIONS if name in measured]
    cases = dict.fromkeys((r["case"], r["dtype"]) for r in rows)
    ours, document = figure.subplots(1, 2, width_ratios=(3, 1), sharey=True)
    for (case, dtype), style in zip(
        sorted(cases, key=lambda c: c[1] != "int32"), ("s-", "s--", "o-", "o--"), strict=False
    ):
        of_case = [find(rows, name, case=case, dtype=dtype) for name in names]
        ours.plot([r["gbps"] for r in of_case], names, style, markersize=4, label=f"{case} {dtype}")
    of_document = {name: figures[0] for name, figures in ladders.REDUCTION_VERSIONS.items() if figures}
    document.plot(
        list(of_document.values()), list(of_document), "x:", color="0.5", label="2^24 int32, M2090 (document)"
    )
    for axes, label in ((ours, "GB/s"), (document, "GB/s of an M2090")):
        axes.set(xlabel=label)
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)
    ours.invert_yaxis()
    _beside(figure, ours, document)


def transpose(rows: list[Row], figure: "Figure") -> None:
    axes = figure.subplots()
    places = {n: i for i, n in enumerate(sorted({r["shape"]["n"] for r in rows}))}
    _lines(axes, rows, lambda r: places[r["shape"]["n"]], lambda r: r["gbps"])
    axes.set_xticks(list(places.values()), [f"{n:,}" for n in places])
    _finish(
        axes, "n (square, fp32; an odd n has unaligned rows)", "GB/s of 8 bytes an element", log_x=False, legend=False
    )
    _beside(figure, axes)


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
    styles = _styles(rows)
    panels = figure.subplots(2, len(kinds), squeeze=False, sharex=True, sharey="row", height_ratios=(3, 2))
    for (rate, peak), (kind, of_kind) in zip(panels.T, kinds.items(), strict=True):
        first = rate is panels[0, 0]
        _lines(rate, of_kind, lambda r: r["shape"]["s"], lambda r: r["tflops"], styles)
        _lines(peak, of_kind, lambda r: r["shape"]["s"], lambda r: r["peak_bytes"] / 2**20, styles)
        _finish(rate, "", "TFLOP/s, bf16" if first else "", log_y=True, legend=False)
        _finish(peak, "S", "memory of a call, MiB" if first else "", log_y=True, legend=False)
        rate.set_title(kind, fontsize=9)
        peak.set_xticks(sorted({r["shape"]["s"] for r in rows}))
        peak.tick_params("x", labelsize=7)
    _beside(figure, *panels.flat)


def coalescing(rows: list[Row], figure: "Figure") -> None:
    axes = figure.subplots()
    swept = [r for r in rows if r["gbps"] and "2^24" not in r["case"]]
    for case in dict.fromkeys(r["case"] for r in swept):
        points = [(r["shape"]["stride"], r["gbps"]) for r in swept if r["case"] == case]
        axes.plot(*zip(*points, strict=True), "o-", markersize=4, label=case)
    _finish(axes, "stride, elements", "useful GB/s")


def fma(rows: list[Row], figure: "Figure") -> None:
    documents = {1: (0.05, 0.63), 2: (0.09, 0.73), 4: (0.13, 0.89), 8: (0.15, 0.94), 16: (None, 0.96)}
    panels = figure.subplots(1, 2, sharey=True)
    for axes, unroll in zip(panels, (8, 64), strict=True):
        of_unroll = [r for r in rows if r["shape"]["unroll"] == unroll and r.get("of_peak")]
        _lines(axes, of_unroll, lambda r: r["shape"]["threads"], lambda r: r["of_peak"])
        if unroll == 8:
            for i, (chains, ends) in enumerate(documents.items()):
                label = {"label": "x: document, M2090, in the chains' colours"} if chains == 1 else {}
                points = [(at, end) for at, end in zip((32, 1024), ends, strict=True) if end]
                axes.plot(*zip(*points, strict=True), "x", color=f"C{i}", **label)
        needed = device.littles_law(FMA_CYCLES, 128)
        axes.axvline(needed, color="0.5", linestyle=":", label=f"Little: 4 cycles x 128 = {needed:.0f} in flight")
        _finish(axes, "threads an SM (one block)", "share of the peak", log_x=False)


def copy(rows: list[Row], figure: "Figure") -> None:
    panels = figure.subplots(1, 3, sharey=True)
    rows = [r for r in rows if r.get("of_peak")]
    by_grid: dict[str, list[Row]] = {}
    for r in rows:
        by_grid.setdefault(r["shape"]["grid"], []).append(r)
    styles = _styles(rows)
    for axes, (grid, name) in zip(panels, (("resident", "as many blocks as fit"), ("full", "full grid")), strict=False):
        _lines(axes, by_grid.get(grid, []), lambda r: r["shape"]["threads"], lambda r: r["of_peak"], styles)
        for r in by_grid.get(grid, []):
            if r["document"]:  # a figure for each of the variants, in their colours
                share = float(r["document"].split()[0])
                axes.plot(32, share, "x", color=styles[r["contender"]]["color"], label="x: document, M2090")
        axes.set_title(name, fontsize=9)
        first = "share of the peak bandwidth" if axes is panels[0] else ""
        _finish(axes, "threads a block", first, legend=False)
    flight, names = panels[2], {"one_per_sm": "one block an SM", "resident": "as many as fit", "full": "full grid"}
    for (grid, found), marker in zip(by_grid.items(), "o^s", strict=False):
        points = [(r["in_flight"] / 1024, r["of_peak"]) for r in found]
        flight.plot(*zip(*points, strict=True), marker, color="0.3", fillstyle="none", markersize=5, label=names[grid])
    if gpu := _of_bandwidth(rows):
        needed = device.littles_law(LATENCY_NS * 1e-9, gpu.bandwidth) / gpu.multiprocessors / 1024
        label = f"latency x bandwidth of loads,\n{gpu.name}: {needed:.0f} KiB an SM"
        flight.axvline(needed, color="0.5", linestyle=":", label=label)
    panels[0].set_ylim(0, 1.05 * max((r["of_peak"] for r in rows), default=1))
    flight.set_title("over loads in flight (a copy writes as much)", fontsize=9)
    _finish(flight, "KiB of loads in flight an SM", "", legend=False)
    _beside(figure, *panels)


FMA_CYCLES = 4  # of a multiply-add's latency, on an SM that starts 128 a cycle
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
    by_lane = {r["shape"]["paths"]: r["us"] for r in ways if r["contender"] == "by lane"}
    most = max(by_lane)
    way = (by_lane[most] - by_lane[1]) / (most - 1)  # microseconds of one more
    fixed = by_lane[1] - way
    _lines(axes, ways, lambda r: r["shape"]["paths"], lambda r: r["us"])
    line = [(k, fixed + k * way) for k in by_lane]
    label = f"{fixed:.1f} us of launch and memory, {way:.1f} us a way"
    axes.plot(*zip(*line, strict=True), color="0.5", linestyle=":", label=label)
    _finish(axes, "ways", "microseconds", log_y=True)


def quantisation(rows: list[Row], figure: "Figure") -> None:
    waves, edges, padded = figure.subplots(1, 3, width_ratios=(2, 1, 2))
    of_waves = [r for r in rows if "tiles" in r]
    best = max(r["tflops"] for r in of_waves)
    slots = of_waves[0]["slots"]
    waves.plot(
        [r["tiles"] for r in of_waves], [r["tflops"] / best for r in of_waves], "o-", markersize=4, label="measured"
    )
    tiles = range(1, max(r["tiles"] for r in of_waves) + 1)
    predicted = [device.wave_utilisation(t, slots) for t in tiles]
    waves.plot(tiles, predicted, color="0.5", linewidth=0.8, label="predicted")
    _finish(waves, "tiles", "share of the best rate", log_x=False)
    of_edges = [r for r in rows if r["case"].startswith("m = n")]
    names = [str(r["shape"]["m"]) for r in of_edges]
    edges.bar(names, [r["tflops"] for r in of_edges])
    edges.tick_params("x", rotation=60, labelsize=8)
    _finish(edges, "m = n", "TFLOP/s", log_x=False)
    _lines(
        padded, [r for r in rows if r["case"].startswith("k =")], lambda r: str(r["shape"]["k"]), lambda r: r["tflops"]
    )
    _finish(padded, "k of 2048 x 2048 x k", "TFLOP/s", log_x=False)


def padding(rows: list[Row], figure: "Figure") -> None:
    rows = [r | {"contender": r["contender"].partition(" to")[0]} for r in rows]
    names, styles = list(dict.fromkeys(r["case"].partition(",")[0] for r in rows)), _styles(rows)
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        found = {(r["contender"], r["shape"]["k"]): r["tflops"] for r in rows if r["case"].startswith(f"{name},")}
        ks = sorted({k for _, k in found})
        for contender in (c for c in styles if any(c == of for of, _ in found)):
            rates = [found.get((contender, k), math.nan) for k in ks]  # a line ends where a product is refused
            axes.plot(range(len(ks)), rates, **{"marker": "."} | styles[contender], markersize=4, label=contender)
        axes.set_xticks(range(len(ks)), [str(k) for k in ks], rotation=60, fontsize=7)
        axes.set_title(name, fontsize=9)
        _finish(axes, "k", "TFLOP/s" if name == names[0] else "", log_x=False, legend=False)
    _beside(figure, *panels)


def latency(rows: list[Row], figure: "Figure") -> None:
    axes = figure.subplots()
    points = [(r["shape"]["bytes"] / 1024, r["cycles"]) for r in rows if not r["shape"]["shared"]]
    axes.plot(*zip(*points, strict=True), "o-", label="global memory, a line of 128 bytes a step")
    if shared := find(rows, shared=True):
        axes.axhline(shared["cycles"], color="C1", label="shared memory")
    for name, cycles in (("shared memory", 23), ("L1", 33), ("L2", 200), ("global", 290)):
        axes.axhline(cycles, color="0.6", linestyle=":")
        axes.annotate(f"Ampere (document): {name} {cycles}", (points[0][0], cycles), (0, 2), fontsize=7, **OFFSET)
    _finish(axes, "KiB of the array", "cycles a load", log_y=True)


def bandwidth(rows: list[Row], figure: "Figure") -> None:
    axes = figure.subplots()
    names = [f"{r['contender']}, {r['case']}" for r in rows]
    axes.plot([r["gbps"] / 1e3 for r in rows], names, "o", markersize=8)
    for r, name in zip(rows, names, strict=True):
        axes.annotate(f"{r['gbps'] / 1e3:,.1f}", (r["gbps"] / 1e3, name), (8, -3), fontsize=8, **OFFSET)
    if needed := rows[0]["needed_gbps"]:
        label = "a b + c at the peak: 12 bytes in, 4 out"
        axes.axvline(needed / 1e3, color="0.5", linestyle="--", label=label)
        axes.axvline(needed * 0.75e-3, color="0.5", linestyle=":", label="its operands alone, as the document counts")
        axes.legend(fontsize=8)
    axes.invert_yaxis()
    axes.set(xscale="log", xlabel="TB/s of the whole GPU")
    axes.margins(x=0.1)
    _plain(axes.xaxis)
    axes.grid(alpha=0.3)


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
    time, share = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    n = rows[0]["shape"]["n"]
    found = [r for r in rows if r["shape"]["n"] == n]
    x, first = [r["shape"]["limit"] for r in found], found[0]
    time.plot(x, [r["us"] / first["us"] for r in found], "o-")
    for r in found:
        time.annotate(f"{r['spilled']} B", (r["shape"]["limit"], r["us"] / first["us"]), (3, 4), fontsize=7, **OFFSET)
    time.margins(y=0.1)
    _finish(time, "", "time over that without spills\n(beside: bytes spilled)", log_x=False)
    share.plot(x, [r["occupancy"] for r in found], "s:", color="0.4")
    _finish(share, "registers a thread at most", "occupancy", log_x=False)


# Where kernels lie, as the slides have it; and the operations a byte of functions of the lecture, least and most.
REGIONS = {"sparse, stencil": (1 / 6, 1), "FFT": (1, 4), "dense products": (8, 512)}
FUNCTIONS = {
    "ReLU, fp32": (1 / 8, 1 / 4),
    "residual, ReLU, fp16": (1 / 6, 1 / 4),
    "batch norm": (1, 10),
    "convolution": (1, 1e3),
}


def roofline(rows: list[Row], figure: "Figure") -> None:
    fitted = fit_energy(rows)
    first, *rest = figure.subplots(1, 2 if fitted else 1, squeeze=False)[0]
    for dtype, colour in (("float32", "C0"), ("float64", "C1")):
        sweep = [r for r in rows if r["dtype"] == dtype and r["contender"].endswith("steps") and r["tflops"]]
        if sweep:
            points = [(r["intensity"], r["tflops"]) for r in sweep]
            first.plot(*zip(*points, strict=True), "o-", color=colour, markersize=4, label=f"measured, {dtype}")
            line = [(r["intensity"], r["attainable_tflops"]) for r in sweep if r.get("attainable_tflops")]
            first.plot(*zip(*line, strict=True), ":", color=colour, label=f"datasheet, {dtype}")
    named: list[list[Row]] = []  # kernels of one intensity and nearly one rate share a name
    for r in (r for r in rows if r["case"] == "kernels of the ladders" and r["tflops"]):
        first.plot(r["intensity"], r["tflops"], "k.", markersize=5)
        near = [of for of in named if of[0]["intensity"] == r["intensity"] and r["tflops"] < 1.3 * of[0]["tflops"]]
        near[0].append(r) if near else named.append([r])
    for of in named:
        name = ", ".join([of[0]["contender"], *(r["contender"].split()[-1] for r in of[1:])])
        first.annotate(name, (of[0]["intensity"], of[0]["tflops"]), fontsize=6, xytext=(4, -2), **OFFSET)
    copied = find(rows, "copy", case="kernels of the ladders")
    swept = [r for r in rows if r["dtype"] == "float32" and r.get("intensity") and r["contender"].endswith("steps")]
    if copied and swept:  # a copy has no operations: its rate is a slope
        slope = copied["gbps"] / 1e3
        ends = min(r["intensity"] for r in swept), max(r["tflops"] for r in swept) / slope
        first.plot(ends, [x * slope for x in ends], "k-", linewidth=0.6, label=f"a copy's {copied['gbps']:,.0f} GB/s")
    bottom = 0.02
    for i, (name, (low, high)) in enumerate([*REGIONS.items(), *FUNCTIONS.items()]):
        y = bottom * 1.35**i
        first.plot((low, high), (y, y), color="0.3" if name in REGIONS else "0.65", linewidth=2)
        left = {"xy": (low, y), "xytext": (-3, -2), "ha": "right"}  # where it ends at the frame
        first.annotate(name, **(left if high > 100 else {"xy": (high, y), "xytext": (3, -2)}), fontsize=6, **OFFSET)
    x_label = "operations a byte (log; grey bars: where kernels and functions lie)"
    _finish(first, x_label, "TFLOP/s", log_y=True, legend=False)
    first.set_xlim(right=1 << 13)  # room for the products' names
    first.legend(fontsize=7, loc="center", bbox_to_anchor=(0.55, 0.42))  # between the lines, the products and the bars
    for axes in rest:
        flop, byte, watts, _ = fitted
        found = [r for r in rows if r.get("joules") and r["dtype"] == "float32" and r["tflops"]]
        x = [r["intensity"] for r in found]
        work = [flop * r["tflops"] * 1e12 * r["us"] * 1e-6 for r in found]
        without = [r["joules"] - watts * r["us"] * 1e-6 for r in found]
        peak, equal = max(r["tflops"] for r in found), byte / flop
        axes.plot(
            x,
            [w / r["joules"] for w, r in zip(work, found, strict=True)],
            "o-",
            label="operations' share of the energy",
        )
        label = f"the same without the {watts:.0f} W that flow whatever runs"
        axes.plot(x, [w / e for w, e in zip(work, without, strict=True)], "^", color="C2", label=label)
        axes.plot(
            x, [1 / (1 + equal / i) for i in x], "-", color="C2", linewidth=0.8, label="arch line, 1 / (1 + B / I)"
        )
        axes.plot(equal, 0.5, "k*", markersize=10, label=f"half at B = {equal:.0f} operations a byte")
        axes.plot(x, [r["tflops"] / peak for r in found], "s--", color="C1", label="share of the peak rate (roofline)")
        _finish(axes, "operations a byte", "share", log_y=True)


def tiling(rows: list[Row], figure: "Figure") -> None:
    n = max(r["shape"]["n"] for r in rows)
    found = [r for r in rows if r["case"] == f"lab 6, {n}x{n}"]
    axes = figure.subplots()
    bars = axes.barh([r["contender"] for r in found], [r["us"] for r in found])
    axes.bar_label(bars, [f"{r['us']:,.0f} us, {r['tflops']:.1f} TFLOP/s" for r in found], fontsize=7, padding=2)
    axes.invert_yaxis()
    axes.margins(x=0.2)
    axes.set(xlabel=f"microseconds, {n} x {n} x {n} (variant and side of the tile)")


def coarsening(rows: list[Row], figure: "Figure") -> None:
    """Times over the plain kernel's; a stroke is the spread of repeats."""
    sizes = list(dict.fromkeys(r["shape"]["n"] for r in rows))
    for axes, n in zip(figure.subplots(1, len(sizes), squeeze=False)[0], sizes, strict=True):
        found = [r for r in rows if r["shape"]["n"] == n]
        _ratios(axes, [r["contender"] for r in found], found, found[0]["us"])
        axes.margins(0.2, 0.1)  # room for the figures
        axes.set_title(f"{amount(n)} elements", fontsize=9)
        _finish(axes, "", "time over the plain kernel's" if n == sizes[0] else "", log_x=False)


def privatisation(rows: list[Row], figure: "Figure") -> None:
    """Times of the staged or private form over the other's; a stroke is the spread of repeats."""
    axes = figure.subplots()
    pairs = [(r, find(rows, case=r["case"])) for r in rows if r["contender"] in ("shared", "privatised")]
    for private, plain in pairs:
        _ratios(axes, [f"{private['case']}\n{private['contender']}"], [private], plain["us"])
    _finish(axes, "", "time over direct loads, over global atomics", log_x=False, log_y=True)


def _ratios(axes: "Axes", names: list[str], rows: list[Row], first: float) -> None:
    axes.plot(names, [r["us"] / first for r in rows], "o", color="C0")
    for name, r in zip(names, rows, strict=True):
        axes.annotate(f"{r['us'] / first:.3g}", (name, r["us"] / first), (5, 2), fontsize=7, **OFFSET)
        if "spread_us" in r:
            axes.plot((name, name), [us / first for us in r["spread_us"]], "k-")
    axes.axhline(1, color="k", linewidth=0.6)
    axes.tick_params("x", rotation=40, labelsize=8)

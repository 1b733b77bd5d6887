"""Draws the plots of the result files."""

from collections.abc import Callable
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.tables import MODELS, OURS, TF32, TRAINING, Group, Results, peers_table, tall

COLOURS = {
    OURS: "#c0392b",
    "torch": "#2c3e50",
    TF32: "#95a5a6",
    "torch_compile": "#8e44ad",
    "sdpa_flash": "#2980b9",
    "sdpa_efficient": "#16a085",
    "sdpa_cudnn": "#2c3e50",
    "sdpa_math": "#bdc3c7",
    "fa3": "#e67e22",
}
LABELS = {TF32: "torch, TF32 (less accurate)", "fa3": "FlashAttention-3 (fa3)"}


def series(groups: list[Group], x: Callable[[dict], float], unit: str) -> dict[str, list[tuple[float, float]]]:
    """Points of each contender, by rising x; contenders that miss some cases have fewer points."""
    lines: dict[str, dict[float, float]] = {}
    for group in groups:
        for name, row in group.items():
            if row[unit] is not None:
                points = lines.setdefault(name, {})
                if x(row) in points:
                    raise ValueError(f"two cases at {x(row)} on the line of {name}, the second is {row['case']}")
                points[x(row)] = row[unit]
    return {name: sorted(points.items()) for name, points in lines.items()}


def lines(axes: Axes, groups: list[Group], x: Callable[[dict], float], unit: str, title: str, label: str) -> None:
    for name, points in series(groups, x, unit).items():
        style = {"linewidth": 2.4, "zorder": 3} if name == OURS else {"linewidth": 1.4}
        if 2 * len(points) < len(groups):  # a line would go over cases that were not measured
            style["linestyle"] = ""
        axes.plot(
            *zip(*points, strict=True),
            marker="o",
            markersize=4,
            color=COLOURS.get(name),
            label=LABELS.get(name, name),
            **style,
        )
    axes.set_xscale("log", base=2)
    axes.set_ylim(0, 1.08 * axes.dataLim.ymax)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(label, fontsize=9)
    axes.set_ylabel({"tflops": "TFLOP/s", "gbps": "GB/s"}[unit], fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def bars(axes: Axes, groups: list[Group], unit: str, title: str) -> None:
    names = list(dict.fromkeys(name for group in groups for name in group))
    width = 0.8 / max(len(names), 1)
    for i, name in enumerate(names):
        points = [(j, group[name][unit]) for j, group in enumerate(groups) if name in group and group[name][unit]]
        axes.bar(
            [j + (i - (len(names) - 1) / 2) * width for j, _ in points],
            [value for _, value in points],
            width,
            color=COLOURS.get(name),
            label=LABELS.get(name, name),
        )
    axes.set_xticks(range(len(groups)), [group[OURS]["case"] for group in groups], rotation=60, ha="right", fontsize=7)
    axes.set_title(title, fontsize=10)
    axes.set_ylabel({"tflops": "TFLOP/s", "gbps": "GB/s"}[unit], fontsize=9)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=8)


def square(groups: list[Group]) -> list[Group]:
    """The square products of a matmul list, their size a power of two."""

    def wanted(shape: dict) -> bool:
        n = shape["n"]
        return shape["m"] == n == shape["k"] and shape["batch"] == 1 and shape["layout"] == "nn" and n & (n - 1) == 0

    return [group for group in groups if wanted(group[OURS]["shape"])]


def columns(row: dict) -> float:
    return row["shape"]["sizes"][-1]


def prefill(groups: list[Group], d: int, causal: bool) -> list[Group]:
    """The standard cases of attention with this head size; older files name no groups."""
    standard = {"prefill", "other lengths"}
    shapes = [(g, g[OURS]["shape"]) for g in groups if not standard.isdisjoint(g[OURS].get("groups", standard))]
    return [g for g, s in shapes if s["q"] == s["kv"] and s["d"] == d and s["causal"] == causal]


def plot_matmul(results: Results, figure: Figure) -> None:
    kinds = [("float32", "highest"), ("float32", "high"), ("bfloat16", None), ("float16", None)]
    shown = [(kind, groups) for kind in kinds if (groups := peers_table(results.groups("matmul", *kind)))]
    figure.set_size_inches(11, 4.2 * len(shown))
    for index, ((dtype, mode), groups) in enumerate(shown):
        axes = figure.add_subplot(len(shown), 1, index + 1)
        bars(axes, groups, "tflops", f"matmul, {dtype} {mode or ''}".strip())


def plot_rows(op: str) -> Callable:
    def plot(results: Results, figure: Figure) -> None:
        dtypes = [dtype for dtype in ("float32", "bfloat16") if tall(results.groups(op, dtype))]
        figure.set_size_inches(5.5 * len(dtypes), 4)
        for index, dtype in enumerate(dtypes):
            axes = figure.add_subplot(1, len(dtypes), index + 1)
            lines(axes, tall(results.groups(op, dtype)), columns, "gbps", f"{op}, {dtype}", "columns")

    return plot


def plot_sum(results: Results, figure: Figure) -> None:
    dtypes = [dtype for dtype in ("float32", "bfloat16") if results.groups("sum", dtype)]
    figure.set_size_inches(5.5 * len(dtypes), 5)
    for index, dtype in enumerate(dtypes):
        bars(figure.add_subplot(1, len(dtypes), index + 1), results.groups("sum", dtype), "gbps", f"sum, {dtype}")


def plot_attention(results: Results, figure: Figure) -> None:
    panels = [
        (f"{dtype} {mode or ''}".strip(), d, causal, groups)
        for dtype, mode in (("float32", None), ("float32", "high"), ("bfloat16", None), ("float16", None))
        for causal in (False, True)
        for d in (64, 128, 256)
        if (groups := prefill(results.groups("attention", dtype, mode), d, causal))
    ]
    across = min(len(panels), 3) or 1
    down = -(-len(panels) // across)
    figure.set_size_inches(4.6 * across, 3.6 * max(down, 1))
    for index, (kind, d, causal, groups) in enumerate(panels):
        axes = figure.add_subplot(down, across, index + 1)
        title = f"attention, {kind}, head size {d}" + (", causal" if causal else "")
        lines(axes, groups, lambda row: row["shape"]["q"], "tflops", title, "sequence length")


def headline_panels(results: Results) -> list[tuple[list[Group], Callable[[dict], float], str, str, str]]:
    """What the README's picture shows: groups, x, unit, title and the name of x, of each panel that has results."""
    products = square(peers_table(results.groups("matmul", "float32", "highest")))
    panels = [
        (products, lambda row: row["shape"]["n"], "tflops", "matmul, float32", "M = N = K"),
        (tall(results.groups("softmax", "float32")), columns, "gbps", "softmax, float32", "columns"),
    ]
    for dtype in ("float32", "bfloat16"):
        heads = prefill(results.groups("attention", dtype, None), 128, False)
        title = f"attention, {dtype}, head size 128"
        panels.append((heads, lambda row: row["shape"]["q"], "tflops", title, "sequence length"))
    return [panel for panel in panels if panel[0]]


def plot_headline(results: Results, figure: Figure) -> None:
    panels = headline_panels(results)
    across = min(len(panels), 2)
    down = -(-len(panels) // across)
    figure.set_size_inches(5.2 * across, 3.6 * down)
    for index, (groups, x, unit, title, label) in enumerate(panels):
        axes = figure.add_subplot(down, across, index + 1)
        lines(axes, groups, x, unit, title, label)
        if len(axes.lines) > 4:  # room for the legend above the lines
            axes.set_ylim(0, 1.4 * axes.dataLim.ymax)


MARKERS = {"eager": "o", "eager, CUDA graph": "s", "compiled": "^", "compiled, CUDA graph": "D"}


def plot_models(results: Results, figure: Figure) -> None:
    """A line a model, input and dtype: time left, error right; the colour says who computes, the marker how."""
    rows = results.documents[MODELS]["rows"]
    cases = list(dict.fromkeys((row["case"], row["dtype"]) for row in rows))[::-1]
    figure.set_size_inches(10, 1.5 + 0.32 * len(cases))
    time, error = figure.subplots(1, 2, sharey=True)
    for row in rows:
        name = row["contender"].removesuffix("_compile")
        how = ("eager" if name == row["contender"] else "compiled") + (", CUDA graph" if row["graph"] else "")
        y = cases.index((row["case"], row["dtype"]))
        style = {"marker": MARKERS[how], "color": COLOURS.get(name), "linestyle": "", "markersize": 6, "alpha": 0.8}
        time.plot(row["ms"], y, label=f"{LABELS.get(name, name)}, {how}", **style)
        error.plot(row["error"]["fro"], y, **style)
    for axes, label in ((time, "ms a forward"), (error, "error against float64 (Frobenius)")):
        axes.set_xscale("log")
        axes.set_xlabel(label, fontsize=9)
        axes.grid(alpha=0.3)
    time.set_yticks(range(len(cases)), [" ".join(case) for case in cases], fontsize=8)
    unique = dict(zip(*reversed(time.get_legend_handles_labels()), strict=True))
    figure.legend(unique.values(), unique.keys(), fontsize=8, ncols=3, loc="outside upper center")


def plot_training(results: Results, figure: Figure) -> None:
    """Left the time of a step, as plot_models has it; right how far losses are from the float64 run, step by step."""
    rows = results.documents[TRAINING]["rows"]
    timed = [row for row in rows if "ms" in row]
    cases = list(dict.fromkeys((row["case"], row["dtype"]) for row in timed))[::-1]
    curves = list(dict.fromkeys(row["case"] for row in rows if "distance" in row))
    figure.set_size_inches(12, max(4.0, 1.5 + 0.32 * len(cases), 2.2 * len(curves)))
    left, right = figure.subfigures(1, 2)
    time = left.subplots()
    markers = dict(zip(("eager", "graph", "compiled"), "os^", strict=True))
    for row in timed:
        name, y = row["contender"], cases.index((row["case"], row["dtype"]))
        label = f"{LABELS.get(name, name)}, {row['launch']}"
        style = {"color": COLOURS.get(name), "linestyle": "", "markersize": 6, "alpha": 0.8}
        time.plot(row["ms"], y, label=label, marker=markers[row["launch"]], **style)
    time.set_xscale("log")
    time.set_xlabel("ms a step", fontsize=9)
    time.set_yticks(range(len(cases)), [" ".join(case) for case in cases], fontsize=8)
    time.grid(alpha=0.3)
    unique = dict(zip(*reversed(time.get_legend_handles_labels()), strict=True))
    left.legend(unique.values(), unique.keys(), fontsize=8, ncols=2, loc="outside upper center")
    for case, axes in zip(curves, right.subplots(max(len(curves), 1), 1, squeeze=False).flat, strict=False):
        of_case = {row["contender"]: row for row in rows if row["case"] == case}
        exact = of_case.pop("torch_fp64")["loss"]
        for name, row in of_case.items():
            apart = [abs(a - b) for a, b in zip(row["loss"], exact, strict=True)]
            axes.plot(range(len(apart)), apart, color=COLOURS.get(name), label=LABELS.get(name, name), linewidth=1.2)
        axes.set_yscale("log")
        axes.set_title(case, fontsize=9)
        axes.set_ylabel("|loss - loss in float64|", fontsize=8)
        axes.set_xlabel("step", fontsize=8)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)


PLOTS: dict[str, Callable] = {
    "matmul": plot_matmul,
    "sum": plot_sum,
    "logsumexp": plot_rows("logsumexp"),
    "softmax": plot_rows("softmax"),
    "log_softmax": plot_rows("log_softmax"),
    "attention": plot_attention,
}


def figures(results: Results) -> dict[str, Figure]:
    """The figures by file name, of the ops that have something to show."""
    plots = {op: plot for op, plot in PLOTS.items() if results.groups(op)}
    if headline_panels(results):
        plots["headline"] = plot_headline
    if MODELS in results.documents:
        plots[MODELS] = plot_models
    if TRAINING in results.documents:
        plots[TRAINING] = plot_training
    found = {}
    for name, plot in plots.items():
        figure = Figure(layout="constrained")
        plot(results, figure)
        if figure.axes:
            found[name] = figure
    return found


def draw(results: Results) -> list[Path]:
    """Writes the PNG files; the same files give the same pictures on the same matplotlib."""
    written = []
    for name, figure in figures(results).items():
        path = results.folder / f"{name}.png"
        figure.savefig(path, dpi=130, metadata={"Software": None})
        written.append(path)
    return written

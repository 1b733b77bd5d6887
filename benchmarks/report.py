"""Makes the tables in README.md and docs/ and the plots from `benchmarks/results/<gpu>/*.json`, and from nothing else.

A page shows results between the markers ``<!-- results:begin OP -->`` and ``<!-- results:end -->``; without an OP, the
overview. ``--check`` writes nothing and fails where a page is not what the files give.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.results import ROOT, geomean, grouped

OPS = [
    "matmul",
    "linear",
    "gated_linear",
    "sum",
    "amax",
    "argmax",
    "logsumexp",
    "cross_entropy",
    "softmax",
    "log_softmax",
    "scaled_masked_softmax",
    "topk_softmax",
    "attention",
    "host",
]
LAB = ["lab_sgemm", "lab_tensor", "lab_fp32", "lab_reduction", "lab_softmax", "lab_attention", "lab_experiments"]
COMPUTE = {"matmul", "linear", "gated_linear", "attention"}  # the others move bytes: their figure is the cold one
OURS = "xgemm"
ANY = "any"
TF32 = "torch_tf32"  # another accuracy than ours: shown, but no peer of "highest"
COLD_GROUPS = {"few rows", "layers"}  # of cases: a layer's weights are not in L2 when its turn comes
BEGIN, END = r"^<!-- results:begin(?: (\w+))? -->\n", r"^<!-- results:end -->$"
MARKED = re.compile(f"({BEGIN})(?:(?!<!-- results:begin).)*?({END})", re.DOTALL | re.MULTILINE)

Group = dict[str, dict]  # the rows of one interleaved measurement, by contender


# ---- reading ---------------------------------------------------------------------------------------------------------


@dataclass
class Results:
    """All result files of one GPU."""

    folder: Path
    documents: dict[str, dict]
    gpu_tests: dict | None = None

    @classmethod
    def read(cls, folder: Path) -> "Results":
        documents = {}
        for op in [*OPS, *LAB]:
            if (path := folder / f"{op}.json").exists():
                documents[op] = json.loads(path.read_text())
        tests = folder / "gpu_tests.json"
        return cls(folder, documents, json.loads(tests.read_text()) if tests.exists() else None)

    @property
    def url(self) -> str:
        return f"benchmarks/results/{self.folder.name}"

    def groups(self, op: str, dtype: str | None = None, mode: str | None = ANY, of: str | None = None) -> list[Group]:
        """One group a case (of those in the group of cases `of`): the measurement that shows what the op is about."""
        best: dict[tuple, Group] = {}
        for group in grouped(self.documents.get(op, {"rows": []})["rows"]):
            row = next(iter(group.values()))
            if OURS not in group or (dtype and row["dtype"] != dtype) or mode not in (ANY, row["mode"]):
                continue
            if of is not None and of not in row.get("groups", ()):
                continue
            cold = op not in COMPUTE or of in COLD_GROUPS
            key = row["case"], row["dtype"], row["mode"]
            if key not in best or preference(cold, row) < preference(cold, next(iter(best[key].values()))):
                best[key] = group
        return list(best.values())


def preference(cold: bool, row: dict) -> int:
    """Lower is shown: for arithmetic the launch-free hot figure, for traffic the cold one, launch-free where short."""
    order = [("hot", True), ("hot", False), ("cold", False), ("cold", True)]
    if cold:
        order = [("cold", True), ("cold", False), ("hot", True), ("hot", False)]
    return order.index((row["l2"], row["graph"]))


def best_peer(group: Group) -> dict | None:
    """The fastest contender that computes what ours computes."""
    loose = {TF32} if group[OURS]["mode"] == "highest" else set()
    peers = [row for name, row in group.items() if name != OURS and name not in loose]
    return min(peers, key=lambda row: row["us"]) if peers else None


# ---- text ------------------------------------------------------------------------------------------------------------


def microseconds(us: float) -> str:
    return f"{us:.0f}" if us >= 1000 else f"{us:.1f}"


def rate(row: dict) -> str:
    if row["gbps"] is not None:
        return f"{row['gbps']:.0f} GB/s"
    return f"{row['tflops']:.1f} TFLOP/s" if row["tflops"] is not None else ""


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def provenance(document: dict) -> str:
    versions, clocks = document["versions"], document["clocks_mhz"]
    clock = f", SM clock {clocks[0]} to {clocks[1]} MHz" if clocks else ""
    return (
        f"{document['gpu']}, torch {versions['torch']}, CUDA {versions['cuda']}, driver {versions['driver']}{clock}; "
        f"{document['date'][:10]}, commit {document['commit']}, sources {document['sources']['sha256']}"
    )


def overview_table(results: Results) -> str:
    """A line an op and dtype: the geometric mean and the range of the best peer's time over ours, and one case."""
    rows = []
    for op in OPS:
        kinds = dict.fromkeys((g[OURS]["dtype"], g[OURS]["mode"]) for g in results.groups(op))
        for dtype, mode in kinds:
            groups = [g for g in results.groups(op, dtype, mode) if best_peer(g)]
            if not groups:
                continue
            ratios = [best_peer(group)["us"] / group[OURS]["us"] for group in groups]
            largest = max(groups, key=lambda group: (group[OURS]["floor_us"] or 0.0, group[OURS]["us"]))
            ours, peer = largest[OURS], best_peer(largest)
            name = {"host": "host time of a call"}.get(op, op)
            rows.append(
                [
                    f"{name}, {dtype}" + (f", {mode}" if mode else ""),
                    str(len(groups)),
                    f"{geomean(ratios):.2f}",
                    f"{min(ratios):.2f} to {max(ratios):.2f}",
                    f"{ours['case']}: {microseconds(ours['us'])} us" + (f", {rate(ours)}" if rate(ours) else ""),
                    f"{peer['contender']} {microseconds(peer['us'])} us",
                ]
            )
    header = ["operator", "cases", "speed-up, geomean", "range", "its largest case", "best peer there"]
    return markdown(header, rows)


def case_groups_table(op: str, results: Results, name_worst: bool) -> str:
    """A line a group of cases, a column a dtype and mode: best peer's time over ours, geometric mean and worst."""
    rows = results.documents.get(op, {"rows": []})["rows"]
    names = list(dict.fromkeys(name for row in rows for name in row.get("groups", ())))
    kinds = list(dict.fromkeys((row["dtype"], row["mode"]) for row in rows))
    table = []
    for name in names:
        line = [name, str(len({row["case"] for row in rows if name in row.get("groups", ())}))]
        for kind in kinds:
            groups = [group for group in results.groups(op, *kind, of=name) if best_peer(group)]
            ratios = [(best_peer(group)["us"] / group[OURS]["us"], group[OURS]["case"]) for group in groups]
            worst = min(ratios, default=None)
            cell = f"{geomean([ratio for ratio, _ in ratios]):.2f}, {worst[0]:.2f}" if worst else ""
            line.append(cell + (f" ({worst[1]})" if worst and name_worst else ""))
        table.append(line)
    if not table:
        return ""
    header = [f"{op}: geomean, worst", "shapes", *(f"{dtype} {mode or ''}".strip() for dtype, mode in kinds)]
    return markdown(header, table)


def overview(results: Results) -> str:
    documents = [results.documents[op] for op in OPS if op in results.documents]
    if not documents:
        return ""
    newest = max(documents, key=lambda document: document["date"])
    text = f"{provenance(newest)}. Speed-up: time of the fastest peer of the same accuracy over ours, medians of\n"
    text += "interleaved runs on random normal data, each result checked against float64 first. All cases:\n"
    text += "[docs/results.md](docs/results.md).\n\n"
    text += overview_table(results)
    if summed := case_groups_table("matmul", results, name_worst=False):
        text += f"\n{summed}"
    if headline_panels(results):
        text += f"\n![Measured on {newest['gpu']}]({results.url}/headline.png)\n"
    if (results.folder / "lab_fp32.png").exists():  # drawn by the lab's runner
        text += f"\n![fp32 products on tensor cores: error against speed]({results.url}/lab_fp32.png)\n"
    if tests := results.gpu_tests:
        tools = ", ".join(
            f"{tool} "
            + ("no complete log" if figures["errors"] < 0 else f"{figures['errors']} errors")
            + f" in {figures['tests']} tests"
            + (f" ({figures['failed']} failed)" if figures.get("failed") else "")
            for tool, figures in tests.get("sanitizer", {}).items()
        )
        text += f"\nGPU tests: {tests['passed']} passed, {tests['failed']} failed, {tests['skipped']} skipped"
        text += f"; compute-sanitizer: {tools}.\n" if tools else ".\n"
    return text


def shown(op: str, results: Results) -> list[Group]:
    """Every measurement of an op; of cases in groups other than the peers' the one that its group counts."""
    rows = results.documents[op]["rows"]
    names = dict.fromkeys(name for row in rows for name in row.get("groups", ()))
    found = peers_table(grouped(rows))
    seen = {(group[OURS]["case"], group[OURS]["dtype"], group[OURS]["mode"]) for group in found if OURS in group}
    for name in names:
        for group in results.groups(op, of=name):
            key = group[OURS]["case"], group[OURS]["dtype"], group[OURS]["mode"]
            if key not in seen:
                seen.add(key)
                found.append(group)
    return found


def op_table(op: str, results: Results) -> str:
    """The measurements of an op: a line a group, a column a contender."""
    document = results.documents.get(op)
    if document is None:
        return ""
    groups = shown(op, results)
    names = list(dict.fromkeys(name for group in groups for name in group if name != OURS))
    rows = []
    for group in groups:
        first = group.get(OURS) or next(iter(group.values()))
        ours = group.get(OURS)
        kind = first["dtype"] + (f" {first['mode']}" if first["mode"] else "")
        line = [first["case"], kind, first["l2"] + (", graph" if first["graph"] else "")]
        if ours:
            low, high = ours["us_quartiles"]
            floor = f"{ours['floor_us'] / ours['us']:.0%}" if ours["floor_us"] else ""
            memory = f", {ours['peak_bytes'] / 2**20:.0f} MiB" if "peak_bytes" in ours else ""
            time = f"{microseconds(ours['us'])} ± {(high - low) / ours['us'] / 2:.0%}{memory}"
            line += [time, rate(ours), floor, f"{ours['error']['fro']:.1e}"]
        else:
            line += ["", "", "", ""]
        for name in names:
            row = group.get(name)
            ratio = f" ({row['us'] / ours['us']:.2f})" if row and ours else ""
            memory = f", {row['peak_bytes'] / 2**20:.0f} MiB" if row and "peak_bytes" in row else ""
            line.append(f"{microseconds(row['us'])}{ratio}{memory}" if row else "")
        rows.append(line)
    header = ["case", "dtype", "L2", "xgemm us", "rate", "of floor", "error (Frobenius)", *(f"{n} us" for n in names)]
    text = f"{provenance(document)}.\nIn brackets: the peer's time over ours. Floor: "
    text += "the larger of bytes over the bandwidth measured in the same run and operations over the peak rate.\n"
    if any("peak_bytes" in row for row in document["rows"]):
        text += "MiB: device memory that the call took on top of its inputs, its result included.\n"
    if summed := case_groups_table(op, results, name_worst=True):
        text += f"\n{summed}"
    text += "\n" + markdown(header, rows)
    if op in PLOTS and results.groups(op):
        text += f"\n![{op}](../{results.url}/{op}.png)\n"
    return text


def ladder_table(rows: list[dict]) -> str:
    """A line a step, a column a size: its rate; of the first dtype's last size ratio to the peer, error and memory."""
    sizes = list(dict.fromkeys((row["case"], row["dtype"]) for row in rows))
    steps = list(dict.fromkeys(row["contender"] for row in rows))
    found = {(row["contender"], row["case"], row["dtype"]): row for row in rows}
    peer = next(name for name in ("cublas", "torch") if name in steps)
    documents = {row["contender"]: row["document"] for row in rows if row.get("document")}
    memory = "peak_bytes" in rows[0]
    unit = "TFLOP/s" if rows[0]["tflops"] is not None else "GB/s"
    table = []
    for step in steps:
        of_size = [found.get((step, *size)) for size in sizes]
        row = next(row for row in reversed(of_size) if row is not None and row["dtype"] == sizes[0][1])
        against = found[peer, row["case"], row["dtype"]]
        rates = [
            "" if r is None else f"{r['tflops']:.2f}" if unit == "TFLOP/s" else f"{r['gbps']:.0f}" for r in of_size
        ]
        line = [step, *rates, f"{against['us'] / row['us']:.3f}", f"{row['error']['fro']:.1e}"]
        if memory:
            line.append(f"{row['peak_bytes'] / 2**20:.0f}")
        table.append(line + ([documents.get(step, "")] if documents else []))
    several = len({dtype for _, dtype in sizes}) > 1
    header = ["step", *(f"{case} {dtype}" if several else case for case, dtype in sizes), f"{peer}'s time over this"]
    header += ["error (Frobenius)"] + (["MiB of a call"] if memory else []) + (["document"] if documents else [])
    last = [size for size in sizes if size[1] == sizes[0][1]][-1]
    of_last = "ratio, error and memory" if memory else "ratio and error"
    return f"{unit}, hot L2; {of_last}: {last[0]} {last[1]}.\n\n" + markdown(header, table)


def experiments_table(rows: list[dict]) -> str:
    table = []
    for row in rows:
        of_peak = f", {row['of_peak']:.2f} of peak" if row.get("of_peak") is not None else ""
        table.append(
            [row["case"], row["contender"], microseconds(row["us"]), rate(row) + of_peak, row.get("document") or ""]
        )
    return markdown(["experiment", "variant", "us", "rate", "document"], table)


def lab_table(op: str, results: Results) -> str:
    """The measurements of a ladder, or of the experiments, with the documents' figures beside them."""
    document = results.documents.get(op)
    if document is None:
        return ""
    if op == "lab_experiments":
        tables = [experiments_table(document["rows"])]
    else:  # attention: a table for each head size, causal and not
        kinds: dict[tuple, list[dict]] = {}
        for row in document["rows"]:
            kinds.setdefault((row["shape"].get("d"), row["shape"].get("causal")), []).append(row)
        tables = [ladder_table(rows) for rows in kinds.values()]
    text = f"{provenance(document)}.\n\n" + "\n".join(tables)
    if (results.folder / f"{op}.png").exists():  # drawn by the lab's runner
        text += f"\n![{op}](../{results.url}/{op}.png)\n"
    return text


# ---- plots -----------------------------------------------------------------------------------------------------------

COLOURS = {
    OURS: "#c0392b",
    "torch": "#2c3e50",
    TF32: "#95a5a6",
    "torch_compile": "#8e44ad",
    "sdpa_flash": "#2980b9",
    "sdpa_efficient": "#16a085",
    "sdpa_cudnn": "#2c3e50",
    "sdpa_math": "#bdc3c7",
}
LABELS = {"torch": "torch", TF32: "torch, TF32 (less accurate)"}


def series(groups: list[Group], x: Callable[[dict], float], unit: str) -> dict[str, list[tuple[float, float]]]:
    """Points of each contender, by rising x; contenders that miss some cases have fewer points."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for group in groups:
        for name, row in group.items():
            if row[unit] is not None:
                lines.setdefault(name, []).append((x(row), row[unit]))
    return {name: sorted(points) for name, points in lines.items()}


def lines(axes: Axes, groups: list[Group], x: Callable[[dict], float], unit: str, title: str, label: str) -> None:
    for name, points in series(groups, x, unit).items():
        style = {"linewidth": 2.4, "zorder": 3} if name == OURS else {"linewidth": 1.4}
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


def peers_table(groups: list[Group]) -> list[Group]:
    """The first group of matmul's cases; all where a file names no groups."""
    return [group for group in groups if "peers" in next(iter(group.values())).get("groups", ["peers"])]


def columns(row: dict) -> float:
    return row["shape"]["sizes"][-1]


def tall(groups: list[Group]) -> list[Group]:
    """The row-wise cases that fill the GPU."""
    shapes = [(group, group[OURS]["shape"]) for group in groups]
    return [g for g, s in shapes if s["sizes"][0] >= 1024 and s["dim"] in (-1, len(s["sizes"]) - 1)]


def prefill(groups: list[Group], d: int, causal: bool) -> list[Group]:
    shapes = [(group, group[OURS]["shape"]) for group in groups]
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
        (dtype, d, causal, groups)
        for dtype in ("float32", "bfloat16")
        for causal in (False, True)
        for d in (64, 128, 256)
        if (groups := prefill(results.groups("attention", dtype), d, causal))
    ]
    across = min(len(panels), 3) or 1
    down = -(-len(panels) // across)
    figure.set_size_inches(4.6 * across, 3.6 * max(down, 1))
    for index, (dtype, d, causal, groups) in enumerate(panels):
        axes = figure.add_subplot(down, across, index + 1)
        title = f"attention, {dtype}, head size {d}" + (", causal" if causal else "")
        lines(axes, groups, lambda row: row["shape"]["q"], "tflops", title, "sequence length")


def headline_panels(results: Results) -> list[tuple[list[Group], Callable[[dict], float], str, str, str]]:
    """What the README's picture shows: groups, x, unit, title and the name of x, of each panel that has results."""
    products = square(results.groups("matmul", "float32", "highest"))
    rows = tall(results.groups("softmax", "float32"))
    heads = prefill(results.groups("attention", "float32"), 128, False)
    panels = [
        (products, lambda row: row["shape"]["n"], "tflops", "matmul, float32", "M = N = K"),
        (rows, columns, "gbps", "softmax, float32", "columns"),
        (heads, lambda row: row["shape"]["q"], "tflops", "attention, float32, head size 128", "sequence length"),
    ]
    return [panel for panel in panels if panel[0]]


def plot_headline(results: Results, figure: Figure) -> None:
    panels = headline_panels(results)
    figure.set_size_inches(4.4 * len(panels), 3.6)
    for index, (groups, x, unit, title, label) in enumerate(panels):
        lines(figure.add_subplot(1, len(panels), index + 1), groups, x, unit, title, label)


PLOTS: dict[str, Callable] = {
    "matmul": plot_matmul,
    "sum": plot_sum,
    "logsumexp": plot_rows("logsumexp"),
    "softmax": plot_rows("softmax"),
    "log_softmax": plot_rows("log_softmax"),
    "attention": plot_attention,
}


def draw(results: Results) -> list[Path]:
    """Writes the PNG files; the same files give the same pictures on the same matplotlib."""
    plots = {op: plot for op, plot in PLOTS.items() if results.groups(op)}
    if headline_panels(results):
        plots["headline"] = plot_headline
    written = []
    for name, plot in plots.items():
        figure = Figure(layout="constrained")
        plot(results, figure)
        if not figure.axes:
            continue
        path = results.folder / f"{name}.png"
        figure.savefig(path, dpi=130, metadata={"Software": None})
        written.append(path)
    return written


# ---- pages -----------------------------------------------------------------------------------------------------------


def filled(page: Path, text: str, results: Results) -> str:
    """The page's text with every marked part made anew."""

    def block(match: re.Match) -> str:
        op = match[2]
        if op not in (None, *OPS, *LAB):
            raise ValueError(f"{page}: no results are kept of {op}")
        content = overview(results) if op is None else lab_table(op, results) if op in LAB else op_table(op, results)
        return match[1] + content + match[3]

    new, blocks = MARKED.subn(block, text)
    if blocks != len(re.findall(r"^<!-- results:", text, re.MULTILINE)) / 2:
        raise ValueError(f"{page}: a results:begin without its results:end, or the other way round")
    return new


def pages(root: Path) -> list[Path]:
    return [page for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))] if page.exists()]


def main(argv: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page is out of date")
    parser.add_argument("--gpu", default="nvidia_h200", help="folder under benchmarks/results (default: %(default)s)")
    arguments = parser.parse_args(argv)
    results = Results.read(root / "benchmarks" / "results" / arguments.gpu)
    outdated = [page for page in pages(root) if filled(page, page.read_text(), results) != page.read_text()]
    if arguments.check:
        for page in outdated:
            print(f"{page.relative_to(root)} is not what {results.url} gives: run `python -m benchmarks.report`")
        return 1 if outdated else 0
    for path in draw(results):
        print(path.relative_to(root))
    for page in outdated:
        page.write_text(filled(page, page.read_text(), results))
        print(page.relative_to(root))
    return 0


if __name__ == "__main__":
    sys.exit(main())

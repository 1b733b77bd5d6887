"""Reads the result files of one GPU and makes tables of them, in Markdown."""

import json
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results import geomean, grouped
from torch_ext.lab import EXPERIMENTS
from torch_ext.lab.experiment import need

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
RANDOM_SHAPES = "random_shapes"  # every op, on shapes that a seed draws
BATCH_INVARIANT = "batch_invariant"  # the mode beside the default
PORTABLE = [f"{op}_arch80" for op in ("matmul", "attention")]  # measured in the mode XGEMM_ARCH=80
ENABLED_MODE = "xgemm_enabled"  # torch's call in the mode, within torch_ext.enable()
# Another library's mode: https://github.com/thinking-machines-lab/batch_invariant_ops
OTHER_MODE = "batch_invariant_ops"
MODELS, TRAINING, CPU = "models", "training", "cpu"  # whole models and training steps on the GPU; every op on a CPU
LADDERS = [e.op for e in EXPERIMENTS.values() if e.steps]
LAB = [*LADDERS, *(e.op for e in EXPERIMENTS.values() if not e.steps)]
LAB_COUNTERS = "lab_counters"
COMPUTE = {"matmul", "linear", "gated_linear", "attention"}  # the others move bytes: their figure is the cold one
OURS = "xgemm"
ANY = "any"
TF32 = "torch_tf32"  # another accuracy than ours: shown, but no peer of "highest"
COLD_GROUPS = {"few rows", "layers", "decode"}  # of cases: a layer's weights or cache are not in L2 when its turn comes

Group = dict[str, dict]  # the rows of one interleaved measurement, by contender


@dataclass
class Results:
    """All result files of one GPU."""

    folder: Path
    documents: dict[str, dict]
    gpu_tests: Sequence[dict] = ()  # of every GPU

    @classmethod
    def read(cls, folder: Path) -> "Results":
        documents = {}
        for op in [*OPS, RANDOM_SHAPES, BATCH_INVARIANT, *PORTABLE, MODELS, TRAINING, *LAB, LAB_COUNTERS]:
            if (path := folder / f"{op}.json").exists():
                documents[op] = json.loads(path.read_text())
        tests = sorted(folder.parent.glob("*/gpu_tests.json"))
        return cls(folder, documents, [json.loads(path.read_text()) for path in tests])

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
            cold = op.removesuffix("_arch80") not in COMPUTE or of in COLD_GROUPS
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
    shape = group[OURS].get("shape", {})
    if shape.get("d", 0) > 256 and shape["d"] != shape["dv"]:
        loose.add("sdpa_math")  # of latent attention it repeats the cache for each of 128 heads
    peers = [row for name, row in group.items() if not name.startswith(OURS) and name not in loose]
    return min(peers, key=lambda row: row["us"]) if peers else None


def peers_table(groups: list[Group]) -> list[Group]:
    """The first group of matmul's cases; all where a file names no groups."""
    return [group for group in groups if "peers" in next(iter(group.values())).get("groups", ["peers"])]


def tall(groups: list[Group]) -> list[Group]:
    """The row-wise cases that fill the GPU."""
    shapes = [(group, group[OURS]["shape"]) for group in groups]
    return [g for g, s in shapes if s["sizes"][0] >= 1024 and s["dim"] in (-1, len(s["sizes"]) - 1)]


def speedup(group: Group) -> float:
    """The best peer's time over ours."""
    return best_peer(group)["us"] / group[OURS]["us"]


def compared(results: Results, op: str, dtype: str, mode: str | None = ANY, of: str | None = None) -> list[Group]:
    """The measurements of an op that have a peer."""
    return [group for group in results.groups(op, dtype, mode, of) if best_peer(group)]


def microseconds(us: float) -> str:
    return f"{us:.0f}" if us >= 1000 else f"{us:.1f}" if us >= 0.5 else f"{us:.3f}"


def rate(row: dict) -> str:
    if row["gbps"] is not None:
        return f"{row['gbps']:.0f} GB/s"
    return f"{row['tflops']:.1f} TFLOP/s" if row["tflops"] is not None else ""


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def condition(row: dict) -> str:
    """SM clock and board power of a row that has them."""
    values = (row.get("clock_mhz"), "MHz"), (row.get("watts"), "W")
    return " ".join(f"{value:.0f} {unit}" for value, unit in values if value is not None)


def provenance(*documents: dict) -> str:
    """What was measured on which code: of several files the newest versions, all clocks, days and commits."""
    by_date = sorted(documents, key=lambda document: document["date"])
    newest, versions = by_date[-1], by_date[-1]["versions"]
    clocks = [clock for document in documents for clock in document["clocks_mhz"]]
    clock = ", SM clock " + " to ".join(str(x) for x in sorted({min(clocks), max(clocks)})) + " MHz" if clocks else ""
    days = " to ".join(dict.fromkeys(document["date"][:10] for document in (by_date[0], newest)))
    commits = list(dict.fromkeys(document["commit"] for document in by_date))
    return (
        f"{newest['gpu']}, torch {versions['torch']}, CUDA {versions['cuda']}, driver {versions['driver']}{clock}; "
        f"{days}, {'commits' if len(commits) > 1 else 'commit'} {', '.join(commits)}"
        + (f", sources {newest['sources']['sha256']}" if len(documents) == 1 else "")
    )


def aligned(row: dict) -> bool:
    """Whether rows of both operands of a product are a multiple of 16 bytes in every layout."""
    elements = 16 // {"float64": 8, "float32": 4}.get(row["dtype"], 2)
    return row["shape"]["n"] % elements == row["shape"]["k"] % elements == 0


def ratio_cells(groups: list[Group]) -> list[str]:
    """What RATIO_HEADS says of the best peer's time over ours."""
    ratios = sorted((speedup(group), group[OURS]["case"]) for group in groups)
    values, (worst, case) = [ratio for ratio, _ in ratios], ratios[0]
    figures = [f"{value:.2f}" for value in (geomean(values), fifth_percentile(values))]
    return [str(len(values)), *figures, str(sum(ratio < 1 for ratio in values)), f"{worst:.2f}: {case}"]


RATIO_HEADS = ["cases", "geomean", "5th percentile", "below 1", "worst"]


def overview_table(results: Results) -> str:
    """A line an op, dtype and mode, matmul's unaligned rows apart: speed-ups over the best peer, and one case."""
    rows = []
    for op in OPS:
        for dtype, mode in dict.fromkeys((g[OURS]["dtype"], g[OURS]["mode"]) for g in results.groups(op)):
            groups, unaligned = compared(results, op, dtype, mode), []
            if op == "matmul":
                unaligned = [group for group in groups if not aligned(group[OURS])]
                groups = [group for group in groups if aligned(group[OURS])]
            name = f"{'host time of a call' if op == 'host' else op}, {dtype}" + (f", {mode}" if mode else "")
            for kind, of_kind in ((name, groups), (f"{name}, unaligned", unaligned)):
                if of_kind:
                    largest = max(of_kind, key=lambda group: (group[OURS]["floor_us"] or 0.0, group[OURS]["us"]))
                    ours, peer = largest[OURS], best_peer(largest)
                    figure = ", ".join(filter(None, [f"{ours['case']}: {microseconds(ours['us'])} us", rate(ours)]))
                    of_peer = f"{peer['contender']} {microseconds(peer['us'])} us"
                    rows.append([kind, *ratio_cells(of_kind), figure, of_peer])
    return markdown(["operator", *RATIO_HEADS, "its largest case", "best peer there"], rows)


def of_case_groups(op: str, results: Results) -> Iterator[tuple[str, str, list[Group]]]:
    """The name of a group of cases, dtype and mode, and its measurements that have a peer."""
    rows = results.documents.get(op, {"rows": []})["rows"]
    for name in dict.fromkeys(name for row in rows for name in row.get("groups", ())):
        for dtype, mode in dict.fromkeys((row["dtype"], row["mode"]) for row in rows):
            if groups := compared(results, op, dtype, mode, of=name):
                yield name, f"{dtype} {mode or ''}".strip(), groups


def case_groups_table(op: str, results: Results) -> str:
    """A line a group of an op's cases, dtype and mode: speed-ups over the best peer."""
    table = [[name, kind, *ratio_cells(groups)] for name, kind, groups in of_case_groups(op, results)]
    return markdown([op, "dtype", *RATIO_HEADS], table) if table else ""


def case_groups(results: Results) -> str:
    """The tables of every op with groups, and attention's errors beside its rules."""
    tables = [case_groups_table(op, results) for op in OPS]
    return "\n".join(filter(None, [*tables, accuracy(results.documents.get("attention", {"rows": []})["rows"])]))


def batch_invariant_table(results: Results) -> str:
    """A line a group, dtype and mode: the default's and the best peer's time over that in batch-invariant mode."""
    table = []
    for name, kind, groups in of_case_groups(BATCH_INVARIANT, results):
        ratios = sorted((group["xgemm_default"]["us"] / group[OURS]["us"], group[OURS]["case"]) for group in groups)
        mean, (worst, case) = geomean([ratio for ratio, _ in ratios]), ratios[0]
        of_peer = ratio_cells(groups)
        theirs = [group[OTHER_MODE]["us"] / group[ENABLED_MODE]["us"] for group in groups if OTHER_MODE in group]
        other = f"{geomean(theirs):.2f}" if theirs else ""
        cells = [f"{mean:.2f}", f"{worst:.2f}: {case}", of_peer[1], of_peer[-1], other]
        table.append([name, kind, of_peer[0], *cells])
    heads = [
        "group",
        "dtype",
        "cases",
        "default: geomean",
        "worst",
        "best peer: geomean",
        "worst",
        f"{OTHER_MODE}: geomean",
    ]
    return f"{provenance(results.documents[BATCH_INVARIANT])}\n\n{markdown(heads, table)}" if table else ""


def portable_table(results: Results) -> str:
    """A line a group of cases and dtype of what a Hopper GPU measured in the mode XGEMM_ARCH=80; cuDNN is no peer."""
    table = []
    for op in PORTABLE:
        document = results.documents.get(op, {"rows": []})
        for name in dict.fromkeys(name for row in document["rows"] for name in row["groups"]):
            for dtype, mode in dict.fromkeys((row["dtype"], row["mode"]) for row in document["rows"]):
                groups = [
                    {peer: row for peer, row in group.items() if peer != "sdpa_cudnn"}
                    for group in results.groups(op, dtype, mode, of=name)
                ]
                if groups := [group for group in groups if best_peer(group)]:
                    what = f"{op.removesuffix('_arch80')}, {name}"
                    table.append([what, f"{dtype} {mode or ''}".strip(), *ratio_cells(groups)])
    documents = [results.documents[op] for op in PORTABLE if op in results.documents]
    return f"{provenance(*documents)}.\n\n{markdown(['group', 'dtype', *RATIO_HEADS], table)}" if table else ""


def fifth_percentile(values: list[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[0] if len(values) > 1 else values[0]


def random_tables(rows: list[dict], without: Sequence[str] = ()) -> str:
    """Of random shapes a line a group of cases, dtype and mode, with the best peer's time over ours; the worst ten."""
    found: dict[tuple, list[Group]] = {}
    every = [group for group in grouped(rows) if OURS in group and best_peer(group)]
    for group in every:
        for name in set(group[OURS]["groups"]).difference(without):
            found.setdefault((name, group[OURS]["dtype"], group[OURS]["mode"] or ""), []).append(group)
    if not every:
        return ""
    lines = [[name, f"{dtype} {mode}".strip(), *ratio_cells(of)] for (name, dtype, mode), of in sorted(found.items())]
    text = markdown(["random shapes", "dtype", *RATIO_HEADS], lines)
    lines = []
    for group in sorted(every, key=speedup)[:10]:
        ours, peer = group[OURS], best_peer(group)
        kind = f"{ours['dtype']} {ours['mode'] or ''}".strip()
        times = [microseconds(row["us"]) for row in (ours, peer)]
        lines.append([ours["case"], kind, *times, peer["contender"], f"{speedup(group):.2f}"])
    return text + "\n" + markdown(["the worst ten", "dtype", "xgemm us", "peer us", "peer", "ratio"], lines)


PARTS_OF_PRODUCTS = "nn", "nt", "tn", "tt", "input gradients", "weight gradients"  # of few cases each


def random_report(results: Results) -> str:
    document = results.documents.get(RANDOM_SHAPES)
    if document is None:
        return ""
    seeds = ", ".join(str(seed) for seed in sorted({row["seed"] for row in document["rows"]}))
    text = f"{provenance(document)}. Seeds {seeds}; the time of the fastest peer of the same accuracy over ours.\n\n"
    return text + random_tables(document["rows"], [f"matmul, {kind}" for kind in PARTS_OF_PRODUCTS])


def accuracy(rows: list[dict]) -> str:
    """Our errors over those of torch's math backend (the baseline of a case) and of cuDNN; empty without a baseline."""
    largest, frobenius = [], []
    cases = {(row["case"], row["dtype"], row["mode"]): group for group in grouped(rows) for row in group.values()}
    for group in cases.values():
        ours, cudnn = group.get(OURS, {}), group.get("sdpa_cudnn")
        if "baseline_error" in ours:
            name = f"{ours['case']} {ours['dtype']} {ours['mode'] or ''}".strip()
            if ours["baseline_error"]["max"]:
                largest.append((ours["error"]["max"] / ours["baseline_error"]["max"], name))
            if cudnn and cudnn["error"]["fro"]:
                frobenius.append((ours["error"]["fro"] / cudnn["error"]["fro"], name))
    text = ""
    for ratios, most, what in (
        (largest, 2.0, "Largest error at most twice that of torch's math backend in the same dtype"),
        (frobenius, 1.1, "Frobenius norm of the error at most 1.1 of cuDNN's"),
    ):
        if ratios:
            kept, (worst, name) = sum(ratio <= most for ratio, _ in ratios), max(ratios)
            text += f"{what}: {kept} of {len(ratios)} cases; worst {worst:.2f} ({name}).\n"
    return text


def op_table(op: str, results: Results) -> str:
    """The measurements of an op: a line a group, a column a contender."""
    document = results.documents.get(op)
    if document is None:
        return ""
    groups = grouped(document["rows"])
    names = list(dict.fromkeys(name for group in groups for name in group if name != OURS))
    powered = op == "attention" and any(row.get("watts") for row in document["rows"])
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
        if powered:
            line.append(condition(ours) if ours else "")
        for name in names:
            row = group.get(name)
            ratio = f" ({row['us'] / ours['us']:.2f})" if row and ours else ""
            memory = f", {row['peak_bytes'] / 2**20:.0f} MiB" if row and "peak_bytes" in row else ""
            state = f", {condition(row)}" if powered and row and condition(row) else ""
            line.append(f"{microseconds(row['us'])}{ratio}{memory}{state}" if row else "")
        rows.append(line)
    header = ["case", "dtype", "L2", "xgemm us", "rate", "of floor", "error (Frobenius)"]
    header += ["clock, power"] * powered + [f"{n} us" for n in names]
    text = f"{provenance(document)}.\nIn brackets: the peer's time over ours. Floor: "
    text += "the larger of bytes over the bandwidth measured in the same run and operations over the peak rate.\n"
    if any("peak_bytes" in row for row in document["rows"]):
        text += "MiB: device memory that the call took on top of its inputs, its result included.\n"
    if powered:
        text += "MHz and W: medians of SM clock and board power during the blocks, where these were long enough.\n"
    return text + "\n" + markdown(header, rows)


FIRST = {"v0_interleaved_modulo": "v0"}  # a ladder's first step, over which its page shows speed-ups, as the document


def ladder_table(rows: list[dict]) -> str:
    """A line a step, a column a size: rate and share of the peer's; of the first dtype's last size error and memory."""
    sizes = list(dict.fromkeys((row["case"], row["dtype"]) for row in rows))
    steps = list(dict.fromkeys(row["contender"] for row in rows))
    found = {(row["contender"], row["case"], row["dtype"]): row for row in rows}
    peer = next(name for name in ("cublas", "torch") if name in steps)
    first = next((step for step in steps if step in FIRST), None)
    named = {at: {row["contender"]: row[at] for row in rows if row.get(at)} for at in ("document", "elsewhere")}
    named = {at: figures for at, figures in named.items() if figures}
    memory = "peak_bytes" in rows[0]
    resources = any("registers" in row for row in rows)
    unit = "TFLOP/s" if rows[0]["tflops"] is not None else "GB/s"

    def cell(row: dict | None) -> str:
        if row is None:
            return ""
        rate = f"{row['tflops']:.2f}" if unit == "TFLOP/s" else f"{row['gbps']:.0f}"
        against = found.get((peer, row["case"], row["dtype"]))
        if against is None or row is against:
            return rate
        share = against["us"] / row["us"]
        return f"{rate} ({share:.1%})" if share < 0.1 else f"{rate} ({share:.0%})"

    table = []
    for step in steps:
        of_size = [found.get((step, *size)) for size in sizes]
        row = next(row for row in reversed(of_size) if row is not None and row["dtype"] == sizes[0][1])
        line = [step, *map(cell, of_size)]
        if first:
            line.append(f"{found[first, row['case'], row['dtype']]['us'] / row['us']:.1f}x" if step[0] == "v" else "")
        line.append(f"{row['error']['fro']:.1e}")
        if memory:
            line.append(f"{row['peak_bytes'] / 2**20:.0f}")
        if resources:
            line += [str(row.get("registers", "")), str(row.get("blocks", ""))]
        table.append(line + [figures.get(step, "") for figures in named.values()])
    several = len({dtype for _, dtype in sizes}) > 1
    header = ["step", *(f"{case} {dtype}" if several else case for case, dtype in sizes)]
    header += [f"speed-up over {FIRST[first]}"] if first else []
    header += ["error (Frobenius)"] + (["MiB of a call"] if memory else [])
    header += (["registers", "blocks an SM"] if resources else []) + list(named)
    last = [size for size in sizes if size[1] == sizes[0][1]][-1]
    of_last = "speed-up and error" if first else "error and memory" if memory else "error"
    text = f"{unit}, in brackets {peer}'s time over this; hot L2; {of_last}: {last[0]} {last[1]}.\n\n"
    return text + markdown(header, table)


# What an experiment adds to its rows: the column's head, and its text.
MORE: dict[str, tuple[str, Callable[[float], str]]] = {
    "of_peak": ("of peak", "{:.3f}".format),
    "cycles": ("cycles", "{:.0f}".format),
    "registers": ("registers", "{}".format),
    "spilled": ("bytes spilled", "{:,}".format),
    "blocks": ("blocks an SM", "{}".format),
    "calculated": ("by the calculator", "{}".format),
    "occupancy": ("occupancy", "{:.1%}".format),
    "gap": ("needed over delivered", "{:.1f}".format),
    "in_flight": ("bytes in flight an SM", "{:,}".format),
    "predicted": ("predicted share", "{:.0%}".format),
    "intensity": ("operations a byte", "{:.3g}".format),
    "attainable_tflops": ("attainable TFLOP/s", "{:.2f}".format),
    "joules": ("J", "{:.4f}".format),
    "remark": ("", "{}".format),
    "document": ("document", "{}".format),
}


# Experiments of two variables: a line a case, a column a variant, and the field whose figure stands there.
GRIDS = {
    "lab_fma": ("share of the peak", "of_peak", "{:.3f}".format),
    "lab_copy": ("share of the peak bandwidth", "of_peak", "{:.3f}".format),
    "lab_coalescing": ("microseconds", "us", microseconds),
    "lab_reduction_grid": ("GB/s", "gbps", "{:.0f}".format),
    "lab_quantisation": ("TFLOP/s", "tflops", "{:.1f}".format),
    "lab_padding": ("TFLOP/s", "tflops", "{:.0f}".format),
}
PADDED = re.compile(r" to \d+$")  # the multiple to which k is padded: not a variant of its own


def grid_table(op: str, rows: list[dict]) -> str:
    """A document's figure for a cell stands in brackets."""
    what, field, figure = GRIDS[op]
    rows = [row | {"contender": PADDED.sub("", row["contender"])} for row in rows]
    cases, variants = (list(dict.fromkeys(row[key] for row in rows)) for key in ("case", "contender"))
    found = {(row["case"], row["contender"]): row for row in rows}

    def cell(row: dict | None) -> str:
        if row is None or row[field] is None:
            return ""
        return figure(row[field]) + (f" ({row['document']})" if row.get("document") else "")

    lines = [[case, *(cell(found.get((case, variant))) for variant in variants)] for case in cases]
    header = ["", *variants]
    for key in ("occupancy", "predicted"):
        of_case = [{row[key] for row in rows if row["case"] == case and row.get(key) is not None} for case in cases]
        if any(of_case) and all(len(values) <= 1 for values in of_case):  # whatever the variant
            name, text = MORE[key]
            header.append(name)
            lines = [[*line, "".join(map(text, values))] for line, values in zip(lines, of_case, strict=True)]
    if all("registers" in row and "occupancy" in row for row in rows):
        used = [next(str(row["registers"]) for row in rows if row["contender"] == variant) for variant in variants]
        lines.append(["registers a thread", *used, *[""] * (len(header) - 1 - len(used))])
    note = "; in brackets a document's figure" if any(row.get("document") for row in rows) else ""
    return f"{what[0].upper()}{what[1:]}{note}.\n\n" + markdown(header, lines)


def experiments_table(rows: list[dict]) -> str:
    """A line a row; columns that no row fills are left out."""
    more = [key for key in MORE if any(row.get(key) not in (None, "") for row in rows)]
    rated = any(rate(row) for row in rows)
    table = []
    for row in rows:
        found = [MORE[key][1](row[key]) if row.get(key) not in (None, "") else "" for key in more]
        table.append([row["case"], row["contender"], microseconds(row["us"]), *([rate(row)] if rated else []), *found])
    return markdown(
        ["experiment", "variant", "us", *(["rate"] if rated else []), *(MORE[key][0] for key in more)], table
    )


def lab_documents(op: str, results: Results) -> list[tuple[str, dict]]:
    """Folder and content of a lab file of every GPU: this one's first."""
    folders = sorted(results.folder.parent.iterdir(), key=lambda folder: (folder != results.folder, folder.name))
    files = [folder / f"{op}.json" for folder in folders]
    return [(path.parent.name, json.loads(path.read_text())) for path in files if path.exists()]


def lab_text(op: str, folder: str, document: dict, results: Results) -> str:
    """The conclusion, where and when it was measured, and the plot."""
    text = ""
    if conclusion := document.get("conclusion"):  # made from the rows when they were measured
        text += ("" if conclusion["shown"] else "**The effect was not measured.** ") + conclusion["text"] + "\n"
    text += f"{provenance(document)}.\n\n"
    if plot := lab_plot(op, folder, results):
        text += f"![{op}]({plot})\n\n"
    return text


def lab_plot(op: str, folder: str, results: Results) -> str:
    """The link to what the lab's runner has drawn, if it has."""
    drawn = (results.folder.parent / folder / f"{op}.png").exists()
    return f"../benchmarks/results/{folder}/{op}.png" if drawn else ""


def lab_table(op: str, results: Results) -> str:
    """Conclusion, plot and measurements of a ladder or an experiment on one GPU; a line of each other one.

    What was concluded on these is in `lab_overview`.
    """
    found = lab_documents(op, results)
    if not found:
        return "Not measured yet.\n"
    rows = found[0][1]["rows"]
    if op not in LADDERS:
        tables = [grid_table(op, rows) if op in GRIDS else experiments_table(rows)]
    else:  # attention: a table for each head size, causal and not
        kinds: dict[tuple, list[dict]] = {}
        for row in rows:
            kinds.setdefault((row["shape"].get("d"), row["shape"].get("causal")), []).append(row)
        tables = [ladder_table(of_kind) for of_kind in kinds.values()]
    text = lab_text(op, *found[0], results) + "\n".join(tables)
    for folder, document in found[1:]:
        plot = lab_plot(op, folder, results)
        text += f"\n{provenance(document)}{f': [plot]({plot})' if plot else ''}.\n"
    return text


# Heading, unit and format of a counter's column.
COUNTERS = {
    "sectors_a_request": ("sectors a request", 1, ".1f"),
    "load_requests": ("load requests", 1, ",.0f"),
    "times_fewer_loads": ("times fewer", 1, ".0f"),
    "dram_bytes": ("DRAM MB", 1e6, ".1f"),
    **{f"{level.lower()}_percent": (f"{level} %", 1, ".0f") for level in ("DRAM", "L2", "L1", "SM")},
    "warps_percent": ("warps %", 1, ".0f"),
    "exponentials_percent": ("exponentials %", 1, ".0f"),
    "cycles": ("cycles", 1, ",.0f"),
    "branches": ("branches", 1, ",.0f"),
    "divergent_branches": ("divergent", 1, ",.0f"),
    "shared_conflicts": ("shared conflicts", 1, ",.0f"),
    "registers": ("registers", 1, ".0f"),
}


def lab_counters(results: Results) -> str:
    """What this GPU counted in the prepared calls, beside the documents' figures; no column that no call fills."""
    document = results.documents.get(LAB_COUNTERS)
    if document is None:
        return "Not counted yet.\n"
    counted = [key for key in COUNTERS if any(key in row["counters"] for row in document["rows"])]
    table = []
    for row in document["rows"]:
        values = [(row["counters"].get(key), *COUNTERS[key][1:]) for key in counted]
        cells = ["" if value is None else f"{value / unit:{spec}}" for value, unit, spec in values]
        table.append([row["case"], *cells, row["document"]])
    header = ["call", *(COUNTERS[key][0] for key in counted), "document"]
    return f"{provenance(document)}.\n\n" + markdown(header, table)


def lab_gpus(found: dict[str, list[tuple[str, dict]]], results: Results) -> list[str]:
    """The GPUs that the lab has measured: this one first."""
    everywhere = [pair for documents in found.values() for pair in documents]
    here_first = sorted(everywhere, key=lambda pair: pair[0] != results.folder.name)
    return list(dict.fromkeys(document["gpu"] for _, document in here_first))


def lab_figure(spec: str, results: Results) -> str:
    """A figure within a page's text: ``sgemm; us; cublas; n=4096; over 02_coalesced; .0%``.

    Experiment, field and format, and between them what the row is: its contender, values of its fields or its shape's.
    ``over``: divided by the same field of the row that differs in this; ``times``: a factor. ``h100/sgemm``: on the
    first GPU whose folder has this in its name. ``counters; l2_percent; sgemm_01; .0f``: a counter of a prepared call.
    """
    first, field, *words, form = [word.strip() for word in spec.split(";")]
    gpu, _, experiment = first.rpartition("/")
    documents = [d for folder, d in lab_documents(f"lab_{experiment}", results) if gpu in folder]
    factor, wanted, other = 1.0, {}, None
    for word in words:
        kind, _, rest = word.partition(" ")
        if kind == "times":
            factor = float(rest)
            continue
        key, equals, value = (rest if kind == "over" else word).partition("=")
        value = int(value) if value.isdigit() else {"true": True, "false": False}.get(value, value)
        field_of_row = {key: value} if equals else {"contender": key}
        if kind == "over":
            other = wanted | field_of_row
        else:
            wanted |= field_of_row
    if not documents:
        return "not measured yet"
    rows = [
        {"contender": row["case"], "shape": {}} | row["counters"] if "counters" in row else row
        for row in documents[0]["rows"]
    ]
    value = need(rows, **wanted)[field] * factor
    return format(value / need(rows, **other)[field] if other else value, form)


def lab_overview(results: Results) -> str:
    """A line an experiment: the documents' items that it shows, its command, what was measured on each GPU."""
    found = {op: lab_documents(op, results) for op in LAB}
    gpus = lab_gpus(found, results)
    if not gpus:
        return ""
    table, absent = [], []
    for op, documents in found.items():
        name, first = op.removeprefix("lab_"), next((document for _, document in documents), {})
        cells = dict.fromkeys(gpus, "not measured yet")
        for _, document in documents:
            if conclusion := document.get("conclusion"):
                cells[document["gpu"]] = ("" if conclusion["shown"] else "**Not shown.** ") + conclusion["text"]
        pages = ", ".join(f"[{page}](lab/{page}.md)" for page in first.get("documents", ()))
        what = first.get("title", name) + f" ({pages})" * bool(pages)
        (table if documents else absent).append([what, f"`--only {name}`", *cells.values()])
    heads = ["measured"] if len(gpus) == 1 else gpus
    return markdown(["experiment, documents", "command", *heads], table + absent)


def model_pairs(results: Results) -> list[tuple[dict, dict]]:
    """Rows of torch and of ours, launched in the same way: from Python, in a CUDA graph, compiled.

    Where torch's calls from Python are faster than its graph they stand for it: its attention may run other kernels in
    a graph, which users do not have to take.
    """
    rows = results.documents.get(MODELS, {"rows": []})["rows"]
    called = {(row["case"], row["dtype"], row["contender"]): row for row in rows if not row["graph"]}
    pairs = []
    for group in grouped(rows):
        for compiled in ("", "_compile"):
            theirs, ours = group.get("torch" + compiled), group.get(OURS + compiled)
            if theirs and ours:
                others = called.get((theirs["case"], theirs["dtype"], theirs["contender"]), theirs)
                pairs.append((min(theirs, others, key=lambda row: row["ms"]), ours))
    return pairs


def models_table(results: Results) -> str:
    """A line a model, input, dtype and way of launching: milliseconds a forward, and the errors."""
    document = results.documents.get(MODELS)
    if document is None:
        return ""
    table, torchs = [], {id(ours): theirs["ms"] for theirs, ours in model_pairs(results)}
    for group in grouped(document["rows"]):
        for compiled in ("", "_compile"):
            found = {name: group[name + compiled] for name in ("torch", TF32, OURS) if name + compiled in group}
            if OURS not in found or "torch" not in found:
                continue
            first = found[OURS]
            how = ("compiled" if compiled else "eager") + (", CUDA graph" if first["graph"] else "")
            times = [f"{found[name]['ms']:.2f}" if name in found else "" for name in ("torch", TF32, OURS)]
            errors = [f"{found[name]['error']['fro']:.1e}" if name in found else "" for name in ("torch", TF32, OURS)]
            ratio = f"{torchs[id(first)] / first['ms']:.2f}"
            table.append([first["case"], first["dtype"], how, *times, ratio, *errors])
    text = f"{provenance(document)}.\nMilliseconds a forward; error: Frobenius norm of the output against float64. "
    text += "Where torch's calls from Python are\nfaster than its graph, the ratio is to them.\n\n"
    header = ["model", "dtype", "launch", "torch ms", "torch, TF32 ms", "xgemm ms", "torch over xgemm"]
    text += markdown([*header, "torch error", "TF32 error", "xgemm error"], table)
    if (results.folder / f"{MODELS}.png").exists():
        text += f"\n![whole models: time and error](../{results.url}/{MODELS}.png)\n"
    return text


def training_tables(rows: list[dict]) -> str:
    """A line a model and dtype, with a figure for each way of launching; then a line a loss curve."""
    names, curves = ("torch", TF32, OURS), []
    timed: dict[tuple[str, str], list[list[str]]] = {}  # lists of the columns' figures, one a launch
    alone = {
        (row["case"], row["dtype"]): row for row in rows if (row["launch"], row["contender"]) == ("eager", "torch")
    }
    for group in grouped(rows):
        if OURS not in group or "torch" not in group:
            continue
        found = {name: group[name] for name in names if name in group}
        theirs, ours = found["torch"], found[OURS]
        if "distance" in ours:
            distances = [f"{found[name]['distance']:.1e}" if name in found else "" for name in names]
            ratio = f"{ours['distance'] / theirs['distance']:.2f}" if theirs["distance"] else ""
            curves.append([ours["case"], f"{group['torch_fp64']['loss'][-1]:.4g}", *distances, ratio])
            continue
        best = theirs["ms"]
        if ours["launch"] == "graph":  # torch's attention may run other kernels in a graph
            best = min(best, alone.get((ours["case"], ours["dtype"]), theirs)["ms"])
        times = [f"{found[name]['ms']:.2f}" if name in found else "" for name in names]
        apart = [f"{loss_difference(found[name], theirs):.0e}" if name in found else "" for name in names[1:]]
        figures = [ours["launch"], *times, f"{best / ours['ms']:.2f}", *apart]
        timed.setdefault((ours["case"], ours["dtype"]), []).append(figures)
    text = ""
    if timed:
        header = ["model", "dtype", "launch", "torch ms", "torch, TF32 ms", "xgemm ms", "torch over xgemm"]
        lines = [
            [*key, *(", ".join(filter(None, column)) for column in zip(*of, strict=True))] for key, of in timed.items()
        ]
        text += markdown([*header, "TF32 loss difference", "xgemm loss difference"], lines)
    if curves:
        header = ["float32 run", "last loss in float64", "torch distance", "TF32 distance", "xgemm distance"]
        text += "\n" + markdown([*header, "xgemm over torch"], curves)
    return text


def loss_difference(row: dict, torchs: dict) -> float:
    """The largest one of the first steps."""
    return max(abs(a - b) for a, b in zip(row["loss"], torchs["loss"], strict=True))


def training_report(results: Results) -> str:
    """Both tables and the plot."""
    document = results.documents.get(TRAINING)
    if document is None:
        return ""
    text = f"{provenance(document)}.\nMilliseconds a step; loss difference: the largest from torch's loss in the first "
    text += "8 steps; distance: mean of |loss - loss in\nfloat64| over the run. Where torch's calls from Python are "
    text += f"faster than its graph, the ratio is to them.\n\n{training_tables(document['rows'])}"
    if (results.folder / f"{TRAINING}.png").exists():
        text += f"\n![training: time and deviation of losses](../{results.url}/{TRAINING}.png)\n"
    return text


def cpu_documents(results: Results) -> list[tuple[str, list[Group]]]:
    """Of each CPU that was measured where and when, and the measurements that have a peer."""
    found = []
    for path in sorted(results.folder.parent.glob(f"*/{CPU}.json")):
        document = json.loads(path.read_text())
        where = f"{document['gpu']}, {document['threads']} threads, torch {document['versions']['torch']}; "
        where += f"{document['date'][:10]}, commit {document['commit']}.\n\n"
        found.append((where, [group for group in grouped(document["rows"]) if OURS in group and "torch" in group]))
    return found


def cpu_summary(results: Results) -> str:
    """A line an operator of each CPU."""
    text = ""
    for where, groups in cpu_documents(results):
        of_op: dict[str, list[Group]] = {}
        for group in groups:
            of_op.setdefault(group[OURS]["case"].split()[0], []).append(group)
        text += where + markdown(["operator", *RATIO_HEADS], [[op, *ratio_cells(of)] for op, of in of_op.items()])
    return text


def cpu_tables(results: Results) -> str:
    """Of each CPU: every case's time beside torch's."""
    text = ""
    for where, groups in cpu_documents(results):
        table = []
        for ours, theirs in ((group[OURS], group["torch"]) for group in groups):
            low, high = ours["us_quartiles"]
            time = f"{microseconds(ours['us'])} ± {(high - low) / ours['us'] / 2:.0%}"
            ratio = f"{theirs['us'] / ours['us']:.2f}"
            table.append([ours["case"], ours["dtype"], time, microseconds(theirs["us"]), ratio])
        text += where + markdown(["operator and case", "dtype", "xgemm us", "torch us", "torch over xgemm"], table)
    return text

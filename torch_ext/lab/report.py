"""Tables for people and plots, made from result rows."""

from pathlib import Path

from rich.console import Console, Group
from rich.table import Table

from torch_ext.lab.ladders import (
    ATTENTION_STEPS,
    FP32_VARIANTS,
    REDUCTION_VERSIONS,
    SGEMM_STEPS,
    SOFTMAX_VARIANTS,
    TENSOR_STEPS,
)
from torch_ext.lab.measure import Row


def _by(rows: list[Row], contender: str, **match: object) -> Row | None:
    return next((r for r in rows if r["contender"] == contender and all(r[k] == v for k, v in match.items())), None)


def _cases(rows: list[Row], dtype: str = "float32") -> list[str]:
    return list(dict.fromkeys(r["case"] for r in rows if r["dtype"] == dtype))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", no_wrap=True)
    return table


def sgemm_table(rows: list[Row]) -> Table:
    cases = _cases(rows)
    sizes = [case.split("x")[0] for case in cases]
    table = _table("SGEMM ladder: GFLOP/s over n (hot L2)", "step", *sizes, "% of cuBLAS", "documents (3090 / A6000)")
    for step, document in SGEMM_STEPS.items():
        of_case = [_by(rows, step, case=case) for case in cases]
        rates = [f"{r['tflops'] * 1e3:,.0f}" if r else "-" for r in of_case]
        last, cublas = of_case[-1], _by(rows, "cublas", case=cases[-1])
        share = f"{100 * cublas['us'] / last['us']:.1f} % at {sizes[-1]}" if last and cublas else "-"
        table.add_row(step, *rates, share, document)
    return table


def tensor_table(rows: list[Row]) -> Table:
    cases = _cases(rows, "bfloat16")
    table = _table("Tensor-core ladder: TFLOP/s, bf16, A B^T (hot L2)", "step", *cases, "% of cuBLAS")
    for step in TENSOR_STEPS:
        found = [_by(rows, step, case=case) for case in cases]
        last, cublas = found[-1], _by(rows, "cublas", case=cases[-1])
        share = f"{100 * cublas['us'] / last['us']:.1f} % at {cases[-1].split('x')[0]}" if last and cublas else "-"
        table.add_row(step, *(f"{r['tflops']:,.1f}" if r else "-" for r in found), share)
    return table


def fp32_table(rows: list[Row]) -> Table:
    cases = _cases(rows)
    columns = [f"{case.split('x')[0]} {what}" for case in cases for what in ("TFLOP/s", "Frobenius", "of |A||B|")]
    table = _table("fp32 from fp16 products, A B^T: speed and error", "variant", *columns)
    for variant in FP32_VARIANTS:
        cells = []
        for case in cases:
            r = _by(rows, variant, case=case)
            cells += (
                [f"{r['tflops']:.1f}", f"{r['error']['fro']:.1e}", f"{r['error']['componentwise']:.1e}"]
                if r
                else ["-"] * 3
            )
        table.add_row(variant, *cells)
    return table


def reduction_table(rows: list[Row]) -> Table:
    columns = [(case, dtype) for dtype in ("float32", "int32") for case in _cases(rows, dtype)]
    first = columns[0]
    table = _table(
        "Reduction ladder: GB/s",
        "version",
        *(f"{case} {dtype}" for case, dtype in columns),
        "speed-up",
        "document (M2090)",
        "speed-up",
    )
    base = _by(rows, "v0_interleaved_modulo", case=first[0], dtype=first[1])
    for version, document in REDUCTION_VERSIONS.items():
        found = [_by(rows, version, case=case, dtype=dtype) for case, dtype in columns]
        table.add_row(
            version,
            *(f"{r['gbps']:,.0f}" if r else "-" for r in found),
            f"{base['us'] / found[0]['us']:.1f}x" if base and found[0] else "-",
            f"{document[1]:g} GB/s" if document else "-",
            f"{7.7 / document[0]:.1f}x" if document else "-",
        )
    return table


def softmax_table(rows: list[Row]) -> Table:
    cases = _cases(rows)
    table = _table(
        "Softmax ladder: GB/s of 8 bytes an element", "variant", *cases, "accesses an element", "online over safe"
    )
    for variant, accesses in SOFTMAX_VARIANTS.items():
        found = [_by(rows, variant, case=case) for case in cases]
        safe = _by(rows, "safe", case=cases[-1])
        ratio = "-"
        if variant == "online" and safe and found[-1]:
            ratio = f"{safe['us'] / found[-1]['us']:.2f}x (paper: up to 1.3x)"
        table.add_row(
            variant, *(f"{r['gbps']:,.0f}" if r else "-" for r in found), str(accesses) if accesses else "-", ratio
        )
    return table


def _kinds_of_attention(rows: list[Row]) -> dict[str, list[Row]]:
    kinds: dict[str, list[Row]] = {}
    for r in rows:
        kinds.setdefault(f"D {r['shape']['d']}" + (", causal" if r["shape"]["causal"] else ""), []).append(r)
    return kinds


def attention_tables(rows: list[Row]) -> Group:
    """A table for each head size, causal and not."""
    tables = []
    for kind, of_kind in _kinds_of_attention(rows).items():
        lengths = list(dict.fromkeys(r["shape"]["s"] for r in of_kind))
        title = f"Attention ladder: TFLOP/s over S, bf16, {kind} (hot L2)"
        table = _table(title, "step", *map(str, lengths), f"MiB at {lengths[-1]}", "documents")
        for step, document in ATTENTION_STEPS.items():
            found = {r["shape"]["s"]: r for r in of_kind if r["contender"] == step}
            rates = [f"{found[s]['tflops']:,.1f}" if s in found else "-" for s in lengths]
            last = found.get(lengths[-1])
            table.add_row(step, *rates, f"{last['peak_bytes'] / 2**20:,.0f}" if last else "-", document)
        tables.append(table)
    return Group(*tables)


def show(console: Console, rows_of: dict[str, list[Row]]) -> None:
    for op, table in (
        ("lab_sgemm", sgemm_table),
        ("lab_tensor", tensor_table),
        ("lab_fp32", fp32_table),
        ("lab_reduction", reduction_table),
        ("lab_softmax", softmax_table),
        ("lab_attention", attention_tables),
    ):
        if rows_of.get(op):
            console.print(table(rows_of[op]))


def plot(folder: Path, gpu: str, rows_of: dict[str, list[Row]]) -> list[Path]:
    """lab_sgemm.png, lab_fp32.png, lab_reduction.png and lab_attention.png; nothing when matplotlib is not there."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    written = []
    if rows := rows_of.get("lab_sgemm"):
        figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
        for step in SGEMM_STEPS:
            points = [(r["shape"]["n"], r["tflops"] * 1e3) for r in rows if r["contender"] == step]
            if points:
                axes.plot(*zip(*points, strict=True), "k--" if step == "cublas" else "o-", label=step)
        axes.set(xscale="log", yscale="log", xlabel="n (square, fp32)", ylabel="GFLOP/s", title=f"SGEMM ladder, {gpu}")
        axes.set_xscale("log", base=2)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
        written.append(folder / "lab_sgemm.png")
        figure.savefig(written[-1], dpi=120)
        plt.close(figure)
    if rows := rows_of.get("lab_fp32"):
        case = _cases(rows)[-1]
        figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
        for variant in FP32_VARIANTS:
            if r := _by(rows, variant, case=case):
                at = r["tflops"], r["error"]["fro"]
                kind = "library" if variant == "library" else "peer" if variant.startswith("cublas") else "step"
                style = {"library": ("*", "tab:red", 12), "peer": ("s", "0.4", 8), "step": ("o", "tab:green", 8)}[kind]
                axes.plot(*at, style[0], color=style[1], markersize=style[2])
                left = variant in ("fp16", "promoted", "cublas_bf16")  # their neighbours' names go to the right
                axes.annotate(
                    variant,
                    at,
                    (-8, 5) if left else (8, -4),
                    textcoords="offset points",
                    ha="right" if left else "left",
                    fontsize=9,
                )
        axes.set(yscale="log", xlabel="TFLOP/s", ylabel="relative error (Frobenius)")
        axes.set_title(f"fp32 products, {case}, {gpu}")
        axes.set_xlim(left=0)
        axes.margins(x=0.15)
        axes.grid(alpha=0.3)
        written.append(folder / "lab_fp32.png")
        figure.savefig(written[-1], dpi=120)
        plt.close(figure)
    if rows := rows_of.get("lab_reduction"):
        rows = [r for r in rows if r["dtype"] == "float32"]
        cases = _cases(rows)
        figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
        names = list(REDUCTION_VERSIONS)
        series = [
            (f"{case} float32, {gpu}", [r["gbps"] if (r := _by(rows, v, case=case)) else 0 for v in names])
            for case in cases
        ]
        series.append(("2^24 int32, M2090 (document)", [d[1] if (d := REDUCTION_VERSIONS[v]) else 0 for v in names]))
        width = 0.8 / len(series)
        for i, (label, heights) in enumerate(series):
            bars = axes.bar(
                [x + (i - (len(series) - 1) / 2) * width for x in range(len(names))], heights, width, label=label
            )
            axes.bar_label(bars, [f"{h:,.0f}" if h else "" for h in heights], fontsize=6)
        axes.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
        axes.set(yscale="log", ylabel="GB/s", title=f"Reduction ladder, {gpu}")
        axes.legend(fontsize=8)
        written.append(folder / "lab_reduction.png")
        figure.savefig(written[-1], dpi=120)
        plt.close(figure)
    if rows := rows_of.get("lab_attention"):
        kinds = _kinds_of_attention(rows)
        figure, axes = plt.subplots(2, len(kinds), figsize=(4.5 * len(kinds), 8), layout="constrained", squeeze=False)
        for (rates, memory), (kind, of_kind) in zip(axes.T, kinds.items(), strict=True):
            for step in ATTENTION_STEPS:
                of_step = [r for r in of_kind if r["contender"] == step]
                lengths = [r["shape"]["s"] for r in of_step]
                style = {"torch": "k--", "torch_math": "k:"}.get(step, "o-")
                rates.plot(lengths, [r["tflops"] for r in of_step], style, markersize=4, label=step)
                memory.plot(lengths, [r["peak_bytes"] / 2**20 for r in of_step], style, markersize=4, label=step)
            for axis in (rates, memory):
                axis.set(xlabel="S", yscale="log")
                axis.set_xscale("log", base=2)
                axis.grid(alpha=0.3)
            rates.set_title(f"bf16, {kind}", fontsize=10)
        axes[0][0].set_ylabel("TFLOP/s")
        axes[1][0].set_ylabel("memory of a call, MiB")
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
        figure.suptitle(f"Attention ladder, {gpu}", fontsize=11)
        written.append(folder / "lab_attention.png")
        figure.savefig(written[-1], dpi=120)
        plt.close(figure)
    return written

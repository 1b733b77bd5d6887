"""Tables for people, made from rows."""

import sys

from rich.console import Console
from rich.table import Table

from torch_ext.lab.calculators import calculators
from torch_ext.lab.experiment import Experiment
from torch_ext.lab.measure import Row


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 160)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", no_wrap=True)
    return table


def rate(row: Row) -> str:
    if row["tflops"]:
        return f"{row['tflops']:,.1f} TFLOP/s" if row["tflops"] >= 1 else f"{row['tflops'] * 1e3:,.0f} GFLOP/s"
    return f"{row['gbps']:,.0f} GB/s" if row["gbps"] else ""


# What an experiment may have found beside times, by the row's field.
FOUND = {
    "of_peak": "{:.3f} of peak",
    "cycles": "{:.0f} cycles",
    "registers": "{} registers",
    "spilled": "{} bytes spilled",
    "blocks": "{} blocks an SM",
    "occupancy": "{:.0%} occupancy",
    "gap": "{:.1f} times too little",
    "predicted": "{:.0%} predicted",
    "intensity": "{:.3g} operations a byte",
}


def details(row: Row) -> str:
    """What else the experiment found."""
    found = [text.format(row[field]) for field, text in FOUND.items() if row.get(field) is not None]
    if row.get("in_flight") is not None:
        found.append(f"{row['in_flight'] / 1024:.1f} KiB in flight an SM")
    if row.get("joules"):
        found.append(f"{row['joules'] / row['us'] * 1e6:.0f} W")
    return ", ".join([*found, *filter(None, [row.get("remark")])])


def list_of(rows: list[Row], title: str) -> Table:
    """A line a row."""
    table = _table(title, "case", "variant", "us", "rate", "", "document")
    previous = None
    for r in rows:
        if previous not in (None, r["case"]):
            table.add_section()
        case = "" if previous == r["case"] else r["case"]
        table.add_row(case, r["contender"], f"{r['us']:,.2f}", rate(r), details(r), r.get("document") or "")
        previous = r["case"]
    return table


def ladder(rows: list[Row], title: str) -> Table:
    """A line a step, a column a size: the step's rate and its share of the peer's."""
    sizes = list(dict.fromkeys((r["case"], r["dtype"]) for r in rows))
    steps = list(dict.fromkeys(r["contender"] for r in rows))
    found = {(r["contender"], r["case"], r["dtype"]): r for r in rows}
    peer = next(name for name in ("cublas", "torch") if name in steps)
    several = len({dtype for _, dtype in sizes}) > 1
    heads = [f"{case} {dtype}" if several else case for case, dtype in sizes]
    table = _table(f"{title}; in brackets: of {peer}", "step", *heads, "document")
    for step in steps:
        of_size = [found.get((step, *size)) for size in sizes]
        documents = [r["document"] for r in of_size if r and r.get("document")]
        cells = [f"{rate(r)} ({found[peer, r['case'], r['dtype']]['us'] / r['us']:.1%})" if r else "" for r in of_size]
        table.add_row(step, *cells, documents[0] if documents else "")
    return table


def show(experiment: Experiment, rows: list[Row]) -> None:
    _console().print((ladder if experiment.steps else list_of)(rows, f"{experiment.title} (hot L2)"))


def show_calculators() -> None:
    table = _table("Calculators (torch_ext.device)", "what", "ours", "document", "derived")
    for line in calculators():
        table.add_row(*line)
    _console().print(table)

"""Makes the figures in README.md and docs/ and the plots from `benchmarks/results/<gpu>/*.json`, and from nothing else.

A page shows results between the markers ``<!-- results:begin NAME -->`` and ``<!-- results:end -->``: NAME is a part of
`PARTS` or a file of the lab. A figure of the lab within a text stands between ``<!-- = SPEC -->`` and ``<!-- / -->``
(`lab_figure`). Every single measurement goes to build/results.md, which is not committed. ``--check`` writes nothing
and fails where a page is not what the files give.
"""

import argparse
import re
import statistics
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

from benchmarks import tables
from benchmarks.plots import draw, headline_panels
from benchmarks.results import ROOT, geomean
from benchmarks.tables import OURS, Results, best_peer, compared, provenance, speedup

BEGIN, END = r"^<!-- results:begin(?: (\w+))? -->\n", r"^<!-- results:end -->$"
MARKED = re.compile(f"({BEGIN})(?:(?!<!-- results:begin).)*?({END})", re.DOTALL | re.MULTILINE)
FIGURE = re.compile(r"(<!-- = (.+?) -->)[^<]*(<!-- / -->)")


# The rows of README's table: a name, operators, dtypes, and the precision of fp32 products.
PRODUCTS, BOTH = ("matmul", "linear", "gated_linear"), ("float32", "bfloat16")
REDUCTIONS = ("sum", "amax", "argmax", "logsumexp", "cross_entropy")
SOFTMAXES = ("softmax", "log_softmax", "scaled_masked_softmax")
SUMMARY = [
    (f"{', '.join(PRODUCTS)}; float32", PRODUCTS, ("float32",), "highest"),
    ("the same; bfloat16, float16", PRODUCTS, ("bfloat16", "float16"), None),
    (", ".join(REDUCTIONS), REDUCTIONS, BOTH, None),
    (", ".join(SOFTMAXES), SOFTMAXES, BOTH, None),
    ("topk_softmax", ("topk_softmax",), BOTH, None),
    ("attention; float32", ("attention",), ("float32",), None),
    ("attention; bfloat16", ("attention",), ("bfloat16",), None),
]
SUMMARY_OF_MODELS = [  # a name, dtypes, and whether the input is the small one
    ("whole models, large inputs; float32", ("float32",), False),
    ("whole models, large inputs; bfloat16", ("bfloat16",), False),
    ("whole models, one small input", ("float32", "bfloat16"), True),
]
LONG_ROW = 4096  # columns


def measured(results: Results) -> list[dict]:
    return [results.documents[op] for op in tables.OPS if op in results.documents]


def why(results: Results) -> str:
    """The README's sentence of figures; empty where a figure that it names was not measured."""
    products = compared(results, "matmul", "float32", "highest")
    exact = [group for group in products if group[OURS]["error"]["fro"] <= best_peer(group)["error"]["fro"]]
    rows = [
        group[OURS]["floor_us"] / group[OURS]["us"]
        for op in ("softmax", "logsumexp")
        for dtype in ("float32", "bfloat16")
        for group in tables.tall(results.groups(op, dtype))
        if group[OURS]["shape"]["sizes"][-1] >= LONG_ROW
    ]
    halves: dict[bool, list[float]] = {True: [], False: []}
    for group in [*compared(results, "matmul", "bfloat16"), *compared(results, "matmul", "float16")]:
        halves[tables.aligned(group[OURS])].append(speedup(group))
    if not (products and rows and halves[True] and halves[False]):
        return ""
    fast, whole, unaligned = (geomean(values) for values in (map(speedup, products), halves[True], halves[False]))
    layers = [speedup(group) for group in products if {"layers", "few rows"} & set(group[OURS].get("groups", ()))]
    drawn = [
        speedup(group)
        for group in results.groups(tables.RANDOM_SHAPES, "float32", "highest")
        if "matmul" in group[OURS].get("groups", ()) and best_peer(group)
    ]
    others = [(layers, "on shapes of real layers"), (drawn, "on random shapes")]
    beside = ", ".join(f"{geomean(values):.1f} {where}" for values, where in others if values)
    sentence = (
        f"On an {measured(results)[0]['gpu']}, fp32 products run {fast:.1f} times as fast as cuBLAS's on a chosen list "
        f"of {len(products)} cases{f' ({beside})' if beside else ''}, with no larger an error in {len(exact)} of them; "
        f"softmax and log-sum-exp of long rows run at {geomean(rows):.0%} of the measured memory bandwidth; "
        f"half-precision products run {whole:.1f} times as fast as cuBLAS's "
        f"({unaligned:.1f} times where rows are not a multiple of 16 bytes)."
    )
    return textwrap.fill(sentence, 120) + "\n"


def summary_row(name: str, pairs: list[tuple[dict, dict]], unit: str = "us") -> list[str]:
    """A line of README's table; `pairs` are rows of the peer and of ours."""
    ratios = [theirs[unit] / ours[unit] for theirs, ours in pairs]
    errors = [ours["error"]["fro"] / theirs["error"]["fro"] for theirs, ours in pairs if theirs["error"]["fro"]]
    error = f"{statistics.median(errors):.2f}" if errors else ""
    return [name, str(len(pairs)), f"{geomean(ratios):.2f}", f"{min(ratios):.2f} to {max(ratios):.2f}", error]


def summary(results: Results) -> str:
    """README's plot and its table, of at most ten rows."""
    documents = measured(results)
    if not documents:
        return ""
    text = f"![Measured on {documents[0]['gpu']}]({results.url}/headline.png)\n\n" if headline_panels(results) else ""
    rows = []
    for name, ops, dtypes, mode in SUMMARY:
        groups = [group for op in ops for dtype in dtypes for group in compared(results, op, dtype, mode)]
        if groups:
            rows.append(summary_row(name, [(best_peer(group), group[OURS]) for group in groups]))
    pairs = tables.model_pairs(results)
    for name, dtypes, small in SUMMARY_OF_MODELS:
        kept = [pair for pair in pairs if pair[1]["dtype"] in dtypes and (pair[1]["shape"]["batch"] == 1) == small]
        if kept:
            rows.append(summary_row(name, kept, "ms"))
    text += tables.markdown(["operators", "cases", "speed-up, geomean", "range", "error over the peer's, median"], rows)
    text += f"\n{provenance(*documents)}. Speed-up: time of the fastest peer of the same\n"
    text += "accuracy (torch's own operators, each SDPA backend, torch.compile) over ours; below 1 the peer is faster. "
    text += "Error: Frobenius norm against float64.\nMore: [docs/results.md](docs/results.md).\n"
    return text


def tested(of: dict) -> str:
    """A line of what the GPU tests, the sanitizers and the fuzzer found on a GPU."""
    sanitizers = ", ".join(
        f"{tool} "
        + ("no complete log" if figures["errors"] < 0 else f"{figures['errors']} errors")
        + f" in {figures['tests']} tests"
        + (f" ({figures['failed']} failed)" if figures.get("failed") else "")
        for tool, figures in of.get("sanitizer", {}).items()
    )
    text = f"GPU tests on {of['gpu']} (commit {of['commit']}): "
    text += f"{of['passed']} passed, {of['failed']} failed, {of['skipped']} skipped"
    text += f"; compute-sanitizer: {sanitizers}" if sanitizers else ""
    text += "; fuzzer: {cases:,} cases, {failures} failed".format(**of["fuzz"]) if of.get("fuzz") else ""
    return text + (f". Not run: {', '.join(of['missing'])}.\n" if of.get("missing") else ".\n")


def overview(results: Results) -> str:
    """The first part of docs/results.md: a line an operator and dtype, and the state of the GPU tests."""
    documents = measured(results)
    if not documents:
        return ""
    text = f"{provenance(*documents)}. Speed-up: time of the fastest peer of the same accuracy over ours, medians of\n"
    text += "interleaved runs on random normal data, each result checked against float64 first. Unaligned: rows of an\n"
    text += "operand are not a multiple of 16 bytes.\n\n"
    text += tables.overview_table(results) + "".join(f"\n{tested(of)}" for of in results.gpu_tests)
    plots = [op for op in tables.OPS if (results.folder / f"{op}.png").exists()]
    return text + ("\n" if plots else "") + "".join(f"![{op}](../{results.url}/{op}.png)\n" for op in plots)


def everything(results: Results) -> str:
    """build/results.md: every measurement of every operator."""
    measured = [f"## {op}\n\n{tables.op_table(op, results)}\n" for op in tables.OPS if op in results.documents]
    return f"# Every measurement\n\n{''.join(measured)}## On a CPU\n\n{tables.cpu_tables(results)}"


PARTS: dict[str | None, Callable[[Results], str]] = {
    None: summary,
    "why": why,
    "overview": overview,
    "groups": tables.case_groups,
    tables.RANDOM_SHAPES: tables.random_report,
    tables.BATCH_INVARIANT: tables.batch_invariant_table,
    "portable": tables.portable_table,
    tables.MODELS: tables.models_table,
    tables.TRAINING: tables.training_report,
    tables.CPU: tables.cpu_summary,
    "lab": tables.lab_overview,
    "lab_counters": tables.lab_counters,
}


def filled(page: Path, text: str, results: Results) -> str:
    """The page's text with every marked part made anew."""

    def block(match: re.Match) -> str:
        name = match[2]
        if name in PARTS:
            return match[1] + PARTS[name](results) + match[3]
        if name not in tables.LAB:
            raise ValueError(f"{page}: there is no part {name} of the results")
        return match[1] + tables.lab_table(name, results) + match[3]

    new, blocks = MARKED.subn(block, text)
    if blocks != len(re.findall(r"^<!-- results:", text, re.MULTILINE)) / 2:
        raise ValueError(f"{page}: a results:begin without its results:end, or the other way round")
    new, figures = FIGURE.subn(lambda match: match[1] + tables.lab_figure(match[2], results) + match[3], new)
    if figures != new.count("<!-- = "):
        raise ValueError(f"{page}: a figure without its end")
    return new


def pages(root: Path) -> list[Path]:
    return [page for page in [root / "README.md", *sorted((root / "docs").glob("**/*.md"))] if page.exists()]


def main(argv: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page is out of date")
    parser.add_argument("--gpu", default="nvidia_h200", help="folder under benchmarks/results (default: %(default)s)")
    arguments = parser.parse_args(argv)
    if not (folder := root / "benchmarks" / "results" / arguments.gpu).is_dir():
        parser.error(f"--gpu: there is no {folder}")
    results = Results.read(folder)
    drawn = [] if arguments.check else draw(results)
    outdated = [page for page in pages(root) if filled(page, page.read_text(), results) != page.read_text()]
    if arguments.check:
        for page in outdated:
            print(f"{page.relative_to(root)} is not what {results.url} gives: run `python -m benchmarks.report`")
        return 1 if outdated else 0
    for path in drawn:
        print(path.relative_to(root))
    for page in outdated:
        page.write_text(filled(page, page.read_text(), results))
        print(page.relative_to(root))
    path = root / "build" / "results.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text(everything(results))
    print(path.relative_to(root))
    return 0


if __name__ == "__main__":
    sys.exit(main())

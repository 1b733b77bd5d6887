"""`make report`: the figures on the pages and the plots that it makes from result files."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from benchmarks import common, plots, report, results, run, tables

COMMITTED = results.RESULTS / "nvidia_h200"


def example_row(case: str, contender: str, us: float, /, **changes: object) -> dict:
    n = int(case.split("x")[0])
    row = {"case": case, "shape": {"m": n, "n": n, "k": n, "batch": 1, "layout": "nn"}, "dtype": "float32"}
    row |= {"mode": "highest", "l2": "hot", "graph": False, "contender": contender, "us": us}
    row |= {"us_quartiles": [us * 0.99, us * 1.01], "tflops": 2 * n**3 / us / 1e6, "gbps": None, "floor_us": us / 2}
    return row | {"error": {"fro": 3e-7, "max": 1e-7}} | changes


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "benchmarks" / "results" / "nvidia_h200"
    folder.mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    marked = "before\n<!-- results:begin{} -->\n<!-- results:end -->\nafter\n"
    (tmp_path / "README.md").write_text(marked.format(" why") + marked.format(""))
    (tmp_path / "docs" / "all.md").write_text(marked.format(" overview"))
    (tmp_path / "docs" / "matmul.md").write_text(marked.format(" matmul"))
    (tmp_path / "docs" / "other.md").write_text("no marks\n")
    document = {
        "op": "matmul",
        "gpu": "NVIDIA H200",
        "date": "2026-11-21T10:00:00Z",
        "commit": "abc",
        "versions": {"torch": "2.11", "cuda": "13.0", "driver": "580"},
        "clocks_mhz": [1700, 1980],
        "sources": {"paths": ["csrc/device"], "sha256": "0" * 16},
        "rows": [
            example_row("1024x1024x1024", "xgemm", 50.0),
            example_row("1024x1024x1024", "torch", 60.0),
            example_row("4096x4096x4096", "xgemm", 1000.0),
            example_row("4096x4096x4096", "torch", 2000.0),
            example_row("4096x4096x4096", "torch_tf32", 400.0),
            example_row("1024x1024x1024", "xgemm", 40.0, graph=True),
            example_row("1024x1024x1024", "torch", 20.0, graph=True),
        ],
    }
    (folder / "matmul.json").write_text(results.dump(document))
    return tmp_path


def test_report_fills_pages_and_check_sees_changes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main(["--check"], project) == 1
    assert report.main([], project) == 0
    assert report.main(["--check"], project) == 0
    readme, page = (project / "README.md").read_text(), (project / "docs" / "matmul.md").read_text()
    assert readme.startswith(
        "before\n<!-- results:begin why -->\n<!-- results:end -->\nafter\n"
    )  # half of it is missing
    assert readme.endswith("end -->\nafter\n") and "\nNVIDIA H200, torch 2.11, CUDA 13.0" in readme
    # Two cases, the small one timed in a graph: 0.5 and 2.0. TF32 is no peer of "highest".
    assert "| matmul, linear, gated_linear; float32 | 2 | 1.00 | 0.50 to 2.00 | 1.00 |" in readme
    everything = (project / "docs" / "all.md").read_text()
    assert (
        "| matmul, float32, highest | 2 | 1.00 | 0.50 to 2.00 | 4096x4096x4096: 1000 us, 137.4 TFLOP/s |" in everything
    )
    assert "headline.png" in readme and "../benchmarks/results/nvidia_h200/matmul.png" in page
    assert "400.0 (0.40)" in page and page.count("| 1024x1024x1024 |") == 2
    assert {path.name for path in project.rglob("*.png")} == {"matmul.png", "headline.png"}
    assert report.main(["--check"], project) == 0

    path = project / "benchmarks" / "results" / "nvidia_h200" / "matmul.json"
    document = json.loads(path.read_text())
    document["rows"][2]["us"] = 1100.0
    path.write_text(results.dump(document))
    capsys.readouterr()
    assert report.main(["--check"], project) == 1
    assert "README.md is not what" in capsys.readouterr().out
    assert report.main([], project) == 0
    changed = (project / "README.md").read_text()
    assert changed != readme and "| 0.50 to 1.82 |" in changed
    (project / "README.md").write_text(changed.replace("0.50 to 1.82", "0.50 to 9.99"))
    assert report.main(["--check"], project) == 1


def test_report_sums_up_groups_of_cases(project: Path) -> None:
    path = project / "benchmarks" / "results" / "nvidia_h200" / "matmul.json"
    document = json.loads(path.read_text())
    assert "geomean, worst" not in report.overview(tables.Results.read(path.parent))
    named = {"1024x1024x1024": ["peers", "few rows"], "4096x4096x4096": ["peers"]}
    document["rows"] = [row | {"groups": named[row["case"]]} for row in document["rows"]]
    for contender, us in (("xgemm", 80.0), ("torch", 60.0)):
        row = example_row("1024x1024x1024", contender, us, l2="cold", groups=named["1024x1024x1024"])
        document["rows"] += [row, example_row("64x64x64", contender, 1.0, dtype="bfloat16", mode=None, groups=["odd"])]
    path.write_text(results.dump(document))
    table = tables.case_groups_table("matmul", tables.Results.read(path.parent), name_worst=True)
    assert table.splitlines()[0] == "| matmul: geomean, worst | shapes | float32 highest | bfloat16 |"
    assert table.splitlines()[2:] == [
        "| peers | 2 | 1.00, 0.50 (1024x1024x1024) |  |",
        "| few rows | 1 | 0.75, 0.75 (1024x1024x1024) |  |",  # the cold figure
        "| odd | 1 |  | 1.00, 1.00 (64x64x64) |",
    ]
    assert report.main([], project) == 0
    page = (project / "docs" / "matmul.md").read_text()
    assert page.count("| 1024x1024x1024 |") == 3 and page.count("| 64x64x64 |") == 1


def test_report_of_a_ladder(project: Path) -> None:
    page = project / "docs" / "other.md"
    page.write_text("<!-- results:begin lab_sgemm -->\n<!-- results:end -->\n")
    path = project / "benchmarks" / "results" / "nvidia_h200" / "matmul.json"
    document = json.loads(path.read_text()) | {"op": "lab_sgemm"}
    document["rows"] = [
        example_row("1024x1024x1024", "01_naive", 400.0, document=None),
        example_row("4096x4096x4096", "01_naive", 8000.0, document="1 %"),
        example_row("4096x4096x4096", "cublas", 1000.0, document=None),
    ]
    (path.parent / "lab_sgemm.json").write_text(results.dump(document))
    assert report.main([], project) == 0
    assert "| 01_naive | 5.37 | 17.18 (12%) | 3.0e-07 | 1 % |" in page.read_text()
    assert "| cublas |  | 137.44 | 3.0e-07 |  |" in page.read_text()


def test_reductions_page_shows_speedups_over_the_first_version() -> None:
    rows = [
        {"case": "2^24", "dtype": dtype, "contender": name, "us": us, "tflops": None, "gbps": 1e3 / us, "error": error}
        for error in ({"fro": 1e-7},)
        for dtype in ("float32", "int32")
        for name, us in (
            ("copy", 1.0),
            ("v0_interleaved_modulo", 20.0),
            ("v1_interleaved_strided", 8.0),
            ("torch", 1.0),
        )
    ]
    lines = tables.ladder_table(rows).splitlines()
    assert lines[0].endswith("speed-up and error: 2^24 float32.")
    assert "| v1_interleaved_strided | 125 (12%) | 125 (12%) | 2.5x | 1.0e-07 |" in lines
    assert "| copy | 1000 (100%) | 1000 (100%) |  | 1.0e-07 |" in lines


def test_report_of_the_attention_ladder(project: Path) -> None:
    """A table for each head size, causal and not, with the memory of a call at the largest length."""
    page = project / "docs" / "other.md"
    page.write_text("<!-- results:begin lab_attention -->\n<!-- results:end -->\n")
    path = project / "benchmarks" / "results" / "nvidia_h200" / "matmul.json"
    document = json.loads(path.read_text()) | {"op": "lab_attention"}
    document["rows"] = [
        example_row(f"{s}x{s}x{s}", step, us, document=None)
        | {"shape": {"s": s, "d": d, "causal": False}, "peak_bytes": mebibytes << 20}
        for d in (64, 128)
        for s, step, us, mebibytes in (
            (1024, "01_materialised", 400.0 * d / 64, 5),
            (1024, "torch", 40.0, 1),
            (2048, "01_materialised", 3200.0, 17),
            (2048, "torch", 320.0, 2),
        )
    ]
    (path.parent / "lab_attention.json").write_text(results.dump(document))
    assert report.main([], project) == 0
    text = page.read_text()
    assert text.count("| step | 1024x1024x1024 | 2048x2048x2048 | error (Frobenius) | MiB of a call |") == 2
    assert text.count("in brackets torch's time over this; hot L2; error and memory: 2048x2048x2048") == 2
    assert "| 01_materialised | 5.37 (10%) | 5.37 (10%) | 3.0e-07 | 17 |" in text
    assert "| 01_materialised | 2.68 (5.0%) | 5.37 (10%) | 3.0e-07 | 17 |" in text
    assert "| torch | 53.69 | 53.69 | 3.0e-07 | 2 |" in text


@pytest.mark.parametrize(
    "marks", ["<!-- results:begin matmul -->\n<!-- results:end matmul -->\n", "<!-- results:end -->\n"]
)
def test_report_refuses_half_a_mark(project: Path, marks: str) -> None:
    (project / "docs" / "other.md").write_text(marks)
    with pytest.raises(ValueError, match=r"other\.md: a results:begin without"):
        report.main([], project)


def test_report_refuses_an_unknown_op(project: Path) -> None:
    (project / "docs" / "other.md").write_text("<!-- results:begin outer -->\n<!-- results:end -->\n")
    with pytest.raises(ValueError, match="no results are kept of outer"):
        report.main([], project)


def test_report_of_what_the_lab_has_not_measured(project: Path) -> None:
    page = project / "docs" / "other.md"
    page.write_text("<!-- results:begin lab_latency -->\n<!-- results:end -->\n")
    assert report.main([], project) == 0 and "Not measured yet." in page.read_text()


def test_the_lab_on_several_gpus(project: Path) -> None:
    """The first GPU's table, and what every one of them showed; what only another has measured is that one's."""
    page = project / "docs" / "other.md"
    page.write_text(
        "".join(f"<!-- results:begin {x} -->\n<!-- results:end -->\n" for x in ("lab", "lab_latency", "lab_fma"))
    )
    h200 = project / "benchmarks" / "results" / "nvidia_h200"
    h100 = h200.with_name("nvidia_h100")
    h100.mkdir()
    base = json.loads((h200 / "matmul.json").read_text()) | {"title": "Latency", "items": "S1-02"}

    def write(folder: Path, op: str, gpu: str, us: float, shown: bool) -> None:
        row = example_row("1x1x1", "a load", us, document=None, of_peak=0.25) | {"tflops": None}
        more = {"op": op, "gpu": gpu, "conclusion": {"text": f"On {gpu}.", "shown": shown}, "rows": [row]}
        (folder / f"{op}.json").write_text(results.dump(base | more))

    write(h200, "lab_latency", "H200", 0.0222, True)
    write(h100, "lab_latency", "H100", 3.0, False)
    write(h100, "lab_fma", "H100", 5.0, True)
    (h100 / "lab_latency.png").write_bytes(b"")
    assert report.main([], project) == 0
    text = page.read_text()
    assert "| experiment, items of the documents | command | H200 | H100 |" in text
    assert "| Latency: S1-02 | `--only latency` | On H200. | **Not shown.** On H100. |" in text
    assert "| Latency: S1-02 | `--only fma` | not measured yet | On H100. |" in text
    assert "| copy | `--only copy` | not measured yet | not measured yet |" in text
    assert "| 1x1x1 | a load | 0.022 |" in text and "| 1x1x1 | a load | 3.0 |" not in text
    assert "**The effect was not measured.** On H100." in text
    assert "![lab_latency](../benchmarks/results/nvidia_h100/lab_latency.png)" in text
    assert "| 1x1x1 | 0.250 |" in text and "Not measured yet" not in text
    assert report.main(["--check"], project) == 0


def test_the_labs_counters(project: Path) -> None:
    page = project / "docs" / "other.md"
    page.write_text("<!-- results:begin lab_counters -->\n<!-- results:end -->\n")
    assert report.main([], project) == 0 and "Not counted yet." in page.read_text()
    h100 = project / "benchmarks" / "results" / "nvidia_h100"
    h100.mkdir()
    base = json.loads((h100.with_name("nvidia_h200") / "matmul.json").read_text())
    counted = {"load_requests": 524288.0, "sectors_a_request": 16.5, "dram_bytes": 118356736.0}
    rows = [{"case": "sgemm_01", "counters": counted, "document": "many sectors"}]
    more = {"op": "lab_counters", "gpu": "H100", "rows": rows}
    (h100 / "lab_counters.json").write_text(results.dump(base | more))
    assert report.main([], project) == 0
    text = page.read_text()
    assert "| sgemm_01 | 16.5 | 524,288 |  | 118.4 |  |" in text and "| many sectors |" in text


def test_report_without_results_leaves_the_marks_empty(project: Path) -> None:
    (project / "benchmarks" / "results" / "nvidia_h200" / "matmul.json").unlink()
    assert report.main(["--check"], project) == 0


def test_plots_are_deterministic(project: Path) -> None:
    found = tables.Results.read(project / "benchmarks" / "results" / "nvidia_h200")
    first = {path: path.read_bytes() for path in plots.draw(found)}
    assert first and {path: path.read_bytes() for path in plots.draw(found)} == first


def test_all_plots_draw(tmp_path: Path) -> None:
    """Every plot on rows of the real case lists, as a GPU run would write them."""
    options = common.Options(device=torch.device("cuda"))
    documents = {}
    for module in run.SHARES:
        rows = []
        for index, case in enumerate(module.cases(options)):
            for contender in case.contenders:
                row = example_row("1x", contender.name, 10.0 + index, case=case.name, shape=case.shape, mode=case.mode)
                row["groups"] = list(case.groups)
                row |= {"dtype": str(case.dtype).removeprefix("torch."), "gbps": 1000.0}
                rows.append(row)
        documents[module.OP] = {"rows": rows}
    found = tables.Results(tmp_path, documents)
    drawn = {path.stem for path in plots.draw(found)}
    assert drawn == {"matmul", "sum", "logsumexp", "softmax", "log_softmax", "attention", "headline"}
    assert len(plots.headline_panels(found)) == 4


# ---- the committed results -------------------------------------------------------------------------------------------


def test_a_plotted_line_has_one_point_for_each_x() -> None:
    """Read from the figures as they are drawn, of every plot."""
    lines = [
        (name, axes.get_title(), line)
        for name, figure in plots.figures(tables.Results.read(COMMITTED)).items()
        for axes in figure.axes
        for line in axes.lines
    ]
    assert {name for name, _, _ in lines} == {
        "headline",
        "softmax",
        "log_softmax",
        "logsumexp",
        "attention",
        "models",
    }
    for name, title, line in lines:
        x = list(line.get_xdata())
        assert x == sorted(set(x)), (name, title, line.get_label())


def test_provenance_of_several_files() -> None:
    """The README's table is made from all files, so that it must name all their clocks, dates and commits."""
    versions = {"torch": "2.11", "cuda": "13.0", "driver": "580"}
    shared = {"gpu": "NVIDIA H200", "versions": versions, "sources": {"sha256": "0" * 16}}
    new = {"date": "2026-11-23T10:00:00Z", "commit": "b", "clocks_mhz": [1980, 1980]} | shared
    old = {"date": "2026-11-21T10:00:00Z", "commit": "a", "clocks_mhz": [1230, 1965]} | shared
    head = "NVIDIA H200, torch 2.11, CUDA 13.0, driver 580, SM clock"
    assert tables.provenance(new, old) == f"{head} 1230 to 1980 MHz; 2026-11-21 to 2026-11-23, commits a, b"
    assert tables.provenance(new) == f"{head} 1980 to 1980 MHz; 2026-11-23, commit b, sources {'0' * 16}"


def test_overview_says_which_gpu_tests_were_run(project: Path) -> None:
    counts = {"passed": 9, "failed": 0, "skipped": 1}
    of = {
        "gpu": "NVIDIA H200",
        "commit": "a",
        **counts,
        "sanitizer": {"memcheck": {"tests": 3, "failed": 0, "errors": 0}},
    }
    results = tables.Results.read(project / "benchmarks" / "results" / "nvidia_h200")
    missing = {"fuzz": {}, "missing": ["racecheck 1/1", "fuzz 2/8"]}
    complete = {"gpu": "NVIDIA H100", "fuzz": {"cases": 1234, "failures": 2, "seed": 3}, "missing": []}
    results.gpu_tests = [of | missing, of | complete]
    said = "(commit a): 9 passed, 0 failed, 1 skipped; compute-sanitizer: memcheck 0 errors in 3 tests"
    assert report.overview(results).endswith(
        f"\nGPU tests on NVIDIA H200 {said}. Not run: racecheck 1/1, fuzz 2/8.\n"
        f"\nGPU tests on NVIDIA H100 {said}; fuzzer: 1,234 cases, 2 failed.\n"
    )


def test_headline_shows_what_was_measured() -> None:
    figure = plots.figures(tables.Results.read(COMMITTED))["headline"]
    shown = {axes.get_title(): {line.get_label(): line for line in axes.lines} for axes in figure.axes}
    assert list(shown) == [
        "matmul, float32",
        "softmax, float32",
        "attention, float32, head size 128",
        "attention, bfloat16, head size 128",
    ]
    rows = json.loads((COMMITTED / "matmul.json").read_text())["rows"]
    for n, tflops in zip(*shown["matmul, float32"]["xgemm"].get_data(), strict=True):
        wanted = {"case": f"{n}x{n}x{n}", "dtype": "float32", "mode": "highest", "contender": "xgemm"}
        assert tflops in [row["tflops"] for row in rows if wanted.items() <= row.items()]  # eager or in a graph
    assert {"xgemm", "sdpa_flash", "sdpa_cudnn"} <= set(shown["attention, bfloat16, head size 128"])


def test_two_cases_at_one_x_are_refused() -> None:
    groups = [{"xgemm": example_row("64x64x64", "xgemm", us)} for us in (1.0, 2.0)]
    with pytest.raises(ValueError, match="two cases at 64 on the line of xgemm"):
        plots.series(groups, lambda row: row["shape"]["n"], "tflops")


def speedups(dtype: str, mode: str | None, accept: Callable[[dict], bool] = lambda row: True) -> list[float]:
    """The fastest peer's time over ours for each case of matmul, without the report's functions."""
    cases: dict[str, dict[tuple, dict[str, float]]] = {}
    for row in json.loads((COMMITTED / "matmul.json").read_text())["rows"]:
        if (row["dtype"], row["mode"]) == (dtype, mode) and row["contender"] != "torch_tf32" and accept(row["shape"]):
            ways = cases.setdefault(row["case"], {})
            ways.setdefault((row["l2"] == "cold", not row["graph"]), {})[row["contender"]] = row["us"]
    shown = [ways[min(ways)] for ways in cases.values()]  # hot before cold, in a graph before eager
    return [min(us for name, us in group.items() if name != "xgemm") / group["xgemm"] for group in shown]


def full_rows(shape: dict) -> bool:
    """Whether a row in half precision is a multiple of 16 bytes in every layout."""
    return shape["n"] % 8 == shape["k"] % 8 == 0


def test_readmes_first_sentence_is_true() -> None:
    """Recomputes its figures from the result files."""
    sentence = " ".join(report.why(tables.Results.read(COMMITTED)).split())
    assert sentence.count(".") - len(re.findall(r"\d\.\d", sentence)) == 1, "one sentence"
    rows = json.loads((COMMITTED / "matmul.json").read_text())["rows"]
    fp32 = speedups("float32", "highest")
    errors = {
        name: {row["case"]: row["error"]["fro"] for row in rows if (row["mode"], row["contender"]) == ("highest", name)}
        for name in ("xgemm", "torch")
    }
    better = sum(errors["xgemm"][case] <= errors["torch"][case] for case in errors["xgemm"])
    assert f"{results.geomean(fp32):.1f} times as fast as cuBLAS's with no larger" in sentence
    assert f"error in {better} of {len(fp32)} cases" in sentence
    halves = ("bfloat16", "float16")
    aligned = [ratio for dtype in halves for ratio in speedups(dtype, None, full_rows)]
    unaligned = [ratio for dtype in halves for ratio in speedups(dtype, None, lambda shape: not full_rows(shape))]
    assert f"half-precision products run {results.geomean(aligned):.1f} times as fast as cuBLAS's" in sentence
    assert f"({results.geomean(unaligned):.1f} times where rows are not a multiple of 16 bytes)" in sentence
    share = [
        row["floor_us"] / row["us"]
        for op in ("softmax", "logsumexp")
        for row in json.loads((COMMITTED / f"{op}.json").read_text())["rows"]
        if row["contender"] == "xgemm" and row["l2"] == "cold" and row["shape"]["sizes"][0] >= 1024
        if row["shape"]["sizes"][-1] >= 4096 and row["shape"]["dim"] in (-1, 1)
    ]
    assert f"{results.geomean(share):.0%} of the measured memory bandwidth" in sentence


# ---- whole models and the CPU ----------------------------------------------------------------------------------------


def model_row(case: str, contender: str, ms: float, /, dtype: str = "float32", graph: bool = False) -> dict:
    shape = {"batch": int(case.split()[1].split("x")[0])}
    row = {"case": case, "shape": shape, "dtype": dtype, "mode": None, "l2": "hot", "graph": graph}
    return row | {"contender": contender, "ms": ms, "ms_quartiles": [ms, ms], "error": {"fro": ms * 1e-6, "max": 1e-5}}


def test_models_are_on_the_pages_once_they_are_measured(project: Path) -> None:
    page = project / "docs" / "other.md"
    page.write_text("<!-- results:begin models -->\n<!-- results:end -->\n")
    assert report.main([], project) == 0
    assert "whole models" not in (project / "README.md").read_text()
    assert page.read_text() == "<!-- results:begin models -->\n<!-- results:end -->\n"

    folder = project / "benchmarks" / "results" / "nvidia_h200"
    document = json.loads((folder / "matmul.json").read_text()) | {"op": "models"}
    document["rows"] = [
        *(model_row("BERT-large 32x512", name, ms) for name, ms in (("torch", 240.0), ("torch_tf32", 60.0))),
        *(model_row("BERT-large 32x512", name, ms) for name, ms in (("xgemm", 100.0), ("xgemm_compile", 80.0))),
        model_row("BERT-large 32x512", "torch_compile", 200.0),
        *(model_row("BERT-large 32x512", name, 20.0, "bfloat16") for name in ("torch", "xgemm")),
        model_row("BERT-large 32x512", "torch", 90.0, "bfloat16", graph=True),
        model_row("BERT-large 32x512", "xgemm", 16.0, "bfloat16", graph=True),
        *(model_row("BERT-large 1x128", name, ms, graph=True) for name, ms in (("torch", 8.0), ("xgemm", 5.0))),
    ]
    (folder / "models.json").write_text(results.dump(document))
    assert report.main([], project) == 0
    readme = (project / "README.md").read_text()
    assert "| whole models, large inputs; float32 | 2 | 2.45 | 2.40 to 2.50 | 0.41 |" in readme  # not TF32's time
    assert (
        "| whole models, large inputs; bfloat16 | 2 | 1.12 | 1.00 to 1.25 | 0.90 |" in readme
    )  # not torch's slow graph
    assert "| whole models, one small input | 1 | 1.60 | 1.60 to 1.60 | 0.62 |" in readme
    lines = page.read_text().splitlines()
    assert (
        "| BERT-large 32x512 | float32 | eager | 240.00 | 60.00 | 100.00 | 2.40 | 2.4e-04 | 6.0e-05 | 1.0e-04 |"
        in lines
    )
    assert "| BERT-large 32x512 | float32 | compiled | 200.00 |  | 80.00 | 2.50 | 2.0e-04 |  | 8.0e-05 |" in lines
    assert any(
        line.startswith("| BERT-large 32x512 | bfloat16 | eager, CUDA graph | 90.00 |  | 16.00 | 1.25 |")
        for line in lines
    )
    assert "| BERT-large 1x128 | float32 | eager, CUDA graph | 8.00 |  | 5.00 | 1.60 | 8.0e-06 |  | 5.0e-06 |" in lines
    assert "![whole models: time and error](../benchmarks/results/nvidia_h200/models.png)" in lines

    time, error = plots.figures(tables.Results.read(folder))["models"].axes
    assert {line.get_label() for line in time.lines if not line.get_label().startswith("_")}
    for axes, values in ((time, {240.0, 60.0, 100.0, 80.0, 200.0, 20.0, 8.0, 5.0}), (error, {1e-4, 6e-5, 2.4e-4})):
        assert axes.get_xscale() == "log"
        drawn = {x for line in axes.lines for x in line.get_xdata()}
        assert all(any(x == pytest.approx(value) for x in drawn) for value in values), values - drawn


def test_cpu_results_are_shown_by_cpu(project: Path) -> None:
    page = project / "docs" / "other.md"
    page.write_text("<!-- results:begin cpu -->\n<!-- results:end -->\n")
    folder = project / "benchmarks" / "results"
    document = json.loads((folder / "nvidia_h200" / "matmul.json").read_text())
    document |= {"op": "cpu", "gpu": "Test CPU", "threads": 2}
    document["rows"] = [
        example_row("512x512x512", name, us, case="matmul 512x512x512")
        for name, us in (("xgemm", 50.0), ("torch", 45.0))
    ]
    (folder / "test_cpu").mkdir()
    (folder / "test_cpu" / "cpu.json").write_text(results.dump(document))
    assert report.main([], project) == 0
    assert "Test CPU, 2 threads, torch 2.11" in page.read_text()
    assert "| matmul 512x512x512 | float32 | 50.0 ± 1% | 45.0 | 0.90 |" in page.read_text()


def test_experiments_of_two_variables_are_grids() -> None:
    def row(case: str, name: str, share: float | None, document: str | None = None) -> dict:
        return {"case": case, "contender": name, "us": 2.0, "gbps": None, "of_peak": share, "document": document}

    rows = [row("a", "x", 0.5), row("a", "y", 0.25, "0.3 (M2090)"), row("b", "y", 0.125), row("b", "x", None)]
    lines = tables.grid_table("lab_fma", rows).splitlines()
    assert lines[0] == "Share of the peak; in brackets a document's figure."
    assert lines[2] == "|  | x | y |" and lines[4:] == ["| a | 0.500 | 0.250 (0.3 (M2090)) |", "| b |  | 0.125 |"]

"""`make report`: the figures on the pages and the plots that it makes from result files."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import plots, report, results, tables

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
    (tmp_path / "docs" / "groups.md").write_text(marked.format(" groups"))
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
    readme, page = (project / "README.md").read_text(), (project / "docs" / "all.md").read_text()
    assert readme.startswith("before\n<!-- results:begin why -->\n<!-- results:end -->\nafter\n"), "half is missing"
    assert readme.endswith("end -->\nafter\n") and "\nNVIDIA H200, torch 2.11, CUDA 13.0" in readme
    # Two cases, the small one timed in a graph: 0.5 and 2.0. TF32 is no peer of "highest".
    assert "| matmul, linear, gated_linear; float32 | 2 | 1.00 | 0.50 to 2.00 | 1.00 |" in readme
    figures = "2 | 1.00 | 0.57 | 1 | 0.50: 1024x1024x1024 | 4096x4096x4096: 1000 us, 137.4 TFLOP/s | torch 2000 us |"
    assert f"| matmul, float32, highest | {figures}" in page
    every = (project / "build" / "results.md").read_text()
    assert "400.0 (0.40)" in every and every.count("| 1024x1024x1024 |") == 2, "each measurement, TF32's time as well"
    assert "headline.png" in readme and "../benchmarks/results/nvidia_h200/matmul.png" in page
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


def test_groups_of_cases_have_geomean_percentile_and_worst(project: Path) -> None:
    """Few rows count with a cold L2; a mode without a peer has no line; unaligned rows of matmul stand apart."""
    path = project / "benchmarks" / "results" / "nvidia_h200" / "matmul.json"
    document = json.loads(path.read_text())
    named = {"1024x1024x1024": ["peers", "few rows"], "4096x4096x4096": ["peers"]}
    document["rows"] = [row | {"groups": named[row["case"]]} for row in document["rows"]]
    for name, us in (("xgemm", 80.0), ("torch", 60.0)):
        document["rows"].append(example_row("1024x1024x1024", name, us, l2="cold", groups=named["1024x1024x1024"]))
        document["rows"].append(example_row("65x65x65", name, us, dtype="bfloat16", mode=None, groups=["odd"]))
    document["rows"].append(example_row("64x64x64", "xgemm", 1.0, dtype="float16", mode=None, groups=["odd"]))
    path.write_text(results.dump(document))
    assert report.main([], project) == 0
    assert (project / "docs" / "groups.md").read_text().splitlines()[4:-2] == [
        "| peers | float32 highest | 2 | 1.00 | 0.57 | 1 | 0.50: 1024x1024x1024 |",
        "| few rows | float32 highest | 1 | 0.75 | 0.75 | 1 | 0.75: 1024x1024x1024 |",
        "| odd | bfloat16 | 1 | 0.75 | 0.75 | 1 | 0.75: 65x65x65 |",
    ]
    page = (project / "docs" / "all.md").read_text()
    assert "| matmul, bfloat16, unaligned | 1 | 0.75 |" in page and "| matmul, bfloat16 |" not in page


@pytest.mark.parametrize(
    ("dtype", "n", "k", "whole"),
    [("float32", 4, 12, True), ("float32", 6, 8, False), ("bfloat16", 8, 16, True), ("float16", 12, 8, False)],
)
def test_aligned_rows_are_a_multiple_of_16_bytes(dtype: str, n: int, k: int, whole: bool) -> None:
    assert tables.aligned({"dtype": dtype, "shape": {"n": n, "k": k}}) == whole


def test_random_shapes_have_geomean_percentile_and_the_worst_ten() -> None:
    """Twelve ratios from 0.5 to 1.6 in steps of 0.1, of which five are below 1."""
    rows = []
    for i in range(12):
        rows += [example_row("8x", name, us, groups=["matmul"]) for name, us in (("xgemm", 10.0), ("torch", 5.0 + i))]
        rows[-2]["case"] = rows[-1]["case"] = f"case {i}"
    first, worst = tables.random_tables(rows).split("\n\n")
    assert "| matmul | float32 highest | 12 | 0.99 | 0.55 | 5 | 0.50: case 0 |" in first
    assert [line.split(" | ")[-1] for line in worst.splitlines()[2:]][:3] == ["0.50 |", "0.60 |", "0.70 |"]
    assert len(worst.strip().splitlines()) == 12 and tables.random_tables([]) == ""


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

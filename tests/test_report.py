"""`make report`: the figures on the pages and the plots that it makes from result files."""

import json
import re
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
        *({"training"} if (COMMITTED / "training.json").exists() else ()),
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


def test_readmes_first_sentence_is_true() -> None:
    """Recomputes its figures of float32 from the result files."""
    sentence = " ".join(report.why(tables.Results.read(COMMITTED)).split())
    assert sentence.count(".") - len(re.findall(r"\d\.\d", sentence)) == 1, "one sentence"
    cases: dict[str, dict[tuple, dict[str, dict]]] = {}
    for row in json.loads((COMMITTED / "matmul.json").read_text())["rows"]:
        if (row["dtype"], row["mode"]) == ("float32", "highest") and row["contender"] in ("xgemm", "torch"):
            way = row["l2"] == "cold", not row["graph"]
            cases.setdefault(row["case"], {}).setdefault(way, {})[row["contender"]] = row
    shown = [ways[min(ways)] for ways in cases.values()]  # hot before cold, in a graph before eager
    ratio = results.geomean([group["torch"]["us"] / group["xgemm"]["us"] for group in shown])
    better = sum(group["xgemm"]["error"]["fro"] <= group["torch"]["error"]["fro"] for group in shown)
    assert f"{ratio:.1f} times as fast as cuBLAS's with no larger" in sentence
    assert f"error in {better} of {len(shown)} cases" in sentence


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

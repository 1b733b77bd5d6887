"""`make report`: the figures on the pages and the plots that it makes from result files."""

import json
import re
from pathlib import Path

import pytest

from benchmarks import report, results, tables

ROOT = Path(__file__).parents[1]
COMMITTED = results.RESULTS / "nvidia_h200"


def example_row(case: str, contender: str, us: float, **changes: object) -> dict:
    n = int(case.split("x")[0])
    row = {"case": case, "shape": {"m": n, "n": n, "k": n, "batch": 1, "layout": "nn"}, "dtype": "float32"}
    row |= {"mode": "highest", "l2": "hot", "graph": False, "contender": contender, "us": us}
    row |= {"us_quartiles": [us * 0.99, us * 1.01], "tflops": 2 * n**3 / us / 1e6, "gbps": None, "floor_us": us / 2}
    return row | {"error": {"fro": 3e-7, "max": 1e-7}} | changes


def test_report_fills_pages_and_check_sees_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the figures are: test_docs.py compares all pages with what the committed results give."""
    file, readme = tmp_path / "benchmarks/results/nvidia_h200/matmul.json", tmp_path / "README.md"
    file.parent.mkdir(parents=True)
    readme.write_text("before\n<!-- results:begin -->\n<!-- results:end -->\nafter\n")
    document = {"op": "matmul", "gpu": "NVIDIA H200", "date": "2026-11-21T10:00:00Z", "commit": "abc"}
    document |= {"versions": {"torch": "2.11", "cuda": "13.0", "driver": "580"}, "clocks_mhz": [1700, 1980]}
    document["sources"] = {"paths": ["csrc/device"], "sha256": "0" * 16}
    large = ("xgemm", 1000.0), ("torch", 2000.0), ("torch_tf32", 400.0)
    document["rows"] = [example_row("4096x4096x4096", *row) for row in large]
    document["rows"] += [example_row("1024x1024x1024", *row, graph=True) for row in (("xgemm", 50.0), ("torch", 20.0))]
    file.write_text(results.dump(document))
    assert report.main(["--check"], tmp_path) == 1
    assert report.main([], tmp_path) == report.main(["--check"], tmp_path) == 0
    text = readme.read_text()
    assert text.startswith("before\n") and text.endswith("end -->\nafter\n") and "headline.png" in text
    assert "| matmul, linear, gated_linear; float32 | 2 | 0.89 | 0.40 to 2.00 | 1.00 |" in text, "TF32 is no peer"
    assert "400.0 (0.40)" in (tmp_path / "build" / "results.md").read_text(), "each measurement, TF32's time as well"
    assert {path.name for path in tmp_path.rglob("*.png")} == {"matmul.png", "headline.png"}
    file.write_text(file.read_text().replace("1000.0", "1100.0"))
    capsys.readouterr()
    assert report.main(["--check"], tmp_path) == 1
    assert "README.md is not what" in capsys.readouterr().out
    assert report.main([], tmp_path) == 0 and "| 0.40 to 1.82 |" in readme.read_text()


def test_figures_within_a_text() -> None:
    found = tables.Results.read(COMMITTED)
    assert tables.lab_figure("nothing; us; .1f", found) == "not measured yet"
    with pytest.raises(KeyError):
        tables.lab_figure("sgemm; us; nobody; .0f", found)
    with pytest.raises(ValueError, match="a figure without its end"):
        report.filled(Path("x.md"), "<!-- = sgemm; us; cublas; n=4096; .0f -->1", found)


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
    assert f"{ratio:.1f} times as fast as cuBLAS's on a chosen list of {len(shown)} cases" in sentence
    assert f"error in {better} of them" in sentence
    assert "1.5 on random shapes" in sentence  # docs/results.md says 1.51


@pytest.mark.parametrize("page", report.pages(ROOT), ids=lambda page: page.name)
def test_no_part_of_a_page_is_empty(page: Path) -> None:
    """An empty part is up to date, too, when its generator no longer reads the files."""
    assert not re.findall(r"^<!-- results:begin (\w*).*\n<!-- results:end", page.read_text(), re.MULTILINE)

"""`make report`: the figures on the pages and the plots that it makes from result files."""

import json
import re
from pathlib import Path

import pytest

from benchmarks import report, results, tables

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
    document = {"op": "matmul", "gpu": "NVIDIA H200", "date": "2026-11-21T10:00:00Z", "commit": "abc"}
    document |= {"versions": {"torch": "2.11", "cuda": "13.0", "driver": "580"}, "clocks_mhz": [1700, 1980]}
    document |= {"sources": {"paths": ["csrc/device"], "sha256": "0" * 16}}
    small, large = "1024x1024x1024", "4096x4096x4096"
    times = (small, "xgemm", 50.0), (small, "torch", 60.0), (large, "xgemm", 1000.0), (large, "torch", 2000.0)
    document["rows"] = [example_row(*row) for row in (*times, (large, "torch_tf32", 400.0))]
    document["rows"] += [example_row(small, name, us, graph=True) for name, us in (("xgemm", 40.0), ("torch", 20.0))]
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
    path.write_text(path.read_text().replace("1000.0", "1100.0"))
    capsys.readouterr()
    assert report.main(["--check"], project) == 1
    assert "README.md is not what" in capsys.readouterr().out
    assert report.main([], project) == 0
    changed = (project / "README.md").read_text()
    assert changed != readme and "| 0.50 to 1.82 |" in changed


def test_a_figure_stands_within_a_text(project: Path) -> None:
    rows = [example_row("1024x1024x1024", name, us) for name, us in (("step 1", 50.0), ("peer", 60.0))]
    rows.append(example_row("2048x2048x2048", "step 1", 800.0))
    folder = project / "benchmarks" / "results"
    for gpu, factor in (("nvidia_h200", 1), ("nvidia_h100", 2)):
        (folder / gpu).mkdir(exist_ok=True)
        scaled = [row | {"us": factor * row["us"]} for row in rows]
        (folder / gpu / "lab_sgemm.json").write_text(results.dump({"op": "lab_sgemm", "gpu": gpu, "rows": scaled}))
    counted = [{"case": f"call {i}", "counters": {"cycles": 100 * i}, "document": ""} for i in (1, 2)]
    (folder / "nvidia_h200" / "lab_counters.json").write_text(results.dump({"op": "lab_counters", "rows": counted}))
    found = tables.Results.read(folder / "nvidia_h200")
    figures = {
        "counters; cycles; call 2; over call 1; .1f": "2.0",
        "sgemm; us; step 1; n=1024; .1f": "50.0",
        "sgemm; us; peer; n=1024; over step 1; .0%": "120%",
        "sgemm; us; step 1; n=2048; over n=1024; .1f": "16.0",
        "h100/sgemm; us; case=2048x2048x2048; times 1e-3; .2f": "1.60",
        "fma; us; .1f": "not measured yet",
    }
    assert {spec: tables.lab_figure(spec, found) for spec in figures} == figures
    page = project / "docs" / "other.md"
    page.write_text("takes <!-- = sgemm; us; peer; .0f -->1<!-- / --> us\n")
    assert report.filled(page, page.read_text(), found) == "takes <!-- = sgemm; us; peer; .0f -->60<!-- / --> us\n"
    with pytest.raises(KeyError):
        tables.lab_figure("sgemm; us; nobody; .0f", found)
    with pytest.raises(ValueError, match="a figure without its end"):
        report.filled(page, "<!-- = sgemm; us; peer; .0f -->1", found)


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


# ---- the committed results -------------------------------------------------------------------------------------------


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


def test_other_gpus_kernels_have_no_peer_that_only_hopper_has() -> None:
    """cuDNN's attention is Hopper's own; torch's other backends and cuBLAS are what the table is about."""
    times = {"xgemm": 10.0, "sdpa_cudnn": 5.0, "sdpa_flash": 20.0, "sdpa_efficient": 30.0}
    rows = [example_row("1024x1024x1024", name, us, mode=None, groups=["prefill"]) for name, us in times.items()]
    document = {"op": "attention", "gpu": "NVIDIA H200", "date": "2026-11-21T10:00:00Z", "commit": "abc", "rows": rows}
    document |= {"versions": {"torch": "2.11", "cuda": "13.0", "driver": "580"}, "clocks_mhz": [1700, 1980]}
    document |= {"sources": {"paths": ["csrc/device"], "sha256": "0" * 16}}
    text = tables.portable_table(tables.Results(COMMITTED, {"attention_arch80": document}))
    assert "| attention, prefill | float32 | 1 | 2.00 | 2.00 | 0 | 2.00: 1024x1024x1024 |" in text
    assert tables.portable_table(tables.Results(COMMITTED, {})) == ""

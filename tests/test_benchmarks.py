"""The benchmarks' own logic, on the CPU: what is compared, refused, timed, merged, written and shown."""

import copy
import dataclasses
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from benchmarks import attention, common, matmul, report, results, run, softmax, tune
from benchmarks import sum as sum_benchmark

CPU = common.Options(device=torch.device("cpu"), quick=True)
HERE = common.Machine("Test CPU", 0)


def tiny_case(ours: Callable[..., torch.Tensor] = torch.matmul, name: str = "xgemm", **changes: object) -> common.Case:
    case = matmul.case(matmul.Shape(7, 5, 16), torch.float32, "highest", CPU)
    contenders = [common.Contender(name, ours), common.Contender("torch", torch.matmul)]
    return dataclasses.replace(case, contenders=contenders, **changes)


def benchmark(options: common.Options = CPU, where: common.Machine = HERE, **changes: object) -> common.Benchmark:
    return common.Benchmark("matmul", ["csrc/device"], options, where, **changes)


# ---- digest and metadata ---------------------------------------------------------------------------------------------


def test_digest_is_what_sha256sum_gives(tmp_path: Path) -> None:
    for name in ("csrc/b/two.cu", "csrc/b/Zed.h", "csrc/b/in/a.cuh", "csrc/b-c/x.h", "csrc/a/one.h", "csrc/other/no.h"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(100))
    listing = subprocess.run(
        "find csrc/a csrc/b csrc/b-c -type f | LC_ALL=C sort | xargs sha256sum",
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        check=True,
    ).stdout
    expected = hashlib.sha256(listing).hexdigest()[:16]
    assert results.sources_digest(["csrc/b", "csrc/b-c", "csrc/a"], tmp_path) == expected
    (tmp_path / "csrc/a/one.h").write_text("changed")
    assert results.sources_digest(["csrc/b", "csrc/b-c", "csrc/a"], tmp_path) != expected


def test_commit_prefers_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XGEMM_COMMIT", "abc123")
    assert results.commit() == "abc123"


def test_gpu_folder() -> None:
    assert results.gpu_folder("NVIDIA H200") == "nvidia_h200"


# ---- the check before the timing -------------------------------------------------------------------------------------


def wrong_value(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = a @ b
    c[-1, -1] += 0.01
    return c


def wrong_nan(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = a @ b
    c[0, 0] = float("nan")
    return c


@pytest.mark.parametrize("wrong", [wrong_value, wrong_nan, lambda a, b: (a @ b)[:-1], lambda a, b: (a @ b).bfloat16()])
def test_wrong_result_is_refused_before_timing(wrong: Callable[..., torch.Tensor]) -> None:
    case = tiny_case(wrong)
    inputs = case.make(torch.device("cpu"))
    reference = case.reference(*inputs)
    with pytest.raises(common.WrongResult, match="xgemm on 7x5x16 fp32 highest"):
        common.check(case, case.contenders[0], wrong(*inputs), inputs, reference)
    common.check(case, case.contenders[1], torch.matmul(*inputs), inputs, reference)

    bench = benchmark()
    rows = bench.measure(case)
    assert [row["contender"] for row in rows] == ["torch"]
    assert len(bench.failures) == 1 and "xgemm on 7x5x16" in bench.failures[0]


def test_a_failing_peer_is_noted_and_the_run_goes_on() -> None:
    def broken(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no kernel for this\nand a page of text")

    case = tiny_case()
    bench = benchmark()
    bench.measure(dataclasses.replace(case, contenders=[case.contenders[0], common.Contender("peer", broken)]))
    assert [row["contender"] for row in bench.rows] == ["xgemm"]
    assert bench.failures == []
    assert bench.notes == ["matmul: peer on 7x5x16 fp32 highest: no kernel for this"]


def test_our_failure_makes_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    class Module:
        OP, SOURCES, __doc__ = "matmul", ["csrc/device"], "Doc."

    monkeypatch.setattr(Module, "cases", staticmethod(lambda options: [tiny_case(wrong_value)]), raising=False)
    assert common.main(Module, ["--quick", "--device", "cpu"]) == 1
    monkeypatch.setattr(Module, "cases", staticmethod(lambda options: [tiny_case()]))
    assert common.main(Module, ["--quick", "--device", "cpu"]) == 0


def test_argmax_may_name_any_of_equal_maxima() -> None:
    from benchmarks import argmax

    case = argmax.case((3, 4), 1, torch.float32, CPU)
    x = torch.tensor([[1.0, 2, 2, 0], [5, 5, 5, 5], [0, 0, 0, 1]])
    reference = case.reference(x)
    common.check(case, case.contenders[0], torch.tensor([2, 3, 3]), (x,), reference)
    with pytest.raises(common.WrongResult):
        common.check(case, case.contenders[0], torch.tensor([0, 3, 3]), (x,), reference)


def test_attention_reference_is_sdpa(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = torch.randn(2, 6, 11, 8), torch.randn(2, 3, 11, 8), torch.randn(2, 3, 11, 8)
    for causal in (False, True):
        expected = torch.nn.functional.scaled_dot_product_attention(
            q.double(), k.double(), v.double(), is_causal=causal, enable_gqa=True
        )
        result, scale = attention.reference(q, k, v, causal=causal)
        torch.testing.assert_close(result, expected)
        assert (scale >= result.abs() - 1e-12).all()


@pytest.mark.parametrize("module", run.SHARES, ids=lambda module: module.OP)
def test_cpu_cases_are_right(module: ModuleType) -> None:
    """Reference, tolerance and contenders agree: torch's own ops pass every CPU case, ours (ATen there) too."""
    for case in module.cases(CPU):
        inputs = case.make(torch.device("cpu"))
        reference = case.reference(*inputs)
        for contender in case.contenders:
            with contender.context(), torch.inference_mode():
                common.check(case, contender, contender.call(*inputs), inputs, reference)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_tolerances_hold_for_half_precision(dtype: torch.dtype) -> None:
    problems = [
        matmul.case(matmul.Shape(33, 65, 129, batch=2, layout="tn"), dtype, None, CPU),
        sum_benchmark.case((64, 300), 0, dtype, CPU),
        sum_benchmark.case((64, 300), 1, dtype, CPU, mean=True),
        attention.case("S128 D64", (1, 2, 128, 64), (2, 128), True, dtype, CPU),
    ]
    if dtype == torch.bfloat16:  # float16 underflows there by definition
        problems.append(softmax.case((16, 1000), dtype, CPU))
    for case in problems:
        inputs = case.make(torch.device("cpu"))
        reference = case.reference(*inputs)
        contender = case.contenders[1]
        with contender.context():
            common.check(case, contender, contender.call(*inputs), inputs, reference)


# ---- floors and timing -----------------------------------------------------------------------------------------------


def test_floors() -> None:
    h200 = common.Machine("NVIDIA H200", 60 << 20, copy_gbps=4284.0, read_gbps=4390.0)
    n = 4096
    case = matmul.case(matmul.Shape(n, n, n), torch.float32, "highest", CPU)
    assert h200.floor_us(case) == pytest.approx(2 * n**3 / 330e12 * 1e6)  # DESIGN.md's 416 us
    assert h200.floor_us(case) == pytest.approx(416, abs=1)
    assert not h200.memory_bound(case)
    row = matmul.case(matmul.Shape(1, n, n), torch.bfloat16, None, CPU)
    assert h200.memory_bound(row)
    assert h200.floor_us(row) == pytest.approx((n * n + 2 * n) * 2 / 4390e9 * 1e6)
    copy = softmax.case((n, n), torch.float32, CPU)
    assert h200.floor_us(copy) == pytest.approx(2 * n * n * 4 / 4284e9 * 1e6)
    causal = attention.prefill(8192, 128, True, torch.bfloat16, CPU)
    full = attention.prefill(8192, 128, False, torch.bfloat16, CPU)
    assert full.flops == 2 * causal.flops == 4 * 16384 * 8192 * 2048
    assert HERE.floor_us(case) is None


def test_ways_to_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which rows a case gets on a GPU, with the graph replaced by plain calls."""
    made: list[int] = []

    def fake_graph(contender: common.Contender, sets: list[tuple], calls: int) -> common.Runner:
        assert calls % len(sets) == 0, "every set of a rotation is used equally often"
        made.append(len(sets))
        return common.eager_runner(contender, sets)

    monkeypatch.setattr(common, "graph_runner", fake_graph)
    gpu = common.Options(device=torch.device("cuda"), quick=True)

    def ways(case: common.Case, l2: int) -> list[tuple[str, bool]]:
        bench = benchmark(gpu, common.Machine("NVIDIA H200", l2, copy_gbps=4284.0, read_gbps=4390.0), keep=False)
        here = dataclasses.replace(case, make=lambda device, make=case.make: make(torch.device("cpu")))
        found = []
        for kind, graph, runners in bench._ways(here, here.make(gpu.device), [(c, {}) for c in here.contenders]):
            common.interleave(runners, 1.0, 3, None)
            assert all(len(runner.seconds) == 3 and min(runner.seconds) > 0 for runner in runners)
            found.append((kind, graph))
        return found

    case = tiny_case()  # 7 * 16 + 16 * 5 + 7 * 5 floats = 908 bytes
    monkeypatch.setattr(common, "LAUNCH_BOUND_S", 1.0)
    assert ways(case, 10_000) == [("hot", False), ("hot", True), ("cold", True)]
    assert made == [1, 1, 35, 35]  # 3 * 10000 / 908, rounded up, and one more
    assert ways(case, 200) == [("cold", False)]  # larger than four times the L2
    assert ways(case, 60 << 20) == [("hot", False), ("hot", True)]  # too small to rotate
    monkeypatch.setattr(common, "LAUNCH_BOUND_S", 0.0)
    assert ways(case, 10_000) == [("hot", False), ("cold", False)]
    compute_bound = dataclasses.replace(case, flops=1e15)
    assert ways(compute_bound, 10_000) == [("hot", False)]
    assert ways(dataclasses.replace(compute_bound, eager=False), 10_000) == [("hot", False)]  # too long for a graph
    monkeypatch.setattr(common, "LAUNCH_BOUND_S", 1.0)
    assert ways(dataclasses.replace(case, eager=False), 10_000) == [("hot", True), ("cold", True)]


def test_contenders_take_turns() -> None:
    order: list[str] = []
    runners = [
        common.Runner(common.Contender(name, lambda: None), lambda n, name=name: order.append(name) or 1e-3)
        for name in "ab"
    ]
    common.interleave(runners, 100.0, 4, None)
    assert "".join(order) == "abbaabba"
    common.interleave(runners, 0.0, 11, None)
    assert len(runners[0].seconds) == 4 + 3  # no time left: still three rounds


def test_cold_calls_rotate_over_all_sets() -> None:
    seen: list[int] = []
    runner = common.eager_runner(common.Contender("x", lambda i: seen.append(i)), [(0,), (1,), (2,)])
    runner.block(2)
    assert seen == [0, 1, 2, 0, 1, 2] and runner.calls == 3


def test_budget_leaves_cases_out_and_says_so() -> None:
    bench = benchmark(dataclasses.replace(CPU, budget=0.0))
    bench.run([tiny_case(), tiny_case()])
    assert bench.rows == [] and "2 of 2 cases not measured, from 7x5x16 fp32 highest on" in bench.notes[0]


def test_filter_and_dtypes() -> None:
    bench = benchmark(dataclasses.replace(CPU, filter="^7x5x16 fp32", dtypes=("fp32",)))
    bench.run([tiny_case(), dataclasses.replace(tiny_case(), name="9x9x9")])
    assert {row["case"] for row in bench.rows} == {"7x5x16"}
    bench = benchmark(dataclasses.replace(CPU, dtypes=("bf16",)))
    bench.run([tiny_case()])
    assert bench.rows == []


def test_a_run_compiles_few_cases() -> None:
    """Compiling takes seconds a case: a run of everything keeps to a few of each op, and each choice names cases."""
    options = common.Options(device=torch.device("cuda"), compile=True)
    chosen = {
        module.OP: sum(re.search(pattern, case.key) is not None for case in module.cases(options))
        for module, pattern in run.COMPILED.items()
    }
    assert all(0 < count <= 6 for count in chosen.values()), chosen


def test_compile_filter_leaves_the_compiled_peer_out() -> None:
    case = tiny_case(name=common.COMPILED)
    for pattern, names in (("", {common.COMPILED, "torch"}), ("^other", {"torch"})):
        rows = benchmark(dataclasses.replace(CPU, compile_filter=pattern)).measure(case)
        assert {row["contender"] for row in rows} == names


# ---- result files ----------------------------------------------------------------------------------------------------

ROW_FIELDS = {
    "case": str,
    "shape": dict,
    "dtype": str,
    "mode": (str, type(None)),
    "l2": str,
    "graph": bool,
    "contender": str,
    "us": float,
    "us_quartiles": list,
    "tflops": (float, type(None)),
    "gbps": (float, type(None)),
    "floor_us": (float, type(None)),
    "error": dict,
}


def test_file_of_a_cpu_run(tmp_path: Path) -> None:
    bench = benchmark(dataclasses.replace(CPU, out=tmp_path))
    bench.run([tiny_case(), dataclasses.replace(tiny_case(), name="other", groups=("peers",))])
    document = json.loads((tmp_path / "matmul.json").read_text())
    assert [row.pop("groups", None) for row in document["rows"]] == [None] * 2 + [["peers"]] * 2
    assert list(document)[-1] == "rows"
    assert {"op", "gpu", "date", "commit", "versions", "clocks_mhz", "sources", "rows"} <= set(document)
    assert set(document["versions"]) == {"torch", "cuda", "driver"}
    assert document["sources"] == {"paths": ["csrc/device"], "sha256": results.sources_digest(["csrc/device"])}
    assert document["machine_code"] is None  # a CPU's figures depend on no kernel
    assert [row["contender"] for row in document["rows"]] == ["xgemm", "torch"] * 2
    for row in document["rows"]:
        assert {name: row[name] for name in ROW_FIELDS} == row
        for name, kind in ROW_FIELDS.items():
            assert isinstance(row[name], kind), name
        low, high = row["us_quartiles"]
        assert 0 < low <= row["us"] <= high
        assert set(row["error"]) == {"fro", "max"} and 0 <= row["error"]["fro"] < 1e-5
    assert document["rows"][0]["shape"] == {"m": 7, "n": 5, "k": 16, "batch": 1, "layout": "nn"}


def test_runs_merge_on_the_same_sources_and_kernels_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "matmul.json"

    def measured(case: common.Case) -> list[tuple[str, str, float]]:
        bench = benchmark(dataclasses.replace(CPU, out=tmp_path))
        bench.run([case])
        return [(row["case"], row["contender"], row["us"]) for row in json.loads(path.read_text())["rows"]]

    first = measured(tiny_case())
    both = measured(dataclasses.replace(tiny_case(), name="other"))
    assert both[:2] == first and [entry[:2] for entry in both[2:]] == [("other", "xgemm"), ("other", "torch")]
    # Measured again without torch: the whole group is of the new run, a ratio never of two.
    alone = dataclasses.replace(tiny_case(), contenders=tiny_case().contenders[:1])
    again = measured(alone)
    assert [entry[:2] for entry in again] == [("7x5x16", "xgemm"), ("other", "xgemm"), ("other", "torch")]
    assert again[1:] == both[2:]
    # Other kernels: what was measured on the old ones goes.
    path.write_text(json.dumps(json.loads(path.read_text()) | {"machine_code": "0" * 16}))
    assert [entry[:2] for entry in measured(dataclasses.replace(tiny_case(), name="other"))] == [
        entry[:2] for entry in both[2:]
    ]
    # Other sources: the same.
    monkeypatch.setattr(common, "sources_digest", lambda paths: "0" * 16)
    assert [entry[:2] for entry in measured(tiny_case())] == [("7x5x16", "xgemm"), ("7x5x16", "torch")]


def test_out_starts_from_the_committed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path / "results")
    committed = benchmark(dataclasses.replace(CPU, out=tmp_path / "results" / "cpu"))
    committed.run([tiny_case()])
    bench = benchmark(dataclasses.replace(CPU, out=tmp_path / "out"))
    bench.run([dataclasses.replace(tiny_case(), name="other")])
    rows = json.loads((tmp_path / "out" / "matmul.json").read_text())["rows"]
    assert [row["case"] for row in rows] == ["7x5x16", "7x5x16", "other", "other"]


def test_run_of_everything_on_the_cpu(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run.main(["--quick", "--device", "cpu", "--filter", "64x|sum|softmax", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "No NVIDIA GPU here" in text and "geometric mean" in text
    assert {path.stem for path in tmp_path.glob("*.json")} == {
        "host",
        "softmax",
        "logsumexp",
        "log_softmax",
        "scaled_masked_softmax",
        "topk_softmax",
        "matmul",
        "linear",
        "gated_linear",
    }
    assert max(map(len, text.splitlines())) < 140


def test_tune_sets_the_variable_for_its_variant_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XGEMM_TEST_PLAN", "outside")
    seen: dict[str, set] = {}

    def ours(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        seen.setdefault(str(os.environ.get("XGEMM_TEST_PLAN")), set()).add(1)
        return a @ b

    case = tune.variants(tiny_case(ours), "XGEMM_TEST_PLAN", [tune.CHOICE, "a", "b"])
    rows = benchmark(keep=False).measure(case)
    assert [row["contender"] for row in rows] == ["chosen", "a", "b", "torch"]
    assert set(seen) == {"None", "a", "b"}
    assert os.environ["XGEMM_TEST_PLAN"] == "outside"


# ---- report ----------------------------------------------------------------------------------------------------------


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
    (tmp_path / "README.md").write_text(marked.format(""))
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
    assert readme.startswith("before\n<!-- results:begin -->\nNVIDIA H200") and readme.endswith("end -->\nafter\n")
    # Two cases, the graph's figure for the small one: 0.5 and 2.0; TF32 is no peer of "highest".
    assert "| matmul, float32, highest | 2 | 1.00 | 0.50 to 2.00 | 4096x4096x4096: 1000 us, 137.4 TFLOP/s |" in readme
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
    (project / "README.md").write_text(readme.replace("137.4", "139.9"))
    assert report.main(["--check"], project) == 1


def test_report_sums_up_groups_of_cases(project: Path) -> None:
    path = project / "benchmarks" / "results" / "nvidia_h200" / "matmul.json"
    document = json.loads(path.read_text())
    assert "geomean, worst" not in report.overview(report.Results.read(path.parent))
    named = {"1024x1024x1024": ["peers", "few rows"], "4096x4096x4096": ["peers"]}
    document["rows"] = [row | {"groups": named[row["case"]]} for row in document["rows"]]
    for contender, us in (("xgemm", 80.0), ("torch", 60.0)):
        row = example_row("1024x1024x1024", contender, us, l2="cold", groups=named["1024x1024x1024"])
        document["rows"] += [row, example_row("64x64x64", contender, 1.0, dtype="bfloat16", mode=None, groups=["odd"])]
    path.write_text(results.dump(document))
    table = report.case_groups_table("matmul", report.Results.read(path.parent), name_worst=True)
    assert table.splitlines()[0] == "| matmul: geomean, worst | shapes | float32 highest | bfloat16 |"
    assert table.splitlines()[2:] == [
        "| peers | 2 | 1.00, 0.50 (1024x1024x1024) |  |",
        "| few rows | 1 | 0.75, 0.75 (1024x1024x1024) |  |",  # the cold figure
        "| odd | 1 |  | 1.00, 1.00 (64x64x64) |",
    ]
    assert report.main([], project) == 0
    assert "| peers | 2 | 1.00, 0.50 |  |" in (project / "README.md").read_text()
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
    assert "| 01_naive | 5.37 | 17.18 | 0.125 | 3.0e-07 | 1 % |" in page.read_text()
    assert "| cublas |  | 137.44 | 1.000 | 3.0e-07 |  |" in page.read_text()


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
    assert text.count("| step | 1024x1024x1024 | 2048x2048x2048 | torch's time over this |") == 2
    assert "| 01_materialised | 5.37 | 5.37 | 0.100 | 3.0e-07 | 17 |" in text
    assert "| 01_materialised | 2.68 | 5.37 | 0.100 | 3.0e-07 | 17 |" in text
    assert "| torch | 53.69 | 53.69 | 1.000 | 3.0e-07 | 2 |" in text


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


def test_report_without_results_leaves_the_marks_empty(project: Path) -> None:
    (project / "benchmarks" / "results" / "nvidia_h200" / "matmul.json").unlink()
    assert report.main(["--check"], project) == 0


def test_plots_are_deterministic(project: Path) -> None:
    found = report.Results.read(project / "benchmarks" / "results" / "nvidia_h200")
    first = {path: path.read_bytes() for path in report.draw(found)}
    assert first and {path: path.read_bytes() for path in report.draw(found)} == first


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
    found = report.Results(tmp_path, documents)
    drawn = {path.stem for path in report.draw(found)}
    assert drawn == {"matmul", "sum", "logsumexp", "softmax", "log_softmax", "attention", "headline"}
    assert len(report.headline_panels(found)) == 3


def test_case_lists_hold_the_peers_table() -> None:
    options = common.Options(device=torch.device("cuda"))
    keys = {case.key for module in run.SHARES for case in module.cases(options)}
    for key in [
        "16384x16384x16384 bf16",
        "1x4096x4096 fp32 highest",
        "512x512x65536 fp16",
        "1073741824 all bf16",
        "1048576x128 dim0 fp32",
        "64x4194304 dim1 fp32",
        "4096x50257 dim1 bf16",
        "S16384 D256 causal bf16",
        "S8192 D64 fp32",
        "decode KV65536 D128 bf16",
    ]:
        assert key in keys, key
    committed = matmul.cases(options)
    assert len({case.name for case in committed}) >= 40
    assert {(case.dtype, case.mode) for case in committed if "layers" in case.groups} == {
        *((torch.float32, "highest"), (torch.float32, "high"), (torch.bfloat16, None), (torch.float16, None))
    }
    unaligned = [case for case in committed if "unaligned" in case.groups]
    assert len(unaligned) == 11 and {case.dtype for case in unaligned} == {torch.bfloat16}
    assert all(case.shape["n"] % 2 or case.shape["k"] % 2 for case in unaligned)
    assert all(case.groups for case in committed)
    everything = matmul.cases(dataclasses.replace(options, set="all"))
    assert len({case.name for case in everything}) >= 40 + 120
    assert len({case.key for case in everything}) == len(everything), "no two cases of one name"


def test_merge_keeps_order_and_input() -> None:
    old = [example_row("1x", "xgemm", 1.0), example_row("2x", "xgemm", 2.0)]
    before = copy.deepcopy(old)
    merged = results.merge_rows(old, [example_row("1x", "xgemm", 3.0), example_row("3x", "xgemm", 4.0)])
    assert [(row["case"], row["us"]) for row in merged] == [("1x", 3.0), ("2x", 2.0), ("3x", 4.0)]
    assert old == before

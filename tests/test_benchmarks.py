"""The benchmarks' own logic, on the CPU: what is compared, refused, timed, merged, written and shown."""

import contextlib
import copy
import dataclasses
import functools
import hashlib
import json
import os
import pickle
import re
import statistics
import subprocess
import types
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.utils.benchmark import Compare, Measurement, Timer
from torch.utils.benchmark.utils.common import TaskSpec

from benchmarks import attention, builds, common, matmul, report, results, run, softmax, tune
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
        attention.case(attention.Problem(1, 2, 2, 128, 128, 64, causal=True), dtype, CPU),
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
    high = matmul.case(matmul.Shape(n, n, n), torch.float32, "high", CPU)  # one fp16 part is faster than TF32
    assert h200.floor_us(high) == pytest.approx(2 * n**3 / 990e12 * 1e6)
    scores = attention.case(attention.prefill(8192, 128), torch.float32, CPU)  # three products of fp16 parts
    assert h200.floor_us(scores) == pytest.approx(scores.flops / 330e12 * 1e6)
    causal, full = (attention.case(attention.prefill(8192, 128, c), torch.bfloat16, CPU) for c in (True, False))
    assert full.flops == 2 * causal.flops == 4 * 16384 * 8192 * 2048
    assert HERE.floor_us(case) is None


def test_ways_to_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows measured for a case on a GPU, with plain calls instead of the graph."""
    made: list[int] = []

    def fake_graph(contender: common.Contender, sets: list[tuple], calls: int, **names: str) -> common.Runner:
        assert calls % len(sets) == 0, "every set of a rotation is used equally often"
        made.append(len(sets))
        return common.eager_runner(contender, sets, **names)

    monkeypatch.setattr(common.benchmark, "graph_runner", fake_graph)
    gpu = common.Options(device=torch.device("cuda"), quick=True)

    def ways(case: common.Case, l2: int) -> list[tuple[str, bool]]:
        bench = benchmark(gpu, common.Machine("NVIDIA H200", l2, copy_gbps=4284.0, read_gbps=4390.0), keep=False)
        here = dataclasses.replace(case, make=lambda device, make=case.make: make(torch.device("cpu")))
        found = []
        for kind, graph, runners in bench._ways(here, here.make(gpu.device), [(c, {}) for c in here.contenders]):
            common.interleave(runners, 1.0, 3, None)
            assert all(len(times) == 3 and min(times) > 0 for times in (r.measurement().times for r in runners))
            found.append((kind, graph))
        return found

    case = tiny_case()  # 7 * 16 + 16 * 5 + 7 * 5 floats = 908 bytes
    monkeypatch.setattr(common.benchmark, "LAUNCH_BOUND_S", 1.0)
    assert ways(case, 10_000) == [("hot", False), ("hot", True), ("cold", True)]
    assert made == [1, 1, 35, 35]  # 3 * 10000 / 908, rounded up, and one more
    assert ways(case, 200) == [("cold", False)]  # larger than four times the L2
    assert ways(case, 60 << 20) == [("hot", False), ("hot", True)]  # too small to rotate
    monkeypatch.setattr(common.benchmark, "LAUNCH_BOUND_S", 0.0)
    assert ways(case, 10_000) == [("hot", False), ("cold", False)]
    compute_bound = dataclasses.replace(case, flops=1e15)
    assert ways(compute_bound, 10_000) == [("hot", False)]
    assert ways(dataclasses.replace(compute_bound, eager=False), 10_000) == [("hot", False)]  # too long for a graph
    monkeypatch.setattr(common.benchmark, "LAUNCH_BOUND_S", 1.0)
    assert ways(dataclasses.replace(case, eager=False), 10_000) == [("hot", True), ("cold", True)]
    monkeypatch.setattr(common.benchmark, "LAUNCH_BOUND_S", 0.0)
    model = dataclasses.replace(case, whole_model=True, read=0, written=0, flops=0.0)
    assert ways(model, 10_000) == [("hot", False), ("hot", True)]  # a model is measured in a graph at any length


class CountedTimer:
    """A Timer whose statement takes 1 ms; `log` records names and run counts."""

    def __init__(self, name: str, log: list[tuple[str, int]]) -> None:
        self.name, self.log = name, log

    def timeit(self, number: int) -> Measurement:
        self.log.append((self.name, number))
        return Measurement(number, [number * 1e-3], TaskSpec("pass", "", description=self.name))


def test_contenders_take_turns() -> None:
    log: list[tuple[str, int]] = []
    runners = [common.Runner(common.Contender(name, lambda: None), CountedTimer(name, log)) for name in "ab"]
    common.interleave(runners, 100.0, 4, None)
    assert "".join(name for name, _ in log) == "abbaabba"
    common.interleave(runners, 0.0, 11, None)
    assert len(runners[0].blocks) == 4 + 3  # no time left: still three rounds


def test_blocks_are_long_beside_the_timers_own_warm_up() -> None:
    log: list[tuple[str, int]] = []
    runner = common.Runner(common.Contender("a", lambda: None), CountedTimer("a", log), calls=5)
    runner.calibrate(0.1)
    assert runner.number == 100 and runner.call_s == pytest.approx(2e-4)
    assert runner.block_s == pytest.approx(0.102)  # Timer.timeit warms up with two runs
    runner.calibrate(0.5e-3)  # a run is longer than the requested block
    assert runner.number == 8 and runner.block_s == pytest.approx(10e-3)
    common.interleave([runner], 100.0, 3, None)
    measurement = runner.measurement()
    assert measurement.number_per_run == 8 * 5 and measurement.raw_times == pytest.approx([8e-3] * 3)
    assert measurement.median == pytest.approx(2e-4)


def test_a_block_of_host_calls_adds_up_short_batches() -> None:
    calls: list[int] = []
    runner = common.host_runner(common.Contender("a", lambda i: calls.append(i)), [(0,)])
    runner.timer, log = CountedTimer("a", []), []
    runner.timer.log = log
    measurement = runner.block(250)
    assert [number for _, number in log] == [100, 100, 50]
    assert measurement.number_per_run == 250 and measurement.raw_times == pytest.approx([0.25])


def test_cold_calls_rotate_over_all_sets() -> None:
    seen: list[int] = []
    runner = common.eager_runner(common.Contender("x", lambda i: seen.append(i)), [(0,), (1,), (2,)])
    measurement = runner.block(2)
    assert seen == [0, 1, 2] * 4 and runner.calls == 3  # two turns to warm up, two timed
    assert measurement.number_per_run == 6 and measurement.task_spec.stmt == "turn()"


def test_timers_keep_the_number_of_threads() -> None:
    before, seen = torch.get_num_threads(), []
    torch.set_num_threads(3)
    try:
        runner = common.eager_runner(common.Contender("x", lambda: seen.append(torch.get_num_threads())), [()])
        assert runner.block(1).num_threads == 3 and set(seen) == {3}
    finally:
        torch.set_num_threads(before)


class FakeEvent:
    """A CUDA event on a device whose work takes as long as `FakeGraph.replay` says."""

    now_ms = 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.recorded_ms = FakeEvent.now_ms

    def synchronize(self) -> None:
        self.awaited = True

    def elapsed_time(self, end: "FakeEvent") -> float:
        assert end.awaited
        return end.recorded_ms - self.recorded_ms


def test_graph_replays_are_a_timers_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeGraph:
        def replay(self) -> None:
            FakeEvent.now_ms += 6.0

    stream = types.SimpleNamespace(wait_stream=lambda other: None, synchronize=lambda: None)
    for name, fake in {
        "Stream": lambda: stream,
        "current_stream": lambda: stream,
        "stream": contextlib.nullcontext,
        "CUDAGraph": FakeGraph,
        "graph": lambda graph, stream: contextlib.nullcontext(),
        "Event": FakeEvent,
        "synchronize": lambda: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    captured: list[int] = []
    contender = common.Contender("x", lambda i: captured.append(i))
    runner = common.graph_runner(contender, [(0,), (1,)], 4, label="matmul")
    assert captured == [0, 0, 1, 0, 1]  # once outside the graph
    measurement = runner.block(10)
    assert (measurement.stmt, measurement.label, measurement.number_per_run) == ("graph.replay()", "matmul", 40)
    assert measurement.raw_times == pytest.approx([60e-3])  # device time, not the host's
    assert measurement.median == pytest.approx(1.5e-3)


@pytest.mark.cuda
def test_a_graph_takes_no_longer_than_its_calls() -> None:
    a = torch.randn(64, 64, device="cuda")
    contender = common.Contender("torch", torch.matmul)
    graph, eager = common.graph_runner(contender, [(a, a)], 10), common.eager_runner(contender, [(a, a)])
    graph.block(10), eager.block(100)
    assert 0 < graph.block(10).median < eager.block(100).median


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
    """Compiling takes seconds per case: a full run compiles a few cases per op, and each pattern matches some."""
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
    "clock_mhz": type(None),  # nothing to read on a CPU
    "watts": type(None),
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


def test_measurements_are_saved_and_compare_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Module:
        OP, SOURCES, __doc__ = "matmul", ["csrc/device"], "Doc."

    monkeypatch.setattr(Module, "cases", staticmethod(lambda options: [tiny_case()]), raising=False)
    path = tmp_path / "new" / "saved.pkl"
    options = ["--quick", "--device", "cpu", "--out", str(tmp_path), "--measurements", str(path)]
    assert common.main(Module, options) == 0
    saved = pickle.loads(path.read_bytes())
    rows = json.loads((tmp_path / "matmul.json").read_text())["rows"]
    assert [measurement.metadata for measurement in saved] == rows
    for measurement, row in zip(saved, rows, strict=True):
        assert isinstance(measurement, Measurement) and len(measurement.times) == 5
        assert (measurement.label, measurement.sub_label) == ("matmul", "7x5x16 fp32 highest hot")
        assert measurement.description == row["contender"]
        assert row["us"] == pytest.approx(statistics.median(measurement.times) * 1e6, abs=1e-3)
        low, _, high = statistics.quantiles(measurement.times, n=4, method="inclusive")
        assert row["us_quartiles"] == pytest.approx([low * 1e6, high * 1e6], abs=1e-3)
    # A reader's own measurement under the same labels becomes one more column.
    own = Timer(
        "pass",
        label="matmul",
        sub_label="7x5x16 fp32 highest hot",
        description="mine",
        num_threads=saved[0].num_threads,
    )
    lines = str(Compare([*saved, own.timeit(1000)])).splitlines()
    assert [name.strip() for name in lines[1].split("|")] == ["", "xgemm", "torch", "mine"]
    assert len([line for line in lines if "7x5x16" in line]) == 1
    printed = capsys.readouterr().out
    assert "-- matmul --" in printed and "7x5x16 fp32 highest hot" in printed


def test_summary_says_how_far_the_floor_is() -> None:
    bench = benchmark()
    bench.measure(tiny_case())
    assert "floor" not in common.summary(bench)
    for row, us in zip(bench.rows, (20.0, 10.0), strict=True):
        row |= {"us": us, "floor_us": 5.0}
    assert common.summary(bench).splitlines() == [
        "matmul       torch             0.50x of 1; worst 0.50x 7x5x16 float32 hot",
        "matmul       floor               25% of 1; worst 25% 7x5x16 float32 hot",
    ]


def test_runs_merge_on_the_same_sources_and_kernels_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "matmul.json"

    def measured(case: common.Case) -> list[tuple[str, str, float]]:
        bench = benchmark(dataclasses.replace(CPU, out=tmp_path))
        bench.run([case])
        return [(row["case"], row["contender"], row["us"]) for row in json.loads(path.read_text())["rows"]]

    first = measured(tiny_case())
    both = measured(dataclasses.replace(tiny_case(), name="other"))
    assert both[:2] == first and [entry[:2] for entry in both[2:]] == [("other", "xgemm"), ("other", "torch")]
    # Measured again without torch: the new run replaces the whole group, so that no ratio mixes two runs.
    alone = dataclasses.replace(tiny_case(), contenders=tiny_case().contenders[:1])
    again = measured(alone)
    assert [entry[:2] for entry in again] == [("7x5x16", "xgemm"), ("other", "xgemm"), ("other", "torch")]
    assert again[1:] == both[2:]
    # Other kernels: measurements of the old ones are dropped.
    path.write_text(json.dumps(json.loads(path.read_text()) | {"machine_code": "0" * 16}))
    assert [entry[:2] for entry in measured(dataclasses.replace(tiny_case(), name="other"))] == [
        entry[:2] for entry in both[2:]
    ]
    # Other sources: the same.
    monkeypatch.setattr(common.benchmark, "sources_digest", lambda paths: "0" * 16)
    assert [entry[:2] for entry in measured(tiny_case())] == [("7x5x16", "xgemm"), ("7x5x16", "torch")]


def test_out_starts_from_the_committed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common.files, "RESULTS", tmp_path / "results")
    committed = benchmark(dataclasses.replace(CPU, out=tmp_path / "results" / "test_cpu"))
    committed.run([tiny_case()])
    bench = benchmark(dataclasses.replace(CPU, out=tmp_path / "out"))
    bench.run([dataclasses.replace(tiny_case(), name="other")])
    rows = json.loads((tmp_path / "out" / "matmul.json").read_text())["rows"]
    assert [row["case"] for row in rows] == ["7x5x16", "7x5x16", "other", "other"]


def test_run_of_everything_on_the_cpu(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    saved = tmp_path / "saved.pkl"
    options = ["--quick", "--device", "cpu", "--filter", "64x|sum|softmax", "--out", str(tmp_path)]
    assert run.main([*options, "--measurements", str(saved)]) == 0
    labels = {measurement.label for measurement in pickle.loads(saved.read_bytes())}
    assert labels == {path.stem for path in tmp_path.glob("*.json")}
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


def test_run_of_some_operators(tmp_path: Path) -> None:
    assert run.main(["--quick", "--device", "cpu", "--ops", "argmax,amax", "--out", str(tmp_path)]) == 0
    assert {path.stem for path in tmp_path.glob("*.json")} == {"argmax", "amax"}


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


def test_tune_names_the_fastest_plan(capsys: pytest.CaptureFixture[str]) -> None:
    bench = benchmark(keep=False)
    bench.measure(tune.variants(tiny_case(), "XGEMM_TEST_PLAN", [tune.CHOICE, "a", "b"]))
    for row, us in zip(bench.rows, (30.0, 10.0, 20.0, 5.0), strict=True):
        row["us"] = us
    tune.show(bench, [tune.CHOICE, "a", "b"])
    printed = capsys.readouterr().out.splitlines()
    assert [name.strip() for name in printed[1].split("|")] == ["", "chosen", "a", "b", "torch"]
    assert printed[-1] == "fastest plan of 7x5x16 float32 hot: a, 3.00x"  # torch is no plan


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
        "B16 H32/8 Q1 KV65536 D128 bf16",
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
    shared = {"dtype": "float32", "mode": None, "l2": "hot", "graph": False}
    old = [{"case": case, "us": us, **shared} for case, us in (("1x", 1.0), ("2x", 2.0))]
    before = copy.deepcopy(old)
    merged = results.merge_rows(old, [{"case": case, "us": us, **shared} for case, us in (("1x", 3.0), ("3x", 4.0))])
    assert [(row["case"], row["us"]) for row in merged] == [("1x", 3.0), ("2x", 2.0), ("3x", 4.0)]
    assert old == before


# ---- what is typed wrong ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("main", "options", "said"),
    [
        (
            functools.partial(common.main, softmax),
            ["--filter", "("],
            "--filter: expected a regular expression, got '('",
        ),
        (
            functools.partial(common.main, softmax),
            ["--dtypes", "fp8"],
            "--dtypes: expected some of fp32,bf16,fp16,fp64, got fp8",
        ),
        (
            functools.partial(common.main, matmul),
            ["--modes", "best"],
            "--modes: expected some of highest,ieee,high,medium, got best",
        ),
        (functools.partial(common.main, softmax), ["--device", "gpu"], "--device: "),
        (run.main, ["--ops", "gemm"], "--ops: expected some of host,softmax,sum,"),
        (tune.main, ["nothing", "--plans", "simt"], "there is no benchmark nothing"),
        (builds.main, ["nothing", "--builds", "a.so"], "there is no benchmark nothing"),
        (report.main, ["--gpu", "nothing"], "--gpu: there is no "),
    ],
)
def test_options_that_do_not_exist_are_one_line(
    main: Callable[[list[str]], int], options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(options)
    printed = capsys.readouterr()
    assert said in printed.err.splitlines()[-1] and not printed.out


def test_a_gpu_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match=r"^--device cuda: there is no NVIDIA GPU here$"):
        common.main(softmax, ["--device", "cuda"])


def test_a_choice_without_a_case_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert common.main(softmax, ["--device", "cpu", "--filter", "no such case"]) == 1
    assert capsys.readouterr().err == "softmax: no case is of these dtypes, modes, groups and this filter\n"

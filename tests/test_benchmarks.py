"""The benchmarks' own logic, on the CPU: what is compared, refused, timed, merged, written and shown."""

import dataclasses
import hashlib
import importlib
import importlib.machinery
import itertools
import json
import os
import pickle
import re
import shutil
import statistics
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.utils.benchmark import Measurement
from torch.utils.benchmark.utils.common import TaskSpec

import torch_ext
from benchmarks import attention, batch_invariant, builds, common, cpu, matmul, random_shapes, results, run, tables
from benchmarks.attention_peers import FA3, Problem, peers
from benchmarks.common.machine import Gpu, Reading

CPU = common.Options(device=torch.device("cpu"), quick=True)
HERE = common.Machine("Test CPU", 0)


def tiny_case(ours: Callable[..., torch.Tensor] = torch.matmul, name: str = "xgemm", **changes: object) -> common.Case:
    case = matmul.case(matmul.Shape(7, 5, 16), torch.float32, "highest", CPU)
    contenders = [common.Contender(name, ours), common.Contender("torch", torch.matmul)]
    return dataclasses.replace(case, contenders=contenders, **changes)


def benchmark(options: common.Options = CPU, where: common.Machine = HERE, **changes: object) -> common.Benchmark:
    return common.Benchmark("matmul", ["csrc/device"], options, where, **changes)


def test_digest_is_what_sha256sum_gives(tmp_path: Path) -> None:
    for name in ("csrc/b/two.cu", "csrc/b/Zed.h", "csrc/b/in/a.cuh", "csrc/b-c/x.h", "csrc/a/one.h", "csrc/other/no.h"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(100))
    command = "find csrc/a csrc/b csrc/b-c -type f | LC_ALL=C sort | xargs sha256sum"
    listing = subprocess.check_output(command, shell=True, cwd=tmp_path)
    paths, expected = ["csrc/b", "csrc/b-c", "csrc/a"], hashlib.sha256(listing).hexdigest()[:16]
    assert results.sources_digest(paths, tmp_path) == expected
    (tmp_path / "csrc/a/one.h").write_text("changed")
    assert results.sources_digest(paths, tmp_path) != expected


WRONG = {
    "value": lambda c: c + 0.01 * torch.eye(*c.shape),
    "NaN": lambda c: c.index_fill(0, torch.tensor(0), torch.nan),
    "shape": lambda c: c[:-1],
    "dtype": torch.Tensor.bfloat16,
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_result_is_refused_before_timing(wrong: str) -> None:
    case = tiny_case(lambda a, b: WRONG[wrong](a @ b))
    inputs = case.make(torch.device("cpu"))
    reference = case.reference(*inputs)
    with pytest.raises(common.WrongResult, match="xgemm on 7x5x16 fp32 highest"):
        common.check(case, case.contenders[0], case.contenders[0].call(*inputs), inputs, reference)
    common.check(case, case.contenders[1], torch.matmul(*inputs), inputs, reference)

    bench = benchmark()
    rows = bench.measure(case)
    assert [row["contender"] for row in rows] == ["torch"]
    assert len(bench.failures) == 1 and "xgemm on 7x5x16" in bench.failures[0]


def every_case() -> Iterator[common.Case]:
    for op in run.SHARES:
        yield from importlib.import_module(f"benchmarks.{op}").cases(CPU)
    yield from cpu.cases(CPU)
    yield from random_shapes.cases(dataclasses.replace(CPU, seed=3))


def test_cpu_cases_are_right() -> None:
    """Reference, tolerance, baseline and contenders agree: torch's ops pass every CPU case, ours (ATen there) too."""
    for case in every_case():
        inputs = case.make(torch.device("cpu"))
        reference = case.reference(*inputs)
        for contender in case.contenders:
            with contender.context(), torch.inference_mode():
                common.check(case, contender, contender.call(*inputs), inputs, reference)
        if case.baseline:
            common.check(case, case.contenders[0], case.baseline(*inputs), inputs, reference)


def test_cpu_cases_cover_every_operator() -> None:
    schemas = (Path(__file__).parents[1] / "csrc" / "ops.cpp").read_text()
    # On the CPU attention of sequences is attention, one sequence after the other.
    ops = {op for op in re.findall(r'"(\w+)\(Tensor', schemas) if not re.match("attention_", op)}
    ops -= {"prepare", "linear_prepared"}
    for dtype in cpu.DTYPES:
        assert {op for op, found in cpu.cases_by_op(dtype, CPU).items() if found} == ops
    assert len({case.key for case in cpu.cases(CPU)}) == len(cpu.cases(CPU))


def test_a_seed_alone_decides_random_shapes() -> None:
    assert random_shapes.products(1, 20) == random_shapes.products(1)[:20] != random_shapes.products(2)[:20]


def test_modes_of_whole_programs() -> None:
    """torch's call on this library in the mode."""
    before = {case.key: {c.name: c for c in case.contenders} for case in batch_invariant.cases(CPU)}
    assert set(before) == {"64x97x33 fp32 highest", "64x97x33 bf16"}
    ours = before["64x97x33 fp32 highest"][tables.ENABLED_MODE]
    with ours.context(), torch_ext.enable(device="cpu") as handle:
        assert torch_ext.is_batch_invariant()
        ours.call(torch.randn(64, 33), torch.randn(33, 97))
    assert handle.calls["mm", "xgemm"] == 1 and not torch_ext.is_batch_invariant()


def test_floors() -> None:
    h200 = common.Machine("NVIDIA H200", 60 << 20, copy_gbps=4284.0, read_gbps=4390.0)
    n = 4096
    case = matmul.case(matmul.Shape(n, n, n), torch.float32, "highest", CPU)
    assert h200.floor_us(case) == pytest.approx(2 * n**3 / 330e12 * 1e6)  # 416 us
    assert not h200.memory_bound(case)
    row = matmul.case(matmul.Shape(1, n, n), torch.bfloat16, None, CPU)
    assert h200.memory_bound(row)
    assert h200.floor_us(row) == pytest.approx((n * n + 2 * n) * 2 / 4390e9 * 1e6)
    high = matmul.case(matmul.Shape(n, n, n), torch.float32, "high", CPU)  # one fp16 part is faster than TF32
    assert h200.floor_us(high) == pytest.approx(2 * n**3 / 990e12 * 1e6)
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
        bench._block_s = 1e-3
        here = dataclasses.replace(case, make=lambda device, make=case.make: make(torch.device("cpu")))
        found = []
        for kind, graph, runners in bench._ways(here, here.make(gpu.device), [(c, {}) for c in here.contenders]):
            common.interleave(runners, 0.0, 3, None)
            assert all(len(times) == 3 and min(times) > 0 for times in (r.measurement().times for r in runners))
            found.append((kind, graph))
        return found

    case = tiny_case()  # 7 * 16 + 16 * 5 + 7 * 5 floats = 908 bytes
    monkeypatch.setattr(common.benchmark, "LAUNCH_BOUND_S", 1.0)
    assert ways(case, 10_000) == [("hot", False), ("hot", True), ("cold", True)]
    assert made == [1, 1, 35, 35]  # 3 * 10000 / 908, rounded up, and one more
    assert ways(case, 200) == [("cold", False)]  # larger than four times the L2
    assert ways(case, 60 << 20) == [("hot", False), ("hot", True)]  # too small to rotate
    assert ways(dataclasses.replace(case, eager=False), 10_000) == [("hot", True), ("cold", True)]
    monkeypatch.setattr(common.benchmark, "LAUNCH_BOUND_S", 0.0)
    assert ways(case, 10_000) == [("hot", False), ("cold", False)]
    for eager in (True, False):  # too long for a graph
        assert ways(dataclasses.replace(case, flops=1e15, eager=eager), 10_000) == [("hot", False)]
    model = dataclasses.replace(case, whole_model=True, read=0, written=0, flops=0.0)
    assert ways(model, 10_000) == [("hot", False), ("hot", True)]  # a model is measured in a graph at any length


def test_contenders_take_turns() -> None:
    turns: list[str] = []

    def timer(name: str) -> types.SimpleNamespace:
        """A Timer whose statement takes 1 ms."""

        def timeit(number: int) -> Measurement:
            turns.append(name)
            return Measurement(number, [number * 1e-3], TaskSpec("pass", "", description=name))

        return types.SimpleNamespace(timeit=timeit)

    runners = [common.Runner(common.Contender(name, lambda: None), timer(name)) for name in "ab"]
    common.interleave(runners, 100.0, 4, None)
    assert "".join(turns) == "abbaabba"
    common.interleave(runners, 0.0, 11, None)
    assert len(runners[0].blocks) == 4 + 3  # no time left: still three rounds


def test_cold_calls_rotate_over_all_sets() -> None:
    seen: list[int] = []
    runner = common.eager_runner(common.Contender("x", lambda i: seen.append(i)), [(0,), (1,), (2,)])
    measurement = runner.block(2)
    assert seen == [0, 1, 2] * 4 and runner.calls == 3  # two turns to warm up, two timed
    assert measurement.number_per_run == 6 and measurement.task_spec.stmt == "turn()"


def test_power_is_of_the_block_itself() -> None:
    """Early in a block, the averaged power still includes the block before."""
    gpu = Gpu(torch.device("cuda", 0))
    gpu._readings += [Reading(t, 1600, 700.0) for t in (9.99, 10.01, 10.024, 10.026, 10.1, 10.2)]
    found = [(reading.time, reading.watts) for reading in gpu.readings(10.0, 10.15)]
    assert found == [(10.01, None), (10.024, None), (10.026, 700.0), (10.1, 700.0)]


@pytest.mark.cuda
def test_a_graph_takes_no_longer_than_its_calls() -> None:
    a = torch.randn(64, 64, device="cuda")
    contender = common.Contender("torch", torch.matmul)
    graph, eager = common.graph_runner(contender, [(a, a)], 10), common.eager_runner(contender, [(a, a)])
    graph.block(10), eager.block(100)
    assert 0 < graph.block(10).median < eager.block(100).median


def test_file_of_a_cpu_run(tmp_path: Path) -> None:
    bench = benchmark(dataclasses.replace(CPU, out=tmp_path))
    bench.run([tiny_case(), dataclasses.replace(tiny_case(), name="other", groups=("peers",))])
    document = json.loads((tmp_path / "matmul.json").read_text())
    assert [row.pop("groups", None) for row in document["rows"]] == [None] * 2 + [["peers"]] * 2
    assert {"op", "gpu", "date", "commit", "versions", "clocks_mhz", "sources", "rows"} <= set(document)
    assert document["sources"] == {"paths": ["csrc/device"], "sha256": results.sources_digest(["csrc/device"])}
    assert document["machine_code"] is None  # a CPU's figures depend on no kernel
    assert [row["contender"] for row in document["rows"]] == ["xgemm", "torch"] * 2
    for row, measurement in zip(document["rows"], bench.measurements, strict=True):
        low, median, high = (1e6 * t for t in statistics.quantiles(measurement.times, n=4, method="inclusive"))
        assert [row["us"], *row["us_quartiles"]] == pytest.approx([median, low, high], abs=1e-3)
        assert set(row["error"]) == {"fro", "max"} and 0 <= row["error"]["fro"] < 1e-5
        assert row["clock_mhz"] is row["watts"] is None and isinstance(row["graph"], bool)
    assert document["rows"][0]["shape"] == {"m": 7, "n": 5, "k": 16, "batch": 1, "layout": "nn"}


def test_runs_merge_on_the_same_sources_and_kernels_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "matmul.json"

    def measured(case: common.Case) -> list[tuple[str, str, float]]:
        bench = benchmark(dataclasses.replace(CPU, out=tmp_path))
        bench.run([case])
        return [(row["case"], row["contender"], row["us"]) for row in json.loads(path.read_text())["rows"]]

    case, other = tiny_case(), dataclasses.replace(tiny_case(), name="other")
    first = measured(case)
    both = measured(other)
    assert both[:2] == first and [entry[:2] for entry in both[2:]] == [("other", "xgemm"), ("other", "torch")]
    # Measured again without torch: the new run replaces the whole group, so that no ratio mixes two runs.
    again = measured(dataclasses.replace(case, contenders=case.contenders[:1]))
    assert again[0][:2] == ("7x5x16", "xgemm") and again[1:] == both[2:]
    # Other kernels, then other sources: measurements of the old ones are dropped.
    path.write_text(json.dumps(json.loads(path.read_text()) | {"machine_code": "0" * 16}))
    assert [name for name, *_ in measured(other)] == ["other"] * 2
    monkeypatch.setattr(common.benchmark, "sources_digest", lambda paths: "0" * 16)
    assert [name for name, *_ in measured(case)] == ["7x5x16"] * 2


def test_run_of_some_operators(tmp_path: Path) -> None:
    assert run.main(["--quick", "--device", "cpu", "--ops", "argmax,amax", "--out", str(tmp_path)]) == 0
    assert {path.stem for path in tmp_path.glob("*.json")} == {"argmax", "amax"}


@pytest.mark.parametrize("main", [random_shapes.main, partial(common.main, matmul)], ids=["random_shapes", "matmul"])
def test_a_filter_that_no_case_passes(main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--device", "cpu", "--filter", "^nothing$"]) == 1
    assert "no case is of these dtypes, modes, groups and this filter" in capsys.readouterr().err


CUDA = common.Options(device=torch.device("cuda"))


MASKED = [Problem(3, 2, 2, 16, 16, 8, 16, mask="padding"), Problem(1, 2, 2, 16, 16, 8, 16, mask="document")]
MASKED += [Problem(1, 4, 2, 5, 13, 8, 13, causal=True), Problem(2, 6, 3, 11, 11, 8, 11, causal=True, window=4)]
MASKED += [Problem(1, 2, 2, 9, 12, 8, 12, causal=True, window=1)]


@pytest.mark.parametrize("p", MASKED, ids=lambda p: p.name)
def test_operations_are_those_of_unmasked_scores(p: Problem) -> None:
    """By the reference, which test_cpu_cases_are_right compares with ours: a value's column shows who sees it."""
    case = attention.case(p, torch.float32, CPU)
    q, k, v, *mask = case.make(torch.device("cpu"))
    seen = case.reference(torch.zeros_like(q), k, torch.eye(p.keys).expand_as(v), *mask)[0] > 0
    assert p.kept == pytest.approx(seen.double().mean().item(), abs=1e-9 if p.window else 1 / p.keys)
    assert case.flops == pytest.approx(2 * p.kept * p.batch * p.heads * p.rows * p.keys * (p.size + p.dv))


def test_who_takes_what(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where FlashAttention-3 is installed."""
    module = types.ModuleType(FA3)
    module.__spec__ = importlib.machinery.ModuleSpec(FA3, None)
    monkeypatch.setitem(sys.modules, FA3, module)

    def names(p: Problem, dtype: torch.dtype, options: common.Options = CUDA) -> set[str]:
        return {contender.name for contender in peers(p, dtype, options)}

    plain, grouped = Problem(1, 4, 4, 64, 64, 64), Problem(1, 4, 2, 64, 64, 64)
    assert names(plain, torch.bfloat16) == {"sdpa_flash", "sdpa_cudnn", "sdpa_efficient", "fa3"}
    assert names(plain, torch.float16) == {"sdpa_flash", "sdpa_cudnn", "sdpa_efficient"}
    assert names(plain, torch.float32) == {"sdpa_efficient"}
    assert names(grouped, torch.bfloat16) == {"sdpa_flash", "sdpa_cudnn", "fa3"}
    assert names(grouped, torch.float32) == {"sdpa_math"}, "only where no other backend serves"
    window = dataclasses.replace(plain, causal=True, window=8)  # flash takes no mask, fa3's wheel no window
    assert names(window, torch.bfloat16) == {"sdpa_cudnn", "sdpa_efficient", "flex_attention"}
    every = dataclasses.replace(CUDA, set="all")
    assert "sdpa_math" in names(plain, torch.bfloat16, every)
    assert names(plain, torch.bfloat16, CPU) == {"sdpa_math"}


LIBRARY = Path(torch_ext.__file__).with_name("libxgemm.so")


def test_two_builds_take_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.so", "b.so"):
        shutil.copyfile(LIBRARY, tmp_path / name)
    saved = tmp_path / "saved.pkl"
    options = ["matmul", "--builds", f"{tmp_path}/a.so,other={tmp_path}/b.so", "--device", "cpu", "--quick"]
    before = os.environ.get(builds.VARIABLE)
    assert builds.main([*options, "--filter", "^(64x64|65x97)", "--measurements", str(saved)]) == 0
    assert os.environ.get(builds.VARIABLE) == before
    printed = capsys.readouterr().out
    assert f"xgemm: {tmp_path}/a.so\n" in printed and f"xgemm_other: {tmp_path}/b.so\n" in printed
    assert "xgemm_other" in printed.splitlines()[-1] and "of 2; worst" in printed.splitlines()[-1]
    found = pickle.loads(saved.read_bytes())
    wanted = itertools.product(("64x64x64", "65x97x33"), ("xgemm", "xgemm_other"))
    assert [(one.metadata["case"], one.description) for one in found] == list(wanted)
    for one in found:
        assert len(one.times) == 2 * 5, "two turns of five rounds"
        assert one.metadata["us"] == pytest.approx(one.median * 1e6)


def test_turns_are_merged_by_build_and_way() -> None:
    def turn(name: str, way: str, number: int, times: list[float], us: float) -> Measurement:
        measured = Measurement(number, times, TaskSpec("f()", "", sub_label=way, description=name))
        measured.metadata = {"contender": name, "us": us, "us_quartiles": [us, us], "tflops": 1.0, "gbps": None}
        return measured

    turns = [
        *(turn("xgemm", "hot", 10, [1e-5, 2e-5], 1.5), turn("xgemm_b", "hot", 10, [4e-5, 4e-5], 4.0)),
        *(turn("xgemm_b", "hot", 20, [8e-5, 8e-5], 4.0), turn("xgemm", "hot", 20, [6e-5, 6e-5], 3.0)),
        turn("xgemm", "hot, graph", 1, [1e-6, 1e-6], 1.0),
    ]
    merged = builds.merged(turns)
    us = {(one.description, one.sub_label): one.metadata["us"] for one in merged}  # 2.5: the median of 1, 2, 3 and 3 us
    assert us == pytest.approx({("xgemm", "hot"): 2.5, ("xgemm_b", "hot"): 4.0, ("xgemm", "hot, graph"): 1.0})
    assert "tflops" not in merged[0].metadata, "a rate would be one turn's"

"""tools/fuzz: planted mistakes are found and replayed, a crash or a hang costs one case, correct operators pass."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tools import gpu_tests
from tools.fuzz import ROOT, bad, check, ops
from tools.fuzz.__main__ import Died, Fuzzer, Work, main
from tools.fuzz.check import Bound, Case, Wrong, compare
from tools.fuzz.draw import Draw
from tools.fuzz.samples import streams
from tools.fuzz.worker import STREAMS, attempt, run_block

CPU = torch.device("cpu")
Op = Callable[..., Any]


def failures(stream: str, count: int = 40) -> list[str]:
    found: list[str] = []
    run_block(stream, 3, range(count), CPU, lambda *what: found.append(what[2]))
    return found


PLANTED = """
import os, signal, time
from tools.fuzz import check, ops

amax, raw = ops.OPS["amax"], check.raw

def planted(draw):
    if draw.number == 5:
        os.kill(os.getpid(), signal.SIGSEGV)
    if draw.number == 9:
        time.sleep(3600)
    if draw.number == 12:
        check.raw = lambda op: lambda **inputs: raw(op)(**inputs) + 1
    else:
        check.raw = raw
    return amax(draw)

ops.OPS["amax"] = planted
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., tuple[subprocess.CompletedProcess[str], dict[str, Any]]]:
    (tmp_path / "planted.py").write_text(PLANTED)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "OMP_NUM_THREADS": "1"}

    def command(*arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
        result = tmp_path / "fuzz.json"
        result.unlink(missing_ok=True)
        options = ["--device", "cpu", "--jobs", "1", "--json", str(result), *arguments]
        whole = [sys.executable, "-m", "tools.fuzz", *options]
        ran = subprocess.run(whole, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
        return ran, json.loads(result.read_text()) if result.exists() else {}

    return command


def test_planted_crash_hang_and_wrong_result_cost_a_case_each(run: Callable, tmp_path: Path, monkeypatch, capsys):
    # Seed 3's case 12 is a valid call; an invalid one would not check the result.
    ran, result = run("--ops", "amax", "--cases", "13", "--seed", "3", "--use", "planted", "--timeout", "10")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert (result["cases"], result["failures"], result["crashes"], result["hangs"]) == (13, 3, 1, 1)
    found = {f["replay"]: f["message"] for f in result["findings"]}
    assert list(found) == ["amax 3 5", "amax 3 9", "amax 3 12"]
    assert found["amax 3 5"] == "crashed: SIGSEGV"
    assert found["amax 3 9"].startswith("hung: ")
    assert "are wrong" in found["amax 3 12"]
    assert "python -m tools.fuzz --device cpu --replay 'amax 3 12'" in ran.stdout
    assert "fuzz: 13 cases" in ran.stdout and "seed 3: 3 failures (1 crashes, 1 hangs)" in ran.stdout

    replay = ["--device", "cpu", "--replay", "amax 3 12"]
    assert main(replay) == 0  # without the planted mistake
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(ops.OPS, "amax", ops.OPS["amax"])  # planted.py changes both
    monkeypatch.setattr(check, "raw", check.raw)
    assert main([*replay, "--use", "planted"]) == 1 and found["amax 3 12"] in capsys.readouterr().out


def options(**changes: Any) -> SimpleNamespace:
    usual = {"ops": ["sum", "mean"], "seed": 1, "cases": None, "minutes": None, "shard": "1/1", "device": "cpu"}
    return SimpleNamespace(**(usual | changes))


def test_shards_divide_the_cases() -> None:
    def work(shard: str) -> list[tuple[str, int, int]]:
        fuzzer = Fuzzer(options(ops=["sum", "opinfo.sum", "mean"], cases=1000, shard=shard))
        found = []
        for w in fuzzer.every_work():
            found += [(w.stream, w.first, w.count)]
            if w.stream == "opinfo.sum" and w.first >= 128:  # its samples end here, as only this process sees
                fuzzer.ended.add(w.stream)
        return [of for of in found if of[0] != "opinfo.sum"]

    whole = work("1/1")
    assert sum(count for *_, count in whole) == 1000 and len(set(whole)) == len(whole)
    assert sorted(work("1/3") + work("2/3") + work("3/3")) == sorted(whole)


def test_a_block_in_which_a_worker_died_is_run_again_case_by_case() -> None:
    fuzzer = Fuzzer(options())
    whole = Work("sum", 1, first=0, count=64, block=16)
    rest, again = fuzzer.after(whole, Died(16, "crashed: SIGSEGV"))
    assert (again.first, again.count, again.block) == (16, 16, 1)
    assert (rest.first, rest.count, rest.block) == (32, 32, 16)
    assert fuzzer.cases["sum"] == 16 and not fuzzer.findings
    (rest,) = fuzzer.after(again, Died(20, "crashed: SIGSEGV"))
    assert (rest.first, rest.count) == (21, 11)
    assert fuzzer.cases["sum"] == 16 + 5 and list(fuzzer.findings) == [("sum", 20)]
    assert fuzzer.after(rest, Died(31, "hung: no end after 1 s")) == []
    assert fuzzer.cases["sum"] == 32


def test_a_weight_that_underflows_takes_its_value_with_it() -> None:
    """A sink reduces a key's weight to 3e-46; the key's value is 4e8."""
    found: list[tuple] = []
    assert run_block("attention_lse", 15, range(1277, 1278), CPU, lambda *what: found.append(what)) and not found


def test_every_operator_has_a_stream() -> None:
    schemas = (ROOT / "csrc" / "ops.cpp").read_text()
    defined = {name.split("(")[0] for name in schemas.replace("m.def(\n      ", "m.def(").split('m.def("')[1:]}
    assert defined == set(ops.OPS)
    assert set(STREAMS) == set(ops.OPS) | set(streams())


@pytest.mark.parametrize("stream", list(ops.OPS))
def test_a_case_is_a_function_of_op_seed_and_number(stream: str) -> None:
    first, again = (attempt(stream, 5, 7, CPU)[0] for _ in range(2))
    assert str(first) == str(again)
    assert len({str(attempt(stream, seed, number, CPU)[0]) for seed in (5, 6) for number in range(5)}) > 5
    for name, value in first.inputs.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.device == CPU:
            torch.testing.assert_close(value, again.inputs[name], rtol=0, atol=0, equal_nan=True)


def test_sizes_and_layouts_reach_what_kernels_stumble_over() -> None:
    seen: dict[str, set[Any]] = {"size": set(), "rank": set(), "offset": set(), "layout": set(), "dtype": set()}
    for number in range(3000):
        draw = Draw("sum", 1, number, CPU)
        x = draw.tensor(draw.shape(), draw.any_dtype())
        seen["size"] |= set(x.shape)
        seen["rank"].add(x.dim())
        seen["offset"].add(x.storage_offset())
        seen["dtype"].add(x.dtype)
        if x.dim() > 1 and x.numel() > 100:
            kind = "contiguous" if x.is_contiguous() else "transposed" if x.mT.is_contiguous() else "strided"
            seen["layout"].add("expanded" if 0 in x.stride() else kind)
            extent = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) + 1
            if extent < x.numel() and 0 not in x.stride():
                seen["layout"].add("overlapping")
    edges = {e + d for e in (8, 16, 32, 64, 128, 256, 1024) for d in (-1, 0, 1)}
    assert seen["size"] >= edges | {0, 1, 2, 3, 13, 127, 521}
    assert seen["rank"] == set(range(7)) and len(seen["dtype"]) == 10
    assert seen["offset"] >= {0, 1, 2, 3, 5, 8, 64}
    assert seen["layout"] == {"contiguous", "transposed", "strided", "expanded", "overlapping"}


def plant(monkeypatch: pytest.MonkeyPatch, change: Callable[[Op, str], Op]) -> None:
    original = check.raw
    for module in (check, bad, ops):
        monkeypatch.setattr(module, "raw", lambda op: change(original(op), op))


def first_only(f: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Op, str], Op]:
    def changed(op: Op, **inputs: Any) -> Any:
        first, *others = check.several(op(**inputs))
        return (f(first), *others) if others else f(first)

    return lambda op, name: partial(changed, op)


def last_off(x: torch.Tensor) -> torch.Tensor:
    """Changes the last element by a thousandth of the largest, in half precision by a fiftieth."""
    if x.numel():
        y = x.view(-1)
        step = 0.02 if x.dtype in (torch.float16, torch.bfloat16) else 1e-3
        y[-1] = y[-1] + step * y.abs().nan_to_num(0, 0, 0).amax() if x.is_floating_point() else y[-1] + 1
    return x


VALUED = [op for op in ops.OPS if op != "prepare"]


@pytest.mark.parametrize("op", VALUED)
def test_one_wrong_element_is_found(monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    plant(monkeypatch, first_only(last_off))
    assert any("are wrong" in message for message in failures(op))


def of_first(f: Callable[[torch.Tensor], torch.Tensor], message: str) -> tuple:
    return ("matmul", "softmax", "attention_lse"), first_only(f), message


def writes(op: Op, name: str) -> Op:
    def g(a: torch.Tensor, **inputs: Any) -> Any:
        found = op(a=a, **inputs)
        if a.numel() and a.is_contiguous():
            a.view(-1)[0] += 1
        return found

    return g


def follows_torchs_setting(op: Op, name: str) -> Op:
    return lambda **inputs: op(**inputs) * (1 if torch.get_float32_matmul_precision() == "highest" else 1.01)


@pytest.mark.parametrize(
    ("streams", "change", "message"),
    [
        of_first(lambda x: x.double() if x.dtype is not torch.float64 else x.float(), "dtype torch.float"),
        of_first(lambda x: x[None], "shape ["),
        of_first(lambda x: torch.stack([x, x], -1)[..., 0] if x.numel() > 1 else x, "not contiguous"),
        of_first(lambda x: x + torch.rand(()) * 1e-7, "other bits the second time"),
        of_first(lambda x: torch.where(x == x.amax(), torch.nan, x) if x.numel() else x, "is nan, not "),
        (["matmul"], writes, "an input has been written to"),
        (["matmul"], follows_torchs_setting, "are wrong"),
    ],
    ids=["dtype", "shape", "strides", "repeat", "NaN", "input", "precision"],
)
def test_what_else_may_be_wrong_with_a_result(monkeypatch, streams: list[str], change: Callable, message: str) -> None:
    plant(monkeypatch, change)
    for stream in streams:
        assert any(message in found for found in failures(stream, 100 if len(streams) == 1 else 40)), stream
    assert torch.get_float32_matmul_precision() == "highest"


def test_bits_that_seldom_differ_are_found_by_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = itertools.count()
    plant(monkeypatch, first_only(lambda x: x + 1e-7 * (next(calls) % 16 == 15)))
    monkeypatch.setenv(check.REPEATS, "40")
    assert "other bits in some of 39 repeats" in failures("softmax")


def test_missing_nan_and_inf_are_found() -> None:
    case = Case("sum", {}, torch.sum)
    exact = torch.tensor([1.0, torch.nan, torch.inf, -torch.inf], dtype=torch.float64)
    wrongs = [1, 2, torch.inf, -torch.inf], [1, torch.nan, 3e38, -torch.inf], [1, torch.nan, torch.inf, torch.inf]
    for wrong in wrongs:
        assert not compare(case, torch.tensor(wrong, dtype=torch.float32), exact, Bound(1e-6), None).ok
    assert compare(case, exact.float(), exact, Bound(1e-6), None).ok
    big = torch.tensor([3.5e38, 1.0], dtype=torch.float64)  # beyond fp32
    assert compare(case, big.float(), big, Bound(1e-6), None).ok
    assert not compare(case, torch.tensor([3.4e38, 1.0]), big, Bound(1e-6), None).ok


def test_a_row_that_sees_its_batch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake changes the row's value, since on the CPU -0 and 0 count as equal."""

    def change(op: Op, name: str) -> Op:
        return lambda input, **more: op(input=input, **more) + (input.dim() > 0 and input.shape[0] == 1)

    draw = Draw("amax", 1, 1, CPU)
    x = torch.arange(12.0).view(4, 3)
    case = ops.front_rows(Case("amax", {"input": x, "dim": [1], "keepdim": False}, torch.amax), "input", [1])
    assert case.rows == {"input": 0}
    for right in (True, False):
        assert all(f.ok.item() for _ in range(20) for f in check.sliced(case, draw)) == right
        plant(monkeypatch, change)


def test_a_function_that_differs_from_its_operator_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = check.function
    monkeypatch.setattr(check, "function", lambda op: lambda **inputs: -original(op)(**inputs))
    assert any("function's bits" in message for message in failures("softmax"))


def test_a_fake_that_differs_from_its_operator_is_found() -> None:
    case = Case("sum", {"input": torch.ones(3, 4), "dim": [0]}, torch.sum)
    check.check_fake(case, (torch.zeros(4),))
    for result in (torch.zeros(3), torch.zeros(4, dtype=torch.int64)):
        with pytest.raises(Wrong, match=r"its fake torch.float32\[4\]"):
            check.check_fake(case, (result,))


@pytest.mark.parametrize(
    ("raises", "message"),
    [
        (RuntimeError("xgemm::sum: expected\nmore"), "not one line"),
        (RuntimeError(""), "not one line"),
        (RuntimeError("xgemm::mean: expected a"), "not one line that names the op"),
        (AttributeError("'NoneType' object has no attribute 'dim'"), "AttributeError"),
        (SystemError("null argument"), "SystemError"),
    ],
    ids=str,
)
def test_poor_errors_are_found(raises: Exception, message: str) -> None:
    with pytest.raises(Wrong, match=message):
        bad.judge(raises, "sum", bad.SCHEMA)


def test_bad_arguments_that_pass_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for of in ("raw", "function"):
        monkeypatch.setattr(bad, of, lambda op: lambda **inputs: torch.zeros(3))
    found = []
    for number in range(100):
        draw = Draw("softmax", 2, number, CPU)
        try:
            list(bad.run(ops.OPS["softmax"](draw), draw))
        except Wrong as wrong:
            found.append(str(wrong))
    assert any(message.startswith("accepted, though torch raises") for message in found)


def test_every_change_is_made() -> None:
    seen = set()
    for op in ("linear", "cross_entropy", "topk_softmax"):
        for number in range(500):
            draw = Draw(op, 4, number, CPU)
            seen.add(bad.changed(ops.OPS[op](draw), draw)[0].split(": ")[-1].split("=")[0])
    assert seen >= {*bad.CHANGES, "an unknown argument", "precision", "activation", "reduction", "k", "dim"}


def test_gpu_tests_record_the_fuzzer(tmp_path: Path) -> None:
    counts, output = gpu_tests.run_fuzz("1/2", 20, tmp_path, 1, 600, "cpu")
    assert counts["passed"] + counts["failed"] == 20 and "fuzz: 20 cases" in output
    parts = [{"tool": "fuzz", "shard": f"{i}/2", **counts} for i in (1, 2)]
    summary = gpu_tests.summarise(parts)
    assert summary["fuzz"] == {"cases": 40, "failures": 2 * counts["failed"], "seed": counts["seed"]}
    assert "fuzz 1/2" not in summary["missing"] and "fuzz 1/1" in gpu_tests.summarise([])["missing"]


@pytest.mark.parametrize("found", [{"cases": 70, "failures": 1}, None], ids=["ends", "dies"])
def test_the_fuzzer_ends_before_its_time_does(tmp_path: Path, monkeypatch, found: dict[str, int] | None) -> None:
    """One that is killed leaves no counts, which is a failure."""

    def run_logged(command: list[str], log: Path, environment: dict[str, str], timeout: float) -> int:
        assert 0 < 60 * float(command[command.index("--minutes") + 1]) < 0.7 * timeout
        if found:
            Path(command[command.index("--json") + 1]).write_text(json.dumps(found))
        log.write_text("")
        return 0

    monkeypatch.setattr(gpu_tests, "run_logged", run_logged)
    counts, _ = gpu_tests.run_fuzz("1/1", 100, tmp_path, 1, 90)
    assert (counts["passed"], counts["failed"]) == (69 if found else 0, 1)

"""The lab's experiments from end to end on any machine: stand-ins for its kernels on the CPU, made-up times."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import stand_in
import torch

from benchmarks import results
from torch_ext import device, lab
from torch_ext.lab import __main__ as runner
from torch_ext.lab import attention, exercise, experiments, ladders, measure, memory, roofline, spilling, tiles
from torch_ext.lab.experiment import Experiment

H200 = device.KNOWN["H200"]
# Small, and enough for the conclusion. Attention has 64 positions in all here (16384 take a CPU minutes).
SIZES = {
    **{"sgemm": [16, 48], "reduction": [1 << 12, 1 << 14], "transpose": [32, 33], "softmax": [8, 64]},
    **{"attention": [16, 64], "latency": [1 << 12, 1 << 14, 1 << 22], "coarsening": [1 << 11], "tiling": [40]},
    **{"quantisation": [1], "padding": [128], "scheduling": [1000]},
    **{name: [1 << 8] for name in ("tensor", "fp32", "fma", "spilling")},
    **{name: [1 << 10] for name in ("coalescing", "copy", "divergence", "first_launch", "privatisation", "registers")},
    **{name: [1 << 12] for name in ("reduction_grid", "bandwidth", "roofline")},
}


def chase(following, steps, start=0, shared=False):
    i, numbers = start, following.tolist()
    for _ in range(memory.WARM_UP + steps):
        i = numbers[i]
    return torch.tensor([i, 100 * steps])


def kernel_attributes(x, name):
    registers = int(name.split()[1]) if name.startswith("registers") else 32
    blocks = device.occupancy(H200, 512, registers).blocks
    return torch.tensor([registers, 0, 0, 512, {"sgemm 07_warp_tile": 3, "who am i": AT_ONCE[0]}.get(name, blocks)])


AT_ONCE = [2]  # blocks of 1024 threads an SM


def paths(x, count, per_lane):
    index = torch.arange(x.numel())
    return 2.0 * ((index if per_lane else index // 32) % count)


def who_am_i(like, blocks, x, y=1, z=1, nanoseconds=0):
    """AT_ONCE blocks of 1024 threads an SM, the next ones when these end."""
    thread, block = torch.meshgrid(torch.arange(x * y * z), torch.arange(blocks), indexing="xy")
    wave = block // (AT_ONCE[0] * H200.multiprocessors)
    begin = wave * nanoseconds
    block = block + 50  # where the last block goes is not among the first SMs
    found = [thread % 32, thread - thread % 32, block % H200.multiprocessors, begin, begin + nanoseconds]
    return torch.stack(found, -1)


STAND_INS = SimpleNamespace(
    strided_copy=lambda x, stride, threads=128, loads=1: memory.strided(x, stride),
    empty_launch=lambda x, threads: torch.tensor([-(-x.numel() // threads), threads]),
    best_block_size=lambda x, name="": torch.tensor([1024, 264, 16]),
    kernel_attributes=kernel_attributes,
    concurrent_copy=lambda x, threads, loads, width, grid: x.clone(),
    fma_chains=lambda x, factors, threads, chains, *rest: torch.full_like(x, 2 * chains * factors[1].item()),
    intensity=lambda x, steps: roofline.alternated(x, steps).to(x.dtype),
    pointer_chase=chase,
    read_rate=lambda x, level, blocks, repeats: repeats * x,
    register_bound=lambda x, registers, bound, iterations: x.clone() if bound == "memory" else torch.full_like(x, 2),
    who_am_i=who_am_i,
    parity=lambda x, branch: torch.where(x % 2 == 0, x * 2, x + 1),
    paths=paths,
    vector_add=lambda a, b, variant: a + b,
    window_sum=lambda x, window, shared: experiments.window_reference(x.double(), window).float(),
    histogram=lambda x, bins, privatised: torch.bincount(x, minlength=bins).int(),
    tiled_matmul=lambda a, b, variant, tile: tiles.in_order(a, b) if variant == "uncontracted" else a @ b,
    sgemm=lambda a, b, *, step: a @ b,
    tensor_gemm=lambda a, b, *, step: a @ b.mT,
    fp32_gemm=lambda a, b, *, variant: a @ b.mT,
    reduce_sum=lambda x, version, loads=8, blocks=8: x.sum().to(x.dtype),
    transpose=lambda x, variant: x.mT.contiguous(),
    softmax=lambda x, variant: torch.softmax(x, -1),
    attention=lambda q, k, v, *, step, is_causal: attention.attention_reference(q, k, v, is_causal)[0].bfloat16(),
)


@pytest.fixture
def on_cpu(monkeypatch):
    times = iter(range(1, 1 << 20))

    def time_us(call, budget):
        us = 5.0 + next(times) % 7
        return us, (us - 1, us + 1)

    for module in (attention, experiments, ladders, measure, memory, roofline, spilling, tiles):
        monkeypatch.setattr(module, "lab", STAND_INS, raising=False)
        monkeypatch.setattr(module, "time_us", time_us)
    used = {limit: {"registers": min(limit, 70), "spilled": max(0, 70 - limit)} for limit in spilling.LIMITS}
    names = ("branch", "arithmetic", "plain", "coarsened2")
    first = [dict(zip(names, (90.0, 30.0, 80.0, 20.0), strict=True)), dict.fromkeys(names, 10.0)]
    process = SimpleNamespace(returncode=0, stdout=json.dumps(first), stderr="")
    for path, value in {
        **{f"{module}.limits": lambda: H200 for module in ("lab.attention", "lab.ladders", "device")},
        **{"lab.attention.POSITIONS": 64, "lab.attention.COLUMNS": 128, "lab.experiments.ADDITIONS": (256, 512)},
        **{"lab.tiles.TILE": 4, "lab.conclusions.TILE": 4, "lab.roofline.MARKED": 32},
        "lab.attention.peak_bytes": lambda call: 1 << 20,
        "lab.roofline.joules": lambda read, call, us: 1e-4 * us + 1e-9,
        "lab.spilling.build": lambda limit, _: (lambda x: torch.full_like(x, 2 * spilling.LIVE), used[limit]),
        "lab.spilling.shutil.which": lambda _: "nvcc",
        "lab.experiments.subprocess.run": lambda *_, **__: process,
    }.items():
        monkeypatch.setattr(f"torch_ext.{path}", value)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    with stand_in.installed(monkeypatch):
        yield


@pytest.mark.parametrize("name", SIZES)
def test_experiment_runs_concludes_and_draws(on_cpu, name, tmp_path):
    rows = lab.run(name, SIZES[name])
    conclusion = lab.conclude(rows)
    assert "leave out" not in conclusion.text and conclusion.text.endswith(".")
    assert {row["experiment"] for row in rows} == {name}
    for row in rows:
        assert {"case", "contender", "shape", "dtype", "us", "us_quartiles", "tflops", "gbps"} <= set(row)
        assert row.get("document") != "-"
    json.dumps(rows)
    keys = [(row["case"], row["dtype"], row["contender"]) for row in rows]
    assert len(set(keys)) == len(keys)  # tables and plots find a row by these
    if lab.EXPERIMENTS[name].plot:
        pytest.importorskip("matplotlib")
        figure = lab.plot(rows)
        assert figure.axes and all(axes.has_data() for axes in figure.axes)
        figure.savefig(tmp_path / "x.png")
        assert (tmp_path / "x.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("name", "op", "wrong"),
    [
        ("coalescing", "strided_copy", lambda x, *rest: x),
        ("fma", "fma_chains", lambda x, *rest: x),
        ("latency", "pointer_chase", lambda following, *rest: torch.tensor([1, 1])),
        ("bandwidth", "read_rate", lambda x, *rest: x + 1),
        ("registers", "register_bound", lambda x, *rest: x + 1),
        ("roofline", "intensity", lambda x, steps: x + 1),
        ("roofline", "window_sum", lambda x, *rest: x),
        ("transpose", "transpose", lambda x, variant: x),
        ("softmax", "softmax", lambda x, variant: torch.softmax(x, 0)),
        ("attention", "attention", lambda q, k, v, **_: v),
        ("tiling", "tiled_matmul", lambda a, b, variant, tile: (a.double() @ b.double()).float()),
        ("reduction", "reduce_sum", lambda x, *rest: x.sum(dtype=x.dtype) + 1),
    ],
)
def test_a_wrong_result_is_not_timed(on_cpu, monkeypatch, name, op, wrong):
    monkeypatch.setattr(STAND_INS, op, wrong)
    with pytest.raises(RuntimeError, match="is wrong; not timed"):
        lab.run(name, SIZES[name])


@pytest.mark.parametrize("name", ["fma", "copy", "roofline", "sgemm", "softmax", "bandwidth"])
def test_a_gpu_of_unknown_rates(on_cpu, monkeypatch, name):
    unknown = replace(H200, bandwidth=0.0, fp32_flops=0.0, fp64_flops=0.0)
    monkeypatch.setattr(device, "limits", lambda: unknown)
    monkeypatch.setattr(ladders, "limits", lambda: unknown)
    rows = lab.run(name, SIZES[name])
    assert rows and lab.conclude(rows).text.endswith(".")
    pytest.importorskip("matplotlib")
    lab.plot(rows)


def test_scheduling_sees_waves(on_cpu):
    rows = lab.run("scheduling", [1000])
    at = {r["shape"]["blocks"]: r for r in rows if "used" in r}
    assert [at[n]["us"] for n in (1, 132, 264, 265, 528)] == [1, 1, 1, 2, 2]
    assert [at[n]["used"] for n in (1, 132, 264)] == [1, 132, 132] and at[528]["most"] == 2
    assert [50, 1000, 2000] in at[265]["timeline"]  # the plot shows the block that waited
    conclusion = lab.conclude(rows)
    assert conclusion.shown and "264 run at once, at most 2 on an SM, and one more takes" in conclusion.text


def test_runner_prints_and_writes(on_cpu, tmp_path, capsys):
    pytest.importorskip("rich")
    arguments = ["--only", "divergence", "reduction", "--quick", "--out", str(tmp_path)]
    assert runner.main(arguments, describe=lambda sources: {"commit": "abc"}) == 0
    printed = capsys.readouterr().out
    assert "32 ways within a warp" in printed and "v6b_eight_loads" in printed
    written = (tmp_path / "lab_divergence.json").read_text()
    document = json.loads(written)
    assert written == results.dump(document) and document["op"] == "lab_divergence"
    assert document["commit"] == "abc" and document["gpu"] == stand_in.H200.name and document["conclusion"]["text"]
    assert measure.describe("x", [], [1980, 1700], {})["clocks_mhz"] == [1700, 1980]
    assert "experiment" not in document["rows"][0]
    measured = [r for r in document["rows"] if r["case"] == "32 paths"]
    assert all("document" not in r for r in measured) and measured[0]["remark"] == "expected 32x of one path"


def test_a_failure_costs_no_other_results(on_cpu, monkeypatch, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(STAND_INS, "parity", lambda x, branch: x)
    draw = lab.plot
    monkeypatch.setattr(lab, "plot", lambda rows: draw(rows) if "loads" in rows[-1]["shape"] else {}["x"])
    names = ["divergence", "registers", "copy"]
    assert runner.main(["--only", *names, "--quick", "--out", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert "Divergence FAILED. RuntimeError: xgemm lab: parity by branch is wrong; not timed\n" in printed.out
    assert "The register cliff FAILED. KeyError: 'x'\n" in printed.out and "Traceback" in printed.err
    assert printed.out.endswith("These failed: divergence, registers.\n")
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"lab_registers.json", "lab_copy.json", "lab_copy.png"}


def kept(name: str) -> list[dict]:
    """Rows of an H200."""
    return lab.load(Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "nvidia_h200" / f"lab_{name}.json")


def change(rows: list[dict], field: str, factor: float, **match: object) -> list[dict]:
    """The rows with a field multiplied where shape or row has these values."""
    found = [row for row in rows if all(row.get(k, row["shape"].get(k)) == value for k, value in match.items())]
    assert found
    return [row | {field: row[field] * factor} if row in found else row for row in rows]


@pytest.mark.parametrize(
    ("name", "claim", "field", "factor", "match"),
    [
        ("fma", "it is bound by reads of the register file", "of_peak", 2, {"chains": 1, "unroll": 64, "registers": 3}),
        ("copy", "starting blocks is its limit", "us", 3, {"grid": "full", "threads": 32, "loads": 4}),
        ("divergence", "the compiler predicates it", "us", 3, {"case": "parity", "contender": "branch"}),
        ("quantisation", "a lone block runs faster", "tflops", 0.8, {"tiles": 397}),
    ],
)
def test_a_conclusion_claims_what_its_rows_say(name, claim, field, factor, match):
    rows = kept(name)
    assert claim in lab.conclude(rows).text
    assert claim not in lab.conclude(change(rows, field, factor, **match)).text


def test_runner_writes_nothing_that_would_replace_a_full_run(on_cpu, tmp_path):
    pytest.importorskip("rich")
    for more in (["--quick"], ["--sizes", "2^10"]):
        assert runner.main(["--only", "registers", *more], folder=lambda: tmp_path) == 0
        assert list(tmp_path.iterdir()) == []
    assert measure.gpu_folder() == "nvidia_h200"


def test_sizes_and_names(capsys):
    assert [runner.size(text) for text in ("4096", "2^24", "1e6")] == [4096, 1 << 24, 1_000_000]
    for bad in (
        "--sizes 4",
        *(f"--only {what}" for what in ("fma --sizes 0", "fma --sizes x", "fma copy --sizes 4", "x")),
    ):
        with pytest.raises(SystemExit):
            runner.main(bad.split())
    capsys.readouterr()
    assert runner.main(["--list"]) == 0
    text = capsys.readouterr().out
    assert all(name in text and e.shows in text for name, e in lab.EXPERIMENTS.items())


def test_python_interface():
    assert lab.steps()["sgemm"][1] == "02_coalesced" and "fma" not in lab.steps()
    a = torch.ones(2, 2)
    for step in ("coalesced", "02_coalesced", 2, "07b_double_buffer", 9):
        with pytest.raises(RuntimeError, match="on cuda, got cpu"):
            lab.sgemm(a, a, step=step)
    for step in ("library", 10, "fast"):
        with pytest.raises(ValueError, match="expected step to be one of 01_naive"):
            lab.sgemm(a, a, step=step)
    with pytest.raises(ValueError, match="expected an experiment of sgemm"):
        lab.run("nothing")
    for of_rows in (lab.plot, lab.conclude):
        with pytest.raises(ValueError, match="rows of one experiment"):
            of_rows([{"case": "x"}])
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="needs an NVIDIA GPU"):
            lab.run("fma")


def test_the_package_does_without_the_checkout():
    for path in Path(lab.__file__).parents[1].rglob("*.py"):
        assert not re.search(r"^\s*(from|import) (benchmarks|tools|tests)\b", path.read_text(), re.MULTILINE), path


def test_sources_exist_and_names_are_files():
    root = Path(__file__).resolve().parents[1]
    for name, e in lab.EXPERIMENTS.items():
        assert isinstance(e, Experiment) and e.name == name and e.op == f"lab_{name}"
        assert all((root / path).is_dir() for path in e.sources)


def test_fewer_registers_spill(tmp_path):
    if shutil.which(exercise.command(tmp_path, tmp_path, "")[0]) is None:
        pytest.skip("no nvcc")
    most, least = (spilling.build(limit, "sm_90")[1] for limit in (72, 32))
    assert most["spilled"] == 0 and 64 < most["registers"] <= 72
    assert least["spilled"] > 4 * (spilling.LIVE - 32) and least["registers"] == 32
    with pytest.raises(RuntimeError, match="expected registers and spills"):
        spilling.usage("ptxas info    : Used 32 registers")


def test_cycle_visits_every_line_once():
    for lines, stride in ((1, 1), (2, 32), (37, 4)):
        following, seen, i = memory.cycle(lines, stride, "cpu"), [], 0
        for _ in range(lines):
            seen.append(i)
            i = following[i].item()
        assert i == 0 and sorted(seen) == [stride * line for line in range(lines)]

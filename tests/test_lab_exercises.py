"""The lab's exercises: skeletons compile, right kernels pass the check, wrong ones do not."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from torch_ext.lab import __main__ as runner
from torch_ext.lab import attention, exercise, ladders, measure

NUMBERS = list(exercise.EXERCISES)
ROOT = Path(exercise.__file__).parents[2]
KINDS = ["sgemm", "reduction", "softmax", "attention"]
RIGHT = {
    "sgemm": lambda a, b: a @ b,
    "reduction": lambda x: torch.stack([part.sum() for part in x.split(256)]),
    "softmax": lambda x: torch.softmax(x, -1),
    "attention": lambda q, k, v: attention.attention_reference(q, k, v, False)[0].bfloat16(),
}


def off_by_one(kind):
    def run(*operands):
        out = RIGHT[kind](*operands).clone()
        out.view(-1)[-1] += 1
        return out

    return run


@pytest.mark.parametrize("number", NUMBERS)
def test_skeletons_say_what_to_do_and_solutions_exist(number):
    e = exercise.EXERCISES[number]
    text = (exercise.SKELETONS / e.file).read_text()
    assert "TODO" in text and f"python -m torch_ext.lab check {number} mine.cu" in text
    assert (ROOT / e.solution).exists()
    ladder = {
        "sgemm": [
            *ladders.SGEMM_STEPS,
            *(f"tiled {kind} {tile}" for kind in ("fixed", "dynamic") for tile in (8, 16, 32)),
        ],
        "reduction": ladders.REDUCTION_VERSIONS,
        "softmax": ladders.SOFTMAX_VARIANTS,
        "attention": attention.ATTENTION_STEPS,
    }
    assert set(e.around) <= set(ladder[e.kind])


@pytest.mark.parametrize("kind", KINDS)
def test_check_takes_what_is_right_and_nothing_else(kind):
    e = next(e for e in exercise.EXERCISES.values() if e.kind == kind)
    assert exercise.check(e, RIGHT[kind], "cpu") >= 6
    with pytest.raises(exercise.Wrong, match="wrong, the first at"):
        exercise.check(e, off_by_one(kind), "cpu")
    with pytest.raises(exercise.Wrong, match=r"wrong, the first at .* all are NaN: did the kernel start"):
        exercise.check(e, lambda *operands: RIGHT[kind](*operands) * float("nan"), "cpu")


def test_check_sees_one_element_of_a_million():
    """A sum that forgets the last element of a long array alone."""

    def forgets(x):
        return RIGHT["reduction"](x[:-1] if x.numel() > 1_000_000 else x)

    with pytest.raises(exercise.Wrong, match="sum of 1000003: 1 of 1 wrong"):
        exercise.check(exercise.EXERCISES["03"], forgets, "cpu")


def test_skeletons_compile_and_load(tmp_path):
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
    for e in exercise.EXERCISES.values():
        assert exercise.build(exercise.SKELETONS / e.file, "sm_90").exercise
    wrong = tmp_path / "wrong.cu"
    wrong.write_text("__global__ void kernel( {")
    with pytest.raises(exercise.Wrong, match="does not compile"):
        exercise.build(wrong, "sm_90")
    wrong.write_text("void exercise() {}")
    with pytest.raises(exercise.Wrong, match='has no function `extern "C"'):
        exercise.build(wrong, "sm_90")


def test_command(tmp_path, monkeypatch, capsys):
    assert exercise.main(["--copy", str(tmp_path / "mine")]) == 0
    assert len(list((tmp_path / "mine").glob("*.cu"))) == len(NUMBERS)
    assert "02  02_shared_tile.cu; solution: csrc/lab/sgemm/03_shared_tile.cu" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        runner.main(["check"])
    assert runner.main(["check", "--list"]) == 0 and "04  04_online_softmax.cu" in capsys.readouterr().out
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert exercise.main(["01"]) == 1 and "no NVIDIA GPU" in capsys.readouterr().out
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA Test")
    monkeypatch.setattr(exercise, "build", lambda source, architecture: SimpleNamespace())
    monkeypatch.setattr(exercise, "kernel", lambda e, library: RIGHT[e.kind])
    on_cpu = exercise.check
    monkeypatch.setattr(exercise, "check", lambda e, run: on_cpu(e, run, "cpu"))
    rows = [
        measure.row("size 4", name, (us, (us, us)), shape={"n": 4}, flops=1e6)
        for name, us in (("01_naive", 9.0), ("yours", 5.0), ("cublas", 1.0))
    ]
    monkeypatch.setattr(exercise, "place", lambda e, run: rows)
    assert exercise.main(["02", "mine.cu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Right at 8 sizes." and lines[2].startswith("-> yours")
    monkeypatch.setattr(exercise, "kernel", lambda e, library: off_by_one(e.kind))
    assert exercise.main(["02", "mine.cu"]) == 1
    assert "1 x 1 times 1 x 1: 1 of 1 wrong" in capsys.readouterr().out

    def illegal(e, run):
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with ...")

    monkeypatch.setattr(exercise, "check", illegal)
    assert exercise.main(["02", "mine.cu"]) == 1
    assert capsys.readouterr().out == "The kernel failed: CUDA error: an illegal memory access was encountered\n"
    pytest.importorskip("matplotlib")
    exercise.draw(rows, "x", tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 5000


@pytest.mark.cuda
@pytest.mark.parametrize("number", NUMBERS)
def test_skeletons_on_the_gpu(number, tmp_path):
    e = exercise.EXERCISES[number]
    if not Path(exercise.command(Path(), Path(), "")[0]).exists():
        pytest.skip("no nvcc")
    architecture = "sm_{}{}".format(*torch.cuda.get_device_capability())
    run = exercise.kernel(e, exercise.build(exercise.SKELETONS / e.file, architecture))
    assert exercise.check(e, run) >= 6
    assert {row["contender"] for row in exercise.place(e, run)} == {*e.around, "yours"}
    text = (exercise.SKELETONS / e.file).read_text()
    broken = tmp_path / e.file
    broken.write_text(text.replace("sum += a[row * k + i]", "sum -= a[row * k + i]").replace("expf(x[i] - m) / d", "d"))
    for right, wrong in (
        ("partials[blockIdx.x] = local[0]", "partials[blockIdx.x] = local[1]"),
        ("sum += As[ty][i]", "sum -= As[ty][i]"),
        ("sum += weight", "sum -= weight"),
    ):
        broken.write_text(broken.read_text().replace(right, wrong))
    with pytest.raises(exercise.Wrong):
        exercise.check(e, exercise.kernel(e, exercise.build(broken, architecture)))

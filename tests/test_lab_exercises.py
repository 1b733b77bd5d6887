"""The lab's exercises: skeletons run, right kernels pass the check, wrong ones do not; on the emulator and on a GPU."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from common import needs

from torch_ext.lab import __main__ as runner
from torch_ext.lab import attention, exercise, exercise_table, measure

NUMBERS = list(exercise.EXERCISES)
ROOT = Path(exercise.__file__).parents[2]
RIGHT = {
    "01": lambda a, b: a @ b,
    "03": lambda x: torch.stack([part.sum() for part in x.split(256)]),
    "04": lambda x: torch.softmax(x, -1),
    "06": lambda q, k, v: attention.attention_reference(q, k, v, False)[0].bfloat16(),
    "08": lambda a, b: a + b,
    "09": lambda x: exercise_table._window(x)[0].float(),
    "10": lambda x: torch.bincount(x, minlength=exercise_table.BINS).int(),
    "11": lambda x: 2 * x + 1,
    "12": lambda x: exercise_table._geometric(x)[0].float(),
    "13": lambda given: exercise_table._floor(given)[0],
}
# Solutions: what to replace in the skeleton, and by what. Of the exercises without a RIGHT one, of one that has a halo,
# one that asks the runtime for its block, and the one without a kernel; the lab's own steps solve the others.
FIXED = "  __shared__ float As[kSide][kSide], Bs[kSide][kSide];\n"
SHARED = """  extern __shared__ float shared[];
  const int side = blockDim.x;
  float *const As = shared, *const Bs = shared + side * side;
"""
SIDE = "  const dim3 block(kSide, kSide), grid((n + kSide - 1) / kSide, (m + kSide - 1) / kSide);\n"
CHOSEN = """  int least, threads, side = 1;
  const auto bytes = [](int count) { return 2 * count * sizeof(float); };
  cudaOccupancyMaxPotentialBlockSizeVariableSMem(&least, &threads, kernel, bytes, 0);
  while (4 * side * side <= threads) side *= 2;
  const dim3 block(side, side), grid((n + side - 1) / side, (m + side - 1) / side);
"""
DYNAMIC = [
    (FIXED, SHARED), (SIDE, CHOSEN), ("grid, block, 0, stream", "grid, block, bytes(side * side), stream"),
    ("constexpr int kSide = 8;", ""), ("blockIdx.y * kSide", "blockIdx.y * blockDim.x"),
    ("blockIdx.x * kSide", "blockIdx.x * blockDim.x"), ("k0 += kSide", "k0 += side"), ("i < kSide", "i < side"),
    ("As[ty][tx]", "As[ty * side + tx]"), ("Bs[ty][tx]", "Bs[ty * side + tx]"),
    ("As[ty][i] * Bs[i][tx]", "As[ty * side + i] * Bs[i * side + tx]"),
]  # fmt: skip
IN_ORDER = "  const long long i = blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x;\n"
BY_WARP = """  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const long long i = blockIdx.x * static_cast<long long>(kThreads) + lane * kWays + warp;
"""
TILES = """  __shared__ float As[kTile][kTile], Bs[kTile][kTile];
  float sum = 0;
  for (int k0 = 0; k0 < k; k0 += kTile) {
    const int x = k0 + threadIdx.x, y = k0 + threadIdx.y;
    As[threadIdx.y][threadIdx.x] = row < m && x < k ? a[row * k + x] : 0;
    Bs[threadIdx.y][threadIdx.x] = y < k && col < n ? b[y * n + col] : 0;
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += As[threadIdx.y][i] * Bs[i][threadIdx.x];
    __syncthreads();
  }
"""
SLOW = """  float sum = 0;
  if (row < m && col < n)
    for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + col];
"""
HALO = """  __shared__ float staged[kThreads + 2 * kHalf];
  for (int t = threadIdx.x; t < kThreads + 2 * kHalf; t += kThreads) {
    const long long j = i - threadIdx.x + t - kHalf;
    staged[t] = j >= 0 && j < n ? x[j] : 0;
  }
  __syncthreads();
  float sum = 0;
  for (int j = 0; j <= 2 * kHalf; ++j) sum += staged[threadIdx.x + j];
"""
WINDOW = """  float sum = 0;
  for (long long j = i - kHalf; j <= i + kHalf; ++j)
    if (j >= 0 && j < n) sum += x[j];
"""
MAXIMUM = "const double q = 8 * n / bandwidth, w = 2 * steps * n / flops;\n  return (q > w ? q : w) * 1e6;"
BLOCK = "int grid, threads;\n  cudaOccupancyMaxPotentialBlockSize(&grid, &threads, kernel, 0, 0);"
SOLVED = {
    "02": [(SLOW, TILES)],
    "05": DYNAMIC,
    "07": [(IN_ORDER, BY_WARP)],
    "09": [(WINDOW, HALO)],
    "11": [("const int threads = 32;", BLOCK)],
    "13": [("return 8 * n / bandwidth * 1e6;", MAXIMUM)],
}
BROKEN = {  # those without a RIGHT one, of which a wrong one is made
    "02": ("x < k ?", "x + 1 < k ?"),
    "05": ("k0 + tx < k ?", "k0 + tx + 1 < k ?"),
    "07": ("lane * kWays + warp", "warp * kWays + lane"),
}


def written(number: str, folder: Path, changes: list[tuple[str, str]]) -> Path:
    e = exercise.EXERCISES[number]
    text = (exercise.SKELETONS / e.file).read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "mine.cu"
    path.write_text(text)
    return path


@pytest.mark.parametrize("number", NUMBERS)
def test_skeletons_say_what_to_do_and_solutions_exist(number):
    e = exercise.EXERCISES[number]
    text = (exercise.SKELETONS / e.file).read_text()
    assert "TODO" in text and f"python -m torch_ext.lab check {number} mine.cu" in text and "What to reach" in text
    assert (ROOT / e.solution).exists() and e.target in ("", *e.around)
    page = (ROOT / "docs" / "lab.md").read_text()
    assert f"| {Path(e.file).stem} |" in page and e.solution in page


@pytest.mark.parametrize("number", NUMBERS)
def test_skeletons_run_on_the_emulator(number, emulator, capsys):
    """They are right but for the last, and are never called solved."""
    e = exercise.EXERCISES[number]
    assert exercise.emulate(number, str(exercise.SKELETONS / e.file)) == 1
    text = capsys.readouterr().out
    assert text.startswith("Size 1048576 x 64" if number == "13" else "This is the skeleton"), text


@pytest.mark.parametrize("number", SOLVED)
def test_solutions_are_right_on_the_emulator_and_broken_ones_are_not(number, emulator, capsys, tmp_path):
    assert exercise.emulate(number, str(written(number, tmp_path, SOLVED[number]))) == 0
    text = capsys.readouterr().out
    assert text.startswith("Right at ") and "Not checked here: how fast it is, bank conflicts" in text
    if number in BROKEN:
        assert exercise.emulate(number, str(written(number, tmp_path, [*SOLVED[number], BROKEN[number]]))) == 1
        assert "wrong, the first at" in capsys.readouterr().out


def test_mistakes_are_found_on_the_emulator(emulator, capfd, tmp_path, monkeypatch):
    """By the command, whose process may crash, and in this one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    half = [(SLOW, TILES.replace("    __syncthreads();\n  }", "  }"))]  # the barrier behind the products
    no_halo = [(WINDOW, HALO.replace("j >= 0 && j < n ? x[j] : 0", "t >= kHalf && j < n ? x[j] : 0"))]
    alone = [("  __syncthreads();\n  float sum", "  if (i % 2) __syncthreads();\n  else __syncwarp();\n  float sum")]
    beyond = [("j >= 0 && j < n", "j >= 0")]
    command = lambda number, source: runner.main(["check", number, source])  # noqa: E731
    for check, number, changes, expected in (
        (command, "02", half, "wrong, the first at"),
        (command, "09", beyond, "The kernel crashed: it accessed what lies behind the end of an array"),
        (exercise.emulate, "09", no_halo, "wrong, the first at"),
        (exercise.emulate, "09", [(WINDOW, HALO), *alone], "The emulator found: "),
        (exercise.emulate, "01", [("__global__ void kernel(", "__global__ void kernel( {")], "does not compile"),
        (exercise.emulate, "01", [('extern "C" void', "static void")], 'has no function `extern "C"'),
    ):
        assert check(number, str(written(number, tmp_path, changes))) == 1
        assert expected in capfd.readouterr().out


@pytest.mark.parametrize("number", RIGHT)
def test_check_takes_what_is_right_and_nothing_else(number):
    e = exercise.EXERCISES[number]

    def off_by_one(*operands):
        out = RIGHT[number](*operands).clone()
        out.view(-1)[-1] += 1
        return out

    assert exercise.check(e, RIGHT[number], "cpu") >= 4
    with pytest.raises(exercise.Wrong, match="wrong, the first at"):
        exercise.check(e, off_by_one, "cpu")
    with pytest.raises(exercise.Wrong, match=r"wrong, the first at .* all are NaN: did the kernel start"):
        exercise.check(e, lambda *operands: RIGHT[number](*operands) * float("nan"), "cpu")


def test_check_sees_one_element_of_a_million():
    """A sum that forgets the last element of a long array alone."""

    def forgets(x):
        return RIGHT["03"](x[:-1] if x.numel() > 1_000_000 else x)

    with pytest.raises(exercise.Wrong, match="Size 1000003: 1 of 1 wrong"):
        exercise.check(exercise.EXERCISES["03"], forgets, "cpu")


def test_a_skeleton_compiles_and_loads():
    """By nvcc; all of them: test_skeletons_and_solutions_on_the_gpu."""
    needs("nvcc")
    assert exercise.build(exercise.SKELETONS / exercise.EXERCISES["02"].file, "sm_90").exercise


def test_command(tmp_path, monkeypatch, capsys):
    assert exercise.main(["--copy", str(tmp_path / "mine")]) == 0
    assert len(list((tmp_path / "mine").glob("*.cu"))) == len(NUMBERS)
    assert "02  02_shared_tile.cu; solution: csrc/lab/sgemm/03_shared_tile.cu" in capsys.readouterr().out
    for bad in (["check"], ["check", "01", str(tmp_path / "nothing.cu")]):
        with pytest.raises(SystemExit):
            runner.main(bad)
    assert runner.main(["check", "--list"]) == 0 and "04  04_online_softmax.cu" in capsys.readouterr().out
    monkeypatch.setattr(exercise, "EMULATOR", tmp_path / "build.py")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert exercise.main(["01"]) == 1 and "comes with a checkout of the repository" in capsys.readouterr().out
    of_gpu = {"is_available": True, "get_device_capability": (9, 0), "get_device_name": "NVIDIA Test"}
    for name, value in of_gpu.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    monkeypatch.setattr(exercise, "build", lambda source, architecture: SimpleNamespace())
    monkeypatch.setattr(exercise, "kernel", lambda e, library: RIGHT["01"])
    monkeypatch.setattr(exercise, "check", partial(exercise.check, device="cpu"))

    def rows(yours: float) -> list[measure.Row]:
        times = {"01_naive": 9.0, "yours": yours, "03_shared_tile": 2.0, "cublas": 1.0}
        return [measure.row("size 4", name, (us, (us, us)), shape={"n": 4}, flops=1e6) for name, us in times.items()]

    mine = written("02", tmp_path, SOLVED["02"])
    for us, code, last in ((2.1, 0, "Reached: 95% of the speed of"), (4.0, 1, "Not reached: 50% of the speed of")):
        monkeypatch.setattr(exercise, "place", lambda e, run, us=us: rows(us))
        assert exercise.main(["02", str(mine)]) == code
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "Right at 8 sizes." and lines[2].startswith("-> yours") and lines[-1].startswith(last)
    assert exercise.main(["02"]) == 1
    assert capsys.readouterr().out.startswith("This is the skeleton: it computes the right result, slowly.\n")
    monkeypatch.setattr(exercise, "kernel", lambda e, library: lambda a, b: a @ b + 1)
    assert exercise.main(["02", str(mine)]) == 1
    assert "Size 1 x 1 x 1: 1 of 1 wrong" in capsys.readouterr().out

    illegal = RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with ...")
    monkeypatch.setattr(exercise, "check", Mock(side_effect=illegal))
    assert exercise.main(["02", str(mine)]) == 1
    assert capsys.readouterr().out == "The kernel failed: CUDA error: an illegal memory access was encountered\n"
    pytest.importorskip("matplotlib")
    exercise.draw(rows(2.0), "x", tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 5000


@pytest.mark.cuda
@pytest.mark.parametrize("number", NUMBERS)
def test_skeletons_and_solutions_on_the_gpu(number, tmp_path):
    e = exercise.EXERCISES[number]
    if not Path(exercise.command(Path(), Path(), "")[0]).exists():
        pytest.skip("no nvcc")
    architecture = "sm_{}{}".format(*torch.cuda.get_device_capability())
    if number != "13":
        run = exercise.kernel(e, exercise.build(exercise.SKELETONS / e.file, architecture))
        assert exercise.check(e, run) >= 4
        rows = exercise.place(e, run)
        assert {row["contender"] for row in rows} == {*e.around, "yours"}
        assert exercise.verdict(e, rows).partition(":")[0] in ("Reached", "Not reached")
        with pytest.raises(exercise.Wrong):
            exercise.check(e, exercise.kernel(e, SimpleNamespace(exercise=lambda *_: 1)))
    if number in SOLVED:
        run = exercise.kernel(e, exercise.build(written(number, tmp_path, SOLVED[number]), architecture))
        assert exercise.check(e, run) >= 4

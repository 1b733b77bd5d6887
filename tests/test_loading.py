"""Importing torch_ext: one line names what is missing or too old before anything else fails."""

import ast
import graphlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import common
import pytest
import torch

import torch_ext
from torch_ext import _load

ROOT = Path(torch_ext.__file__).parent.parent


def run(code: str, path: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return common.run(sys.executable, "-c", code, cwd="/", env={"PYTHONPATH": str(path)}, timeout=120)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package without its library."""
    shutil.copytree(ROOT / "torch_ext", tmp_path / "torch_ext", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return tmp_path


@pytest.mark.parametrize("version", ["1.13.0", "2.9.0a0+git123", "2.9.1+cu128"])
def test_old_torch(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is checked first, before the missing library or an old torch's linker error is reported."""
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setattr(_load, "LIBRARY", tmp_path / "libxgemm.so")
    message = f"xgemm: needs torch 2.10 or newer, got {version}; pip install 'torch>=2.10'"
    with pytest.raises(ImportError, match=f"^{re.escape(message)}$"):
        _load.load()


def test_another_build_by_the_environment(tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """XGEMM_LIBRARY, for benchmarks of two builds, works in a package without a library."""
    other = tmp_path / "other.so"
    shutil.copyfile(_load.LIBRARY, other)
    code = f"import os; os.environ['XGEMM_LIBRARY'] = {str(other)!r}; import torch, torch_ext; "
    assert run(code + "print(*torch.ops.loaded_libraries)", package).stdout.split() == [str(other)]
    other.unlink()
    monkeypatch.setenv("XGEMM_LIBRARY", str(other))
    monkeypatch.setattr(_load, "LIBRARY", other)
    message = f"^xgemm: XGEMM_LIBRARY names {re.escape(str(other))}, which does not exist$"
    with pytest.raises(ImportError, match=message):
        _load.load()


def test_source_folder_that_hides_the_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip install .`, then Python in the same folder."""
    source, installed = tmp_path / "source", tmp_path / "installed"
    (installed / "torch_ext").mkdir(parents=True)
    monkeypatch.setattr(_load, "LIBRARY", source / "torch_ext" / "libxgemm.so")
    monkeypatch.setattr(sys, "path", [str(source), str(installed)])
    with pytest.raises(ImportError, match=r"torch_ext/libxgemm.so has not been built; run `make build`, or `pip"):
        _load.load()
    (installed / "torch_ext" / "libxgemm.so").touch()
    message = f"{source}, where nothing has been built, hides the package installed in {installed}: start Python in"
    with pytest.raises(ImportError, match=re.escape(message)):
        _load.load()


def report(package: Path) -> tuple[int, dict[str, str]]:
    done = common.run(sys.executable, "-m", "torch_ext", cwd="/", env={"PYTHONPATH": str(package)})
    assert done.stderr == ""
    return done.returncode, dict(line.split(maxsplit=1) for line in done.stdout.splitlines())


def test_report() -> None:
    code, lines = report(ROOT)
    assert code == 0 and list(lines) == ["xgemm", "torch", "kernels", "device", "library"]
    assert lines["xgemm"].startswith(f"{torch_ext.__version__}, ") and lines["torch"].startswith(torch.__version__)
    info = _load.build_info()
    compiled = f"{info['architectures']}, compiled with CUDA {info['cuda']}"
    assert lines["kernels"] == (compiled if info["cuda"] else "none: built without CUDA, tensors on the CPU only")
    assert torch.cuda.is_available() != lines["device"].startswith("no NVIDIA GPU")
    assert lines["library"] == "loads"


def test_library_that_does_not_load(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("import torch_ext", package)
    line = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and line.startswith("ImportError: xgemm: ") and "make build" in line
    assert "libxgemm.so has not been built" in line or "hides the package installed in" in line  # where there is one
    broken = package / "torch_ext" / "libxgemm.so"
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(_load, "LIBRARY", broken)
    with pytest.raises(ImportError, match=r"^xgemm: cannot load .*: file too short; build it again with `make build`$"):
        _load.load()  # with the loader's reason
    code, lines = report(package)
    assert code == 1 and lines["torch"].startswith(torch.__version__)
    assert lines["library"].startswith("xgemm: cannot load ")


@pytest.mark.parametrize("version", ["2.10.0", "2.11.0+cu130", "3.0.1"])
def test_newer_torch_loads(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setattr(torch.ops, "load_library", loaded.append)
    _load.load()
    assert loaded == [str(_load.LIBRARY)]


def test_import_is_quiet_and_light() -> None:
    """Nothing printed, no CUDA context, and neither Dynamo nor sympy pulled in: they cost seconds.

    A find_spec() before a module's import must not lose what torch_ext registers after that import.
    """
    code = (
        "import importlib, importlib.util, sys, torch; before = set(sys.modules); import torch_ext\n"
        "new = set(sys.modules) - before; heavy = {'torch._dynamo', 'sympy', 'matplotlib', 'transformers'} & new\n"
        "assert not torch.cuda.is_initialized() and not heavy, heavy\n"
        "assert torch_ext.softmax(torch.zeros(2), 0).tolist() == [.5, .5] and 'torch_ext._enable' not in sys.modules\n"
        "torch_ext.enable; assert torch.ops.xgemm_aten.counts(False) == '', 'an operator is enabled'\n"
        "for module, then in (('torch.utils.flop_counter', 'flops'), ('torch.distributed.tensor', 'distributed')):\n"
        "    then, left = 'torch_ext.' + then, int(then == 'flops')\n"
        "    importlib.util.find_spec(module); assert then not in sys.modules\n"
        "    importlib.import_module(module); assert then in sys.modules\n"
        "    assert len([f for f in sys.meta_path if 'After' in str(f)]) == left\n"
    )
    done = run(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_files_of_replace_import_in_one_direction() -> None:
    """Imports for type hints count."""
    folder = ROOT / "torch_ext" / "replace"
    files = {f"torch_ext.replace.{path.stem}": ast.parse(path.read_text()) for path in folder.glob("[!_]*.py")}
    imported = {
        name: {
            module
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for module in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
            if module in files
        }
        for name, tree in files.items()
    }
    assert sum(map(len, imported.values())) > 10
    graphlib.TopologicalSorter(imported).prepare()  # raises CycleError


@pytest.mark.parametrize(("how", "when"), [("purge", "unused"), ("reload", "used before")])
def test_a_package_that_is_imported_again_works(how: str, when: str) -> None:
    """Reloaders of notebooks and servers import the package again in a process whose dispatcher knows it."""
    if when == "used before":
        pytest.importorskip("transformers")
    tests = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tests)]), "HF_HUB_OFFLINE": "1"}
    done = common.run(sys.executable, tests / "imported_twice.py", how, when, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr

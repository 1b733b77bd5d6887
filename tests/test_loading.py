"""Importing torch_ext: what is missing or too old is said in one line, before anything else fails."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torch_ext
from torch_ext import _load

ROOT = Path(torch_ext.__file__).parent.parent


def run(code: str, path: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd="/",
        env={"PYTHONPATH": str(path)},
        timeout=120,
    )


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1, done
    return done.stderr.strip().splitlines()[-1]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package without its library."""
    shutil.copytree(ROOT / "torch_ext", tmp_path / "torch_ext", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return tmp_path


@pytest.mark.parametrize("version", ["2.9.1+cu128", "1.13.0", "2.9.0a0+git123"])
def test_old_torch(version: str, package: Path) -> None:
    """The version is looked at first: neither the missing library nor an old torch's linker error gets the word."""
    done = run(f"import torch; torch.__version__ = '{version}'; import torch_ext", package)
    assert last_line(done) == (
        f"ImportError: xgemm: needs torch 2.10 or newer, got {version}; pip install 'torch>=2.10'"
    )


def test_library_not_built(package: Path) -> None:
    line = last_line(run("import torch_ext", package))
    assert line.startswith("ImportError: xgemm: ") and "libxgemm.so has not been built" in line and "make build" in line


def test_library_broken(package: Path) -> None:
    (package / "torch_ext" / "libxgemm.so").write_bytes(b"not a library")
    line = last_line(run("import torch_ext", package))
    assert line.startswith("ImportError: xgemm: cannot load ") and "make build" in line


@pytest.mark.parametrize("version", ["2.10.0", "2.11.0+cu130", "3.0.1"])
def test_newer_torch_loads(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setattr(torch.ops, "load_library", loaded.append)
    _load.load()
    assert loaded == [str(_load.LIBRARY)]


def test_import_is_quiet_and_light() -> None:
    """Nothing printed, no CUDA context, and neither Dynamo nor sympy pulled in: they cost seconds."""
    done = run(
        "import sys, torch; before = set(sys.modules); import torch_ext; new = set(sys.modules) - before;"
        "assert not torch.cuda.is_initialized(); heavy = {'torch._dynamo', 'sympy', 'matplotlib'} & new;"
        "assert not heavy, heavy; assert torch_ext.softmax(torch.zeros(2), 0).tolist() == [.5, .5]"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

"""Lets pip build the package: CMakeLists.txt does the work, and one wheel serves every Python.

XGEMM_CUDA=OFF builds without CUDA; TORCH_CUDA_ARCH_LIST, MAX_JOBS and ccache are honoured. XGEMM_BUILD_DIR names the
CMake build folder: give it the one that `make build` filled (build) and nothing is compiled twice. XGEMM_LOCAL_VERSION
replaces the local version (+cpu, +cu130) of wheels; empty, as PyPI wants it, there is none.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))
from find_nvcc import PYPI_COMPILER, find_nvcc, release  # noqa: E402

cuda_wanted = os.environ.get("XGEMM_CUDA", "ON").upper() not in ("OFF", "0", "NO", "FALSE")
nvcc = find_nvcc() if cuda_wanted else None


def version() -> str:
    """torch_ext.__version__; a wheel's says in addition what it was compiled with, so that file names differ."""
    public = re.search(r'^__version__ = "(.+)"', (ROOT / "torch_ext" / "__init__.py").read_text(), re.MULTILINE)[1]
    if "sdist" in sys.argv:
        return public
    local = "cpu" if not cuda_wanted else "cu{}{}".format(*release(nvcc)) if nvcc else ""
    local = os.environ.get("XGEMM_LOCAL_VERSION", local)
    return f"{public}+{local}" if local else public


def readme() -> str:
    """README.md for an index page: without pictures and links into the source tree, which would lead nowhere there."""
    text = (ROOT / "README.md").read_text()
    text = re.sub(r"^!\[.*\n+", "", text, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]+)\]\((?!\w+://)[^)]+\)", r"\1", text)


class BuildWithCMake(build_py):
    """Adds libxgemm.so, the C++ header and the CMake package to the Python files."""

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)  # setuptools would pack what an earlier build left there
        super().run()
        # An editable install writes the library into the source tree, where `make build` writes it too.
        build = ROOT / os.environ.get("XGEMM_BUILD_DIR", "build" if self.editable_mode else "build/pip")
        jobs = os.environ.get("MAX_JOBS") or str(os.cpu_count() or 1)
        configure = ["cmake", "-S", ROOT, "-B", build, f"-DPython3_EXECUTABLE={sys.executable}"]
        configure.append(f"-DXGEMM_CUDA={'ON' if cuda_wanted else 'OFF'}")
        if not self.editable_mode and "XGEMM_BUILD_DIR" not in os.environ:
            configure.append(f"-DXGEMM_LIBRARY_DIR={build / 'lib'}")
        if shutil.which("cmake") is None:
            sys.exit("xgemm: no cmake on PATH, which an isolated build brings: pip install cmake ninja")
        if shutil.which("ninja"):
            os.environ.setdefault("CMAKE_GENERATOR", "Ninja")
        subprocess.run(configure, check=True)
        subprocess.run(["cmake", "--build", build, "--parallel", jobs], check=True)
        if not self.editable_mode:
            prefix = Path(self.build_lib).resolve()
            subprocess.run(["cmake", "--install", build, "--prefix", prefix, "--component", "python"], check=True)


class OneWheelForEveryPython(bdist_wheel):
    """The library uses torch's stable C interface and nothing of Python's: only the platform matters."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class BinaryDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(
    version=version(),
    long_description=readme(),
    long_description_content_type="text/markdown",
    distclass=BinaryDistribution,
    cmdclass={"build_py": BuildWithCMake, "bdist_wheel": OneWheelForEveryPython},
    # Asked for by pip's isolated builds only: a machine without a CUDA toolkit gets the compiler from PyPI.
    setup_requires=[PYPI_COMPILER] if cuda_wanted and nvcc is None else [],
)

"""Prints the CUDA compiler that the build uses, or one line that says what to install.

It is the first nvcc of release 12.4 or newer. CMakeLists.txt, setup.py and tools/setup.sh all ask here, so they agree.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = (12, 4)
PYPI_COMPILER = "cuda-toolkit[nvcc,crt,nvvm,cccl,cudart]==13.0.*"


def candidates() -> list[str | None]:
    """What the caller names, what is on PATH, the usual system place, and this Python's own packages, in that order."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    return [
        os.environ.get("CUDACXX"),
        *(f"{home}/bin/nvcc" for home in homes if home),
        shutil.which("nvcc"),
        "/usr/local/cuda/bin/nvcc",
        # sys.path: pip's isolated builds keep their packages elsewhere than in site-packages
        *(str(nvcc) for folder in sys.path for nvcc in Path(folder).glob("nvidia/cu1[3-9]/bin/nvcc")),
    ]


def release(nvcc: str) -> tuple[int, int] | None:
    """(13, 0) for CUDA 13.0; None for a file that is no working nvcc."""
    try:
        text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"release (\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def find_nvcc() -> str | None:
    """The compiler to use, or None."""
    for nvcc in candidates():
        if nvcc and (version := release(nvcc)) and version >= OLDEST:
            return nvcc
    return None


if __name__ == "__main__":
    if (nvcc := find_nvcc()) is None:
        sys.exit(
            "xgemm: no CUDA compiler (nvcc 12.4 or newer): install a CUDA toolkit, or run "
            f"`{sys.executable} -m pip install '{PYPI_COMPILER}'`, or build without CUDA by XGEMM_CUDA=OFF"
        )
    print(nvcc)

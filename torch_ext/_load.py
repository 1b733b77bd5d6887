"""Loads libxgemm.so, or another build that XGEMM_LIBRARY names, or says in one line why it cannot."""

import json
import mmap
import os
import re
import sys
from pathlib import Path

import torch

LIBRARY = Path(os.environ.get("XGEMM_LIBRARY") or Path(__file__).with_name("libxgemm.so")).absolute()
OLDEST_TORCH = (2, 10)


def load() -> None:
    """Registers ``torch.ops.xgemm.*``. A process registers one build: two cannot be loaded side by side.

    Raises:
        ImportError: torch is older than 2.10, the library has not been built, or it does not load.
    """
    numbers = re.match(r"(\d+)\.(\d+)", torch.__version__)
    # Before loading: an older torch would answer with a linker message about one missing symbol.
    if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise ImportError(
            f"xgemm: needs torch {oldest} or newer, got {torch.__version__}; pip install 'torch>={oldest}'"
        )
    if not LIBRARY.exists() and os.environ.get("XGEMM_LIBRARY"):
        raise ImportError(f"xgemm: XGEMM_LIBRARY names {LIBRARY}, which does not exist")
    if not LIBRARY.exists():
        if (elsewhere := _installed()) is not None:
            raise ImportError(
                f"xgemm: the source folder {LIBRARY.parent.parent}, where nothing has been built, hides the "
                f"package installed in {elsewhere}: start Python in another folder, or run `make build` here"
            )
        raise ImportError(
            f"xgemm: {LIBRARY} has not been built; run `make build`, or `pip install .` and leave xgemm's source folder"
        )
    try:
        torch.ops.load_library(str(LIBRARY))
    except Exception as error:
        raise ImportError(
            f"xgemm: cannot load {LIBRARY} with torch {torch.__version__}: {_reason(error)}; build it again with "
            "`make build`"
        ) from None


def _reason(error: BaseException) -> str:
    """The first line of the loader's own message: torch raises "Could not load this library" from it."""
    return str(error.__cause__ or error).strip().splitlines()[0].removeprefix(f"{LIBRARY}: ")


def _installed() -> Path | None:
    """The folder of another xgemm with a library on ``sys.path``, which this one hides; None if there is none."""
    for folder in map(Path, sys.path):
        package = folder.absolute() / LIBRARY.parent.name
        if package != LIBRARY.parent and (package / LIBRARY.name).exists():
            return package.parent
    return None


def build_info() -> dict[str, str]:
    """What libxgemm.so is, read from the file without loading it (cmake/build_info.cpp.in wrote it there).

    Returns:
        ``version``; ``cuda``, the release of the compiler, and ``architectures``, as in TORCH_CUDA_ARCH_LIST: both
        empty in a build without CUDA.

    Raises:
        OSError: there is no such file.
        ValueError: the file holds no such text.
    """
    with LIBRARY.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found = re.search(rb"xgemm build (\{[^\0]*\})\0", data)
        if found is None:
            raise ValueError(f"{LIBRARY} does not say how it was built")
        return json.loads(found[1])


def report_if_asked(error: ImportError) -> None:
    """Ends ``python -m torch_ext`` with its report, which then says why the library does not load."""
    if ("-m", "torch_ext") in zip(sys.orig_argv, sys.orig_argv[1:], strict=False):
        from torch_ext import __main__

        sys.exit(__main__.main(error))

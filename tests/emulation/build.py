"""Compiles a program that runs CUDA kernels in the emulator (emulation.h).

    python tests/emulation/build.py program.cpp -o program [more.cpp ...] [-D NAME=VALUE]

The program includes "emulation.h" and csrc's headers as csrc's own files do. csrc/device/tensor_map.cpp is linked.
"""

import argparse
import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "tools")]

from find_nvcc import find_nvcc  # noqa: E402
from translate import translate  # noqa: E402

FLAGS = [
    "-std=c++20",
    "-O2",
    "-g1",
    "-march=native",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fsanitize=alignment",  # a vector at an address that a GPU would refuse ends the program
    "-fsanitize-undefined-trap-on-error",
    "-w",
    "-Wfatal-errors",
]
# Makes g++ call reads.cpp's functions for each memory access; the sanitizer's library is not linked.
SEES_READS = ["-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0"]


def cuda_include() -> Path:
    """The folder of cuda_runtime.h."""
    nvcc = find_nvcc()
    if nvcc is None:
        raise RuntimeError("the emulator needs the CUDA toolkit's headers (tools/find_nvcc.py finds no toolkit)")
    return Path(nvcc).resolve().parent.parent / "include"


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _translated(folder: Path, sources: list[Path]) -> list[Path]:
    """Translates csrc's headers that need it, and the sources; returns the translated sources' paths."""
    for path in (ROOT / "csrc").rglob("*"):
        if path.suffix in (".cuh", ".h", ".cu") and "ptx" not in path.parts:
            text = translate(path.read_text(), str(path))
            place = folder / "csrc" / path.relative_to(ROOT / "csrc")
            if text is not None:
                _write(place, text)
            else:
                place.unlink(missing_ok=True)
    places = []
    for path in sources:
        text = path.read_text()
        name = "_".join(path.relative_to(ROOT).with_suffix("").parts) if path.is_relative_to(ROOT) else path.stem
        place = folder / f"{name}.translated.cpp"
        _write(place, translate(text, str(path)) or f'#line 1 "{path}"\n{text}')
        places.append(place)
    return places


def _compile(source: Path, out: Path, includes: list[str], more: list[str]) -> None:
    cache = ["ccache"] if shutil.which("ccache") else []
    command = [*cache, "g++", *FLAGS, *includes, *more, "-c", str(source), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")


def _emulator(folder: Path) -> tuple[list[str], list[Path]]:
    """The compiler's flags that find headers, and the emulator's objects."""
    cuda = cuda_include()
    includes = [f"-I{p}" for p in (HERE, folder / "csrc", ROOT / "csrc")] + [f"-isystem{cuda}"]
    if (cuda / "cccl").is_dir():
        includes.append(f"-isystem{cuda / 'cccl'}")

    # The emulator itself is compiled only if it has changed.
    parts = [*sorted(HERE.glob("*.cpp")), ROOT / "csrc" / "device" / "tensor_map.cpp"]
    state = hashlib.sha256(b"".join(p.read_bytes() for p in [*sorted(HERE.glob("*.h")), *parts, Path(__file__)]))
    objects = folder / f"emulator-{state.hexdigest()[:16]}"
    if not (objects / "complete").exists():
        objects.mkdir(exist_ok=True)
        for part in parts:
            _compile(part, objects / f"{part.parent.name}_{part.stem}.o", includes, ["-O2"])
        (objects / "complete").touch()
    return includes, sorted(objects.glob("*.o"))


def build(sources: list[Path], out: Path, folder: Path, defines: list[str] = (), reads: bool = False) -> Path:
    """Compiles and links `sources`; `folder` is a cache for later builds. `reads`: reads.cpp sees plain loads."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:  # several processes of tests share the folder
        fcntl.flock(lock, fcntl.LOCK_EX)
        places = _translated(folder, [p.resolve() for p in sources])
        includes, emulator = _emulator(folder)
    language = [
        "-include",
        str(HERE / "cuda_language.h"),
        "-include",
        str(HERE / "assembly.h"),
        *(f"-D{d}" for d in defines),
        *(SEES_READS if reads else ()),
    ]
    linked = []
    for place in places:
        linked.append(folder / f"{out.name}.{place.stem}.o")
        _compile(place, linked[-1], includes, language)
    command = ["g++", "-o", str(out), *map(str, linked), *map(str, emulator)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("-o", dest="out", type=Path, required=True)
    parser.add_argument("-D", dest="defines", action="append", default=[])
    parser.add_argument("--reads", action="store_true")
    arguments = parser.parse_args()
    try:
        build(
            arguments.sources, arguments.out.resolve(), ROOT / "build" / "emulation", arguments.defines, arguments.reads
        )
    except RuntimeError as error:
        sys.exit(str(error))

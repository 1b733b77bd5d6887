"""Compiles a program that runs CUDA kernels in the emulator (emulation.h).

    python tests/emulation/build.py program.cpp -o program [more.cpp ...]
    python tests/emulation/build.py mine.cu -o mine.so --exercise

The program includes "emulation.h" and csrc's headers as csrc's own files do. csrc/device/tensor_map.cpp is linked.
"""

import argparse
import contextlib
import fcntl
import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "tools")]

from find_nvcc import find_nvcc  # noqa: E402
from translate import translate  # noqa: E402

FLAGS = [
    "-std=c++20",
    "-Og",  # kernels compile in a third of the time of -O2, and run as fast; the emulator itself does not
    "-fstack-reuse=none",  # a wgmma's registers keep their addresses until its wait, which is behind their scope
    "-march=native",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-w",
    "-Wfatal-errors",
]
# A vector at an address that a GPU would refuse ends the program.
SEES_ALIGNMENT = ["-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"]
# Makes g++ call reads.cpp's functions for each memory access; the sanitizer's library is not linked.
SEES_READS = ["-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0"]
LIBRARY = ["-shared", "-Wl,-Bsymbolic", "-Wl,-z,defs"]
# The host code of a family refers to all of its kernels; a program need not link those that it does not launch.
PROGRAM = ["-no-pie", "-Wl,--unresolved-symbols=ignore-all"]
# Included before everything else, precompiled.
FIRST = """#include <functional>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <vector>
#include "cuda_language.h"
#include "assembly.h"
"""


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


def _translated(folder: Path, sources: list[Path], exercise: bool) -> list[Path]:
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
        translated = translate(text, str(path)) or f'#line 1 "{path}"\n{text}'
        _write(place, f'#include "exercise.h"\n{translated}\nEMULATED_EXERCISE\n' if exercise else translated)
        places.append(place)
    return places


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Several processes of tests share the folder."""
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _compile(out: Path, command: list[str], *precompiled: Path) -> Path:
    """Runs `command -o out`, unless that is what it has made already of the same files and precompiled headers."""
    read, stamp = out.with_name(f"{out.name}.d"), out.with_name(f"{out.name}.stamp")

    def state() -> str:
        paths = [*read.read_text().replace("\\\n", " ").split()[1:], *(f"{path}.stamp" for path in precompiled)]
        files = [Path(path).read_bytes() if Path(path).exists() else b"" for path in paths]
        return hashlib.sha256(b"\0".join([" ".join(command).encode(), *files])).hexdigest()

    with _locked(out):
        if not stamp.exists() or not out.exists() or stamp.read_text() != state():
            done = subprocess.run([*command, "-MMD", "-MF", read, "-o", out], capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
            stamp.write_text(state())
    return out


def build(sources: list[Path], out: Path, folder: Path, reads: bool = False, exercise: bool = False) -> Path:
    """Compiles and links `sources`; `folder` is a cache for later builds. `exercise`: into a library (exercise.h).

    `reads`: reads.cpp sees plain loads, which is slow: not those of the first of several sources, the program, which
    has the reference.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / "translated"):
        places = _translated(folder, [p.resolve() for p in sources], exercise)
    cuda, compiler = cuda_include(), ["g++", "-fPIC"]  # programs share objects with libraries
    includes = [f"-I{p}" for p in (HERE, folder / "csrc", ROOT / "csrc")] + [f"-isystem{cuda}"]
    if (cuda / "cccl").is_dir():
        includes.append(f"-isystem{cuda / 'cccl'}")

    def folder_of(command: list[str]) -> Path:
        variant = folder / hashlib.sha256(" ".join(command).encode()).hexdigest()[:8]
        variant.mkdir(exist_ok=True)
        return variant

    def objects(parts: list[Path], more: list[str] = ()) -> list[Path]:
        command = [*compiler, *FLAGS, *SEES_ALIGNMENT, *includes, *more]
        variant = folder_of(command)
        with _locked(variant / "first"):
            _write(variant / "first.h", FIRST)
        first = _compile(variant / "first.h.gch", [*command, "-x", "c++-header", str(variant / "first.h")])
        command += ["-include", str(variant / "first.h"), "-c"]
        return [_compile(variant / f"{part.parent.name}_{part.stem}.o", [*command, str(part)], first) for part in parts]

    def emulator() -> Path:
        """One object, since most of the compiler's time goes to the headers."""
        command = [*compiler, *FLAGS, "-O2", *includes, "-c"]
        variant = folder_of(command)
        whole = [*sorted(HERE.glob("*.cpp")), ROOT / "csrc" / "device" / "tensor_map.cpp"]
        with _locked(variant / "whole"):
            _write(variant / "emulator.cpp", "".join(f'#include "{path}"\n' for path in whole))
        return _compile(variant / "emulator.o", [*command, str(variant / "emulator.cpp")])

    program = places[:1] if reads and len(places) > 1 else []
    kernels = objects(places[len(program) :], SEES_READS if reads else ())
    linked = [*kernels, *objects(program), emulator()]
    with _locked(out):
        new = out.with_name(f"{out.name}.new")
        link = ["g++", *(LIBRARY if exercise else PROGRAM)]
        done = subprocess.run([*link, "-o", str(new), *map(str, linked)], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        new.replace(out)  # another process may run the old one
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("-o", dest="out", type=Path, required=True)
    parser.add_argument("--exercise", action="store_true")
    arguments = parser.parse_args()
    try:
        folder, out = ROOT / "build" / "emulation", arguments.out.resolve()
        build(arguments.sources, out, folder, exercise=arguments.exercise)
    except RuntimeError as error:
        sys.exit(str(error))

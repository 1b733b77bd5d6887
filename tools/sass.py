"""Disassembles kernels of libxgemm.so: ``make sass KERNEL=<regular expression>`` (``python tools/sass.py --help``).

The expression is searched in the demangled and the mangled names. Without one, the kernels are listed with their
registers, stack, local (spills), shared and constant memory. cuobjdump comes from the CUDA toolkit or triton's package.
"""

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LIBRARY = Path(__file__).resolve().parents[1] / "torch_ext" / "libxgemm.so"


def cuobjdump() -> tuple[str, dict[str, str]]:
    """The program, and an environment in which it finds nvdisasm beside it."""
    found = shutil.which("cuobjdump")
    if found is None and (triton := importlib.util.find_spec("triton")) is not None:
        packed = Path(triton.submodule_search_locations[0]) / "backends" / "nvidia" / "bin" / "cuobjdump"
        found = str(packed) if packed.exists() else None
    if found is None:
        sys.exit("no cuobjdump: install a CUDA toolkit or `pip install triton`")
    return found, {**os.environ, "PATH": f"{Path(found).parent}:{os.environ['PATH']}"}


def demangle(names: list[str]) -> list[str]:
    if not names or shutil.which("c++filt") is None:
        return names
    return subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True).stdout.split("\n")


def run(arguments: list[str]) -> Iterator[str]:
    program, environment = cuobjdump()
    command = [program, *arguments, str(LIBRARY)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        yield from process.stdout


def usage(arch: str) -> dict[str, str]:
    """Mangled kernel name -> its resource line, for one architecture."""
    kernels, name = {}, ""
    for line in run(["-arch", arch, "-res-usage"]):
        if found := re.match(r" Function (\S+):", line):
            name = found[1]
        elif name and "REG:" in line:
            kernels[name] = " ".join(re.findall(r"(?:REG|STACK|SHARED|LOCAL|CONSTANT\[0\]):\d+", line))
            name = ""
    return kernels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kernel", nargs="?", default="", help="regular expression; none lists the kernels")
    parser.add_argument("--arch", default="sm_90a")
    arguments = parser.parse_args()
    try:
        wanted = re.compile(arguments.kernel)
    except re.error as error:
        sys.exit(f"KERNEL: expected a regular expression, got '{arguments.kernel}': {error}")
    if not LIBRARY.exists():
        sys.exit(f"no {LIBRARY}: make build")
    kernels = usage(arguments.arch)
    readable = dict(zip(kernels, demangle(list(kernels)), strict=False))
    chosen = [name for name in kernels if wanted.search(f"{readable[name]} {name}")]
    if not chosen:
        sys.exit(f"none of the {len(kernels)} kernels for {arguments.arch} matches '{arguments.kernel}'")
    if not arguments.kernel:
        for name in chosen:
            print(f"{kernels[name]}  {readable[name]}")
        return
    printing = False
    for line in run(["-arch", arguments.arch, "-sass", "-fun", ",".join(chosen)]):
        if found := re.match(r"\s*Function : (\S+)", line):
            printing = found[1] in chosen
            if printing:
                print(f"\n// {readable[found[1]]}\n// {arguments.arch} {kernels[found[1]]}")
        elif printing and not re.match(r"\s*/\* 0x[0-9a-f]{16} \*/\s*$", line):  # no line of encoding only
            print(re.sub(r"\s*/\* 0x[0-9a-f]{16} \*/", "", line.rstrip()))


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # | head
        sys.stderr.close()

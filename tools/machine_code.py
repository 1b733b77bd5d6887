"""Digests of the kernels' machine code in libxgemm.so: what decides whether a measured figure is out of date.

``python tools/machine_code.py`` lists the kernels and their digest for each folder of csrc. ``--check`` prints one line
for each result file that was measured on kernels that the built library does not hold, and nothing else. ``--record``,
run after measuring, keeps the list of the kernels behind each result file's digest in benchmarks/results/kernels.json:
where there is none, --check also names a file beside whose kernels others have come. ``--compare OTHER``
prints the kernels that only one of two files has: ``-`` in OTHER, ``+`` in the library (or in ``--library FILE``).
A file is a library, an object file or a cubin. Needs no torch and no CUDA toolkit; compressed machine code
needs Python 3.14 or the package zstandard.

What enters a kernel's digest: its sm_90a instructions with their scheduling bits, its constants, its static shared
memory and its registers. What does not: its name, addresses, line numbers, debug information, the size of its
parameters, the order of linking. Two things may make a figure look out of date without need, never the other way round:
code that refers to a symbol outside of its own section (no kernel does today) enters with that symbol's name, and a
module's initialised data enters all of its kernels. A folder's digest is over the set of its kernels' digests: a kernel
that two object files hold counts once, and two kernels that exchange their names do not show. The choice
between kernels is host code: tests/golden holds it.
"""

import argparse
import hashlib
import json
import os
import re
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = Path(os.environ.get("XGEMM_LIBRARY") or ROOT / "torch_ext" / "libxgemm.so")  # what torch_ext loads
RESULTS = ROOT / "benchmarks" / "results"
RECORD = "kernels.json"  # in RESULTS: a digest of kernels -> the first characters of their own digests
RECORDED = 12
ARCH = 90  # the images for sm_90a

FATBIN = struct.pack("<IHH", 0xBA55ED50, 1, 16)  # magic, version, size of the header
ZSTANDARD = bytes.fromhex("28b52ffd")  # how its frames begin
CUBIN_KIND, COMPRESSED = 2, 0xA000  # an image's kind; its flags for LZ4 and Zstandard
ELF_CUDA = 190  # e_machine
NOBITS, RELA, REL = 8, 4, 9  # section types
SIZED = 4  # format of an attribute of .nv.info; of these two: a symbol's index and
REGISTER_COUNT, FRAME_SIZE = 0x2F, 0x11  # its registers; bytes of local memory per thread


class Section(NamedTuple):
    name: str
    kind: int
    content: bytes  # empty where the file holds none (zeroed memory)
    size: int
    info: int  # of relocations: the section that they patch


def decompressed(image: bytes, size: int) -> bytes:
    """An image that nvcc's --compress-mode=balance or =size has left."""
    if image[:4] != ZSTANDARD:
        sys.exit("libxgemm.so's device code is compressed, but not by nvcc's --compress-mode=balance or =size")
    try:
        from compression import zstd  # Python 3.14
    except ImportError:
        try:
            import zstandard
        except ImportError:
            sys.exit("libxgemm.so's device code is compressed: pip install zstandard")
        return zstandard.ZstdDecompressor().decompress(image, max_output_size=size)
    return zstd.decompress(image)


def cubins(file: bytes, arch: int = ARCH) -> Iterator[bytes]:
    """The images for `arch` of a library or an object file; a cubin itself."""
    if file[:4] == b"\x7fELF" and struct.unpack_from("<H", file, 18)[0] == ELF_CUDA:
        yield file
        return
    start = -1
    while (start := file.find(FATBIN, start + 1)) >= 0:
        (size,) = struct.unpack_from("<Q", file, start + 8)
        at, end = start + 16, start + 16 + size
        while at < end:
            kind, _, header, size = struct.unpack_from("<HHIQ", file, at)
            (found,), (flags,) = struct.unpack_from("<I", file, at + 28), struct.unpack_from("<Q", file, at + 40)
            if (kind, found) == (CUBIN_KIND, arch):
                image = file[at + header : at + header + size]
                if flags & COMPRESSED:
                    image = decompressed(image, *struct.unpack_from("<Q", file, at + 56))
                yield image
            at += header + size


def string_at(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode()


def sections(elf: bytes) -> list[Section]:
    (table,), (count, names) = struct.unpack_from("<Q", elf, 40), struct.unpack_from("<HH", elf, 60)
    # name, type, flags, address, offset, size, link, info, alignment, size of an entry
    raw = [struct.unpack_from("<IIQQQQIIQQ", elf, table + 64 * i) for i in range(count)]
    strings = elf[raw[names][4] :]
    return [
        Section(string_at(strings, s[0]), s[1], b"" if s[1] == NOBITS else elf[s[4] : s[4] + s[5]], s[5], s[7])
        for s in raw
    ]


def attributes(info: bytes, wanted: int) -> Iterator[tuple[int, int]]:
    """Symbol and value of an attribute that functions have, from a module's .nv.info."""
    at = 0
    while at < len(info):
        kind, attribute, size = struct.unpack_from("<BBH", info, at)
        if (kind, attribute) == (SIZED, wanted):
            yield struct.unpack_from("<II", info, at + 4)
        at += 4 + (size if kind == SIZED else 0)  # the other formats hold their value where SIZED holds its size


def symbol_names(named: dict[str, Section]) -> list[str]:
    strings = named[".strtab"].content
    return [string_at(strings, name) for name, *_ in struct.iter_unpack("<IBBHQQ", named[".symtab"].content)]


def values_by_function(named: dict[str, Section], wanted: int) -> dict[str, int]:
    """Mangled name -> value of an attribute of .nv.info, of every function of a cubin with these sections."""
    info = named[".nv.info"].content if ".nv.info" in named else b""
    symbols = symbol_names(named)
    return {symbols[symbol]: value for symbol, value in attributes(info, wanted)}


def frames(file: Path, arch: int = ARCH) -> dict[str, int]:
    """Mangled name -> bytes of local memory per thread of every function in a file that has any."""
    return {
        name: size
        for cubin in cubins(file.read_bytes(), arch)
        for name, size in values_by_function({part.name: part for part in sections(cubin)}, FRAME_SIZE).items()
        if size
    }


def functions(elf: bytes) -> dict[str, str]:
    """Mangled name -> digest of every function of a cubin."""
    parts = sections(elf)
    named = {part.name: part for part in parts}
    symbols, used = symbol_names(named), values_by_function(named, REGISTER_COUNT)
    module = b"".join(part.content for part in parts if re.fullmatch(r"\.nv\.(constant\d+|global\.init)", part.name))
    found = {}
    for index, part in enumerate(parts):
        if not part.name.startswith(".text."):
            continue
        name = part.name.removeprefix(".text.")
        digest = hashlib.sha256(part.content + module)
        for other in parts:
            if re.fullmatch(rf"\.nv\.constant[1-9]\d*\.{re.escape(name)}", other.name):
                digest.update(other.content)
            if other.kind in (REL, RELA) and other.info == index:
                for entry in struct.iter_unpack("<QII" if other.kind == REL else "<QIIq", other.content):
                    digest.update(f"{entry[0]} {entry[1]} {symbols[entry[2]]} {entry[3:]}\n".encode())
        shared = named.get(f".nv.shared.{name}")
        digest.update(f"shared {shared.size if shared else 0} registers {used.get(name)}".encode())
        found[name] = digest.hexdigest()
    return found


def kernels(file: Path, arch: int = ARCH) -> dict[str, set[str]]:
    """Digest -> mangled names of all kernels for `arch` (sm_90a) in a file."""
    found: dict[str, set[str]] = {}
    for cubin in cubins(file.read_bytes(), arch):
        for name, digest in functions(cubin).items():
            found.setdefault(digest, set()).add(name)
    return found


def prefix_of(path: str) -> str:
    """What mangled names of the kernels under a folder begin with: namespaces are named after folders.

    csrc/lab/sgemm holds xgemm::lab::sgemm, csrc everything.
    """
    return "_ZN5xgemm" + "".join(f"{len(folder)}{folder}" for folder in path.split("/")[1:])


def under(found: dict[str, set[str]], paths: Iterable[str]) -> list[str]:
    """Sorted digests of the kernels under those of `paths` that are in csrc."""
    prefixes = tuple(prefix_of(path) for path in paths if path.split("/")[0] == "csrc")
    return sorted(digest for digest, names in found.items() if any(name.startswith(prefixes) for name in names))


def digest_of(found: dict[str, set[str]], paths: Iterable[str]) -> str:
    """First 16 hex digits of sha256 over the digests of the kernels under `paths`."""
    return hashlib.sha256("".join(under(found, paths)).encode()).hexdigest()[:16]


def machine_code(paths: Iterable[str], library: Path = LIBRARY) -> str | None:
    """The digest of the library's kernels under `paths`, as result files record it; None without any for sm_90a."""
    found = kernels(library) if library.exists() else {}
    return digest_of(found, paths) if found else None


def out_of_date(found: dict[str, set[str]], results: Path = RESULTS) -> Iterator[str]:
    """A line for each result file that was measured on kernels of which `found` lacks some.

    A CPU's file records None: it depends on no kernel. Kernels beside those that were measured change no figure by
    themselves; which kernel serves a problem is host code.
    """
    recorded = recorded_kernels(results)
    for path, measured, paths in digests_of_results(results):
        now = digest_of(found, paths)
        here = {digest[:RECORDED] for digest in under(found, paths)}
        if measured == now or (measured in recorded and here.issuperset(recorded[measured])):
            continue
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        yield f"{name}: measured on kernels {measured}, the library's are {now}"


def digests_of_results(results: Path) -> Iterator[tuple[Path, str, list[str]]]:
    """Each result file of a GPU, the digest of the kernels that it was measured on, and their folders."""
    for path in sorted(results.glob("*/*.json")):
        document = json.loads(path.read_text())
        measured = document.get("machine_code", "of no recorded digest")
        if measured is not None:
            yield path, measured, document["sources"]["paths"]


def recorded_kernels(results: Path) -> dict[str, list[str]]:
    file = results / RECORD
    return {key: text.split() for key, text in json.loads(file.read_text()).items()} if file.exists() else {}


def record(found: dict[str, set[str]], results: Path = RESULTS) -> None:
    """Keeps the kernels of the result files that were measured on `found`; forgets what no file refers to any more."""
    recorded, kept = recorded_kernels(results), {}
    for _, measured, paths in digests_of_results(results):
        if measured == digest_of(found, paths):
            kept[measured] = [digest[:RECORDED] for digest in under(found, paths)]
        elif measured in recorded:
            kept[measured] = recorded[measured]
    text = json.dumps({key: " ".join(kept[key]) for key in sorted(kept)}, indent=1)
    (results / RECORD).write_text(text + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path, default=LIBRARY, metavar="FILE", help="what to read")
    task = parser.add_mutually_exclusive_group()
    task.add_argument("--check", action="store_true", help="print the result files that are out of date")
    task.add_argument("--record", action="store_true", help=f"write benchmarks/results/{RECORD}")
    task.add_argument(
        "--compare", type=Path, metavar="OTHER", help="print the kernels that differ; exit status 1 if any"
    )
    arguments = parser.parse_args()
    for file in (arguments.library, arguments.compare):
        if file and not file.exists():
            sys.exit(f"no {file}: make build")
    found = kernels(arguments.library)
    if not found:
        sys.exit(f"{arguments.library} holds no kernels for sm_90a: build with TORCH_CUDA_ARCH_LIST=9.0a")
    if arguments.check:
        for line in out_of_date(found):
            print(line)
    elif arguments.record:
        record(found)
    elif arguments.compare:
        other = kernels(arguments.compare)
        lines = [f"- {name}" for digest in other.keys() - found.keys() for name in other[digest]]
        lines += [f"+ {name}" for digest in found.keys() - other.keys() for name in found[digest]]
        for line in sorted(lines, key=lambda line: line[2:]):
            print(line)
        sys.exit(1 if lines else 0)
    else:
        folders = sorted(
            {f"csrc/{path.relative_to(ROOT / 'csrc')}" for path in (ROOT / "csrc").glob("*/") if path.is_dir()}
        )
        for folder in [*folders, "csrc"]:
            count = sum(any(name.startswith(prefix_of(folder)) for name in names) for names in found.values())
            if count:
                print(f"{folder:20} {count:4} kernels  {digest_of(found, [folder])}")


if __name__ == "__main__":
    main()

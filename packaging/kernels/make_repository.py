"""Makes a repository for Hugging Face's `kernels` in build/kernels/repository (make kernels).

The Python files are those of torch_ext. What has to differ in a package that loads from any folder, beside other
versions of itself, is rewritten: imports become relative, and the operators' namespace gets a name of its own.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(__file__).resolve().parent / "package"
SOURCES = ROOT / "torch_ext"
NAME = "xgemm"

# Operators with what torch has to know of them, documented functions, FlashAttention's names; no models, no lab.
MODULES = (
    *(
        "_architecture.py",
        "_load.py",
        "_mode.py",
        "_registered.py",
        "autocast.py",
        "autograd.py",
        "fake.py",
        "prepared.py",
        "vmap.py",
    ),
    *("flash_attn.py", "flash_attn_interface.py", "functional"),
)


def relative_imports(text: str, depth: int) -> str:
    """`from torch_ext.a import b` of a file that lies `depth` folders below the package."""

    def relative(found: re.Match) -> str:
        return f"{found[1]}from {'.' * (depth + 1)}{found[2] or ''} import "

    return re.sub(r"^( *)from torch_ext(?:\.([\w.]+))? import ", relative, text, flags=re.MULTILINE)


def renamed(text: str, namespace: str) -> str:
    """The operators' namespace, and the environment variable that names another library. Messages keep their words."""
    text = re.sub(r"\btorch\.ops\.xgemm(_mode)?\b", rf"torch.ops.{namespace}\1", text)
    text = re.sub(r'(register_fake\(f?"|namespace: str = ")xgemm\b', rf"\g<1>{namespace}", text)
    return text.replace("XGEMM_LIBRARY", f"{namespace.upper()}_LIBRARY")


def python_files() -> dict[Path, Path]:
    """Where each file of the package goes -> where it comes from."""
    files = {path.relative_to(PACKAGE): path for path in sorted(PACKAGE.rglob("*.py"))}
    for name in MODULES:
        path = SOURCES / name
        found = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        files |= {each.relative_to(SOURCES): each for each in found}
    return files


def namespace_of_sources() -> str:
    """`xgemm_` and a digest of all that the package is made of."""
    compiled = (path for folder in ("csrc", "cmake") for path in sorted((ROOT / folder).rglob("*")) if path.is_file())
    digest = hashlib.sha256()
    for path in (*compiled, ROOT / "CMakeLists.txt", *python_files().values(), Path(__file__)):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"{NAME}_{digest.hexdigest()[:8]}"


def compile_library(namespace: str, cuda: bool) -> Path:
    """Builds libxgemm.so with that namespace, in a folder of its own."""
    build = ROOT / "build" / "kernels" / ("cuda" if cuda else "cpu")
    library = build / "library"
    options = {
        "Python3_EXECUTABLE": sys.executable,
        "XGEMM_CUDA": "ON" if cuda else "OFF",
        "XGEMM_NAMESPACE": namespace,
        "XGEMM_LIBRARY_DIR": library,
    }
    given = [f"-D{name}={value}" for name, value in options.items()]
    subprocess.run(["cmake", "-S", ROOT, "-B", build, *given], check=True, stdout=sys.stderr)
    jobs = os.environ.get("MAX_JOBS") or str(os.cpu_count())
    subprocess.run(["cmake", "--build", build, "--parallel", jobs], check=True, stdout=sys.stderr)
    return library / "libxgemm.so"


def build_info(library: Path) -> dict[str, str]:
    """What the library says that it is: version, cuda, architectures."""
    found = re.search(rb"xgemm build (\{[^\0]*\})\0", library.read_bytes())
    if found is None:
        raise ValueError(f"{library} does not say how it was built")
    return json.loads(found[1])


def variant(info: dict[str, str]) -> str:
    """The name of the folder, by which `kernels` chooses: torch's stable ABI of 2.10, backend, machine, system."""
    backend = f"cu{''.join(info['cuda'].split('.')[:2])}" if info["cuda"] else "cpu"
    return f"torch-stable-abi210-{backend}-{platform.machine()}-{platform.system().lower()}"


def assemble(library: Path, namespace: str, repository: Path) -> Path:
    """Writes the package of a library to repository/build/<variant>, anew."""
    info = build_info(library)
    folder = repository / "build" / variant(info)
    shutil.rmtree(folder, ignore_errors=True)
    for target, source in python_files().items():
        path = folder / target
        path.parent.mkdir(parents=True, exist_ok=True)
        text = relative_imports(source.read_text(), len(target.parent.parts))
        path.write_text(renamed(text, namespace))
    shutil.copy2(library, folder)
    metadata = {
        "id": f"{namespace}_{'cuda' if info['cuda'] else 'cpu'}",
        "name": NAME,
        "version": 1,
        "license": "BSD-3-Clause",
        "python-depends": [],
        "backend": {"type": "cpu"},
    }
    if info["cuda"]:
        metadata["backend"] = {"type": "cuda", "archs": info["architectures"].split(";")}
    (folder / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n")
    shutil.copy2(PACKAGE.parent / "README.md", repository)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="without CUDA")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "kernels" / "repository")
    arguments = parser.parse_args()
    namespace = namespace_of_sources()
    print(assemble(compile_library(namespace, not arguments.cpu), namespace, arguments.output))


if __name__ == "__main__":
    main()

"""The package for Hugging Face's kernels: its files, and loading it beside torch_ext, by their loader if it is here."""

import ast
import json
import re
import sys
from pathlib import Path

import pytest
from common import run

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "packaging" / "kernels"))

import make_repository as package  # noqa: E402

LOAD = """
import os, sys
os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from pathlib import Path

folder = Path(sys.argv[1])
try:
    from kernels import get_local_kernel
    xgemm = get_local_kernel(folder.parents[1], backend="cpu")
except ImportError:  # what that does
    import importlib.util
    spec = importlib.util.spec_from_file_location(sys.argv[2] + "_cpu", folder / "__init__.py")
    xgemm = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(xgemm)
assert Path(xgemm.__file__).parent == folder
assert not any(name.startswith("torch_ext") for name in sys.modules)
"""
SIDE_BY_SIDE = """
namespace = getattr(torch.ops, sys.argv[2])
assert hasattr(namespace, "matmul") and not hasattr(torch.ops.xgemm, "matmul")
sys.path.insert(0, sys.argv[3])
import torch_ext, torch_ext.flash_attn
x, w, b, target = torch.randn(3, 8), torch.randn(5, 8), torch.randn(5), torch.tensor([1, 0, 7])
q = torch.randn(2, 9, 4, 8)
same = lambda *pair: torch.testing.assert_close(*pair, rtol=0, atol=0)
for name, args in {
    "matmul": (x, w.T), "addmm": (b, x, w.T), "linear": (x, w, b), "gated_linear": (x, w, w), "softmax": (x, -1),
    "log_softmax": (x, -1), "scaled_masked_softmax": (x, None, 0.5), "topk_softmax": (x, 2), "sum": (x,), "mean": (x,),
    "amax": (x,), "amin": (x,), "argmax": (x,), "argmin": (x,), "logsumexp": (x,), "cross_entropy": (x, target),
    "attention": (q, q, q),
}.items():
    same(getattr(xgemm, name)(*args), getattr(torch_ext, name)(*args))
same(xgemm.flash_attn_func(q, q, q, causal=True), torch_ext.flash_attn.flash_attn_func(q, q, q, causal=True))
ends = torch.tensor([0, 7, 9, 18], dtype=torch.int32)
for name, args in {
    "flash_attn_varlen_func": (*[q.flatten(0, 1)] * 3, ends, ends, 9, 9),
    "flash_attn_with_kvcache": (q[:, :1], q, q, q[:, :1], q[:, :1], None, None, ends[1:3] - 4),
}.items():
    same(getattr(xgemm, name)(*args), getattr(torch_ext.flash_attn, name)(*args))
assert set(torch_ext.flash_attn.__all__) <= set(xgemm.__all__)

layer = torch.nn.Linear(8, 5)
with torch.no_grad():
    same(xgemm.layers.Linear.forward(layer, x), torch_ext.linear(x, layer.weight, layer.bias))
    f = lambda x: xgemm.linear(xgemm.softmax(x, -1), w, b, activation="relu")
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), torch_ext.linear(torch_ext.softmax(x, -1), w, b, activation="relu"))
try:
    xgemm.linear(x, layer.weight)
except RuntimeError as error:
    assert "::linear: has no backward" in str(error), error
else:
    raise AssertionError("a gradient is lost in silence")
with torch.autocast("cpu", torch.bfloat16):
    assert xgemm.matmul(x, w.T).dtype is torch.bfloat16
batched = torch.vmap(xgemm.matmul, (None, 0))(x, torch.stack([w.T] * 2))
torch.testing.assert_close(batched, torch.stack([torch_ext.matmul(x, w.T)] * 2))

with xgemm.batch_invariant():  # each library has its own mode
    assert xgemm.is_batch_invariant() and not torch_ext.is_batch_invariant()
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A package without CUDA, not optimised, and its namespace: always the same one, for ccache."""
    namespace = "xgemm_0123abcd"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CMAKE_BUILD_TYPE", "Quick")
        library = package.compile_library(namespace, cuda=False)
    return package.assemble(library, namespace, tmp_path_factory.mktemp("repository")), namespace


def test_loads_beside_torch_ext(built: tuple[Path, str]) -> None:
    """In a folder where the script finds neither torch_ext nor the package."""
    done = run(sys.executable, "-c", LOAD + SIDE_BY_SIDE, *built, ROOT, cwd="/", timeout=600)
    assert done.returncode == 0, done.stderr


def test_only_the_standard_library_and_torch_are_imported(built: tuple[Path, str]) -> None:
    files = sorted(built[0].rglob("*.py"))
    assert {"__init__.py", "layers.py", "fake.py", "_attention.py"} <= {path.name for path in files}
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                assert name.split(".")[0] in {"torch", *sys.stdlib_module_names}, (path, name)


def test_names(built: tuple[Path, str]) -> None:
    folder, namespace = built
    assert re.fullmatch(r"xgemm_[0-9a-f]{8}", package.namespace_of_sources())
    assert package.namespace_of_sources() == package.namespace_of_sources() != namespace
    assert folder.name == "torch-stable-abi210-cpu-x86_64-linux"
    cuda = {"cuda": "13.0", "architectures": "8.0+PTX;9.0a"}
    assert package.variant(cuda) == "torch-stable-abi210-cu130-x86_64-linux"
    metadata = json.loads((folder / "metadata.json").read_text())
    assert (metadata["id"], metadata["backend"]) == (f"{namespace}_cpu", {"type": "cpu"})


def test_versions_of_the_cpp_library() -> None:
    """The C++ library of GCC 8 (GLIBCXX_3.4.24), which `kernels` allows, is enough for the optimised library."""
    needed = re.findall(rb"GLIBCXX_(\d+)\.(\d+)\.?(\d*)", (ROOT / "torch_ext" / "libxgemm.so").read_bytes())
    assert needed and max(tuple(int(number or 0) for number in version) for version in needed) <= (3, 4, 24)

"""The pages: every link and every command that they name exist."""

import importlib.util
import itertools
import json
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.utils.benchmark import Timer

from benchmarks import report, tables
from torch_ext import lab

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FOLDERS = ("csrc", "torch_ext", "benchmarks", "tests", "tools", "include", "examples")
FILES = {"setup.py", *(path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*.*"))}


def test_links_and_commands_of_the_pages() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        text = page.read_text()
        links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
        missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
        assert missing == [], page
        assert set(re.findall(r"(?:^|`)make (?:[A-Z_]+=\S+ )*([a-z][a-z-]*)", text, re.MULTILINE)) <= targets, page
        # A row that is not indented as the one before ends the list item and the table.
        lines = itertools.pairwise(text.splitlines())
        rows = [(a, b) for a, b in lines if a.lstrip()[:1] == b.lstrip()[:1] == "|"]
        assert [b for a, b in rows if a.index("|") != b.index("|")] == [], page


def test_anchors_files_and_modules_that_the_pages_name_exist() -> None:
    for page in PAGES:
        text = page.read_text()
        anchors = re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", text)
        assert [a for link, a in anchors if a not in headings(page.parent / link if link else page)] == [], page
        modules = re.findall(r"python -m ((?:torch_ext|benchmarks|tools|examples)(?:\.\w+)*)", text)
        assert [module for module in modules if importlib.util.find_spec(module) is None] == [], page
        if page.parent.name == "log":  # may name files that no longer exist
            continue
        files = re.findall(r"`((?:csrc|torch_ext|tests|tools|benchmarks|examples|include|docs|device)/[\w./]+)`", text)
        gone = [file for file in files if not (ROOT / file).exists() and not (ROOT / "csrc" / file).exists()]
        assert set(gone) <= {"torch_ext/libxgemm.so"}, page  # which is built
        assert [name for name in re.findall(r"`(\w+\.(?:cuh|cu|h|cpp|py))`", text) if name not in FILES] == [], page


def test_a_call_goes_from_schema_to_kernel_in_eight_files() -> None:
    """Every file of architecture.md's table holds what the table says of it."""
    section = (ROOT / "docs" / "architecture.md").read_text().split("## Two calls, file by file")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([\w./]+)` \|(.*)\|$", section, re.MULTILINE)
    assert len(rows) == 8 and rows[0][0] == "ops.cpp" and rows[-1][0] == "matmul/wgmma/kernel.cuh"
    for file, what in rows:
        text = (ROOT / "csrc" / file).read_text()
        named = [name for name in re.findall(r"`(\w+)(?:\(\))?`", what) if name not in ("mma", "wgmma")]
        assert [name for name in named if not re.search(rf"\b{name}\b", text)] == []


def headings(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_pages_show_the_results_that_are_kept() -> None:
    assert report.main(["--check"]) == 0
    text = "".join(page.read_text() for page in PAGES)
    named = set(re.findall(r"^<!-- results:begin (\w+) -->$", text, re.MULTILINE))
    assert named == {*tables.LAB, *(name for name in report.PARTS if name)}


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def test_readmes_lines_of_python_run() -> None:
    names: dict = {}
    exec(blocks(ROOT / "README.md")[0], names)
    x, w, c, p, model, report, enabled = (names[name] for name in ("x", "w", "c", "p", "model", "report", "enabled"))
    torch.testing.assert_close(c, x @ w, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(p, c.softmax(-1), rtol=1e-4, atol=1e-6)
    assert enabled.calls["addmm", "xgemm"] and enabled.calls["mm", "xgemm"]
    assert all(parameter.grad is not None for parameter in model.parameters())
    with torch.inference_mode():
        z = model(x[None])
        assert {kind for (kind, where), n in report.calls.items() if where == "xgemm" and n}
        report.undo()
        torch.testing.assert_close(z, model(x[None]), rtol=1e-4, atol=1e-4)


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (torch.nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = [layer(x).unflatten(-1, (-1, 4)).transpose(1, 2) for layer in (self.q, self.k, self.v)]
        y = torch.nn.functional.scaled_dot_product_attention(*heads)
        return self.out(y.transpose(1, 2).flatten(2))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(Attention(), Attention())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def names_of_python() -> dict:
    return {"x": torch.randn(2, 3, 8), "weight": torch.randn(5, 8), "bias": torch.randn(5), "model": Model().eval()}


@contextmanager
def names_of_distributed() -> Iterator[dict]:
    if not torch.distributed.is_available():
        pytest.skip("this torch has no torch.distributed")
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        yield names_of_python() | {"mesh": torch.distributed.device_mesh.init_device_mesh("cpu", (1,))}
    finally:
        torch.distributed.destroy_process_group()


def names_of_benchmarks() -> dict:
    names = {"f": torch.matmul, "a": torch.ones(2, 2), "b": torch.ones(2, 2)}
    timer = Timer("f(a, b)", globals=names, label="matmul", sub_label="2x2x2", description="xgemm")
    Path("saved.pkl").write_bytes(pickle.dumps([timer.timeit(2)]))
    return names


@contextmanager
def names_of_enable() -> Iterator[dict]:
    """A model that trains; what the page leaves on is switched off."""
    import torch_ext
    import torch_ext._enable as module

    device = "cuda" if torch.cuda.is_available() else "cpu"
    before = len(module._active)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_ext, "enable", partial(module.enable, device=device))
        yield {"model": lambda x: (x @ x).sum(), "batch": torch.randn(4, 4, device=device, requires_grad=True)}
    while len(module._active) > before:
        module._active[-1].disable()


WHOLE = ("matmul", "attention", "serving", "reduce", "softmax", "topk_softmax", "cross_entropy", "integrations")
NAMES = {  # that a page's examples use and do not define
    "python": lambda: nullcontext(names_of_python()),
    "distributed": names_of_distributed,
    "benchmarks": lambda: nullcontext(names_of_benchmarks()),
    "enable": names_of_enable,
    **dict.fromkeys(WHOLE, lambda: nullcontext({})),
}


@pytest.mark.parametrize("name", NAMES)
def test_python_of_a_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for transformers' lines: test_transformers.py does the same."""
    monkeypatch.chdir(tmp_path)
    code_of_page = [code for code in blocks(ROOT / "docs" / f"{name}.md") if "transformers" not in code]
    assert len(code_of_page) >= (2 if name == "integrations" else 1)
    with NAMES[name]() as names:
        for code in code_of_page:
            exec(code, names)


def test_reference_of_the_api_is_rendered(tmp_path: Path) -> None:
    """What `make docs` does, for one module."""
    pdoc = pytest.importorskip("pdoc")
    pdoc.render.configure(docformat="google")
    pdoc.pdoc("torch_ext.prepared", output_directory=tmp_path)
    page = (tmp_path / "torch_ext" / "prepared.html").read_text()
    assert "PreparedWeight" in page and "Copies the weight as it is now" in page


def test_ratios_on_a_cpu_are_what_the_page_says() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text().split("## On a CPU")[1]
    most = float(re.search(r"Operators take at most ([\d.]+) times torch's time", page)[1])
    for file in (ROOT / "benchmarks" / "results").glob("*/cpu.json"):
        times: dict[tuple, dict[str, float]] = {}
        for row in json.loads(file.read_text())["rows"]:
            times.setdefault((row["case"], row["dtype"], row["mode"]), {})[row["contender"]] = row["us"]
        slow = [case[0] for case, us in times.items() if us["torch"] + 10 < us["xgemm"] > most * us["torch"]]
        assert {case.split()[0] for case in slow} <= {"cross_entropy"}  # which is in the table of exceptions


def test_every_page_with_python_is_run() -> None:
    """Not run here: the lab's (needs a GPU), C++'s (`make aoti` does the same)."""
    assert {page.stem for page in PAGES if blocks(page)} == {*NAMES, "README", "lab", "cpp"}
    called = re.findall(r"\blab\.(\w+)", blocks(ROOT / "docs" / "lab.md")[0])
    assert called and all(callable(getattr(lab, name)) for name in called)

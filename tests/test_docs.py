"""The pages: every link leads somewhere, and every command that they name is there."""

import re
from pathlib import Path

import pytest
import torch

from benchmarks import report, tables

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_commands_of_a_page(page: Path) -> None:
    text = page.read_text()
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make (?:[A-Z_]+=\S+ )*([a-z][a-z-]*)", text, re.MULTILINE))
    assert named <= targets


def test_pages_show_the_results_that_are_kept() -> None:
    assert report.main(["--check"]) == 0
    text = "".join(page.read_text() for page in PAGES)
    named = set(re.findall(r"^<!-- results:begin (\w+) -->$", text, re.MULTILINE))
    assert named == {*tables.OPS, *tables.LAB, *(name for name in report.PARTS if name)}


def test_readme_begins_with_what_a_new_user_needs() -> None:
    """One sentence, two commands, ten lines of Python, one plot, one table of at most ten rows, in this order."""
    text = (ROOT / "README.md").read_text()
    marks = ["begin why", "```sh", "```python", "begin -->", "![", "\n| ---", "## From Python"]
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)
    sentence = re.search(r"begin why -->\n(.*?)<!-- results:end", text, re.DOTALL)[1]
    assert len(re.findall(r"\.(?:\s|$)", sentence)) == 1
    commands, python = re.search(r"```sh\n(.*?)```", text, re.DOTALL)[1], python_of_readme()
    assert [line.split("#")[0].strip() for line in commands.splitlines()] == ["make demo", "make test"]
    assert len([line for line in python.splitlines() if line.strip()]) <= 10
    first = text[: places[-1]]
    assert first.count("![") == text.count("![") == 1 and first.count("\n| ---") == 1
    rows = re.search(r"\n\| ---.*?\n((?:\|.*\n)+)", first)[1].splitlines()
    assert 1 <= len(rows) <= 10
    assert "`make lab`" in text


def python_of_readme() -> str:
    return re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]


def test_readmes_lines_of_python_run() -> None:
    names: dict = {}
    exec(python_of_readme(), names)
    x, w, c, y, p, z = (names[name] for name in "xwcypz")
    torch.testing.assert_close(c, x @ w, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(y, torch.nn.functional.gelu(x @ w.mT), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(p, y.softmax(-1), rtol=1e-4, atol=1e-6)
    assert {kind for (kind, where), n in names["report"].calls.items() if where == "xgemm" and n}
    names["report"].undo()
    with torch.inference_mode():
        torch.testing.assert_close(z, names["model"](x[None]), rtol=1e-4, atol=1e-4)

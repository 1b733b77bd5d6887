"""The pages: every link leads somewhere, and every command that they name is there."""

import re
from pathlib import Path

import pytest

from benchmarks import report

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
    assert named == {*report.OPS, *report.LAB}

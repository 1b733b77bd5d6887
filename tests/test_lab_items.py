"""The catalogue of the documents: each item once, by a command that exists, with a figure from rows or from a test."""

import re
from pathlib import Path

import pytest

from benchmarks import lab_items
from torch_ext import lab

ROOT = Path(__file__).resolve().parents[1]
COUNTS = {0: 16, 1: 25, 2: 21, 3: 18, 4: 27}  # items of the five documents
BY_ID = {item.id: item for item in lab_items.ITEMS}


def test_every_item_has_one_line_in_order():
    expected = [f"S{document}-{item:02}" for document, count in COUNTS.items() for item in range(1, count + 1)]
    assert [item.id for item in lab_items.ITEMS if item.id[0] == "S"] == expected
    assert len(BY_ID) == len(lab_items.ITEMS)


@pytest.mark.parametrize("item", lab_items.ITEMS, ids=lambda item: item.id)
def test_the_command_exists(item):
    for names in re.findall(r"`--only ([^`]+)`", item.command):
        assert set(names.split()) <= set(lab.EXPERIMENTS)
    for file, name in re.findall(r"`pytest (\S+) -k (\w+)`", item.command):
        assert re.search(rf"^def test_\w*{name}", (ROOT / file).read_text(), re.MULTILINE), name
    for module in re.findall(r"`python -m torch_ext\.(\w+)", item.command):
        assert (ROOT / "torch_ext" / f"{module}.py").exists()
    for target in re.findall(r"`make (\w+)", item.command):
        assert f"\n{target}: " in (ROOT / "Makefile").read_text()
    assert re.search(r"`|\]\(|pages", item.command)

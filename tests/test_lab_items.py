"""The catalogue of the documents: each item once, by a command that exists, with a figure from rows or from a test."""

import json
import re
from pathlib import Path

import pytest

from benchmarks import lab_items, tables
from torch_ext import lab
from torch_ext.lab import calculators, counters

ROOT = Path(__file__).resolve().parents[1]
COUNTS = {0: 16, 1: 25, 2: 21, 3: 18, 4: 27}  # items of the five documents
BY_ID = {item.id: item for item in lab_items.ITEMS}


def items_of(text: str) -> list[str]:
    """S1-04 to S1-06 and S2-07 as S1-04, S1-05, S1-06 and S2-07."""
    found = []
    for document, first, last in re.findall(r"S(\d)-(\d\d)(?: to S\d-(\d\d))?", text):
        found += [f"S{document}-{item:02}" for item in range(int(first), int(last or first) + 1)]
    return found


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


def test_experiments_and_items_name_each_other():
    for experiment in lab.EXPERIMENTS.values():
        assert set(items_of(experiment.documents)) <= set(BY_ID)
    for item in lab_items.ITEMS:
        names = {name for names in re.findall(r"`--only ([^`]+)`", item.command) for name in names.split()}
        for name in names if item.id[0] == "S" else ():
            assert item.id in items_of(lab.EXPERIMENTS[name].documents), (item.id, name)


def test_figures_of_the_calculators_are_theirs():
    held = set()
    for what, ours, document in calculators.calculators():
        for item in (BY_ID[id_] for id_ in items_of(what)):
            if item.command == lab_items.CALCULATORS:
                assert isinstance(item.figure, str) and ours in item.figure, item.id
                assert document in item.document or item.document in ("-", "2 of 1024"), item.id
                held.add(item.id)
    alone = {item.id for item in lab_items.ITEMS if item.command == lab_items.CALCULATORS}
    assert held == alone - {"S2-12", "S4-05"}  # of S4-05 the lines are S4-06's and S4-11's


def test_figures_are_made_from_rows():
    folder = ROOT / "benchmarks" / "results" / "nvidia_h200"
    files = [folder / f"{op}.json" for op in tables.LAB]
    documents = {path.stem.removeprefix("lab_"): json.loads(path.read_text()) for path in files if path.exists()}
    measured, nothing = lab_items.Measured(documents), lab_items.Measured()
    for item in lab_items.ITEMS:
        if isinstance(item.figure, str):
            continue
        text = item.measured(measured)
        experiments = [name for names in re.findall(r"`--only ([^`]+)`", item.command) for name in names.split()]
        if experiments and set(experiments) <= set(documents):
            assert text != "not measured yet" and re.search(r"\d", text), item.id
        if item.id != "S2-08":  # whose arithmetic needs no rows
            assert item.measured(nothing) == "not measured yet", item.id
    us = {"contender": "v0_interleaved_modulo", "us": 90.0, "gbps": 1.0, "shape": {"n": 1 << 28}, "dtype": "float32"}
    rows = [us, us | {"contender": "v2_sequential", "us": 45.0, "gbps": 1234.0}]
    assert BY_ID["S4-20"].measured(lab_items.Measured({"reduction": {"rows": rows}})) == "1,234 GB/s, 2.0x"
    rows = [
        {"case": name, "counters": {"branches": 1000.0 * i, "sectors_a_request": float(i)}}
        for i, name in enumerate(counters.PREPARED)
    ]
    shown = BY_ID["S1-01"].measured(lab_items.Measured({"counters": {"rows": rows}}))
    assert shown == "2,000 and 3,000 branches in parity; 14.0 and 15.0 sectors a request in SGEMM 01 and 02"
    assert BY_ID["S1-01"].measured(lab_items.Measured({"counters": {"rows": rows[:3]}})) == "not measured yet"

"""Two builds of the library side by side, each in a process of its own."""

import os
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils.benchmark import Measurement
from torch.utils.benchmark.utils.common import TaskSpec

import torch_ext
from benchmarks import builds

LIBRARY = Path(torch_ext.__file__).with_name("libxgemm.so")


def test_two_builds_take_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.so", "b.so"):
        shutil.copyfile(LIBRARY, tmp_path / name)
    saved = tmp_path / "saved.pkl"
    options = ["matmul", "--builds", f"{tmp_path}/a.so,other={tmp_path}/b.so", "--device", "cpu", "--quick"]
    before = os.environ.get(builds.VARIABLE)
    assert builds.main([*options, "--filter", "^(64x64|65x97)", "--measurements", str(saved)]) == 0
    assert os.environ.get(builds.VARIABLE) == before
    printed = capsys.readouterr().out
    assert f"xgemm: {tmp_path}/a.so\n" in printed and f"xgemm_other: {tmp_path}/b.so\n" in printed
    assert "xgemm_other" in printed.splitlines()[-1] and "of 2; worst" in printed.splitlines()[-1]
    found = pickle.loads(saved.read_bytes())
    assert [(one.metadata["case"], one.description) for one in found] == [
        (case, name) for case in ("64x64x64", "65x97x33") for name in ("xgemm", "xgemm_other")
    ]
    for one in found:
        assert len(one.times) == 2 * 5, "two turns of five rounds"
        assert one.metadata["us"] == pytest.approx(one.median * 1e6)


def test_a_budget_is_shared_and_each_case_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Builds answer at once. The cases measured before a run is killed are saved."""
    saved, shares = tmp_path / "saved.pkl", []

    class Fake(SimpleNamespace):
        def ask(self, index: int, share_s: float) -> tuple[list[Measurement], list[str], list[str]]:
            shares.append(share_s)
            assert not index or len(pickle.loads(saved.read_bytes())) == 2 * index
            spec = TaskSpec("f()", "", sub_label=str(index), description=self.name)
            measured = Measurement(1, [1e-5, 2e-5], spec)
            way = {"case": str(index), "dtype": "float32", "mode": None, "l2": "hot", "graph": False}
            measured.metadata = {"contender": self.name, "us": 15.0, "us_quartiles": [10.0, 20.0]} | way
            return [measured], [], []

    def start(name: str, library: Path, *_: object) -> Fake:
        pipe = SimpleNamespace(recv=lambda: ([str(library)], "Test CPU", 2), send=lambda task: None)
        return Fake(name=name, library=library, pipe=pipe, process=SimpleNamespace(join=lambda: None))

    monkeypatch.setattr(builds.Build, "start", start)
    options = ["matmul", "--builds", f"{LIBRARY},b={LIBRARY}", "--device", "cpu", "--filter", "^(64x64|65x97)"]
    assert builds.main([*options, "--budget", "0"]) == 0
    assert "budget spent: 2 of 2 cases not measured, from 64x64x64" in capsys.readouterr().out and not shares
    assert builds.main([*options, "--budget", "80", "--measurements", str(saved)]) == 0
    assert shares == [pytest.approx(share, rel=0.1) for share in [10.0] * 4 + [15.0] * 4], "60 s a case at most"
    assert len(pickle.loads(saved.read_bytes())) == 4


def test_turns_are_merged_by_build_and_way() -> None:
    def turn(name: str, way: str, number: int, times: list[float], us: float) -> Measurement:
        measured = Measurement(number, times, TaskSpec("f()", "", sub_label=way, description=name))
        measured.metadata = {"contender": name, "us": us, "us_quartiles": [us, us], "tflops": 1.0, "gbps": None}
        return measured

    turns = [
        *(turn("xgemm", "hot", 10, [1e-5, 2e-5], 1.5), turn("xgemm_b", "hot", 10, [4e-5, 4e-5], 4.0)),
        *(turn("xgemm_b", "hot", 20, [8e-5, 8e-5], 4.0), turn("xgemm", "hot", 20, [6e-5, 6e-5], 3.0)),
        turn("xgemm", "hot, graph", 1, [1e-6, 1e-6], 1.0),
    ]
    found = {(one.description, one.sub_label): one.metadata for one in builds.merged(turns)}
    assert found[("xgemm", "hot")]["us"] == pytest.approx(2.5)  # the median of 1, 2, 3 and 3 us
    assert found[("xgemm_b", "hot")]["us"] == pytest.approx(4.0)
    assert found[("xgemm", "hot, graph")]["us"] == pytest.approx(1.0)
    assert "tflops" not in found[("xgemm", "hot")], "a rate would be one turn's"


def test_list_of_builds(tmp_path: Path) -> None:
    assert builds.named(f"{LIBRARY},b={LIBRARY}") == {"xgemm": LIBRARY, "xgemm_b": LIBRARY}
    for text in (f"{LIBRARY},{LIBRARY}", f"a={LIBRARY}", f"{LIBRARY},a={LIBRARY},a={LIBRARY}"):
        with pytest.raises(SystemExit, match="expected PATH,LABEL=PATH"):
            builds.named(text)
    with pytest.raises(SystemExit, match=r"expected a built library, got .*no\.so"):
        builds.named(f"{LIBRARY},b={tmp_path}/no.so")


def test_a_build_measures_ours_alone() -> None:
    options = builds.common.Options(device=torch.device("cpu"), quick=True, groups=("decode", "chunked"))
    cases = builds.cases_of_build("attention", options, "xgemm_b")
    assert [case.groups for case in cases] == [("decode",), ("chunked",)]
    assert [[contender.name for contender in case.contenders] for case in cases] == [["xgemm_b"]] * 2

"""Two builds of the library side by side, each in a process of its own."""

import os
import pickle
import shutil
from pathlib import Path

import pytest
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

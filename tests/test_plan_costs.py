"""tools/plan_costs: the costs are found where they stand, the program predicts as the planners do, and a fit finds the
costs that made the times."""

import json
import math
import random
import re
import shutil
from pathlib import Path

import pytest
from matmul_plans import Ask, plan_fixture

np = pytest.importorskip("numpy")
pytest.importorskip("scipy")

from benchmarks import common, tune  # noqa: E402
from tools.plan_costs import costs  # noqa: E402
from tools.plan_costs.__main__ import candidates, main  # noqa: E402
from tools.plan_costs.fit import Fit, Timed, halves, losses, read  # noqa: E402
from tools.plan_costs.planner import Planner, Product  # noqa: E402

mma = plan_fixture("mma")
choice = plan_fixture("choice")


@pytest.fixture(scope="module")
def planner() -> Planner:
    if not shutil.which("c++"):
        pytest.skip("no C++ compiler")
    return Planner()


def products(count: int, kinds: list[tuple[str, str | None]], most: int = 2048) -> list[Product]:
    draw = random.Random(7)

    def sizes() -> list[int]:
        return [int(2 ** draw.uniform(5, math.log2(most))) // 8 * 8 for _ in range(3)]

    return [Product(*sizes(), 1, draw.choice(["nn", "nt", "tn", "tt"]), *draw.choice(kinds)) for _ in range(count)]


def times(planner: Planner, asked: list[Product], values: list[float], noise: float) -> list[Timed]:
    """The times of kernels with the costs `values`, with a relative error of about `noise`."""
    draw, found = random.Random(8), []
    for product in candidates(planner, asked, within=3):
        plans = product.pop("plans")
        timed = Timed(Product(**product), plans=plans)
        for offer in planner.offers([(timed.product, name) for name in plans], values):
            assert offer
            timed.us[offer.name] = offer.us * math.exp(draw.gauss(0, noise))
        found.append(timed)
    return found


def test_every_cost_is_found_where_it_stands() -> None:
    found = costs.find()
    values = {cost.name: cost.value for cost in found}
    assert len(values) == len(found) and 80 < len(found) <= 110  # more need a reason
    text = (costs.CSRC / "matmul" / "plan" / "candidates.cpp").read_text()
    assert f"kMmaElements = {values['candidates.kMmaElements']};" in text
    files = {"machine", "tiles", "roofline", "operands", "candidates", "cuda_cores", "wgmma"}
    assert {name.split(".")[0] for name in values} == files
    for tile in ("tiles.kHalfStart", "tiles.fp64_16x64.more", "tiles.simt_16x128.block", "tiles.mma_16x64.start"):
        assert values[tile] > 0
    for file in costs.sources():
        for name in re.findall(r"constexpr double (?:.*, )?(k\w+) = ", file.read_text()):
            assert any(cost.endswith(f".{name}") for cost in values), name


def test_what_is_written_is_read_back() -> None:
    found = costs.find()
    values = [cost.value * (1.25 if i % 3 else 1.0) for i, cost in enumerate(found)]
    texts = costs.write(found, values)
    for file, text in texts.items():
        new = {cost.name: cost.value for cost in costs.of_text(file, text)}
        wanted = {cost.name: value for cost, value in zip(found, values, strict=True) if cost.file == file}
        assert new == pytest.approx(wanted, rel=5e-3)
    assert costs.write(found, [cost.value for cost in found]) == {}


def test_predictions_are_the_planners(planner: Planner, mma: Ask, choice: Ask) -> None:
    for product in products(30, [("bfloat16", None)], most=700):
        sizes = {"layout": product.layout, "dtype": 2}
        (offer,) = planner.offers([(product, "mma_64x64")])
        answer = mma(product.m, product.n, product.k, **sizes, forced="mma_64x64")
        assert (offer is None) == (answer is None)
        if offer and answer:
            assert offer.us == pytest.approx(1e6 * answer["seconds"]) and offer.plan.startswith("mma_64x64 ")
        (name,) = planner.choices([product])
        assert choice(product.m, product.n, product.k, **sizes).startswith(name)


def test_a_fit_finds_the_costs_behind_the_times(planner: Planner) -> None:
    """Costs differ from the planners' by factors up to 1.6: the fit at least halves the time lost by wrong choices."""
    asked = products(60, [("bfloat16", None), ("float64", None)])
    # A draw of its own for each cost, so that a cost more changes no other.
    truth = [cost.value * math.exp(random.Random(cost.name).uniform(-0.5, 0.5)) for cost in planner.costs]
    timed = times(planner, asked, truth, noise=0.01)
    train, held_out = halves(timed)
    assert len(train) + len(held_out) == len(timed) and min(len(train), len(held_out)) > 20
    fit = Fit(planner, train)
    values = fit.fit(rounds=5)

    def size(error: "np.ndarray") -> float:
        return float(np.median(np.abs(error)))

    assert size(fit.error(values)) < min(0.05, 0.5 * size(fit.error(planner.initial)))
    unseen = Fit(planner, held_out)
    assert size(unseen.error(values)) < 0.5 * size(unseen.error(planner.initial))

    def lost(costs: object) -> float:
        return sum(loss.share for loss in losses(planner, held_out, costs)) / len(held_out)

    assert lost(values) < 0.5 * lost(planner.initial)


def test_from_a_list_to_a_report(
    planner: Planner, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files that each command writes for the next: a list, its cases, result rows, a report."""
    monkeypatch.setattr("tools.plan_costs.__main__.Planner", lambda: planner)
    drawn = products(8, [("float64", None)], 256)
    monkeypatch.setattr("tools.plan_costs.__main__.draw", lambda seeds, count, listed: drawn)
    file = tmp_path / "candidates.json"
    assert main(["list", "--seeds", "1", "--out", str(file)]) == 0
    listed = json.loads(file.read_text())
    cases = tune.candidate_cases(file, common.options_of(common.parser().parse_args(["--device", "cpu"])))
    assert [case.shape["m"] for case in cases] == [product["m"] for product in listed]
    rows = []
    for case, product in zip(cases, listed, strict=True):
        assert [c.name for c in case.contenders] == list(product["plans"])
        rows += [
            {"shape": case.shape, "dtype": "float64", "mode": None, "contender": c.name, "us": 5.0 + i, **c.fields}
            for i, c in enumerate(case.contenders)
        ]
    results = tmp_path / "matmul_plans.json"
    results.write_text(json.dumps({"op": tune.MATMUL_PLANS, "gpu": "NVIDIA H200", "rows": rows}))
    read_back = read([results])
    several = [product for product in listed if len(product["plans"]) > 1]
    assert several and [(t.product.m, t.plans) for t in read_back] == [(p["m"], p["plans"]) for p in several]
    assert all(t.plans.keys() == t.us.keys() for t in read_back)
    before = {source: source.read_text() for source in costs.sources()}
    assert main(["fit", str(results), "--rounds", "1"]) == 0
    report = capsys.readouterr().out
    assert "costs as they are" in report and "float64" in report and "costs fitted to all products" in report
    assert before == {source: source.read_text() for source in costs.sources()}  # without --write
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"op": tune.MATMUL_PLANS, "gpu": "NVIDIA H100 80GB HBM3", "rows": rows}))
    both = read([results, other])
    assert len(both) == 2 * len(read_back) and len({t.product.memory for t in both}) == 2
    other.write_text(json.dumps({"op": tune.MATMUL_PLANS, "gpu": "NVIDIA A100", "rows": rows[:1]}))
    assert main(["fit", str(results), str(other)]) == 1
    assert "expected times of NVIDIA H200 or NVIDIA H100 80GB HBM3, got NVIDIA A100" in capsys.readouterr().err

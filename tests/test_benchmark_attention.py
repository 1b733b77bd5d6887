"""benchmarks.attention on the CPU: references, masks, peers' conventions, the case lists, its tables."""

import dataclasses
import importlib.machinery
import json
import sys
import types
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from benchmarks import attention, attention_peers, common, plots, tables
from benchmarks.attention_peers import MASKS, Problem

CPU = common.Options(device=torch.device("cpu"), quick=True)
CUDA = common.Options(device=torch.device("cuda"))
FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16


def inputs_of(p: Problem) -> tuple[torch.Tensor, ...]:
    return attention.case(p, FP32, CPU).make(torch.device("cpu"))


def visible(p: Problem) -> torch.Tensor:
    """Which scores are unmasked, element by element: (batch, 1, rows, keys)."""
    seen = torch.ones(p.batch, 1, p.rows, p.keys, dtype=torch.bool)
    for entry in range(p.batch):
        for i in range(p.rows):
            for j in range(p.keys):
                if p.causal:
                    last = i + p.keys - p.rows
                    seen[entry, 0, i, j] = j <= last and (not p.window or j > last - p.window)
                if p.mask == "document":
                    seen[entry, 0, i, j] = i * 8 // p.keys == j * 8 // p.keys
                if p.mask == "padding":
                    seen[entry, 0, i, j] = j < p.lengths[entry]
    return seen


@pytest.mark.parametrize(
    "p",
    [
        Problem(2, 6, 3, 11, 11, 8),
        Problem(2, 6, 3, 11, 11, 8, causal=True),
        Problem(1, 4, 2, 5, 13, 8, 6, causal=True),
        Problem(2, 6, 3, 11, 11, 8, causal=True, window=4),
        Problem(1, 4, 2, 5, 13, 8, 6, causal=True, window=7),
        Problem(1, 2, 2, 9, 12, 8, causal=True, window=1),
        Problem(1, 2, 2, 9, 9, 8, causal=True, window=20),
        Problem(3, 2, 2, 16, 16, 8, mask="padding"),
        Problem(1, 2, 2, 16, 16, 8, mask="document"),
    ],
    ids=lambda p: p.name,
)
def test_reference_and_peers_mean_the_same(p: Problem) -> None:
    q, k, v, *mask = inputs_of(p)
    expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), visible(p), enable_gqa=p.gqa)
    case = attention.case(p, FP32, CPU)
    result, scale = case.reference(q, k, v, *mask)
    torch.testing.assert_close(result, expected)
    assert (scale >= result.abs() - 1e-12).all()
    calls = [partial(call, **p.limits) for call in (attention_peers.sdpa, attention_peers.math_backend)]
    for call in (*calls, case.contenders[0].call, case.baseline):
        torch.testing.assert_close(call(q, k, v, *mask).double(), expected, atol=1e-5, rtol=1e-5)
    if p.causal or p.mask:
        kept = visible(p).double().mean().item()
        assert p.kept == pytest.approx(kept, abs=1e-9 if p.window else 1 / p.keys), "operations of unmasked scores"
        assert case.flops == pytest.approx(2 * p.kept * p.batch * p.heads * p.rows * p.keys * (p.size + p.dv))


@pytest.mark.parametrize("kind", ["boolean", "additive"])
def test_reference_of_a_random_mask(kind: str) -> None:
    q, k, v, mask = inputs_of(Problem(2, 4, 2, 9, 9, 8, mask=kind))
    assert mask.shape == (9, 9) and mask.dtype == (torch.bool if kind == "boolean" else FP32)
    wide = mask if kind == "boolean" else mask.double()
    expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), wide, enable_gqa=True)
    torch.testing.assert_close(attention.reference(q, k, v, mask, causal=False)[0], expected)


@pytest.mark.parametrize(("kind", "deviation"), [("", 1.0), ("peaked", 4.0), ("large", 32.0)])
def test_scores_are_as_wide_as_they_are_named(kind: str, deviation: float) -> None:
    q, k, _ = inputs_of(Problem(1, 8, 8, 256, 256, 64, scores=kind))
    assert (q @ k.mT / 8).std().item() == pytest.approx(deviation, rel=0.1)


def test_math_backend_in_parts_is_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v, mask = inputs_of(Problem(3, 6, 3, 7, 7, 8, mask="padding"))
    whole = attention_peers.math_backend(q, k, v, mask, causal=False)
    monkeypatch.setattr(attention_peers, "MATH_SCORES", 1)
    torch.testing.assert_close(attention_peers.math_backend(q, k, v, mask, causal=False), whole)


def test_time_without_a_mask() -> None:
    """xgemm_unmasked: the same result for documents; for other masks the result without the mask."""
    for kind in MASKS:
        case = attention.case(Problem(1, 2, 2, 16, 16, 8, mask=kind), FP32, CPU)
        inputs = case.make(torch.device("cpu"))
        ours, plain = case.contenders[:2]
        assert (ours.name, plain.name) == ("xgemm", "xgemm_unmasked")
        common.check(case, ours, ours.call(*inputs), inputs, case.reference(*inputs))
        expected = ours.call(*inputs)
        if kind != "document":
            expected = F.scaled_dot_product_attention(*inputs[:3])
        torch.testing.assert_close(plain.call(*inputs), expected, atol=1e-5, rtol=1e-5)


def test_time_of_a_window_without_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    """xgemm_unmasked of a window: blocks of queries with the keys of the window and of a tile; sizes of the output."""
    monkeypatch.setattr(attention, "TILE", 8)
    p = Problem(1, 2, 2, 64, 64, 16, causal=True, window=16)
    case = attention.case(p, FP32, CPU)
    inputs = case.make(torch.device("cpu"))
    ours, blocks = case.contenders[:2]
    assert (ours.name, blocks.name) == ("xgemm", "xgemm_unmasked")
    for contender in (ours, blocks):
        common.check(case, contender, contender.call(*inputs), inputs, case.reference(*inputs))
    q, k, v = inputs
    starts = (0, 13, 26, 39)  # of 24 keys each
    expected = [
        F.scaled_dot_product_attention(q[:, :, 16 * i : 16 * i + 16], *(x[:, :, s : s + 24] for x in (k, v)))
        for i, s in enumerate(starts)
    ]
    torch.testing.assert_close(blocks.call(*inputs).view(4, 2, 16, 16), torch.cat(expected), atol=1e-5, rtol=1e-5)


def test_flex_attention_keeps_to_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.nn.attention.flex_attention import flex_attention

    monkeypatch.setattr(attention_peers, "flex", lambda: flex_attention)  # not compiled
    p = Problem(1, 4, 2, 200, 256, 16, causal=True, window=70)
    q, k, v = inputs_of(p)
    expected, _ = attention.reference(q, k, v, causal=True, window=70)
    with torch.inference_mode():
        result = attention_peers.flex_window(q, k, v, window=70)
    torch.testing.assert_close(result.double(), expected, atol=1e-5, rtol=1e-5)


def test_flex_attention_keeps_to_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.nn.attention.flex_attention import flex_attention

    monkeypatch.setattr(attention_peers, "flex", lambda: flex_attention)  # not compiled
    p = Problem(1, 2, 2, 256, 256, 16, mask="document")
    q, k, v, mask = inputs_of(p)
    expected = F.scaled_dot_product_attention(q, k, v, mask)
    with torch.inference_mode():
        torch.testing.assert_close(attention_peers.flex_documents(q, k, v, mask), expected, atol=1e-5, rtol=1e-5)


# ---- peers -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def fa3(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """A stand-in for FlashAttention-3's module with its layout and causal alignment; returns the list of calls."""
    calls: list[dict] = []

    def flash_attn_with_kvcache(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, causal: bool = False):
        calls.append({"q": q.shape, "k": k_cache.shape, "causal": causal})
        q, k, v = (x.transpose(1, 2).double() for x in (q, k_cache, v_cache))
        edge = torch.ones(q.shape[2], k.shape[2]).tril(k.shape[2] - q.shape[2]).bool() if causal else None
        out = F.scaled_dot_product_attention(q, k, v, edge, enable_gqa=True)
        return out.to(q_dtype).transpose(1, 2)

    q_dtype = BF16
    module = types.ModuleType(attention_peers.FA3)
    module.__spec__ = importlib.machinery.ModuleSpec(attention_peers.FA3, None)
    module.flash_attn_with_kvcache = flash_attn_with_kvcache
    monkeypatch.setitem(sys.modules, attention_peers.FA3, module)
    attention_peers.fa3_call.cache_clear()
    yield calls
    attention_peers.fa3_call.cache_clear()


@pytest.mark.parametrize("p", [Problem(2, 4, 2, 5, 24, 16, causal=True), Problem(1, 2, 2, 8, 8, 16, 8)])
def test_fa3_gets_its_own_layout(p: Problem, fa3: list[dict]) -> None:
    case = attention.case(p, BF16, CPU)
    inputs = case.make(torch.device("cpu"))
    contender = next(peer for peer in attention_peers.peers(p, BF16, CUDA) if peer.name == "fa3")
    common.check(case, contender, contender.call(*inputs), inputs, case.reference(*inputs))
    assert fa3 == [
        {"q": (p.batch, p.rows, p.heads, p.size), "k": (p.batch, p.keys, p.kv_heads, p.size), "causal": p.causal}
    ]


def test_who_takes_what(fa3: list[dict]) -> None:
    def names(p: Problem, dtype: torch.dtype, options: common.Options = CUDA) -> set[str]:
        return {contender.name for contender in attention_peers.peers(p, dtype, options)}

    plain, grouped = Problem(1, 4, 4, 64, 64, 64), Problem(1, 4, 2, 64, 64, 64)
    assert names(plain, BF16) == {"sdpa_flash", "sdpa_cudnn", "sdpa_efficient", "fa3"}
    assert names(plain, FP16) == {"sdpa_flash", "sdpa_cudnn", "sdpa_efficient"}
    assert names(plain, FP32) == {"sdpa_efficient"}
    assert names(grouped, BF16) == {"sdpa_flash", "sdpa_cudnn", "fa3"}
    assert names(grouped, FP32) == {"sdpa_math"}, "only where no other backend serves"
    assert names(dataclasses.replace(plain, value_size=32), BF16) == {"sdpa_cudnn", "sdpa_efficient", "fa3"}
    assert names(dataclasses.replace(plain, mask="boolean"), BF16) == {"sdpa_cudnn", "sdpa_efficient"}
    assert "flex_attention" in names(dataclasses.replace(plain, mask="document"), BF16)
    window = dataclasses.replace(plain, causal=True, window=8)
    for dtype in (BF16, FP16):  # flash takes no mask, fa3's wheel no window
        assert names(window, dtype) == {"sdpa_cudnn", "sdpa_efficient", "flex_attention"}
    every = dataclasses.replace(CUDA, set="all")
    assert "sdpa_math" in names(plain, BF16, every)
    high = dataclasses.replace(plain, precision="high")
    assert names(high, FP32) == {"sdpa_efficient"}
    assert names(high, FP32, every) == {"sdpa_efficient", "sdpa_math", "sdpa_math_tf32"}
    assert names(plain, BF16, CPU) == {"sdpa_math"}


def test_without_fa3_there_is_no_such_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_peers.importlib.util, "find_spec", lambda name: None)
    names = {contender.name for case in attention.cases(CUDA) for contender in case.contenders}
    sdpa = {"sdpa_flash", "sdpa_cudnn", "sdpa_efficient", "sdpa_math"}  # the last: grouped heads in fp32
    assert names == {"xgemm", "xgemm_unmasked", "flex_attention", *sdpa}


# ---- case lists ------------------------------------------------------------------------------------------------------


def test_groups_hold_what_is_to_be_measured() -> None:
    found = attention.cases(CUDA)
    assert len({case.key for case in found}) == len(found), "no two cases of one name"
    groups: dict[str, list[common.Case]] = {}
    for case in found:
        groups.setdefault(case.groups[0], []).append(case)
    prefill = [case for case in groups["prefill"] if case.dtype == BF16]
    assert prefill == found[:24], "first"
    assert {(c.shape["q"], c.shape["d"], c.shape["causal"]) for c in prefill} == {
        (s, d, causal) for s in (512, 2048, 8192, 16384) for d in (64, 128, 256) for causal in (False, True)
    }
    assert all(c.shape["batch"] * c.shape["q"] == 16384 for c in prefill)
    assert len([case for case in groups["prefill"] if case.dtype == FP16]) == 24
    assert {(c.shape["d"], c.shape["dv"]) for c in groups["head sizes"]} == {(80, 80), (96, 96), (192, 128)}
    assert {c.shape["q"] for c in groups["odd lengths"]} == {1777, 197, 3000}
    assert {(c.shape["heads"], c.shape["kv_heads"]) for c in groups["grouped heads"]} == {(32, 8)}
    assert {(c.shape["mask"], c.dtype) for c in groups["masks"]} == {
        *(("boolean", BF16), ("additive", FP16), ("padding", BF16), ("document", BF16))
    }
    assert {c.shape["q"] for c in groups["chunked"]} == {16, 64, 128, 512} and all(
        c.shape["kv"] == 16384 and c.shape["causal"] for c in groups["chunked"]
    )
    decode = {(c.shape["batch"], c.shape["heads"], c.shape["kv_heads"], c.shape["kv"]) for c in groups["decode"]}
    assert {(16, 32, 8, 1024), (16, 32, 8, 65536), (1, 32, 8, 65536), (32, 32, 1, 8192)} <= decode
    assert {c.shape["q"] for c in groups["decode"]} == {1}
    assert {(c.shape["scores"], c.dtype) for c in groups["scores"]} == {
        (kind, dtype) for kind in ("peaked", "large") for dtype in (BF16, FP16)
    }
    (window,) = groups["window"]
    assert (window.name, window.dtype) == ("S16384 D128 causal window 1024", BF16)
    assert window.flops / (4 * 16 * 16384 * 1024 * 128) == pytest.approx(1, abs=0.04), "1024 keys for each query"
    assert {(c.shape["q"], c.shape["d"], c.dtype) for c in groups["short"]} == {(s, 64, FP32) for s in (197, 512, 1024)}
    assert all(c.shape["batch"] * c.shape["heads"] >= 2 * 132 for c in groups["short"]), "the GPU is full"
    high = [case for case in found if case.mode]
    assert {c.mode for c in high} == {"high"} and {c.dtype for c in high} == {FP32}
    assert {(c.shape["q"], c.shape["d"], c.shape["causal"]) for c in high} == {
        (s, d, causal) for s in (2048, 8192) for d in (64, 128, 256) for causal in (False, True)
    }
    order = list(groups)
    assert max(map(order.index, ("short", "window", "random"))) < order.index("random fp32") < len(order) - 1
    assert order[-1] == "other lengths"


def test_precisions() -> None:
    """`--modes` says which cases of fp32 are measured; "highest" is no mode of a row, as in older files."""

    def found(*modes: str) -> set[str | None]:
        return {c.mode for c in attention.cases(dataclasses.replace(CUDA, modes=modes)) if c.dtype == FP32}

    assert found() == {None, "high"} and found("highest") == {None} and found("medium", "ieee") == {"medium", "ieee"}
    p = Problem(1, 2, 2, 16, 16, 8, precision="high")
    case = attention.case(p, FP32, CPU)
    assert case.key == f"{p.name} fp32 high" and case.contenders[0].call.keywords["precision"] == "high"
    assert case.contenders[0].tolerance == 2.0**-8 and case.contenders[1].tolerance == 0, "only ours may be TF32"
    highest = attention.case(dataclasses.replace(p, precision="highest"), FP32, CPU)
    assert "precision" not in highest.contenders[0].call.keywords
    before = torch.get_float32_matmul_precision()
    inputs = case.make(torch.device("cpu"))
    torch.testing.assert_close(case.baseline(*inputs).double(), case.reference(*inputs)[0], atol=5e-3, rtol=0)
    assert torch.get_float32_matmul_precision() == before


def test_random_cases_follow_their_seed() -> None:
    first = attention.random_problems(7)
    assert len(first) == 40 and first == attention.random_problems(7) != attention.random_problems(8)
    assert {dtype for _, dtype in first} == {BF16, FP16}
    for p, _ in first:
        assert p.rows <= p.keys, "no row is without keys"
        assert p.size % 8 == 0 and p.heads % p.kv_heads == 0
        assert not (p.causal and p.mask)
    fp32 = attention.random_problems_fp32(7)
    assert len(fp32) == 40 and fp32 == attention.random_problems_fp32(7) != attention.random_problems_fp32(8)
    for p, dtype in fp32:
        assert dtype == FP32 and p.rows <= p.keys
        assert p.rows == 1 or 1e9 <= 4 * p.batch * p.heads * p.rows * p.keys * p.size <= 1e11
        assert (1 << 22) <= 8 * p.batch * p.kv_heads * p.keys * p.size <= (1 << 29), "bytes of keys and values"
    drawn = attention.cases(dataclasses.replace(CUDA, seed=7))
    for group, count in (("random", 40), ("random fp32", 40)):
        of_group = [case for case in drawn if case.groups == (group,)]
        assert len(of_group) == count and {case.shape["seed"] for case in of_group} == {7}
        assert all(case.name.startswith("random ") for case in of_group)


def test_random_cases_of_a_seed_stay_what_they_are() -> None:
    """The figures of `random` and of `random_shapes` in the result files are of seeds."""
    p, dtype = attention.random_problems(0)[0]
    assert (p.name, dtype) == ("B26 H1 Q6210 KV6914 D96 causal", BF16)


def test_estimate_names_every_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert attention.main(["--estimate", "--device", "cuda"]) == 0
    lines = capsys.readouterr().out.splitlines()
    groups = {case.groups[0] for case in attention.cases(CUDA)}
    assert len(lines) == len(groups) + 1 and all(any(line.startswith(group) for line in lines) for group in groups)
    assert float(lines[-1].split("about")[1].split()[0]) < 480, "one call of eight minutes has room for all"
    attention.main(["--estimate", "--device", "cuda", "--groups", "decode,masks"])
    assert len(capsys.readouterr().out.splitlines()) == 3


# ---- a whole run, and what is made of it -----------------------------------------------------------------------------


def test_run_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    groups = "chunked,head sizes,masks,window"
    assert attention.main(["--quick", "--device", "cpu", "--out", str(tmp_path), "--groups", groups]) == 0
    document = json.loads((tmp_path / "attention.json").read_text())
    assert {name for row in document["rows"] for name in row["groups"]} == set(groups.split(","))
    for row in document["rows"]:
        assert row["clock_mhz"] is None and row["watts"] is None
        assert 0 < row["baseline_error"]["fro"] < 0.01
    printed = capsys.readouterr().out
    assert "| chunked | 1 |" in printed and "| masks | 4 |" in printed
    assert "at most twice that of torch's math backend in the same dtype: 7 of 7 cases" in printed


def row(case: str, contender: str, us: float, **changes: object) -> dict:
    shape = {"batch": 1, "heads": 4, "kv_heads": 4, "q": 64, "kv": 64, "d": 64, "dv": 64, "causal": False, "mask": None}
    return {
        "case": case,
        "shape": shape,
        "dtype": "bfloat16",
        "mode": None,
        "l2": "hot",
        "graph": False,
        "contender": contender,
        "us": us,
        "us_quartiles": [us, us],
        "tflops": 1.0,
        "gbps": None,
        "floor_us": 1.0,
        "error": {"fro": 1e-3, "max": 2e-3},
    } | changes


def results_of(rows: list[dict], folder: Path) -> tables.Results:
    versions = {"torch": "2", "cuda": "13", "driver": "1"}
    head = {"gpu": "G", "date": "2026-01-01", "commit": "c", "versions": versions, "clocks_mhz": []}
    return tables.Results(folder, {"attention": head | {"sources": {"sha256": "0"}, "rows": rows}})


def test_table_of_groups_has_the_fifth_percentile_of_random_cases(tmp_path: Path) -> None:
    rows = []
    for i in range(1, 41):
        names = {"groups": ["random"]}
        rows += [row(f"random {i}", "xgemm", 100.0, **names), row(f"random {i}", "fa3", 100.0 * i / 20, **names)]
        rows.append(row(f"random {i}", "sdpa_flash", 1000.0, **names))
    # (40!)^(1/40) / 20; between the second and the third of 0.05, 0.10, 0.15, ...; the first
    table = tables.case_groups_table("attention", results_of(rows, tmp_path), name_worst=True)
    assert "| random | 40 | 0.79, 5 %: 0.15, 0.05 (random 1) |" in table
    for one in rows:
        one |= {"groups": ["random fp32"], "dtype": "float32"}
    table = tables.case_groups_table("attention", results_of(rows, tmp_path), name_worst=True)
    assert "| random fp32 | 40 | 0.79, 5 %: 0.15, 0.05 (random 1) |" in table


def test_a_second_build_or_a_call_without_mask_is_no_peer() -> None:
    group = {name: row("a", name, us) for name, us in (("xgemm", 9.0), ("xgemm_b", 1.0), ("xgemm_unmasked", 2.0))}
    assert tables.best_peer(group) is None
    assert tables.best_peer(group | {"fa3": row("a", "fa3", 8.0)})["contender"] == "fa3"


def test_accuracy_counts_cases_once() -> None:
    rows = []
    for case, largest in (("a", 4e-3), ("b", 5e-3)):
        for l2 in ("hot", "cold"):
            errors = {"error": {"fro": 1e-3, "max": largest}, "baseline_error": {"fro": 1e-3, "max": 2e-3}, "l2": l2}
            rows += [row(case, "xgemm", 1.0, **errors), row(case, "sdpa_cudnn", 1.0, **errors)]
    lines = tables.accuracy(rows).splitlines()
    assert lines[0].endswith("1 of 2 cases; worst 2.50 (b bfloat16).")
    assert lines[1].endswith("2 of 2 cases; worst 1.00 (b bfloat16).")
    high = row("b", "xgemm", 1.0, **errors | {"error": {"fro": 1e-3, "max": 6e-3}}, dtype="float32", mode="high")
    highest = high | {"mode": None, "error": {"fro": 1e-3, "max": 1e-3}}
    lines = tables.accuracy([*rows, high, highest]).splitlines()
    assert lines[0].endswith("2 of 4 cases; worst 3.00 (b float32 high).")
    assert tables.accuracy([row("a", "xgemm", 1.0)]) == ""


def test_table_shows_clock_and_power(tmp_path: Path) -> None:
    rows = [
        row("a", "xgemm", 10.0, clock_mhz=1650, watts=691.26),
        row("a", "fa3", 12.0, clock_mhz=1600, watts=None),
    ]
    text = tables.op_table("attention", results_of(rows, tmp_path))
    assert "| 1650 MHz 691 W | 12.0 (1.20), 1600 MHz |" in text
    for one in rows:
        one["watts"] = None
    assert "MHz" not in tables.op_table("attention", results_of(rows, tmp_path))


def test_plots_show_standard_cases_only(tmp_path: Path) -> None:
    same = {"groups": ["prefill"]}
    rows = [row("S64 D64", "xgemm", 1.0, **same), row("B1 H8/2 S64 D64", "xgemm", 2.0, groups=["grouped heads"])]
    kept = plots.prefill(results_of(rows, tmp_path).groups("attention"), 64, False)
    assert [group["xgemm"]["case"] for group in kept] == ["S64 D64"]
    fp32 = same | {"dtype": "float32"}
    rows = [row("S64 D64", name, 1.0, **fp32, mode=mode) for mode in (None, "high") for name in ("xgemm", "fa3")]
    titles = [axes.get_title() for axes in plots.figures(results_of(rows, tmp_path))["attention"].axes]
    assert titles == [f"attention, {kind}, head size 64" for kind in ("float32", "float32 high")]
    older = [row("S64 D64", "xgemm", 1.0)]
    assert len(plots.prefill(results_of(older, tmp_path).groups("attention"), 64, False)) == 1

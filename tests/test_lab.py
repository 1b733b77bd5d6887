"""The lab on any machine: argument checks, schemas, and the runner's own arithmetic."""

import re
from pathlib import Path

import pytest
import torch
from lab_checks import heads, message

import torch_ext.lab
from benchmarks import lab as runner
from benchmarks import results
from tools import lab_drawings
from torch_ext.lab import __main__ as lab_command
from torch_ext.lab import attention, calculators, measure

lab = torch.ops.xgemm_lab


def test_cpu_tensors_get_one_line():
    a = torch.ones(2, 2)
    calls = {
        "sgemm: expected a": lambda: lab.sgemm(a, a, step=1),
        "tensor_gemm: expected a": lambda: lab.tensor_gemm(a.bfloat16(), a.bfloat16(), step=9),
        "fp32_gemm: expected a": lambda: lab.fp32_gemm(a, a, variant="scaled"),
        "reduce_sum: expected x": lambda: lab.reduce_sum(a, 0),
        "attention: expected query": lambda: lab.attention(*heads(1, 2, 64), step=1),
        "softmax: expected x": lambda: lab.softmax(a, "safe"),
        "strided_copy: expected x": lambda: lab.strided_copy(a, 1),
        "empty_launch: expected x": lambda: lab.empty_launch(a),
        "best_block_size: expected x": lambda: lab.best_block_size(a),
        "kernel_attributes: expected x": lambda: lab.kernel_attributes(a, "copy 1x1"),
        "concurrent_copy: expected x": lambda: lab.concurrent_copy(a, 32, 1, 1),
        "fma_chains: expected x": lambda: lab.fma_chains(a, a[0], 4, 1, 1),
        "intensity: expected x": lambda: lab.intensity(a, 1),
        "pointer_chase: expected next": lambda: lab.pointer_chase(a.int(), 1),
        "who_am_i: expected like": lambda: lab.who_am_i(a, 1, 32),
        "read_rate: expected x": lambda: lab.read_rate(a, "global", 1),
        "register_bound: expected x": lambda: lab.register_bound(a, 33, "memory"),
        "transpose: expected x": lambda: lab.transpose(a, "tiled"),
        "parity: expected x": lambda: lab.parity(a.int(), True),
        "paths: expected x": lambda: lab.paths(a, 1, True),
        "vector_add: expected a": lambda: lab.vector_add(a, a, "plain"),
        "window_sum: expected x": lambda: lab.window_sum(a, 5, True),
        "histogram: expected x": lambda: lab.histogram(a.int(), 4, True),
        "tiled_matmul: expected a": lambda: lab.tiled_matmul(a, a, "fixed", 8),
    }
    for start, call in calls.items():
        assert message(call) == f"xgemm::lab::{start} on cuda, got cpu"


@pytest.mark.parametrize(
    "call, expected",
    [
        (lambda a: lab.sgemm(a, a, step=1), "a and b of shapes (m, k) and (k, n), got [3, 4] and [3, 4]"),
        (lambda a: lab.sgemm(a, a.T, step=1), "b to be contiguous, got shape [4, 3] with strides [1, 4]"),
        (lambda a: lab.sgemm(a, a.mT.contiguous(), step=0), "step in [1, 9], got 0"),
        (lambda a: lab.sgemm(a, a.mT.contiguous(), step=1, beta=1), "c when beta is not 0, got none"),
        (lambda a: lab.tensor_gemm(a, a, step=9), "a of dtype bfloat16, got float32"),
        (lambda a: lab.fp32_gemm(a, a.mT.contiguous(), variant="fp16"), "a and b of shapes (m, k) and (n, k), got"),
        (lambda a: lab.reduce_sum(a.double(), 0), "x of dtype float32, int32, got float64"),
        (lambda a: lab.reduce_sum(a, 10), "version in [0, 9], got 10"),
        (lambda a: lab.reduce_sum(a, 6, 3), "loads to be 2 or 8, got 3"),
        (lambda a: lab.reduce_sum(a, 6, 2, 0), "blocks_per_sm in [1, 1024], got 0"),
        (lambda a: lab.transpose(a, "fast"), "variant to be naive, tiled, padded or swizzled, got fast"),
        (lambda a: lab.softmax(a, "fast"), "variant to be naive, safe, online or online4, got fast"),
        (lambda a: lab.attention(a, a, a, step=1), "query of dtype bfloat16, got float32"),
        (
            lambda a: lab.attention(*[a.bfloat16()] * 3, step=1),
            "query of shape (batch, heads, length, head size), got [3, 4]",
        ),
        (lambda a: lab.attention(*heads(2, 5, 4), step=1), "a head size of 64 or 128, got 4"),
        (lambda a: lab.attention(*heads(2, 5, 64), step=8), "step in [1, 7], got 8"),
        (lambda a: lab.strided_copy(a, 0), "stride in [1, 32], got 0"),
        (lambda a: lab.empty_launch(a, 0), "threads in [1, 1024], got 0"),
        (lambda a: lab.concurrent_copy(a, 32, 3, 1), "loads to be one of 1, 2, 4, 8, got 3"),
        (lambda a: lab.fma_chains(a, a[0, :2], 5, 1, 1), "x of threads elements a block"),
        (lambda a: lab.intensity(a[0, 1:], 1), "x aligned to 16 bytes and a multiple of 4 elements, got 3 elements"),
        (lambda a: lab.pointer_chase(a.int(), 1, 12), "start in [0, 12), got 12"),
        (lambda a: lab.read_rate(a, "L3", 1), "level to be global, l1 or shared, got L3"),
        (lambda a: lab.who_am_i(a, 1, 32, 33), "a block of up to 1024 threads, z up to 64, got 32, 33, 1"),
        (lambda a: lab.register_bound(a, 32, "memory"), "registers to be one of 31, 33, 40, 41, 64, 65, 128, got 32"),
        (lambda a: lab.window_sum(a, 4, True), "window to be odd and in [1, 1025], got 4"),
        (lambda a: lab.histogram(a.int(), 0, True), "bins in [1, 8192], got 0"),
        (lambda a: lab.vector_add(a, a[:1], "plain"), "a and b of one shape, got [3, 4] and [1, 4]"),
        (lambda a: lab.tiled_matmul(a, a.mT.contiguous(), "fixed", 7), "tile to be one of 8, 16, 32, got 7"),
        (lambda a: lab.paths(a, 33, True), "count in [1, 32], got 33"),
    ],
)
def test_bad_arguments_get_one_line(call, expected):
    assert f": expected {expected}" in message(lambda: call(torch.ones(3, 4)))


def test_fakes_know_shapes():
    with torch._subclasses.FakeTensorMode():
        a, b = torch.empty(3, 5, device="cuda"), torch.empty(5, 7, device="cuda")
        assert lab.sgemm(a, b, step=3).shape == lab.tiled_matmul(a, b, "fixed").shape == (3, 7)
        assert lab.tensor_gemm(a.bfloat16(), a.bfloat16(), step=9).shape == (3, 3)
        assert lab.fp32_gemm(a, a, variant="scaled").dtype == torch.float32
        assert lab.reduce_sum(a.int(), 2).shape == () and lab.reduce_sum(a.int(), 2).dtype == torch.int32
        assert lab.transpose(a, "tiled").shape == (5, 3) and lab.softmax(a, "online").shape == (3, 5)
        q = torch.empty(2, 3, 5, 64, dtype=torch.bfloat16, device="cuda").mT.contiguous().mT
        assert lab.attention(q, q, q, step=7).shape == (2, 3, 5, 64) and lab.attention(q, q, q, step=7).is_contiguous()
        assert lab.histogram(a.int(), 9, True).shape == (9,)
        assert lab.best_block_size(a, "tiled dynamic 32").device.type == "cpu" and lab.empty_launch(a).shape == (2,)
        assert lab.kernel_attributes(a, "copy 1x1").shape == (5,)
        assert lab.read_rate(a, "global", 3).shape == (768,)
        assert lab.who_am_i(a, 3, 5, 7).shape == (3, 35, 5)
        assert lab.pointer_chase(a.int(), 3).dtype == torch.int64
        assert lab.intensity(a, 3).shape == lab.register_bound(a, 33, "memory").shape == (3, 5)
        assert lab.window_sum(a, 5, True).shape == (3, 5)


def test_calculators_agree_with_the_documents():
    """Figures of torch_ext.device; those that the page does not show: tests/test_device.py."""
    page = (Path(__file__).resolve().parents[1] / "docs" / "lab.md").read_text()
    lines = calculators.calculators()
    assert all(f"| {' | '.join(line)} |\n" in page for line in lines)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("occupancy --gpu A100 --threads 700", "2 blocks of 700 threads an SM of A100: 44 of 64 warps, 68.75% (68.36%"),
        ("occupancy --threads 512 --registers 33", "3 blocks of 512 threads an SM of H200: 48 of 64 warps, 75.00%"),
        ("occupancy --threads 1024 --shared 120000", "1 blocks of 1024 threads an SM of H200: 32 of 64 warps, 50.00%"),
        ("intensity --reads 2 --bytes 2", "0.1667 flop a byte; H200 bends at 14.0 in fp32"),
        (
            "intensity --product 4096 4096 4096",
            "682.7 flop a byte; H200 bends at 14.0 in fp32 on CUDA cores: bound by ari",
        ),
        ("little --latency 20 --rate 32", "20 ns at 32 billion a second: 640 in flight"),
        (
            "quantisation --shape 128 50816 --tile 128 128 --blocks 3",
            "397 tiles, 100.0% of their elements exist; 2 waves",
        ),
    ],
)
def test_calculators_take_numbers_of_ones_own(command, expected, capsys):
    assert lab_command.main(command.split()) == 0
    assert capsys.readouterr().out.startswith(expected)


def test_commands_say_what_they_need(capsys):
    commands = "occupancy --threads 2000", "occupancy --threads 0", "quantisation --tile 8 8", "little --gpu none"
    for command in commands:
        with pytest.raises(SystemExit):
            lab_command.main(command.split())
    with pytest.raises(SystemExit):
        lab_command.main(["--help"])
    named = set(re.findall(r"^  (\w+) ", capsys.readouterr().out, re.MULTILINE))
    assert named >= {"check", "counters", "occupancy", "intensity", "little", "quantisation"}


def test_kept_results_load_plot_and_conclude():
    rows = torch_ext.lab.load(results.RESULTS / "nvidia_h200" / "lab_tiling.json")
    assert "bank conflicts" in torch_ext.lab.conclude(rows).text
    pytest.importorskip("matplotlib")
    assert torch_ext.lab.plot(rows, "NVIDIA H200").axes
    with pytest.raises(ValueError, match="expected an experiment of"):
        torch_ext.lab.load(results.RESULTS / "nvidia_h200" / "matmul.json")


def test_drawings_are_what_their_script_draws(tmp_path):
    lab_drawings.main(tmp_path)
    drawn = {path.name: path.read_text() for path in tmp_path.glob("*.svg")}
    pages = "".join(page.read_text() for page in (results.ROOT / "docs").glob("*.md"))
    assert drawn == {path.name: path.read_text() for path in (results.ROOT / "docs" / "lab").glob("*.svg")}
    assert [name for name in drawn if f"(lab/{name})" not in pages] == []


def test_pages_of_documents_name_their_experiments():
    pages = {path.stem: path.read_text() for path in (results.ROOT / "docs" / "lab").glob("*.md")}
    for e in torch_ext.lab.EXPERIMENTS.values():
        named = {page: " ".join(re.findall(r"`--only ([^`]+)`", pages[page])).split() for page in e.documents}
        assert [page for page, names in named.items() if e.name not in names] == []
    for text in pages.values():
        for names in re.findall(r"`--only ([^`]+)`", text):
            assert set(names.split()) <= {*torch_ext.lab.EXPERIMENTS, "X"}
        for file, name in re.findall(r"`pytest (\S+) -k (\w+)`", text):
            assert re.search(rf"^def test_\w*{name}", (results.ROOT / file).read_text(), re.MULTILINE), name


def test_rates_of_a_row():
    row = measure.row("c", "x", (2.0, (1.5, 2.5)), shape={"n": 4}, flops=4e6, bytes_moved=8e3)
    assert row["tflops"] == 2.0 and row["gbps"] == 4.0 and row["us_quartiles"] == [1.5, 2.5]


def test_a_checkout_adds_its_sources():
    content = runner.describe(torch_ext.lab.EXPERIMENTS["softmax"].sources)
    assert "csrc/lab/softmax" in content["sources"]["paths"] and len(content["sources"]["sha256"]) == 16
    assert content["machine_code"] == results.machine_code(content["sources"]["paths"])


def test_the_reference_of_attention_and_its_bound():
    q, k, v = heads(3, 37, 64, 2)
    reference, scale = attention.attention_reference(q, k, v, True)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    torch.testing.assert_close(reference, sdpa(*(x.double() for x in (q, k, v)), is_causal=True))
    out = reference.bfloat16()
    assert attention.attention_error(out, reference, scale) <= 1
    out[1, 2, 36, 5] += 0.1
    assert attention.attention_error(out, reference, scale) > 1

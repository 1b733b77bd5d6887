"""The lab: argument checks, every step against float64 on awkward sizes, and the runner's own arithmetic."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from common import SANITIZED, componentwise_error, misaligned, poison, randn, sanitized

import torch_ext.lab
from benchmarks import lab as runner
from benchmarks import results
from torch_ext.lab import attention, calculators, experiments, ladders, measure, memory, tiles

lab = torch.ops.xgemm_lab
STEPS = range(1, 10)
ATTENTION_STEPS = range(1, 8)
VERSIONS = range(8)
SIZES = [(1, 1, 1), (1, 37, 5), (31, 33, 32), (64, 64, 8), (65, 63, 9), (127, 129, 17), (128, 128, 16), (132, 260, 36)]
SIZES += [(257, 127, 131), (3, 3, 431), (35, 79, 19), (129, 1, 33)]
CUDA = pytest.mark.cuda


def message(call) -> str:
    with pytest.raises(RuntimeError) as error:
        call()
    return str(error.value).splitlines()[0]


def heads(count: int, length: int, size: int, batch: int = 1, device: str = "cpu") -> list[torch.Tensor]:
    """Query, key and value of attention."""
    return [randn(batch, count, length, size, dtype=torch.bfloat16, device=device) for _ in range(3)]


# ---- argument checks and schemas, on any machine --------------------------------------------------------------------


def test_cpu_tensors_get_one_line():
    a = torch.ones(2, 2)
    line = "on cuda, got cpu; the lab measures CUDA kernels only"
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
        "register_bound: expected x": lambda: lab.register_bound(a, 33, "memory"),
        "parity: expected x": lambda: lab.parity(a.int(), True),
        "paths: expected x": lambda: lab.paths(a, 1, True),
        "vector_add: expected a": lambda: lab.vector_add(a, a, "plain"),
        "window_sum: expected x": lambda: lab.window_sum(a, 5, True),
        "histogram: expected x": lambda: lab.histogram(a.int(), 4, True),
        "tiled_matmul: expected a": lambda: lab.tiled_matmul(a, a, "fixed", 8),
    }
    for start, call in calls.items():
        assert message(call) == f"xgemm::lab::{start} {line}"


@pytest.mark.parametrize(
    "call, expected",
    [
        (lambda a: lab.sgemm(a, a, step=1), "a and b of shapes (m, k) and (k, n), got [3, 4] and [3, 4]"),
        (lambda a: lab.sgemm(a, a.T, step=1), "b to be contiguous, got shape [4, 3] with strides [1, 4]"),
        (lambda a: lab.sgemm(a, a.mT.contiguous(), step=0), "step in [1, 9], got 0"),
        (lambda a: lab.sgemm(a, a.mT.contiguous(), step=1, beta=1), "c when beta is not 0, got none"),
        (lambda a: lab.sgemm(a, a.mT.contiguous(), a, step=1), "c of shape [3, 3], got [3, 4]"),
        (lambda a: lab.sgemm(a.double(), a, step=1), "a of dtype float32, got float64"),
        (lambda a: lab.sgemm(a[0], a, step=1), "a to be a matrix, got shape [4]"),
        (lambda a: lab.tensor_gemm(a, a, step=9), "a of dtype bfloat16, got float32"),
        (lambda a: lab.tensor_gemm(a.bfloat16(), a.bfloat16(), step=8), "step in [9, 13], got 8"),
        (
            lambda a: lab.tensor_gemm(a.bfloat16(), a.bfloat16()[:, :2].contiguous(), step=9),
            "a and b of shapes (m, k) and (n, k)",
        ),
        (lambda a: lab.fp32_gemm(a, a.mT.contiguous(), variant="fp16"), "a and b of shapes (m, k) and (n, k), got"),
        (lambda a: lab.fp32_gemm(a, a, variant="fp8"), "variant to be fp16, split, promoted or scaled, got fp8"),
        (lambda a: lab.reduce_sum(a.double(), 0), "x of dtype float32, int32, got float64"),
        (lambda a: lab.reduce_sum(a, 8), "version in [0, 7], got 8"),
        (lambda a: lab.reduce_sum(a, 6, 3), "loads to be 2 or 8, got 3"),
        (lambda a: lab.reduce_sum(a, 6, 2, 0), "blocks_per_sm in [1, 1024], got 0"),
        (lambda a: lab.softmax(a, "fast"), "variant to be naive, safe, online or online4, got fast"),
        (lambda a: lab.attention(a, a, a, step=1), "query of dtype bfloat16, got float32"),
        (
            lambda a: lab.attention(*[a.bfloat16()] * 3, step=1),
            "query of shape (batch, heads, length, head size), got [3, 4]",
        ),
        (lambda a: lab.attention(*heads(2, 5, 4), step=1), "a head size of 64 or 128, got 4"),
        (lambda a: lab.attention(*heads(2, 5, 64), step=8), "step in [1, 7], got 8"),
        (
            lambda a: lab.attention(*heads(2, 5, 64)[:2], heads(2, 6, 64)[0], step=1),
            "query, key and value of one shape, got [1, 2, 5, 64] and [1, 2, 6, 64]",
        ),
        (
            lambda a: lab.attention(*(x.mT.contiguous().mT for x in heads(2, 5, 64)), step=1),
            "query to be contiguous, got shape [1, 2, 5, 64] with strides [640, 320, 1, 5]",
        ),
        (lambda a: lab.strided_copy(a, 0), "stride in [1, 32], got 0"),
        (lambda a: lab.strided_copy(a, 1, 2000), "threads in [1, 1024], got 2000"),
        (lambda a: lab.strided_copy(a, 1, 128, 4), "loads to be one of 1, 8, got 4"),
        (lambda a: lab.empty_launch(a, 0), "threads in [1, 1024], got 0"),
        (lambda a: lab.concurrent_copy(a, 32, 3, 1), "loads to be one of 1, 2, 4, 8, got 3"),
        (lambda a: lab.concurrent_copy(a, 32, 2, 2), "loads or width to be 1, got 2 and 2"),
        (lambda a: lab.concurrent_copy(a, 32, 1, 1, "half"), "grid to be full or one_per_sm, got half"),
        (lambda a: lab.fma_chains(a, a[0, :2], 5, 1, 1), "x of threads elements a block"),
        (lambda a: lab.fma_chains(a, a[0], 4, 1, 1), "factors to be b and c, got 4 elements"),
        (lambda a: lab.fma_chains(a, a[0, :2], 4, 1, 1, 16), "unroll to be one of 8, 64, got 16"),
        (
            lambda a: lab.fma_chains(a, a[0, :2], 4, 2, 1, 64, 2),
            "one chain and unroll 64 with 2 registers, got 2 and 64",
        ),
        (lambda a: lab.intensity(a[0, 1:], 1), "x aligned to 16 bytes and a multiple of 4 elements, got 3 elements"),
        (lambda a: lab.intensity(a.half(), 1), "x of dtype float32, float64, got float16"),
        (lambda a: lab.pointer_chase(a.int(), 1, 12), "start in [0, 12), got 12"),
        (lambda a: lab.pointer_chase(torch.zeros(12289, dtype=torch.int32), 1, shared=True), "next of up to 12288"),
        (lambda a: lab.who_am_i(a, 1, 32, 33), "a block of up to 1024 threads, z up to 64, got 32, 33, 1"),
        (lambda a: lab.register_bound(a, 32, "memory"), "registers to be one of 31, 33, 40, 41, 64, 65, 128, got 32"),
        (lambda a: lab.register_bound(a, 33, "L2"), "bound to be memory or arithmetic, got L2"),
        (lambda a: lab.window_sum(a, 4, True), "window to be odd and in [1, 1025], got 4"),
        (lambda a: lab.histogram(a.int(), 0, True), "bins in [1, 8192], got 0"),
        (lambda a: lab.vector_add(a, a[:1], "plain"), "a and b of one shape, got [3, 4] and [1, 4]"),
        (lambda a: lab.vector_add(a, a, "x"), "variant to be plain, privatised"),
        (lambda a: lab.vector_add(a[0, 1:], a[0, 1:], "vector4"), "a and b aligned to 16 bytes for variant vector4"),
        (lambda a: lab.tiled_matmul(a, a.mT.contiguous(), "fixed", 7), "tile to be one of 8, 16, 32, got 7"),
        (lambda a: lab.tiled_matmul(a, a.mT.contiguous(), "dynamic", 33), "tile in [1, 32], got 33"),
        (lambda a: lab.paths(a, 33, True), "count in [1, 32], got 33"),
    ],
)
def test_bad_arguments_get_one_line(call, expected):
    assert f": expected {expected}" in message(lambda: call(torch.ones(3, 4)))


def test_fakes_know_shapes():
    with torch._subclasses.FakeTensorMode():
        a, b = torch.empty(3, 5, device="cuda"), torch.empty(5, 7, device="cuda")
        assert lab.sgemm(a, b, step=3).shape == (3, 7)
        assert lab.tiled_matmul(a, b, "fixed").shape == (3, 7)
        assert lab.tensor_gemm(a.bfloat16(), a.bfloat16(), step=9).shape == (3, 3)
        assert lab.fp32_gemm(a, a, variant="scaled").dtype == torch.float32
        assert lab.reduce_sum(a.int(), 2).shape == () and lab.reduce_sum(a.int(), 2).dtype == torch.int32
        assert lab.softmax(a, "online").shape == (3, 5)
        q = torch.empty(2, 3, 5, 64, dtype=torch.bfloat16, device="cuda").mT.contiguous().mT
        assert lab.attention(q, q, q, step=7).shape == (2, 3, 5, 64) and lab.attention(q, q, q, step=7).is_contiguous()
        assert lab.histogram(a.int(), 9, True).shape == (9,)
        assert lab.best_block_size(a, "tiled dynamic 32").device.type == "cpu" and lab.empty_launch(a).shape == (2,)
        assert lab.kernel_attributes(a, "copy 1x1").shape == (5,)
        assert lab.who_am_i(a, 3, 5, 7).shape == (3, 35, 5)
        assert lab.pointer_chase(a.int(), 3).dtype == torch.int64
        assert lab.intensity(a, 3).shape == lab.register_bound(a, 33, "memory").shape == (3, 5)
        assert lab.window_sum(a, 5, True).shape == (3, 5)


def test_calculators_agree_with_the_documents():
    page = (Path(__file__).resolve().parents[1] / "docs" / "lab.md").read_text()
    assert all(f"| {' | '.join(line)} |\n" in page for line in calculators.calculators())
    same = {what: (ours, document) for what, ours, document in calculators.calculators()}
    assert same["best block and grid, T4 (S1-06)"][0] == "1024, 40"
    assert same["best block and grid, RTX 4090 (S1-06)"][0] == "768, 256"
    blocks = same["blocks an SM, A100, of 1024, 512, 256, 64 threads (S0-09, S2-13)"]
    assert blocks[0] == blocks[1]
    assert same["registers a thread that leave full occupancy, A100 (S2-15)"] == ("32", "32")
    assert same["occupancy, A100, 512 threads, 64 registers (S2-16)"][0] == "50.00 %"
    assert same["square block of 768 threads (S3-15)"] == ("256", "256")
    assert same["FMAs in flight, M2090 (S4-06)"] == ("640", "640")


def test_row_and_result_file(tmp_path, monkeypatch):
    row = measure.row("c", "x", (2.0, (1.5, 2.5)), shape={"n": 4}, flops=4e6, bytes_moved=8e3)
    assert row["tflops"] == 2.0 and row["gbps"] == 4.0 and row["us_quartiles"] == [1.5, 2.5]
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "NVIDIA Test")
    document = measure.describe("lab_softmax", [row, row], [1980, 1700], {"commit": "abc"})
    written = measure.write_results(tmp_path, document)
    content = json.loads(written.read_text())
    assert written.name == "lab_softmax.json" and content["op"] == "lab_softmax" and content["gpu"] == "NVIDIA Test"
    assert content["rows"] == [row, row] and content["clocks_mhz"] == [1700, 1980] and content["commit"] == "abc"
    assert written.read_text() == results.dump(content)


def test_a_checkout_adds_its_sources():
    content = runner.describe(torch_ext.lab.EXPERIMENTS["softmax"])
    assert "csrc/lab/softmax" in content["sources"]["paths"] and len(content["sources"]["sha256"]) == 16
    assert content["machine_code"] == results.machine_code(content["sources"]["paths"])


def test_window_reference_is_a_zero_padded_convolution():
    for n, window in ((1, 1), (1, 5), (7, 3), (100, 129), (1000, 5)):
        x = torch.randn(n, dtype=torch.float64)
        padded = torch.nn.functional.pad(x, (window // 2, window // 2))
        torch.testing.assert_close(experiments.window_reference(x, window), padded.unfold(0, window, 1).sum(1))


# ---- the SGEMM ladder -----------------------------------------------------------------------------------------------


def assert_sgemm(c, a, b, alpha=1.0, beta=0.0, old=None):
    a64, b64 = a.double(), b.double()
    reference, scale = alpha * (a64 @ b64), abs(alpha) * (a64.abs() @ b64.abs())
    if beta:
        reference, scale = reference + beta * old.double(), scale + abs(beta) * old.double().abs()
    assert c.shape == reference.shape
    assert componentwise_error(c, reference, scale) <= ladders.sgemm_bound(a.shape[1])


@CUDA
@pytest.mark.parametrize("step", STEPS)
def test_sgemm_ragged(step):
    for m, n, k in SIZES:
        a, b, old = (randn(*shape, device="cuda") for shape in ((m, k), (k, n), (m, n)))
        poison("cuda")
        assert_sgemm(lab.sgemm(a, b, step=step), a, b)
        poison("cuda")
        assert_sgemm(lab.sgemm(a, b, old, step=step, alpha=-0.5, beta=3), a, b, -0.5, 3, old)


# ---- tensor cores ---------------------------------------------------------------------------------------------------

TENSOR_SHAPES = [(256, 256, 64), (512, 256, 448), (256, 768, 1024)]


def needs_hopper():
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs a GPU of compute capability 9.0")


@pytest.mark.sanitize
@CUDA
@pytest.mark.parametrize("step", range(9, 14))
@pytest.mark.parametrize("m, n, k", TENSOR_SHAPES)
def test_tensor_gemm(step, m, n, k):
    if step >= 11:
        needs_hopper()
    a, b = randn(m, k, device="cuda").bfloat16(), randn(n, k, device="cuda").bfloat16()
    poison("cuda")
    out = lab.tensor_gemm(a, b, step=step)
    exact, scale = a.double() @ b.double().mT, a.double().abs() @ b.double().abs().mT
    assert out.dtype == torch.bfloat16
    assert ((out.double() - exact).abs() <= 2**-8 * exact.abs() + k * 2**-23 * scale).all()
    assert torch.equal(out, lab.tensor_gemm(a, b, step=step))


@CUDA
@pytest.mark.parametrize("step", range(9, 14))
def test_tensor_gemm_many_tiles(step):
    """More tiles than the persistent step has blocks, in an odd number of groups."""
    if step >= 11:
        needs_hopper()
    a, b = randn(256 * 11, 320, device="cuda").bfloat16(), randn(256 * 37, 320, device="cuda").bfloat16()
    poison("cuda", 64)
    exact, scale = a.double() @ b.double().mT, a.double().abs() @ b.double().abs().mT
    out = lab.tensor_gemm(a, b, step=step)
    assert ((out.double() - exact).abs() <= 2**-8 * exact.abs() + 320 * 2**-23 * scale).all()


@CUDA
def test_tensor_gemm_shapes_that_it_does_not_take():
    a = torch.ones(256, 64, device="cuda", dtype=torch.bfloat16)
    assert "multiples of 256 and k of 64, got [128, 64] and [256, 64]" in message(
        lambda: lab.tensor_gemm(a[:128], a, step=9)
    )
    assert "multiple of 16" in message(lambda: lab.tensor_gemm(misaligned(a), a, step=9))


@pytest.mark.sanitize
@CUDA
@pytest.mark.parametrize("m, n, k", TENSOR_SHAPES)
def test_fp32_gemm(m, n, k):
    """Each idea brings the error down: on rows of unequal magnitude, only scaled is fp32."""
    needs_hopper()
    a, b = (randn(rows, k, device="cuda") * torch.exp2(-12 * torch.rand(rows, 1, device="cuda")) for rows in (m, n))
    exact, scale = a.double() @ b.double().mT, a.double().abs() @ b.double().abs().mT
    error = {}
    for variant in ("fp16", "split", "promoted", "scaled"):
        poison("cuda")
        out = lab.fp32_gemm(a, b, variant=variant)
        assert torch.equal(out, lab.fp32_gemm(a, b, variant=variant))
        error[variant] = componentwise_error(out, exact, scale)
        assert error[variant] <= ladders.FP32_BOUNDS[variant]
    # Where a row is small, half of split's bits are lost: how many depends on the data.
    assert error["scaled"] < error["split"] / 4 and error["split"] < error["fp16"] / 2


@CUDA
def test_fp32_gemm_of_extreme_rows():
    """Scaled: any magnitude that fp32 has, rows of zeros too."""
    needs_hopper()
    a, b = randn(256, 128, device="cuda"), randn(256, 128, device="cuda")
    a[::2] *= 1e-30
    a[1::2] *= 1e18
    b[3] = 0
    b[4] *= 1e15
    exact, scale = a.double() @ b.double().mT, a.double().abs() @ b.double().abs().mT
    out = lab.fp32_gemm(a, b, variant="scaled")
    assert (out[:, 3] == 0).all()
    keep = torch.arange(256, device="cuda") != 3
    assert componentwise_error(out[:, keep], exact[:, keep], scale[:, keep]) <= ladders.FP32_BOUNDS["scaled"]


@pytest.mark.sanitize
@CUDA
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("which", [0, 1, 2])
def test_sgemm_misaligned(step, which):
    operands = [randn(*shape, device="cuda") for shape in ((128, 64), (64, 132), (128, 132))]
    operands[which] = misaligned(operands[which])
    a, b, old = operands
    poison("cuda")
    assert_sgemm(lab.sgemm(a, b, old, step=step, beta=1), a, b, 1, 1, old)


@CUDA
@pytest.mark.parametrize("step", STEPS)
def test_sgemm_empty(step):
    for m, n in ((0, 3), (3, 0), (0, 0)):
        assert lab.sgemm(randn(m, 4, device="cuda"), randn(4, n, device="cuda"), step=step).shape == (m, n)
    poison("cuda")
    a, b, c = randn(130, 0, device="cuda"), randn(0, 132, device="cuda"), randn(130, 132, device="cuda")
    assert torch.equal(lab.sgemm(a, b, step=step), torch.zeros_like(c))
    assert torch.equal(lab.sgemm(a, b, c, step=step, beta=2), 2 * c)


@CUDA
@pytest.mark.parametrize("step", STEPS)
def test_sgemm_beta_zero_does_not_read_c(step):
    for n in (132, 131):
        a, b = randn(129, 20, device="cuda"), randn(20, n, device="cuda")
        c = torch.full((129, n), float("nan"), device="cuda")
        assert torch.equal(lab.sgemm(a, b, c, step=step, beta=0), lab.sgemm(a, b, step=step))


@CUDA
@pytest.mark.parametrize("step", STEPS)
def test_sgemm_nan_stays_in_its_row_and_column(step):
    a, b = randn(133, 40, device="cuda"), randn(40, 136, device="cuda")
    a[131, 7] = float("nan")
    b[39, 3] = float("inf")
    expected = a.double() @ b.double()
    c = lab.sgemm(a, b, step=step)
    assert torch.equal(torch.isnan(c), torch.isnan(expected))
    assert torch.equal(torch.isinf(c), torch.isinf(expected))


@CUDA
def test_sgemm_steps_repeat_and_rows_do_not_depend_on_m():
    a, b = randn(300, 75, device="cuda"), randn(75, 140, device="cuda")
    for step in STEPS:
        c = lab.sgemm(a, b, step=step)
        assert torch.equal(c, lab.sgemm(a, b, step=step))
        assert torch.equal(c[:7], lab.sgemm(a[:7].contiguous(), b, step=step))


@CUDA
def test_sgemm_steps_give_the_same_bits():
    for m, n, k in [*SIZES, (300, 140, 75), (256, 384, 512)]:
        a, b, c = (randn(*shape, device="cuda") for shape in ((m, k), (k, n), (m, n)))
        for beta in (0, 3):
            first = lab.sgemm(a, b, c, step=1, alpha=-0.5, beta=beta)
            for step in STEPS:
                assert torch.equal(lab.sgemm(a, b, c, step=step, alpha=-0.5, beta=beta), first), (m, n, k, step)


@CUDA
@pytest.mark.parametrize("step", STEPS)
def test_sgemm_many_tiles_of_rows(step):
    """More row tiles than gridDim.y could count."""
    a, b = randn(65536 * 32 + 5, 2, device="cuda"), randn(2, 3, device="cuda")
    assert_sgemm(lab.sgemm(a, b, step=step), a, b)


@CUDA
@pytest.mark.parametrize("step", STEPS[1:])
def test_sgemm_beyond_int32(step):
    n = 46400  # 46400^2 > 2^31 elements of C
    a, b = randn(n, 4, device="cuda"), randn(4, n, device="cuda")
    c = lab.sgemm(a, b, step=step)
    for rows in (slice(0, 3), slice(n - 130, n)):
        assert_sgemm(c[rows], a[rows], b)


# ---- the reduction ladder -------------------------------------------------------------------------------------------

COUNTS = [1, 2, 31, 32, 33, 255, 256, 257, 511, 512, 513, 2047, 2048, 2049, 65535, 65537, 1_000_003]


@CUDA
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("counts", sanitized([COUNTS, [1, 257, 65537]], [1, 257, 65537]), ids=["all", "few"])
def test_reduce_float(version, counts):
    for n in counts:
        x = randn(n, device="cuda")
        for y in (x, misaligned(x)):
            poison("cuda", 1)
            s = lab.reduce_sum(y, version)
            error = (s.double() - x.double().sum()).abs() / x.double().abs().sum()
            assert s.shape == () and error.item() <= ladders.reduction_bound(n), n
            assert torch.equal(s, lab.reduce_sum(y, version))


@CUDA
@pytest.mark.parametrize("loads", [2, 8])
@pytest.mark.parametrize("blocks", [1, 3, 32])
def test_reduce_with_any_grid(loads, blocks):
    for n in COUNTS:
        x = torch.randint(-(2**31), 2**31 - 1, (n,), dtype=torch.int32, device="cuda")
        for version in (6, 7):
            s = lab.reduce_sum(x, version, loads, blocks)
            assert s.item() == x.sum(dtype=torch.int64).to(torch.int32).item(), n


@CUDA
@pytest.mark.parametrize("version", VERSIONS)
def test_reduce_int_wraps(version):
    for n in COUNTS:
        x = torch.randint(-(2**31), 2**31 - 1, (n,), dtype=torch.int32, device="cuda")
        s = lab.reduce_sum(x, version)
        assert s.dtype == torch.int32 and s.item() == x.sum(dtype=torch.int64).to(torch.int32).item(), n


@CUDA
@pytest.mark.parametrize("version", VERSIONS)
def test_reduce_empty_nan_and_shape(version):
    poison("cuda", 1)
    assert lab.reduce_sum(torch.empty(0, 3, device="cuda"), version).item() == 0
    assert lab.reduce_sum(torch.empty(0, dtype=torch.int32, device="cuda"), version).item() == 0
    x = randn(7, 1001, device="cuda")
    x[6, 1000] = float("nan")
    assert torch.isnan(lab.reduce_sum(x, version))
    x[6, 1000] = float("inf")
    assert lab.reduce_sum(x, version).item() == float("inf")


@CUDA
@pytest.mark.parametrize("version", VERSIONS)
def test_reduce_beyond_int32(version):
    x = torch.ones(2**31 + 7, dtype=torch.int32, device="cuda")
    x[-1] = 100
    assert lab.reduce_sum(x, version).item() == (2**31 + 6 + 100 + 2**31) % 2**32 - 2**31


# ---- the softmax ladder ---------------------------------------------------------------------------------------------

SHAPES = [(1, 1), (3, 2), (5, 31), (2, 255), (7, 256), (3, 257), (4, 1023), (2, 5001), (1, 100_003), (70_000, 3)]


@pytest.mark.sanitize
@CUDA
@pytest.mark.parametrize("variant", ["naive", "safe", "online", "online4"])
def test_softmax(variant):
    for rows, cols in SHAPES[2:8] if SANITIZED else SHAPES:  # a block a row
        x = randn(rows, cols, device="cuda")
        for y in (x, misaligned(x)):
            poison("cuda")
            ours = lab.softmax(y, variant)
            reference = torch.softmax(x.double(), -1)
            assert componentwise_error(ours, reference, reference) <= ladders.softmax_bound(cols)
            assert torch.equal(ours, lab.softmax(y, variant))
    for shape in ((0, 3), (3, 0)):
        assert lab.softmax(torch.empty(shape, device="cuda"), variant).shape == shape


@CUDA
def test_softmax_naive_overflows_and_the_others_do_not():
    x = 100 + randn(3, 700, device="cuda")
    reference = torch.softmax(x.double(), -1)
    assert torch.isnan(lab.softmax(x, "naive")).any()
    for variant in ("safe", "online", "online4"):
        assert componentwise_error(lab.softmax(x, variant), reference, reference) <= ladders.softmax_bound(700)


@CUDA
@pytest.mark.parametrize("variant", ["safe", "online", "online4"])
@pytest.mark.parametrize("cols", [1, 5, 300, 3000])
def test_softmax_special_values_as_torch(variant, cols):
    inf, nan = float("inf"), float("nan")
    x = randn(7, cols, device="cuda")
    x[0, :] = -inf
    x[1, cols // 2] = inf
    x[2, cols // 3] = nan
    x[3, : cols // 2] = -inf  # a row whose first half is masked
    x[4, 1:] = -inf
    x[5, :] = inf
    torch.testing.assert_close(lab.softmax(x, variant), torch.softmax(x, -1), equal_nan=True, rtol=1e-5, atol=0)


# ---- the attention ladder -------------------------------------------------------------------------------------------

ATTENTION_LENGTHS = [1, 15, 63, 64, 65, 127, 128, 129, 200, 257, 640, 1777]


def assert_attention(out, q, k, v, causal):
    assert out.shape == q.shape and out.dtype == torch.bfloat16
    assert attention.attention_error(out, *attention.attention_reference(q, k, v, causal)) <= 1


def test_attention_reference_is_sdpa():
    for causal in (False, True):
        q, k, v = (x.double() for x in heads(3, 37, 64, 2))
        reference, scale = attention.attention_reference(q, k, v, causal)
        torch.testing.assert_close(reference, F.scaled_dot_product_attention(q, k, v, is_causal=causal))
        torch.testing.assert_close(scale, F.scaled_dot_product_attention(q, k, v.abs(), is_causal=causal))
        out = reference.bfloat16()
        assert attention.attention_error(out, reference, scale) <= 1
        out[1, 2, 36, 5] += 0.1
        assert attention.attention_error(out, reference, scale) > 1


@CUDA
@pytest.mark.parametrize("step", ATTENTION_STEPS)
@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("causal", sanitized([False, True], True), ids=["full", "causal"])
def test_attention(step, d, causal):
    if step >= 5:
        needs_hopper()
    for length in [65, 257] if SANITIZED else ATTENTION_LENGTHS:
        q, k, v = heads(2, length, d, 2, device="cuda")
        poison("cuda")
        out = lab.attention(q, k, v, step=step, is_causal=causal)
        assert_attention(out, q, k, v, causal)
        assert torch.equal(out, lab.attention(q, k, v, step=step, is_causal=causal))


@CUDA
@pytest.mark.parametrize("step", ATTENTION_STEPS)
def test_attention_of_large_scores_and_nan(step):
    """The maximum rises and falls by hundreds from tile to tile; a NaN key reaches the rows that see it alone."""
    if step >= 5:
        needs_hopper()
    q, k, v = heads(4, 700, 64, device="cuda")
    q, k = q * 8, k * torch.linspace(1, 20, 700, device="cuda", dtype=torch.bfloat16).roll(350)[:, None]
    assert_attention(lab.attention(q, k, v, step=step), q, k, v, False)
    k[0, 1, 300] = float("nan")
    wrong = lab.attention(q, k, v, step=step, is_causal=True).isnan()
    assert wrong[0, 1, 300:].all() and wrong.sum() == 400 * 64


@CUDA
def test_attention_memory_and_refused_inputs():
    """Step 01 takes s x s scores, the others nothing beside their result."""
    q, k, v = heads(4, 2048, 64, device="cuda")
    for step in range(1, 8 if torch.cuda.get_device_capability()[0] == 9 else 5):
        assert lab.attention(*heads(4, 0, 64, device="cuda"), step=step).shape == (1, 4, 0, 64)
        used = measure.peak_bytes(lambda step=step: lab.attention(q, k, v, step=step))
        expected = 2 * q.numel() + (4 * 4 * 2048**2 if step == 1 else 0)
        assert expected <= used <= expected + 2**20  # the allocator splits no block for less
    with pytest.raises(RuntimeError, match="expected key at an address that is a multiple of 16"):
        lab.attention(q, misaligned(k), v, step=2)
    long = torch.empty(1, 65536, 1, 64, device="cuda", dtype=torch.bfloat16)
    assert "at most 65535 heads" in message(lambda: lab.attention(long, long, long, step=2))


# ---- the experiments ------------------------------------------------------------------------------------------------


@CUDA
@pytest.mark.parametrize("n", [1, 2, 127, 1000, 65539])
def test_copies(n):
    x = randn(n, device="cuda")
    index = torch.arange(n, device="cuda")
    for stride in (1, 2, 3, 32):
        for loads in (1, 8):
            poison("cuda", 1)
            assert torch.equal(lab.strided_copy(x, stride, 96, loads), x[index * stride % n])
    assert lab.empty_launch(x, 96).tolist() == [-(-n // 96), 96]
    for loads, width in ((1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (1, 4)):
        y = x[: n // width * width]
        for threads in (32, 100, 1024):
            for grid in ("full", "one_per_sm"):
                poison("cuda", 1)
                assert torch.equal(lab.concurrent_copy(y, threads, loads, width, grid), y)


@CUDA
@pytest.mark.parametrize("name", ["coalesced copy", "tiled dynamic 32"])
def test_best_block_size_matches_the_calculator(name):
    from torch_ext import device

    threads, grid, registers = lab.best_block_size(torch.empty(1, device="cuda"), name).tolist()
    shared = device.tile_shared_memory if name.startswith("tiled") else 0
    assert (threads, grid) == device.max_potential_block_size(device.limits(), registers, shared)


@CUDA
def test_without_contraction_a_product_is_a_loop_in_the_order_of_k():
    for m, n, k in [(1, 1, 1), (33, 31, 65), (100, 200, 37), (256, 256, 512)]:
        a, b = randn(m, k, device="cuda"), randn(k, n, device="cuda")
        assert torch.equal(lab.tiled_matmul(a, b, "uncontracted", 32), tiles.in_order(a, b)), (m, n, k)
        assert torch.equal(tiles.in_order(a, b).cpu(), tiles.in_order(a.cpu(), b.cpu()))


@CUDA
@pytest.mark.parametrize("unroll", [8, 64])
@pytest.mark.parametrize("chains", [1, 2, 4, 8, 16])
def test_fma_chains(chains, unroll):
    x = randn(3 * 96, device="cuda")
    variants = [(torch.tensor([-0.75, 0.3]), 3)] + (
        [(torch.tensor([-0.75, -0.75]), 2)] if (chains, unroll) == (1, 64) else []
    )
    for factors, registers in variants:
        for iterations in (0, 13, 150):
            y = x.double()[:, None] + torch.arange(chains, device="cuda")
            scale = y.abs()
            for _ in range(iterations):
                y, scale = y * factors[0].item() + factors[1].item(), scale * 0.75 + factors[1].abs().item()
            out = lab.fma_chains(x, factors.cuda(), 96, chains, iterations, unroll, registers)
            assert ((out.double() - y.sum(1)).abs() <= 32 * 2**-24 * (scale.sum(1) + chains)).all()


@CUDA
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_intensity(dtype):
    for n in (0, 4, 1020, 4096, 100_000):
        x = randn(n, device="cuda").to(dtype)
        for steps in (0, 1, 7, 8, 33):
            y = x.double()
            for _ in range(steps):
                y = y / 2 + 1
            poison("cuda", 1)
            error = (lab.intensity(x, steps).double() - y).abs()
            assert (error <= 4 * torch.finfo(dtype).eps * (x.double().abs() + 2)).all()


@CUDA
def test_pointer_chase_walks():
    for lines, stride, steps, shared in (
        (1, 1, 0, True),
        (32, 32, 5, False),
        (97, 4, 1000, True),
        (5000, 32, 77, False),
    ):
        following = memory.cycle(lines, stride, "cuda")
        start = stride * (lines // 2)
        i, numbers = start, following.tolist()
        for _ in range(memory.WARM_UP + steps):
            i = numbers[i]
        end, cycles = lab.pointer_chase(following, steps, start, shared).tolist()
        assert end == i and cycles >= 10 * steps  # no memory answers within 10 cycles


@CUDA
@pytest.mark.parametrize("registers", experiments.REGISTERS)
def test_register_bound(registers):
    from torch_ext import device

    for n in (0, 1, 511, 5003, 1_000_003):
        x = randn(n, device="cuda")
        poison("cuda", 1)
        assert torch.equal(lab.register_bound(x, registers, "memory"), x)
        poison("cuda", 1)
        y = lab.register_bound(x, registers, "arithmetic", 5).double()
        assert ((y - (2 + (x.double() - 2) / 32)).abs() <= 2**-20).all()
    for bound in ("memory", "arithmetic"):
        found = torch_ext.lab.attributes(f"registers {registers} {bound}")
        assert found["registers"] == registers and found["local"] == 0 and found["threads"] == 512
        assert found["blocks"] == device.occupancy(device.limits(), 512, registers).blocks


@CUDA
def test_who_am_i():
    like = torch.empty(1, device="cuda")
    sms = torch.cuda.get_device_properties().multi_processor_count
    for block in ((70,), (5, 7), (3, 4, 5), (32, 32), (1, 1, 64)):
        seen = lab.who_am_i(like, 300, *block)
        thread = torch.arange(seen.shape[1], device="cuda")
        assert (seen[..., 0] == thread % 32).all() and (seen[..., 1] == thread - thread % 32).all()
        assert (seen[..., 2] == seen[:, :1, 2]).all() and seen[..., 2].min() >= 0 and seen[..., 2].max() < sms
        assert (seen[..., 3] <= seen[..., 4]).all()
    seen = lab.who_am_i(like, 3, 64, 1, 1, 100_000)
    assert (seen[..., 4] - seen[..., 3] >= 100_000).all()


@CUDA
def test_kernel_attributes():
    names = [f"sgemm {step}" for step in ladders.SGEMM_KERNELS] + ["softmax online4", "copy 8x1", "tiled dynamic 8"]
    if torch.cuda.get_device_capability()[0] == 9:
        names += [f"attention {step} {d}" for step in attention.OURS for d in (64, 128)]
        names += [f"tensor {step}" for step in ladders.TENSOR_STEPS[:5]] + ["fp32 scaled"]
    for name in names:
        found = torch_ext.lab.attributes(name)
        assert 8 <= found["registers"] <= 255 and found["blocks"] >= 1 and found["local"] == 0
    assert torch_ext.lab.attributes("sgemm 03_shared_tile")["shared"] == 8192
    assert "expected the name of a kernel of the lab, got x" in message(
        lambda: lab.kernel_attributes(torch.empty(1, device="cuda"), "x")
    )


@CUDA
@pytest.mark.parametrize("n", [1, 33, 1000, 5003])
def test_divergence(n):
    x = torch.randint(-(2**31), 2**31 - 1, (n,), dtype=torch.int32, device="cuda")
    expected = torch.where(x % 2 == 0, x.long() * 2, x.long() + 1).to(torch.int32)
    assert torch.equal(lab.parity(x, True), expected) and torch.equal(lab.parity(x, False), expected)
    y, index = randn(n, device="cuda"), torch.arange(n, device="cuda")
    for count in (1, 3, 32):
        for per_lane in (True, False):
            chosen = ((index if per_lane else index // 32) % count).double()
            assert ((lab.paths(y, count, per_lane).double() - 2 * chosen).abs() <= 2**-20 * (2 * chosen + 1)).all()


@CUDA
@pytest.mark.parametrize("variant", ["plain", "privatised", "coarsened2", "coarsened4", "vector2", "vector4"])
def test_vector_add(variant):
    for n in (0, 1, 3, 4, 255, 1025, 100_003):
        a, b = randn(n, device="cuda"), randn(n, device="cuda")
        poison("cuda", 1)
        assert torch.equal(lab.vector_add(a, b, variant), a + b)


@pytest.mark.sanitize
@CUDA
@pytest.mark.parametrize("shared", [True, False])
def test_window_sum_has_a_halo(shared):
    for n in (1, 4, 255, 256, 257, 1000, 5003):
        for window in (1, 3, 5, 257, 1025):
            x = torch.randint(-100, 100, (n,), device="cuda").float()  # exact in fp32: an edge is right or wrong
            expected = experiments.window_reference(x.double(), window)
            poison("cuda", 1)
            assert torch.equal(lab.window_sum(x, window, shared).double(), expected), (n, window)


@pytest.mark.sanitize
@CUDA
@pytest.mark.parametrize("privatised", [True, False])
def test_histogram(privatised):
    for n in (0, 1, 1000, 30_011 if SANITIZED else 1_000_003):
        for bins in (1, 7, 256, 8192):
            x = torch.randint(-2, bins + 2, (n,), dtype=torch.int32, device="cuda")
            inside = x[(x >= 0) & (x < bins)]
            poison("cuda", 1)
            counts = lab.histogram(x, bins, privatised)
            assert torch.equal(counts, torch.bincount(inside, minlength=bins).int())


@pytest.mark.sanitize
@CUDA
@pytest.mark.parametrize(
    "variant", ["naive", "fixed", "dynamic", "conflicting", "padded", "uncontracted", "single_block"]
)
def test_tiled_matmul(variant):
    sizes = [(0, 3, 2), (3, 4, 0), (1, 1, 1), (5, 7, 3), (32, 32, 32), (31, 17, 100)]
    if variant != "single_block":
        sizes += [(33, 31, 65)] if SANITIZED else [(33, 31, 65), (100, 200, 37)]
    for m, n, k in sizes:
        a, b = randn(m, k, device="cuda"), randn(k, n, device="cuda")
        for tile in (8, 16, 32) if variant in ("fixed", "dynamic") else (32,):
            poison("cuda")
            assert_sgemm(lab.tiled_matmul(a, b, variant, tile), a, b)
    with pytest.raises(RuntimeError, match="m, n <= 32"):
        lab.tiled_matmul(randn(33, 2, device="cuda"), randn(2, 2, device="cuda"), "single_block", 32)


@CUDA
def test_ops_use_the_current_stream_and_graphs():
    x = randn(1000, 777, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        eager = [lab.softmax(x, "online"), lab.reduce_sum(x, 7), lab.sgemm(x, x.mT.contiguous(), step=7)]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    transposed = x.mT.contiguous()
    with torch.cuda.graph(graph):
        captured = [lab.softmax(x, "online"), lab.reduce_sum(x, 7), lab.sgemm(x, transposed, step=7)]
    graph.replay()
    torch.cuda.synchronize()
    for ours, expected in zip(captured, eager, strict=True):
        assert torch.equal(ours, expected)


@CUDA
def test_time_us_measures_the_device():
    x = randn(1 << 26, device="cuda")
    us, (low, high) = measure.time_us(lambda: lab.vector_add(x, x, "vector4"), 0.01)
    assert low <= us <= high and us > 12 * x.numel() / 10e12 * 1e6  # no GPU moves 10 TB/s

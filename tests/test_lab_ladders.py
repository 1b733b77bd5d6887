"""The lab's ladders: every step against float64 on awkward sizes."""

import pytest
import torch
from common import SANITIZED, componentwise_error, misaligned, poison, randn, runs_hopper_kernels, sanitized
from lab_checks import assert_sgemm, heads, message, needs_hopper

from torch_ext.lab import attention, ladders, measure

lab = torch.ops.xgemm_lab
pytestmark = pytest.mark.cuda
STEPS = range(1, 10)
ATTENTION_STEPS = range(1, 8)
VERSIONS = range(10)
SIZES = [(1, 1, 1), (1, 37, 5), (31, 33, 32), (64, 64, 8), (65, 63, 9), (127, 129, 17), (128, 128, 16), (132, 260, 36)]
SIZES += [(257, 127, 131), (3, 3, 431), (35, 79, 19), (129, 1, 33)]

# ---- the SGEMM ladder -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
def test_sgemm_ragged(step):
    """In the bits of step 01."""
    for m, n, k in [*SIZES, (300, 140, 75), (256, 384, 512)]:
        a, b, old = (randn(*shape, device="cuda") for shape in ((m, k), (k, n), (m, n)))
        for alpha, beta, c in ((1, 0, None), (-0.5, 0, old), (-0.5, 3, old)):
            poison("cuda")
            out = lab.sgemm(a, b, c, step=step, alpha=alpha, beta=beta)
            assert_sgemm(out, a, b, alpha, beta, c)
            assert torch.equal(out, lab.sgemm(a, b, c, step=1, alpha=alpha, beta=beta)), (m, n, k)


# ---- tensor cores ---------------------------------------------------------------------------------------------------

TENSOR_SHAPES = [(256, 256, 64), (512, 256, 448), (256, 768, 1024)]
MANY_TILES = (256 * 11, 256 * 37, 320)  # more than the persistent step has blocks, in an odd number of groups


@pytest.mark.parametrize("step", range(9, 16))
@pytest.mark.parametrize("m, n, k", sanitized([*TENSOR_SHAPES, MANY_TILES], *TENSOR_SHAPES))
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


def test_tensor_gemm_shapes_that_it_does_not_take():
    a = torch.ones(256, 64, device="cuda", dtype=torch.bfloat16)
    assert "multiples of 256, k of 64, all below 2^20, got [128, 64] and [256, 64]" in message(
        lambda: lab.tensor_gemm(a[:128], a, step=9)
    )
    assert "multiple of 16" in message(lambda: lab.tensor_gemm(misaligned(a), a, step=9))
    rows = a.new_empty(1 << 20, 64)  # more tiles of 16 rows than gridDim.y counts
    assert "all below 2^20, got [1048576, 64]" in message(lambda: lab.tensor_gemm(rows, a, step=9))


@pytest.mark.sanitize
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
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("which", [0, 1, 2])
def test_sgemm_misaligned(step, which):
    operands = [randn(*shape, device="cuda") for shape in ((128, 64), (64, 132), (128, 132))]
    operands[which] = misaligned(operands[which])
    a, b, old = operands
    poison("cuda")
    assert_sgemm(lab.sgemm(a, b, old, step=step, beta=1), a, b, 1, 1, old)


@pytest.mark.parametrize("step", STEPS)
def test_sgemm_empty(step):
    for m, n in ((0, 3), (3, 0), (0, 0)):
        assert lab.sgemm(randn(m, 4, device="cuda"), randn(4, n, device="cuda"), step=step).shape == (m, n)
    poison("cuda")
    a, b, c = randn(130, 0, device="cuda"), randn(0, 132, device="cuda"), randn(130, 132, device="cuda")
    assert torch.equal(lab.sgemm(a, b, step=step), torch.zeros_like(c))
    assert torch.equal(lab.sgemm(a, b, c, step=step, beta=2), 2 * c)


@pytest.mark.parametrize("step", STEPS)
def test_sgemm_beta_zero_does_not_read_c(step):
    for n in (132, 131):
        a, b = randn(129, 20, device="cuda"), randn(20, n, device="cuda")
        c = torch.full((129, n), float("nan"), device="cuda")
        assert torch.equal(lab.sgemm(a, b, c, step=step, beta=0), lab.sgemm(a, b, step=step))


@pytest.mark.parametrize("step", STEPS)
def test_sgemm_nan_stays_in_its_row_and_column(step):
    a, b = randn(133, 40, device="cuda"), randn(40, 136, device="cuda")
    a[131, 7] = float("nan")
    b[39, 3] = float("inf")
    expected = a.double() @ b.double()
    c = lab.sgemm(a, b, step=step)
    assert torch.equal(torch.isnan(c), torch.isnan(expected))
    assert torch.equal(torch.isinf(c), torch.isinf(expected))


@pytest.mark.parametrize("step", STEPS)
def test_sgemm_many_tiles_of_rows(step):
    """More row tiles than gridDim.y could count."""
    a, b = randn(65536 * 32 + 5, 2, device="cuda"), randn(2, 3, device="cuda")
    assert_sgemm(lab.sgemm(a, b, step=step), a, b)


@pytest.mark.parametrize("step", STEPS[1:])
def test_sgemm_beyond_int32(step):
    n = 46400  # 46400^2 > 2^31 elements of C
    a, b = randn(n, 4, device="cuda"), randn(4, n, device="cuda")
    c = lab.sgemm(a, b, step=step)
    for rows in (slice(0, 3), slice(n - 130, n)):
        assert_sgemm(c[rows], a[rows], b)


# ---- the reduction ladder -------------------------------------------------------------------------------------------

COUNTS = [1, 2, 31, 32, 33, 255, 256, 257, 511, 512, 513, 2047, 2048, 2049, 65535, 65537, 1_000_003]


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


@pytest.mark.parametrize("version", VERSIONS)
def test_reduce_int_wraps(version):
    grids = [(2, 1), (2, 32), (8, 3), (8, 32)] if version >= 6 else [()]  # loads, blocks
    for n in COUNTS:
        x = torch.randint(-(2**31), 2**31 - 1, (n,), dtype=torch.int32, device="cuda")
        for grid in grids:
            s = lab.reduce_sum(x, version, *grid)
            assert s.dtype == torch.int32 and s.item() == x.sum(dtype=torch.int64).to(torch.int32).item(), n


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


@pytest.mark.parametrize("version", VERSIONS)
def test_reduce_beyond_int32(version):
    x = torch.ones(2**31 + 7, dtype=torch.int32, device="cuda")
    x[-1] = 100
    assert lab.reduce_sum(x, version).item() == (2**31 + 6 + 100 + 2**31) % 2**32 - 2**31


# ---- the transpose ladder --------------------------------------------------------------------------------------------


@pytest.mark.sanitize
@pytest.mark.parametrize("variant", ["naive", "tiled", "padded", "swizzled"])
def test_transpose(variant):
    for shape in ((1, 1), (1, 1000), (1000, 1), (31, 33), (32, 64), (257, 129), (0, 3), (3, 0)):
        x = randn(*shape, device="cuda")
        for y in (x, misaligned(x)):
            poison("cuda")
            assert torch.equal(lab.transpose(y, variant), x.mT)


def test_transpose_beyond_int32():
    x = randn(46400, 46401, device="cuda")
    for variant in ("naive", "swizzled"):
        assert torch.equal(lab.transpose(x, variant).mT, x)


# ---- the softmax ladder ---------------------------------------------------------------------------------------------

SHAPES = [(1, 1), (3, 2), (5, 31), (2, 255), (7, 256), (3, 257), (4, 1023), (2, 5001), (1, 100_003), (70_000, 3)]


@pytest.mark.sanitize
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


def test_softmax_naive_overflows_and_the_others_do_not():
    x = 100 + randn(3, 700, device="cuda")
    reference = torch.softmax(x.double(), -1)
    assert torch.isnan(lab.softmax(x, "naive")).any()
    for variant in ("safe", "online", "online4"):
        assert componentwise_error(lab.softmax(x, variant), reference, reference) <= ladders.softmax_bound(700)


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


def test_attention_memory_and_refused_inputs():
    """Step 01 takes s x s scores, the others nothing beside their result."""
    q, k, v = heads(4, 2048, 64, device="cuda")
    for step in range(1, 8 if runs_hopper_kernels() else 5):
        assert lab.attention(*heads(4, 0, 64, device="cuda"), step=step).shape == (1, 4, 0, 64)
        used = measure.peak_bytes(lambda step=step: lab.attention(q, k, v, step=step))
        expected = 2 * q.numel() + (4 * 4 * 2048**2 if step == 1 else 0)
        assert expected <= used <= expected + 2**20  # the allocator splits no block for less
    with pytest.raises(RuntimeError, match="expected key at an address that is a multiple of 16"):
        lab.attention(q, misaligned(k), v, step=2)
    long = torch.empty(1, 65536, 1, 64, device="cuda", dtype=torch.bfloat16)
    assert "at most 65535 heads" in message(lambda: lab.attention(long, long, long, step=2))

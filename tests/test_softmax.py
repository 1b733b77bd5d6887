"""torch.ops.xgemm.softmax and log_softmax against float64 and torch's."""

import pytest
import torch
from common import FLOATING, SANITIZED, SANITIZER, assert_as_good_as, poison, randn, sanitized
from reductions import CUDA, LAYOUTS, SMALL_LAYOUTS, check_op_db, check_promises, row_lengths, same_bits, special_rows

import torch_ext

op = torch.ops.xgemm
NAMES = ["softmax", "log_softmax"]

# (shape, dim): rows, columns wide and narrow, ragged, every dim of several, columns too long for a cluster.
CASES = [((), 0), ((1,), 0), ((7,), -1), ((3, 5), 1), ((3, 5), 0), ((4, 1, 6), 1), ((4, 5, 6), 0), ((4, 5, 6), 1)]
CASES += [((4, 5, 6), 2), ((2, 3, 4, 5), 1), ((2, 3, 4, 5), -2), ((1, 1, 9), 0), ((0, 3), 0), ((3, 0), 0), ((3, 0), 1)]
CASES += [((2, 100, 64), 1), ((3, 129, 33), 1), ((2, 1000, 129), 1), ((5000, 7), 0), ((513, 1031), 0), ((8192, 40), 0)]
CASES += [((2, 33, 4100), 1), ((8193, 65), 0), ((16385, 24), 0), ((24577, 24), 0), ((40000, 10), 0), ((300, 12, 24), 1)]
CASES += [((2, 600, 128), 1), ((2, 2047, 72), 1), ((16384, 9), 0), ((2, 20000, 3), 1), ((3, 2, 70000), 1)]
CASES += [((2, 70000), 0)]


# Rows of one lane, a few, a warp and a block; columns of a few lanes, a block and a cluster, and of two passes.
SMALL_CASES = [((37, 3), 1), ((40, 11), 1), ((5, 59), 1), ((40, 24), 1), ((3, 1000), 1), ((2, 6000), 1)]
SMALL_CASES += [((3, 20, 24), 1), ((200, 40), 0), ((513, 40), 0), ((5000, 9), 0)]
SMALL_CASES += [((8203, 9), 0), ((24589, 9), 0), ((70000, 2), 0)]


def assert_softmax(name: str, x: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> None:
    poison(x.device, 4)
    found, theirs = getattr(op, name)(x, dim, dtype=dtype), getattr(torch, name)(x, dim, dtype=dtype)
    assert found.dtype == theirs.dtype and found.shape == theirs.shape and found.is_contiguous()
    # The reference is torch's in fp64. Along the last dim torch adds several elements at a time, along others one after
    # the other, which costs up to 90 roundings for 70000 numbers.
    reference = getattr(torch, name)(x.double().movedim(dim, -1).contiguous(), -1).movedim(-1, dim)
    # In fp32, exponential, sum and division round once or twice each: 1.5 eps measured; torch may have less.
    ulps = {torch.float64: 64, torch.float32: 3}.get(found.dtype, 1)
    assert_as_good_as(found, theirs, reference, ulps=ulps)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("layout", sanitized(LAYOUTS, *SMALL_LAYOUTS))
def test_dims_and_layouts(device, name, dtype, layout):
    for shape, dim in SMALL_CASES if SANITIZED else SMALL_CASES + (CASES if device.type == "cuda" else CASES[:19]):
        assert_softmax(name, LAYOUTS[layout](randn(*shape, dtype=dtype, device=device)), dim)


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", FLOATING)
def test_rows_of_one_element(device, dtype):
    """1, of log_softmax 0; NaN where the element is no finite number. Whole vectors, a tail, an unaligned address."""
    x = randn(1003, dtype=dtype, device=device)
    x[5], x[6], x[7], x[1002] = float("inf"), -float("inf"), float("nan"), float("inf")
    for name in NAMES:
        for rows in (x[:, None], x[1:, None], x.view(17, 59, 1)):
            found, theirs = getattr(op, name)(rows, -1), getattr(torch, name)(rows, -1)
            torch.testing.assert_close(found, theirs, equal_nan=True, rtol=0, atol=0)


@pytest.mark.sanitize
@pytest.mark.cuda
@pytest.mark.parametrize("length", [2, 3] if SANITIZER else [2, 3, 4, 5, 6, 9, 15, 16, 17, 31, 32, 33])
@pytest.mark.parametrize("dtype", FLOATING)
def test_many_short_rows(dtype, length):
    """Rows that divide a vector, and 2^19 rows and more, side by side: a CTA's rows through shared memory."""
    for rows in (1001, (1 << 19) + 13):
        x = randn(rows + 1, length, dtype=dtype, device=CUDA)
        x[7], x[9, 1], x[11, 0], x[rows - 1, -1] = -float("inf"), float("inf"), float("nan"), -float("inf")
        for name in NAMES:
            ours = getattr(op, name)
            for view in (x[:-1], x[1:], x[::2], x.unsqueeze(1)):  # at addresses of any alignment, at a distance
                wanted = getattr(torch, name)(view.double(), -1)
                tolerance = {"atol": 1e-6, "rtol": 2e-6} if dtype == torch.float32 else {}
                torch.testing.assert_close(ours(view, -1), wanted.to(dtype), equal_nan=True, **tolerance)
            with torch_ext.batch_invariant():
                assert same_bits(ours(x, -1)[3:40], ours(x[3:40], -1))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", FLOATING)
def test_row_lengths(device, name, dtype):
    more = [128, 4098, 8192, 16386, 33333, 65536, 131070, 262144, 262147, 524288, 524289, 1000003]
    for n in row_lengths(device) + (more if device.type == "cuda" else []):
        x = randn(3, n, dtype=dtype, device=device)
        assert_softmax(name, x, 1)
        assert_softmax(name, LAYOUTS["rows"](x), 1)


# Rows of a warp, of a block, in shared memory of one block and of clusters; multiples of 16 bytes and not.
ADDRESS_LENGTHS = [9, 130, 257, 515, 1024, 1027, 4096, 4099, 8193, 12288, 20001, 50257, 65536, 131075, 300001, 524288]


@pytest.mark.cuda
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", FLOATING)
def test_bits_do_not_depend_on_the_address(name, dtype):
    for n in ADDRESS_LENGTHS:
        x = randn(3, n, dtype=dtype, device=CUDA)
        y = getattr(op, name)(x, 1)
        assert same_bits(y[1:2], getattr(op, name)(x[1:2], 1)), n
        wide = torch.full((3, n + 3), float("nan"), dtype=dtype, device=CUDA)
        wide[:, 2 : 2 + n] = x
        assert same_bits(y, getattr(op, name)(wide[:, 2 : 2 + n], 1)), n
        for shift in range(1, 16 // dtype.itemsize):
            storage = torch.full((x.numel() + 16,), float("nan"), dtype=dtype, device=CUDA)
            view = storage[shift : shift + x.numel()].view(3, n).copy_(x)
            assert same_bits(y, getattr(op, name)(view, 1)), (n, shift)


@pytest.mark.sanitize
@pytest.mark.cuda
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", FLOATING)
def test_columns_of_single_elements(name, dtype):
    """1 to 512 threads a column, at any address, in groups of any size; as vectors where there are many."""
    shapes = [(3, 2, 64), (3, 7, 23), (40, 11, 5), (6, 163, 9), (1, 78, 6), (3, 321, 33), (2, 1689, 36), (1, 5120, 3)]
    many = [(100, 9, 600), (2, 100, 4000), (1, 1300, 1000), (9, 700, 777)]
    for shape in shapes[1::3] if SANITIZER else shapes + many:
        x = 3 * randn(*shape, dtype=dtype, device=CUDA)
        x[0, :, 0], x[0, 1, 1], x[-1, 0, 2] = -float("inf"), float("inf"), float("nan")
        for view in (x, x[:, :, 1:], x[:, 1:]):
            wanted = getattr(torch, name)(view.double(), 1)
            tolerance = {"atol": 1e-6, "rtol": 2e-6} if dtype == torch.float32 else {}
            torch.testing.assert_close(getattr(op, name)(view, 1), wanted.to(dtype), equal_nan=True, **tolerance)
        assert_softmax(name, x[:, :, 3:] if shape[2] > 3 else randn(*shape, dtype=dtype, device=CUDA), 1)


@pytest.mark.sanitize
@pytest.mark.cuda
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", FLOATING)
def test_rows_in_shared_memory(name, dtype):
    """Rows that end at every distance from a multiple of 16 bytes, each in its own allocation for the sanitizers."""
    lengths = [300, 513, 1025, 2047, 8200, 8201, 8202, 8203, 8204, 8205, 8206, 8207, 40003, 80001]
    few = {"": lengths, "racecheck": [300, 8201, 80001]}  # races do not depend on alignment
    for n in few.get(SANITIZER, [300, 513, 8201, 8203, 8205, 8207, 80001]):
        x = randn(1, n, dtype=dtype, device=CUDA)
        assert_softmax(name, x, 1)
        assert_softmax(name, x[:, 1:], 1)
        assert_softmax(name, x[:, :-1], 1)


@pytest.mark.sanitize
@pytest.mark.cuda
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("batch_invariant")
@pytest.mark.parametrize("dtype", FLOATING)
def test_rows_of_a_warp_have_the_bits_of_few(name, dtype):
    for n in (701,) if SANITIZER else (331, 641, 701, 1019):
        x = randn(1030, n + 1, dtype=dtype, device=CUDA)
        for rows in (x[:, :n], x[:, 1:]):
            y = getattr(op, name)(rows, 1)
            assert same_bits(y[:500], getattr(op, name)(rows[:500], 1)), n
            assert same_bits(y[500:], getattr(op, name)(rows[500:], 1)), n
        assert_softmax(name, x[:, 1:], 1)


@pytest.mark.cuda
@pytest.mark.parametrize("name", NAMES)
def test_rows_longer_than_a_cluster(name):
    for dtype, size in ((torch.float32, 4), (torch.bfloat16, 2), (torch.float64, 8)):
        held = 16 * (227 * 1024) // size
        for n in (held - 40000, held - 39999, held + 1):
            assert_softmax(name, randn(2, n, dtype=dtype, device=CUDA), 1)


@pytest.mark.parametrize("dtype", FLOATING[:3])
def test_subnormal_results(device, dtype):
    lowest = {torch.float32: -103.0, torch.float16: -16.5, torch.bfloat16: -91.0}[dtype]
    for n in (40, 5000, 50257) if device.type == "cuda" else (40,):
        x = torch.full((2, n), -float("inf"), dtype=dtype, device=device)
        x[:, 0] = 0
        x[:, 7:30] = torch.linspace(lowest, lowest / 2, 23, device=device).to(dtype)
        tiny = 4 * torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
        torch.testing.assert_close(op.softmax(x, 1), torch.softmax(x, 1), rtol=2 * torch.finfo(dtype).eps, atol=tiny)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_element_is_as_exact_as_torchs(device, name, dtype):
    """Relative error of each value; log_softmax: absolute below 1, since log(d) inherits a rounding of d."""
    for n in (100, 3000, 40000):
        x = 8 * randn(4, n, dtype=dtype, device=device)
        found, theirs = getattr(op, name)(x, 1), getattr(torch, name)(x, 1)
        if dtype is torch.float64:
            torch.testing.assert_close(found, theirs, rtol=1e-13, atol=1e-15 if name == "log_softmax" else 0)
            continue
        exact = getattr(torch, name)(x.double(), 1)
        scale = exact.abs() if name == "softmax" else exact.abs().clamp_min(1)
        ours, allowed = ((found - exact).abs() / scale).max(), ((theirs - exact).abs() / scale).max()
        assert ours <= 2 * allowed + 2 * torch.finfo(dtype).eps, (n, ours, allowed)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("magnitude", [300, 3e4, 65536, 1e5, 3e9, 2e38])
def test_large_magnitudes(device, name, dtype, magnitude):
    """Large spread or large offset: products with log2(e) round by more than an exponent tolerates."""
    if magnitude > torch.finfo(dtype).max / 2:
        pytest.skip("no such values")
    for n in (1, 2, 33, 64, 100, 256, 257):
        x = randn(5, n, dtype=torch.float64, device=device)
        for source in (x * magnitude / 4, x + magnitude, x - magnitude):
            source = source.clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max).to(dtype)
            assert_softmax(name, source, 1)
            assert_softmax(name, LAYOUTS["rows"](source), 1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", FLOATING)
def test_special_values(device, name, dtype):
    x = torch.tensor([*special_rows(dtype), [0, -80, -95, -100]], dtype=dtype, device=device)
    repeats = (1, 40, 3000, 30000, 140000) if device.type == "cuda" else (1, 40)
    for n in repeats:
        wide = x.repeat(1, n)
        for view, dim in ((wide, 1), (wide.mT.contiguous(), 0)):
            wanted = getattr(torch, name)(view.double(), dim)
            found = getattr(op, name)(view, dim)
            assert torch.equal(found.isnan(), wanted.isnan()), n
            rtol = 2e-2 if dtype in FLOATING[1:3] else 2e-6
            torch.testing.assert_close(found, wanted.to(dtype), equal_nan=True, rtol=rtol, atol=1e-37)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("dim", [0, 1])
def test_parts_that_differ(device, name, dtype, dim):
    """Parts of blocks that are all -inf, that alone hold +inf or NaN, whose maxima are far apart, or so large that
    other blocks' terms vanish.
    """
    n = 140000 if device.type == "cuda" and dim == 1 else 2000
    x = randn(12, n, dtype=dtype, device=device)
    x[0, : n // 3] = x[1, n // 3 :] = x[2] = -float("inf")
    x[0, n // 3 :] -= 1000
    x[3, n // 2], x[4, n - 1] = float("inf"), float("nan")
    x[5, n // 4 :] -= 300
    x[6, : n // 2] += 40
    x[7, 1], x[7, n - 9] = 60, 60
    x[8, n // 8 :] = x[9, : n // 3] = -float("inf")
    x = x if dim == 1 else x.mT.contiguous()
    wanted, found = getattr(torch, name)(x.double(), dim), getattr(op, name)(x, dim)
    assert torch.equal(found.isnan(), wanted.isnan())
    rtol, atol = (2e-2, 1e-6) if dtype in FLOATING[1:3] else (1e-5, 1e-37)
    torch.testing.assert_close(found, wanted.to(dtype), equal_nan=True, rtol=rtol, atol=atol)


@pytest.mark.sanitize
@pytest.mark.parametrize("name", NAMES)
def test_dtype_argument(device, name):
    x = 3 * randn(40, 70, device=device)
    for source in (x, x.half(), x.bfloat16(), x.double(), x.int(), x > 0, x.mT.contiguous().mT, x.half().mT):
        for dtype in FLOATING:
            for dim in (0, 1):
                found = getattr(op, name)(source, dim, dtype=dtype)
                if device.type == "cuda":
                    wanted = getattr(torch, name)(source.to(dtype).double(), dim).to(dtype)
                else:  # ATen on the CPU rounds to the result's dtype in between
                    wanted = getattr(torch, name)(source, dim, dtype=dtype)
                torch.testing.assert_close(found, wanted)
    for n in (33, 1003, 50257):
        for dtype in (torch.float16, torch.bfloat16):
            assert_softmax(name, randn(3, n, dtype=dtype, device=device), 1, torch.float32)
            assert_softmax(name, randn(n, 5, dtype=dtype, device=device), 0, torch.float32)


def test_expanded(device):
    x = randn(5, 1, 30, device=device).expand(5, 40, 30)
    for dim in (0, 1, 2):
        assert_softmax("softmax", x, dim)


@pytest.mark.cuda
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_promises(name, dtype):
    check_promises(lambda x, dim: getattr(op, name)(x, dim), dtype)


@pytest.mark.parametrize("name", NAMES)
def test_torchs_own_samples(device, name):
    check_op_db(name, getattr(op, name), device, [torch.float32, torch.float64])


@pytest.mark.cuda
def test_more_than_2_31_elements():
    x = torch.randn(2**20 + 1, 2053, device=CUDA).half()
    y = op.softmax(x, 1)
    for rows in (slice(0, 4), slice(2**19, 2**19 + 4), slice(-4, None)):
        assert_as_good_as(y[rows], torch.softmax(x[rows], 1), torch.softmax(x[rows].double(), 1))
    del x, y
    x = torch.randn(2**9, 5, 2**20 - 3, device=CUDA, dtype=torch.float16)
    y = op.softmax(x, 1)
    for groups in (slice(0, 1), slice(2**8, 2**8 + 1), slice(-1, None)):
        assert_as_good_as(y[groups], torch.softmax(x[groups], 1), torch.softmax(x[groups].double(), 1))
    del x, y
    one = torch.zeros(2**31 + 3, dtype=torch.float16, device=CUDA)
    y = op.log_softmax(one, 0)
    assert (y == torch.tensor(-21.4876).half().item()).all()

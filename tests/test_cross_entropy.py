"""torch.ops.xgemm.cross_entropy against float64 and torch.nn.functional.cross_entropy."""

import pytest
import torch
from common import FLOATING, SANITIZED, check_replays, kernels_of, poison, randn, sanitized
from reductions import CUDA, LAYOUTS, SMALL_LAYOUTS, row_lengths, same_bits
from torch._subclasses.fake_tensor import FakeTensorMode

import torch_ext

op = torch.ops.xgemm
torch_op = torch.nn.functional.cross_entropy
REDUCTIONS = ["none", "mean", "sum"]


def classes(shape: tuple[int, ...], count: int, device: torch.device, ignored: float = 0.2) -> torch.Tensor:
    target = torch.randint(0, count, shape, device=device)
    return torch.where(torch.rand(shape, device=device) < ignored, -100, target)


def reference(x: torch.Tensor, target: torch.Tensor, **kwargs) -> torch.Tensor:
    """In float64. The mean of one ignored target without a batch dim is NaN in torch on the CPU, 0 on CUDA."""
    if x.dim() > 1:
        return torch_op(x.double(), target.long(), **kwargs)
    return torch_op(x[None].double(), target[None].long(), **kwargs).reshape(())


def assert_loss(x: torch.Tensor, target: torch.Tensor, **kwargs) -> None:
    """Allows a few fp32 roundings of the addends and of the result; ATen's CPU path keeps fp32 log-probabilities."""
    poison(x.device, 1)
    found = op.cross_entropy(x, target, **kwargs)
    exact = reference(x, target, **kwargs)
    assert found.shape == exact.shape and found.dtype == x.dtype
    if found.numel() == 0:
        return
    accumulate = torch.finfo(torch.float64 if x.dtype is torch.float64 else torch.float32).eps
    largest = x.double().nan_to_num(0).abs().max()
    terms = target.numel() if kwargs.get("reduction") == "sum" else 1
    bound = 16 * accumulate * terms * (1 + largest) + torch.finfo(x.dtype).eps * exact.abs()
    if not x.is_cuda:
        bound = bound + 4 * accumulate * terms * (1 + exact.abs() + largest)
    error = (found.double() - exact).abs()
    ok = (error <= bound) | (found.isnan() & exact.isnan())
    assert ok.all(), (x.shape, kwargs, (error / bound).max())


SHAPES = [(5,), (70, 33), (19, 80), (9, 1040), (4, 3000), (2, 40000), (6, 7, 5), (2, 5, 1, 700)]  # one of each kernel
MORE_SHAPES = [] if SANITIZED else [(1, 1), (3, 5), (2, 19, 8, 9), (3, 1, 4)]


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("layout", sanitized(LAYOUTS, *SMALL_LAYOUTS))
def test_shapes_and_layouts(device, dtype, layout):
    for shape in SHAPES + MORE_SHAPES:
        x = LAYOUTS[layout](randn(*shape, dtype=dtype, device=device))
        target = classes(shape[:1] + shape[2:] if len(shape) > 1 else (), shape[min(1, len(shape) - 1)], device)
        for reduction in REDUCTIONS[:2] if SANITIZED else REDUCTIONS:
            for smoothing in (0.0, 0.1):
                assert_loss(x, target, reduction=reduction, label_smoothing=smoothing)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", FLOATING)
def test_cpu_in_pieces(dtype, reduction, one_thread):
    """Inputs that the CPU path computes in pieces of several rows, the last one shorter, or row by row."""
    piece = 1 << 17
    for shape in ((piece // 1000 * 2 + 3, 1000), (2, piece + 1), (7, piece // 20, 2, 1)):
        x = randn(*shape, dtype=dtype)
        for ignored in (0.2, 1.0):  # all ignored: the mean is NaN
            target = classes(shape[:1] + shape[2:], shape[1], x.device, ignored)
            assert_loss(x, target, reduction=reduction, label_smoothing=0.1 if ignored < 1 else 0.0)


@pytest.mark.parametrize("dtype", FLOATING)
def test_row_lengths(device, dtype):
    for n in row_lengths(device):
        misaligned = LAYOUTS["misaligned"](randn(3, n, device=device).to(dtype) + 5)
        for x in (randn(3, n, dtype=dtype, device=device), misaligned):
            target = classes((3,), n, device)
            assert_loss(x, target, reduction="none")
            assert_loss(x, target, reduction="none", label_smoothing=0.3)


@pytest.mark.parametrize("magnitude", [1e3, 7e4, 1e8, 1e10, 1e20, 8.4e37, 2e38])
def test_large_magnitudes(device, magnitude):
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for n in (5, 700, 20000):
            x = randn(3, n, dtype=torch.float64, device=device) + magnitude
            assert_loss(x.to(dtype), classes((3,), n, device), reduction="none")
            assert_loss(-x.to(dtype), classes((3,), n, device), reduction="none")


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_many_rows(device, reduction):
    for rows in (1, 2, 31, 255, 1000, 5001, 70001 if device.type == "cuda" else 2001):
        x, target = randn(rows, 7, device=device), classes((rows,), 7, device)
        assert_loss(x, target, reduction=reduction)
        if (target >= 0).all():
            assert_loss(x, target, reduction=reduction, ignore_index=3, label_smoothing=1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ignored_targets(device, dtype):
    x = randn(6, 9, dtype=dtype, device=device)
    target = torch.tensor([0, 3, 3, 8, 3, 1], device=device)
    for ignore_index in (3, 8, -1, 100):
        for reduction in REDUCTIONS:
            assert_loss(x, target, ignore_index=ignore_index, reduction=reduction)
    everything = torch.full((6,), -100, device=device)
    assert op.cross_entropy(x, everything).isnan()
    assert op.cross_entropy(x, everything, reduction="sum").item() == 0
    none = op.cross_entropy(x, everything, reduction="none")
    assert torch.equal(none, torch.zeros_like(none))
    assert not (none.is_cuda and none.signbit().any())
    hopeless = x.clone()
    hopeless[1] = float("nan")
    assert_loss(hopeless, torch.where(target == 3, -100, target))  # an ignored row may hold anything
    assert_loss(torch.full((4, 1), 2.0, dtype=dtype, device=device), torch.zeros(4, dtype=torch.int64, device=device))


def test_special_values(device):
    inf, nan = float("inf"), float("nan")
    rows = [[1, inf, 2], [1, -inf, 2], [-inf, -inf, -inf], [nan, 1, 2], [1e38, -1e38, 0], [3e38, 3e38, 3e38], [0, 0, 0]]
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = torch.tensor(rows, dtype=dtype, device=device)
        for t in range(3):
            for wide in (x, x.repeat(1, 700)):
                target = torch.full((len(rows),), t, device=device)
                for smoothing in (0.0, 0.1):
                    found = op.cross_entropy(wide, target, reduction="none", label_smoothing=smoothing)
                    wanted = torch_op(wide, target, reduction="none", label_smoothing=smoothing)
                    if smoothing:  # sums of +-1e38 depend on their order
                        found, wanted = found[:4], wanted[:4]
                    torch.testing.assert_close(found, wanted, equal_nan=True)


def test_targets_of_other_kinds(device):
    x = randn(40, 200, device=device)
    target = torch.randint(0, 200, (40, 2), device=device)
    assert_loss(x, target[:, 1], reduction="none")
    assert_loss(x, target[:, 0].to(torch.uint8), reduction="mean")
    assert_loss(x, target[:1, 0].expand(40))
    assert_loss(x.mT, torch.randint(0, 40, (200,), device=device), reduction="none")


def test_empty(device):
    x, target = torch.zeros(0, 5, device=device), torch.zeros(0, dtype=torch.int64, device=device)
    assert op.cross_entropy(x, target, reduction="none").shape == (0,)
    assert op.cross_entropy(x, target, reduction="sum").item() == 0
    assert op.cross_entropy(x, target).isnan()


@pytest.mark.cuda
@pytest.mark.sanitize
def test_targets_that_are_no_class_give_nan_and_read_nothing():
    for n in (5, 3000, 40000):
        x = randn(5, n, device=CUDA)
        target = torch.tensor([0, -1, n, 2**40, -(2**62)], device=CUDA)
        found = op.cross_entropy(x, target, reduction="none")
        assert found.isnan().tolist() == [False, True, True, True, True]
        assert op.cross_entropy(x, target).isnan()


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", FLOATING)
def test_promises(dtype):
    for n in (40, 700, 5000, 50257, 140001, 600001):
        rows = max(2, 300000 // n)
        x, target = randn(rows, n, device=CUDA).to(dtype), torch.randint(0, n, (rows,), device=CUDA)
        y = op.cross_entropy(x, target, reduction="none", label_smoothing=0.1)
        assert same_bits(y, op.cross_entropy(x, target, reduction="none", label_smoothing=0.1)), n
        assert same_bits(op.cross_entropy(x, target), op.cross_entropy(x, target)), n
        names = kernels_of(lambda x=x, target=target: op.cross_entropy(x, target))
        assert names and all("xgemm" in name or "memset" in name.lower() for name in names), names

    x, target = randn(50, 70001, device=CUDA).to(dtype), torch.randint(0, 70001, (50,), device=CUDA)
    check_replays(lambda: op.cross_entropy(x, target), x, replays=3)


@pytest.mark.cuda
def test_more_than_2_31_elements():
    x = torch.zeros(2**15, 2**16 + 1, dtype=torch.bfloat16, device=CUDA)
    x[-1, -1] = 20
    target = torch.full((2**15,), 2**16, device=CUDA)
    found = op.cross_entropy(x, target, reduction="none").float()
    torch.testing.assert_close(found[:-1], torch.full_like(found[:-1], 11.0904), rtol=1e-2, atol=0)
    assert found[-1] < 1e-3


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 4), (2, 3, 4, 5)])
@pytest.mark.parametrize("wrong", [3, -3, 1 << 40])
def test_a_target_that_is_no_class(shape: tuple, wrong: int, capfd: pytest.CaptureFixture) -> None:
    """IndexError on the CPU as in torch, in one line and without other output."""
    x, classes = randn(*shape), torch.full(shape[:-1] if len(shape) < 3 else (2, *shape[2:]), wrong)
    with pytest.raises(IndexError, match="out of bounds"):
        torch_op(x, classes)
    capfd.readouterr()
    with pytest.raises(IndexError) as caught:
        torch_ext.cross_entropy(x, classes)
    message = f"expected targets in [0, 3) or ignore_index -100, got {wrong}"
    assert str(caught.value) == f"xgemm::cross_entropy: {message}"
    assert capfd.readouterr() == ("", "")
    assert torch_ext.cross_entropy(x, classes, ignore_index=wrong, reduction="sum") == 0


@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 4), (2, 3, 4, 5), (2, 3, 2, 4, 5)])
def test_uint8_targets_of_any_shape(device, shape):
    """torch takes all of them on CUDA, on the CPU only those without further dims."""
    x = randn(*shape, device=device)
    target = torch.randint(0, 3, shape[:1] + shape[2:], device=device)
    for reduction in REDUCTIONS:
        ours, wanted = (op.cross_entropy(x, t, reduction=reduction) for t in (target.byte(), target))
        assert torch.equal(ours, wanted)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_sums_beyond_half_precision(device, dtype, smoothing):
    """40,000 rows: their sum is over 65504, their mean is not."""
    x, target = randn(40000, 10, dtype=dtype, device=device), torch.randint(0, 10, (40000,), device=device)
    found = op.cross_entropy(x, target, label_smoothing=smoothing)
    exact = torch_op(x.double(), target, label_smoothing=smoothing)
    assert abs(found.item() - exact.item()) <= torch.finfo(dtype).eps * exact.item()


MISMATCHED = [((2, 3), (3,)), ((2, 3), ()), ((2, 3), (2, 2)), ((2, 3, 4), (3, 4)), ((2, 3, 4), (2, 5))]


@pytest.mark.parametrize(("shape", "target"), [*MISMATCHED, ((2, 3, 4), (2,)), ((3,), (2,))])
def test_shape_errors_are_of_torchs_type(shape: tuple, target: tuple) -> None:
    x, classes = randn(*shape), torch.zeros(target, dtype=torch.int64)
    with pytest.raises((ValueError, RuntimeError)) as theirs:
        torch_op(x, classes)
    with pytest.raises((ValueError, RuntimeError), match=r"^xgemm::cross_entropy: expected ") as ours:
        torch_ext.cross_entropy(x, classes)
    assert ours.type is theirs.type
    with FakeTensorMode() as mode, pytest.raises(RuntimeError) as fake:
        op.cross_entropy(mode.from_tensor(x), mode.from_tensor(classes))
    assert str(fake.value) == str(ours.value)

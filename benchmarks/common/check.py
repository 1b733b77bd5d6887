"""The check before the timing: a contender whose result is wrong is not timed."""

import torch

from benchmarks.common.cases import Case, Contender


class WrongResult(AssertionError):
    """A contender's result is further from the float64 reference than its case allows."""


def poison(reference: torch.Tensor, dtype: torch.dtype) -> None:
    """Leaves freed blocks of the result's size full of NaN in the allocator: an element nobody writes shows."""
    for kind in (torch.float64, dtype):  # float64: also the size of an index result
        torch.full((max(reference.numel(), 1),), float("nan"), dtype=kind, device=reference.device)


def check(case: Case, contender: Contender, output: torch.Tensor, inputs: tuple, reference: tuple) -> dict[str, float]:
    """The contender's error figures; raises WrongResult where the result is off, of another shape, or not a number."""
    expected, scale = reference
    value = case.comparable(output, *inputs)
    if value.shape != expected.shape:
        raise WrongResult(f"{contender.name} on {case.key}: shape {list(value.shape)}, expected {list(expected.shape)}")
    difference = value.double() - expected
    tiny = torch.finfo(torch.float64).tiny
    fro = (difference.norm() / expected.norm().clamp_min(tiny)).item()
    relative = difference.abs_().div_(scale.clamp_min(tiny))
    largest = relative.max().item() if relative.numel() else 0.0
    allowed = max(case.tolerance, contender.tolerance)
    rounding = torch.finfo(case.dtype).eps if allowed else 0.0
    excess = relative.sub_(expected.abs().div_(scale.clamp_min(tiny)).mul_(rounding))
    if excess.numel() and not excess.max().item() <= allowed:  # NaN fails
        raise WrongResult(f"{contender.name} on {case.key}: error {largest:.3g} of the scale, allowed {allowed:.3g}")
    return {"fro": float(f"{fro:.3g}"), "max": float(f"{largest:.3g}")}

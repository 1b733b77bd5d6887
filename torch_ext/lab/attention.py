"""The attention ladder: what runs, what it must equal, and what the documents say of it.

Its rows are timed for a quarter of the usual time, and the steps on CUDA cores at one head size only: a call of theirs
takes up to a fifth of a second.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_ext.device import floor_seconds, limits
from torch_ext.lab.experiments import resources
from torch_ext.lab.measure import Row, errors, peak_bytes, require, row, time_us

lab = torch.ops.xgemm_lab

# step -> what the documents say of its memory. torch: the backend that torch chooses; torch_math: its products
# and softmax, which store the scores as step 01 does. 05 to 07 need sm_90.
ATTENTION_STEPS: dict[str, str | None] = {
    "01_materialised": "O(N^2) memory",
    "02_row_a_warp": "O(N) memory",
    "03_tiled": "O(N) memory",
    "04_mma_sync": None,
    "05_wgmma_tma": None,
    "06_warp_specialised": None,
    "07_ping_pong": None,
    "08_library": None,
    "torch": None,
    "torch_math": None,
}
POSITIONS, COLUMNS = 16384, 1024  # of all batches; of all heads
OURS = tuple(step for step in ATTENTION_STEPS if step[:2] in ("01", "02", "03", "04", "05", "06", "07"))
CUDA_CORES, HOPPER = OURS[:3], OURS[4:]


def attention_call(
    step: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool
) -> Callable[[], torch.Tensor]:
    own = partial(lab.attention, step=int(step[:2])) if step in OURS else None
    sdpa, math_backend = F.scaled_dot_product_attention, sdpa_kernel(SDPBackend.MATH)
    peers = {"torch": sdpa, "torch_math": math_backend(sdpa), "08_library": torch.ops.xgemm.attention}
    return partial(own or peers[step], q, k, v, is_causal=causal)


def attention_reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result in float64, and the same of |v|: what errors are measured against."""
    s, d = q.shape[-2:]
    heads = (x.reshape(-1, s, d) for x in (q, k, v))
    results, scales = [], []
    for q1, k1, v1 in zip(*heads, strict=True):  # a head's scores at a time
        scores = (q1.double() @ k1.double().mT).div_(math.sqrt(d))
        if causal:
            scores.masked_fill_(torch.ones(s, s, dtype=torch.bool, device=q.device).triu_(1), -math.inf)
        scores.sub_(scores.amax(-1, keepdim=True)).exp_()
        scores.div_(scores.sum(-1, keepdim=True))
        results.append(scores @ v1.double())
        scales.append(scores @ v1.double().abs())
    return torch.stack(results).view(q.shape), torch.stack(scales).view(q.shape)


def attention_bound(reference: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Largest error: a rounding of the result to bf16, and one of each weight."""
    return 2**-8 * reference.abs() + 1.5 * 2**-8 * scale


def attention_error(out: torch.Tensor, reference: torch.Tensor, scale: torch.Tensor) -> float:
    """The largest error over its bound."""
    bound = attention_bound(reference, scale).clamp_min(1e-300)  # a value of 0 is exact
    return ((out.double() - reference).abs() / bound).max().item()


def attention(lengths: list[int], budget_s: float) -> Iterator[Row]:
    """bf16 self-attention of 16384 positions in all, 1024 columns of heads: each step's speed and peak memory."""
    hopper = torch.cuda.get_device_capability()[0] == 9
    gpu = limits()
    for d, causal, s in itertools.product((128, 64), (False, True), lengths):
        batch, heads = max(1, POSITIONS // s), COLUMNS // d
        q, k, v = (torch.randn(batch, heads, s, d, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        reference, scale = attention_reference(q, k, v, causal)
        case = f"S{s} D{d}" + (" causal" if causal else "")
        flops = 4 * batch * heads * s * s * d * (0.5 if causal else 1)
        moved = 4 * q.numel() * q.element_size()
        floor = floor_seconds(flops, moved, gpu.tensor_flops, gpu.bandwidth) * 1e6 if gpu.tensor_flops else None
        for step, document in ATTENTION_STEPS.items():
            if (step in HOPPER and not hopper) or (step in CUDA_CORES and d == 64):
                continue
            torch.cuda.empty_cache()  # of the step before: torch_math takes up to 52 GiB, in a graph once more
            call = attention_call(step, q, k, v, causal)
            try:
                out = call()
            except torch.OutOfMemoryError:  # stored scores at a great length
                continue
            worst = attention_error(out, reference, scale)
            require(worst <= 1, f"attention {step} at {case} ({worst:.2g} of its error bound)")
            yield row(
                case,
                step,
                time_us(call, budget_s / 4),
                shape={"batch": batch, "heads": heads, "s": s, "d": d, "causal": causal},
                dtype="bfloat16",
                mode="default",
                flops=flops,
                floor_us=floor,
                error=errors(out, reference),
                peak_bytes=peak_bytes(call),
                document=document,
                **(resources(f"attention {step} {d}") if step in OURS else {}),
            )

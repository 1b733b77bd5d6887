"""Attention as FlashAttention and the flash and efficient backends of SDPA define it, in float64 and materialised.

What their results look like in memory: what a stock backward reads, so what another forward has to hand to it.
"""

import torch


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float | None = None,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
    alignment: str = "bottom_right",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and log-sum-exp (-inf for a query without keys) of (B, H, S, D) in float64, differentiable."""
    group = q.shape[1] // k.shape[1]
    q, k, v = (t.double() for t in (q, k, v))
    k, v = (t.repeat_interleave(group, 1) for t in (k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * (scores / softcap).tanh()
    rows, keys = (torch.arange(t.shape[2], device=q.device) for t in (q, k))
    away = keys - rows[:, None] - (len(keys) - len(rows) if alignment == "bottom_right" else 0)
    left, right = window[0], 0 if causal else window[1]
    hidden = torch.zeros_like(away, dtype=torch.bool)
    if left >= 0:
        hidden |= away < -left
    if right >= 0:
        hidden |= away > right
    scores = scores.masked_fill(hidden, -torch.inf)
    with_sink = scores
    if sinks is not None:  # one more key, without a value
        with_sink = torch.cat([scores, sinks.double()[:, None, None].expand(*scores.shape[:3], 1)], -1)
    logsumexp = with_sink.logsumexp(-1)
    weights = (scores - logsumexp.masked_fill(logsumexp == -torch.inf, 0)[..., None]).exp()
    return weights @ v, logsumexp


def strides_of_flash(query: torch.Tensor) -> tuple[int, ...]:
    """Of the flash backend's output, whose shape is the query's: the query's order of dims, without holes."""
    return torch.empty_like(query).stride()


def strides_of_efficient(query: torch.Tensor, value_size: int) -> tuple[int, ...]:
    """Of the efficient backend's output (B, H, S, Dv): stored as (B, S, H, Dv)."""
    _, heads, length, _ = query.shape
    return (length * heads * value_size, value_size, heads * value_size, 1)


def flash_logsumexp(logsumexp: torch.Tensor) -> torch.Tensor:
    """(B, H, S) in float32, contiguous: natural, inf for a query without keys."""
    return logsumexp.masked_fill(logsumexp == -torch.inf, torch.inf).float()


def efficient_logsumexp(logsumexp: torch.Tensor) -> torch.Tensor:
    """(B, H, S rounded up to 32) in float32, contiguous: natural, inf behind the last query."""
    padding = -logsumexp.shape[-1] % 32
    return torch.nn.functional.pad(logsumexp.float(), (0, padding), value=torch.inf)

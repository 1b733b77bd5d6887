"""torch.ops.xgemm.attention against scaled_dot_product_attention with each backend that takes the case; peak memory."""

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.common import Case, Contender, Options, main, sum_tolerance

OP = "attention"
SOURCES = ["csrc/attention", "csrc/device"]

BACKENDS = {
    "sdpa_math": SDPBackend.MATH,
    "sdpa_flash": SDPBackend.FLASH_ATTENTION,
    "sdpa_efficient": SDPBackend.EFFICIENT_ATTENTION,
    "sdpa_cudnn": SDPBackend.CUDNN_ATTENTION,
}
TOKENS, WIDTH = 16384, 2048  # batch * sequence and heads * head size of the prefill cases
MATH_LIMIT = 2048  # the math backend keeps S x S scores: longer sequences only with --set all


@contextlib.contextmanager
def backend(which: SDPBackend) -> Iterator[None]:
    with sdpa_kernel(which), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a backend that refuses a case says why in a page of warnings
        yield


def peers(dtype: torch.dtype, sequence: int, gqa: bool, options: Options) -> list[str]:
    """The backends that take such a case: flash and cuDNN only half precision, the efficient one no grouped heads."""
    names = [] if sequence > MATH_LIMIT and not options.all else ["sdpa_math"]
    if not gqa:
        names.append("sdpa_efficient")
    if dtype != torch.float32:
        names += ["sdpa_flash", "sdpa_cudnn"]
    return names


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(q k^T / sqrt(d)) v in float64 and the same with |v|, some query rows of one batch entry at a time."""
    result = torch.empty(*q.shape[:-1], v.shape[-1], dtype=torch.float64, device=q.device)
    scale = torch.empty_like(result)
    groups, keys = q.shape[1] // k.shape[1], k.shape[2]
    rows = max(1, min(q.shape[2], (1 << 28) // (q.shape[1] * keys)))
    for entry in range(q.shape[0]):
        k64, v64 = (x[entry].double().repeat_interleave(groups, 0) for x in (k, v))
        for first in range(0, q.shape[2], rows):
            block = slice(first, first + rows)
            scores = q[entry, :, block].double().mul_(q.shape[-1] ** -0.5) @ k64.mT
            if causal:
                row = torch.arange(first, first + scores.shape[-2], device=q.device)
                scores.masked_fill_(torch.arange(keys, device=q.device) > row[:, None], float("-inf"))
            weights = torch.softmax(scores, -1)
            del scores
            result[entry, :, block] = weights @ v64
            scale[entry, :, block] = weights @ v64.abs()
    return result, scale


def case(
    name: str,
    query: tuple[int, int, int, int],
    keys: tuple[int, int],
    causal: bool,
    dtype: torch.dtype,
    options: Options,
) -> Case:
    """`query` is (batch, heads, sequence, head size), `keys` (heads, sequence)."""
    batch, heads, rows, size = query
    gqa = keys[0] != heads

    def make(device: torch.device) -> tuple[torch.Tensor, ...]:
        new = partial(torch.randn, dtype=dtype, device=device)
        return new(query), new(batch, *keys, size), new(batch, *keys, size)

    call: Callable[..., torch.Tensor] = partial(torch.ops.xgemm.attention, is_causal=causal, enable_gqa=gqa)
    sdpa = partial(F.scaled_dot_product_attention, is_causal=causal, enable_gqa=gqa)
    names = peers(dtype, max(rows, keys[1]), gqa, options) if options.cuda else ["sdpa_math"]
    contenders = [Contender("xgemm", call)]
    contenders += [Contender(peer, sdpa, partial(backend, BACKENDS[peer])) for peer in names]
    if options.compile:
        contenders.append(Contender("torch_compile", torch.compile(sdpa, dynamic=False)))
    # Half precision rounds the probabilities (or their running maximum's rescaling) once before they meet v.
    rounding = 0.0 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps
    return Case(
        name=name,
        shape={
            "batch": batch,
            "heads": heads,
            "kv_heads": keys[0],
            "q": rows,
            "kv": keys[1],
            "d": size,
            "causal": causal,
        },
        dtype=dtype,
        make=make,
        contenders=contenders,
        reference=partial(reference, causal=causal),
        tolerance=2 * sum_tolerance(keys[1], dtype) + 2 * sum_tolerance(size, dtype) + rounding,
        read=(batch * heads * rows * size + 2 * batch * keys[0] * keys[1] * size) * dtype.itemsize,
        written=batch * heads * rows * size * dtype.itemsize,
        flops=4.0 * batch * heads * rows * keys[1] * size * (0.5 if causal else 1.0),
        peak_memory=True,
    )


def prefill(sequence: int, size: int, causal: bool, dtype: torch.dtype, options: Options) -> Case:
    heads = WIDTH // size
    query = (TOKENS // sequence, heads, sequence, size)
    name = f"S{sequence} D{size}" + (" causal" if causal else "")
    return case(name, query, (heads, sequence), causal, dtype, options)


def decode(keys: int, options: Options) -> Case:
    return case(f"decode KV{keys} D128", (16, 32, 1, 128), (8, keys), False, torch.bfloat16, options)


def cases(options: Options) -> list[Case]:
    if not options.cuda:
        names = {"S128 D64": False, "S128 D64 causal": True}
        shape = (1, 4, 128, 64), (4, 128)
        return [case(name, *shape, causal, torch.float32, options) for name, causal in names.items()]
    if options.quick:
        found = [prefill(2048, 128, causal, torch.bfloat16, options) for causal in (False, True)]
        return [*found, prefill(2048, 64, False, torch.float32, options), decode(8192, options)]
    problems = [
        (dtype, sequence, size, causal)
        for sequence in (512, 2048, 8192, 16384)  # short first: a budget that ends early has all head sizes
        for dtype in (torch.float32, torch.bfloat16)
        for size in (64, 128, 256)
        for causal in (False, True)
        if sequence < 16384 or dtype == torch.bfloat16 or options.all
    ]
    found = [decode(keys, options) for keys in (1024, 8192, 65536)]
    return found + [prefill(sequence, size, causal, dtype, options) for dtype, sequence, size, causal in problems]


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))

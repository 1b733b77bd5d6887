"""torch.ops.xgemm.attention against SDPA's backends and FlashAttention-3 (where `fa3-fwd` is installed); peak memory.

The cases lie in groups (`--groups`), whose geometric mean and worst ratio the tables show. fp32 is "highest", whose
rows have no mode; some cases are in "high" too (`--modes`).
"""

import contextlib
import math
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from benchmarks import attention_peers
from benchmarks.attention_peers import MASKS, ONE_PART, TOKENS, WIDTH, Problem
from benchmarks.common import Case, Contender, Options, measure, options_or_estimate, sum_tolerance
from benchmarks.common.machine import TFLOPS
from benchmarks.matmul import tf32

OP = "attention"
SOURCES = ["csrc/attention", "csrc/device"]
FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16

RANDOM_CASES, RANDOM_CASES_FP32 = 40, 40
RANDOM_FLOPS = 1e9, 5e11  # of a random case of several queries, the least and the most
RANDOM_FLOPS_FP32 = 1e9, 1e11  # of one in fp32, whose peers are slow
RANDOM_BYTES = 1 << 22, 1 << 29  # of its keys and values

MODES = "highest", "high"  # precisions of fp32 without `--modes`
TILE = 128  # queries and keys of the kernel's tile under a causal limit, at head size 128

Problems = list[tuple[Problem, torch.dtype]]


def unmasked(p: Problem) -> Contender:
    """What a mask costs: our time without it; for documents, of each as a batch entry of its own.

    For a window: of blocks of queries with as many keys as the kernel computes for a tile of them, window + TILE,
    without an edge. The first tiles of the sequence have fewer keys, which the blocks ignore: with 16384 positions and
    a window of 1024 they compute 3 % more tiles.
    """

    def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.ops.xgemm.attention(q, k, v, enable_gqa=p.gqa)

    def apart(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = (x[0].unflatten(1, (attention_peers.DOCUMENTS, -1)).transpose(0, 1) for x in (q, k, v))
        return torch.ops.xgemm.attention(q, k, v, enable_gqa=p.gqa).transpose(0, 1).flatten(1, 2)[None]

    def blocks(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        count, length = p.rows // p.window, min(p.keys, p.window + TILE)
        step = (p.keys - length) // max(1, count - 1)
        q = q[0].unflatten(1, (count, -1)).transpose(0, 1)
        # The keys of each block begin `step` positions after those of the block before it: strides, no copy.
        k, v = (
            x.as_strided((count, x.shape[1], length, x.shape[3]), (step * x.stride(2), *x.stride()[1:])) for x in (k, v)
        )
        # Another result, on purpose: its order does not matter, and to put it right would take a copy.
        return torch.ops.xgemm.attention(q, k, v, enable_gqa=p.gqa).view(1, p.heads, p.rows, p.dv)

    if p.window:
        return Contender("xgemm_unmasked", blocks, tolerance=math.inf)
    if p.mask == "document":
        return Contender("xgemm_unmasked", apart)
    return Contender("xgemm_unmasked", plain, tolerance=math.inf)  # another result, on purpose


def case(
    p: Problem, dtype: torch.dtype, options: Options, groups: tuple[str, ...] = (), prefix: str = "", **shape: int
) -> Case:
    """`prefix` goes in front of the problem's name; `shape` joins the sizes that the rows have."""

    def make(device: torch.device) -> tuple[torch.Tensor, ...]:
        new = partial(torch.randn, dtype=dtype, device=device)
        mask = (MASKS[p.mask](p, dtype, device),) if p.mask else ()
        queries = new(p.batch, p.heads, p.rows, p.size) * attention_peers.SCORES[p.scores]
        keys = new(p.batch, p.kv_heads, p.keys, p.size)
        values = keys[..., : p.dv] if p.latent else new(p.batch, p.kv_heads, p.keys, p.dv)
        return queries, keys, values, *mask

    def ours(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None, **names: object
    ) -> torch.Tensor:
        return torch.ops.xgemm.attention(q, k, v, attn_mask=mask, **names)

    mode = None if p.precision == "highest" else p.precision
    named = {"is_causal": p.causal, "enable_gqa": p.gqa, "causal_alignment": "bottom_right"}
    if p.window:
        named["window"] = (p.window - 1, 0)
    if mode:
        named["precision"] = mode

    def baseline(*inputs: torch.Tensor) -> torch.Tensor:
        with tf32() if mode in ONE_PART else contextlib.nullcontext():
            return attention_peers.math_backend(*inputs, **p.limits)

    call: Callable[..., torch.Tensor] = partial(ours if p.mask else torch.ops.xgemm.attention, **named)
    contenders = [Contender("xgemm", call, tolerance=ONE_PART.get(p.precision, 0.0))]
    contenders += [unmasked(p)] if p.mask or p.window else []
    contenders += attention_peers.peers(p, dtype, options)
    # Half precision rounds the probabilities (or their running maximum's rescaling) once before they meet v.
    rounding = 0.0 if dtype == FP32 else 2 * torch.finfo(dtype).eps
    mask_bytes = {
        "boolean": p.rows * p.keys,
        "additive": p.rows * p.keys * dtype.itemsize,
        "padding": p.batch * p.keys,
        "document": p.rows * p.keys,
    }.get(p.mask, 0)
    keys_bytes = p.batch * p.kv_heads * p.keys * (p.size + (0 if p.latent else p.dv)) * dtype.itemsize
    return Case(
        name=f"{prefix} {p.name}".strip(),
        shape={
            "batch": p.batch,
            "heads": p.heads,
            "kv_heads": p.kv_heads,
            "q": p.rows,
            "kv": p.keys,
            "d": p.size,
            "dv": p.dv,
            "causal": p.causal,
            "mask": p.mask or None,
            "scores": p.scores or None,
            "window": p.window or None,
            **shape,
        },
        dtype=dtype,
        make=make,
        contenders=contenders,
        reference=partial(attention_peers.reference, **p.limits),
        tolerance=2 * sum_tolerance(p.keys, dtype) + 2 * sum_tolerance(p.size, dtype) + rounding,
        read=p.batch * p.heads * p.rows * p.size * dtype.itemsize + keys_bytes + mask_bytes,
        written=p.batch * p.heads * p.rows * p.dv * dtype.itemsize,
        flops=2.0 * p.batch * p.heads * p.rows * p.keys * (p.size + p.dv) * p.kept,
        mode=mode,
        peak_memory=True,
        groups=groups,
        baseline=baseline,
    )


def prefill(sequence: int, size: int, causal: bool = False, value_size: int = 0, mask: str = "") -> Problem:
    """About TOKENS tokens, WIDTH wide."""
    heads = WIDTH // size
    batch = max(1, TOKENS // sequence)
    return Problem(batch, heads, heads, sequence, sequence, size, value_size, causal, mask)


def decode(batch: int, heads: int, kv_heads: int, keys: int) -> Problem:
    return Problem(batch, heads, kv_heads, 1, keys, 128)


def random_problems(seed: int) -> Problems:
    """Problems in half precision that `seed` alone decides."""
    return drawn(random.Random(seed), RANDOM_CASES, [BF16, BF16, FP16], RANDOM_FLOPS)


def random_problems_fp32(seed: int) -> Problems:
    """Problems in fp32, drawn from a generator of their own: a seed's half-precision problems stay what they are."""
    return drawn(random.Random(f"fp32 {seed}"), RANDOM_CASES_FP32, [FP32], RANDOM_FLOPS_FP32)


def drawn(draw: random.Random, count: int, dtypes: list[torch.dtype], limits: tuple[float, float]) -> Problems:
    """`count` problems, those of several queries within `limits` operations; lengths and batch are log-uniform."""

    def size(least: int, most: int) -> int:
        return round(math.exp(draw.uniform(math.log(least), math.log(most))))

    found: dict[tuple[Problem, torch.dtype], None] = {}
    while len(found) < count:
        keys = size(64, 16384)
        rows = draw.choice([keys, keys, keys, draw.randint(1, keys), 1])
        kv_heads, group = draw.choice([1, 2, 4, 8, 12, 16, 32]), draw.choice([1, 1, 1, 2, 4, 8])
        d = draw.choice([64, 64, 128, 128, 128, 256, 80, 96, 192, 8 * draw.randint(4, 32)])
        causal = rows > 1 and draw.random() < 0.5
        mask = draw.choice(["boolean", "padding"]) if not causal and draw.random() < 0.2 else ""
        p = Problem(size(1, 64), kv_heads * group, kv_heads, rows, keys, d, causal=causal, mask=mask)
        dtype = draw.choice(dtypes)
        flops, data = 4 * p.batch * p.heads * rows * keys * d, 2 * dtype.itemsize * p.batch * kv_heads * keys * d
        worth = rows == 1 or limits[0] <= flops <= limits[1]
        if worth and RANDOM_BYTES[0] <= data <= RANDOM_BYTES[1]:
            found[p, dtype] = None
    return list(found)


def over(lengths: tuple[int, ...], dtype: torch.dtype) -> Problems:
    """Standard prefill, short first: a budget that ends early has all head sizes."""
    return [(prefill(s, d, causal), dtype) for s in lengths for d in (64, 128, 256) for causal in (False, True)]


LISTED, BETWEEN = (512, 2048, 8192, 16384), (1024, 4096)
# Batch, heads, heads of the keys, keys.
DECODING = [(16, 32, 8, keys) for keys in (1024, 2048, 4096, 8192, 16384, 32768, 65536)]
DECODING += [(1, 32, 8, 65536), (64, 64, 8, 4096), (8, 16, 16, 8192), (32, 32, 1, 8192)]
LATENT = [(32, 1, 8192), (1, 1, 8192), (4, 1, 32768), (16, 2, 4096)]  # batch, queries, keys
DECODING_FP32 = [(16, 32, 8, keys) for keys in (1024, 8192, 65536)]
DECODING_FP32 += [(1, 32, 8, 65536), (8, 16, 16, 8192), (32, 32, 1, 8192)]


def of_groups(options: Options) -> list[tuple[str, Problems]]:
    """What a report sums up, in the order of measuring."""
    both = (False, True)
    grouped = [Problem(TOKENS // s, 32, 8, s, s, 128, causal=causal) for s in (2048, 8192) for causal in both]
    # Vision transformers have 197 tokens, BERT up to 512; the first two are standard.
    short = [prefill(197, 64), prefill(1024, 64), Problem(64, 12, 12, 197, 197, 64), Problem(32, 12, 12, 512, 512, 64)]
    modes = [mode for mode in options.modes or MODES if mode != "highest"]
    loose = [(replace(p, precision=mode), dtype) for mode in modes for p, dtype in over((2048, 8192), FP32)]
    window = prefill(TOKENS, 128, True)
    latent = [Problem(b, 128, 1, rows, keys, 576, 512, rows > 1, latent=True) for b, rows, keys in LATENT]
    chunks = [Problem(b, 32, 8, rows, 16384, 128, causal=True) for b in (1, 4) for rows in (16, 64, 128, 512)]
    return [
        ("prefill", over(LISTED, BF16)),
        ("decode", [(decode(*sizes), BF16) for sizes in DECODING]),
        ("decode", [(decode(*sizes), FP32) for sizes in DECODING_FP32]),
        ("prefill", over(LISTED if options.all else LISTED[:-1], FP32)),
        ("prefill", loose),
        ("short", [(p, FP32) for p in short]),
        ("chunked", [(p, BF16) for p in chunks]),
        ("window", [(replace(window, window=1024), BF16)]),
        ("masks", [(prefill(4096, 128, mask=mask), BF16) for mask in ("boolean", "padding")]),
        ("masks", [(prefill(4096, 128, mask="additive"), FP16), (prefill(TOKENS, 128, mask="document"), BF16)]),
        ("head sizes", [(prefill(4096, d, c, dv), BF16) for d, dv in ((80, 0), (96, 0), (192, 128)) for c in both]),
        ("wide heads", [(p, BF16) for p in (*latent, *(prefill(4096, 512, c) for c in both))]),
        ("odd lengths", [(prefill(s, 128, c), BF16) for s in (1777, 197, 3000) for c in both]),
        ("grouped heads", [(p, BF16) for p in grouped]),
        ("scores", [(replace(prefill(4096, 128), scores=s), t) for s in ("peaked", "large") for t in (BF16, FP16)]),
        ("random", random_problems(options.seed)),
        ("prefill", over(LISTED, FP16)),
        ("random fp32", random_problems_fp32(options.seed)),
        ("other lengths", over(BETWEEN, BF16) + over(BETWEEN, FP16)),
    ]


def quick() -> list[tuple[str, Problems]]:
    found = [(prefill(2048, 128, causal), BF16) for causal in (False, True)]
    return [("prefill", [*found, (prefill(2048, 64), FP32)]), ("decode", [(decode(16, 32, 8, 8192), BF16)])]


def cpu() -> list[tuple[str, Problems]]:
    """One small problem of each kind."""
    square = partial(Problem, 1, 4, 4, 128, 128, 64)
    masks = [(Problem(2, 2, 2, 48, 48, 16, mask=mask), FP16 if mask == "additive" else FP32) for mask in MASKS]
    return [
        ("prefill", [(square(causal=causal), FP32) for causal in (False, True)]),
        ("prefill", [(square(precision="high"), FP32)]),
        ("decode", [(Problem(2, 4, 2, 1, 100, 16), BF16)]),
        ("chunked", [(Problem(2, 4, 2, 7, 100, 16, causal=True), FP32)]),
        ("window", [(Problem(1, 2, 2, 64, 64, 16, causal=True, window=16), FP32)]),
        ("masks", [*masks[:3], (Problem(1, 2, 2, 64, 64, 16, mask="document"), FP32)]),
        ("head sizes", [(Problem(1, 2, 2, 33, 33, 24, 16, causal=True), FP32)]),
        ("wide heads", [(Problem(2, 4, 1, 1, 40, 36, 32, latent=True), FP32)]),
        ("scores", [(Problem(1, 2, 2, 65, 65, 16, scores=kind), BF16) for kind in ("peaked", "large")]),
    ]


def cases(options: Options) -> list[Case]:
    found = []
    groups = cpu() if not options.cuda else quick() if options.quick else of_groups(options)
    for group, problems in groups:
        names = {"prefix": "random", "seed": options.seed} if group.startswith("random") else {}
        wanted = [(p, dtype) for p, dtype in problems if dtype != FP32 or p.precision in (options.modes or MODES)]
        new = [case(p, dtype, options, (group,), **names) for p, dtype in wanted]
        # Where a call is short, tables show its time in a CUDA graph: leaving out the other saves a third.
        found += [replace(one, eager=False) for one in new] if group == "random fp32" else new
    return found


# ---- how long a run takes --------------------------------------------------------------------------------------------

# TFLOP/s of a contender on an H200 in half precision, as far as an estimate needs them; ours as we expect it.
RATES = {"xgemm": 550, "xgemm_unmasked": 550, "fa3": 600, "sdpa_cudnn": 550, "sdpa_flash": 300, "sdpa_efficient": 140}
OTHER_RATE, FP32_RATE, OUR_FP32_RATE = 100, 35, 150
BYTES_S, LAUNCH_S, CASE_S, COMPILE_S = 4e12, 20e-6, 0.35, 15.0  # a case: allocation, cuDNN's plan, captured graphs


def call_s(of: Case, name: str, scores: int) -> float:
    """Seconds of one call of a contender."""
    flops, data = of.flops, of.read + of.written
    if name.startswith("sdpa") and (of.shape["mask"] or of.shape["window"]):
        flops = 2.0 * scores * (of.shape["d"] + of.shape["dv"])  # with a mask they compute all scores
    if name.startswith("sdpa_math"):  # it repeats keys and values for each query head, and stores the scores
        data = 6 * data * of.shape["heads"] // of.shape["kv_heads"] + 8 * scores * of.dtype.itemsize
    rate = RATES.get(name, OTHER_RATE)
    if of.dtype == FP32:
        rate = OUR_FP32_RATE if name.startswith("xgemm") else FP32_RATE
    return max(flops / 1e12 / rate, data / BYTES_S)


def estimate_s(of: Case) -> float:
    """Seconds that a case takes on an H200 with no budget: the check, then eleven rounds of each way of measuring."""
    data = of.read + of.written
    scores = of.shape["batch"] * of.shape["heads"] * of.shape["q"] * of.shape["kv"]
    calls = [call_s(of, c.name, scores) for c in of.contenders]
    blocks = sum(max(0.012, 10 * max(call, LAUNCH_S)) for call in calls)
    short = min(calls) < 300e-6
    cold = data / BYTES_S > of.flops / 1e12 / TFLOPS[of.dtype, of.mode] and data < 240e6
    check = scores * (150 / BYTES_S + 8 * of.shape["d"] / 30e12) + 8 * of.written / BYTES_S
    compiles = COMPILE_S * any(c.name in ("flex_attention", "torch_compile") for c in of.contenders)
    return CASE_S + compiles + check + 11.5 * blocks * ((of.eager or not short) + short + cold)


def main(argv: list[str] | None = None) -> int:
    options = options_or_estimate(sys.modules[__name__], argv)
    return 0 if options is None else measure(sys.modules[__name__], options)


if __name__ == "__main__":
    sys.exit(main())

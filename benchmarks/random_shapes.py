"""Every operator on shapes that nobody chose: a seed alone draws them. Operands rotate past the L2, in CUDA graphs.

Sizes are uniform in their logarithm. The same products are measured in each dtype and precision: M from 1, N and K from
32 to 16384, six of ten of them multiples of 8, the four layouts in turn, every fifth a batch; beside
them the backward products of layers as models have them. Reductions have one to four dims, of which any set is reduced.
Groups that begin with "models" draw what real models ask for: their layers at any number of tokens, heads of 1 to 8
outputs, statistics of images, softmax over classes of a segmentation and over the experts of a router.
"""

import math
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch

from benchmarks import attention, linear, matmul, softmax
from benchmarks.common import Case, Contender, Options, machine, options_or_estimate, run_op, sum_tolerance
from benchmarks.common.command import finish, show_notes
from benchmarks.tables import RANDOM_SHAPES, random_tables
from torch_ext.functional._products import ACTIVATIONS

OP = RANDOM_SHAPES
SOURCES = ["csrc/attention", "csrc/device", "csrc/matmul", "csrc/reduce", "csrc/softmax"]

PRODUCTS, LAYERS, REDUCTIONS, SOFTMAXES, ATTENTIONS = 60, 15, 40, 20, 15  # cases a seed; products: of each kind
GRADIENTS = 8  # of each kind
MODEL_LAYERS, HEADS, IMAGES, CLASSES = 12, 8, 6, 8
# Of BERT, GPT-2, ViT, Llama, U-Nets and small MLPs.
WIDTHS = (64, 128, 256, 320, 512, 640, 768, 1024, 1280, 2048, 2304, 3072, 4096, 8192)
# (in, out) of layers of named models.
MODELS = {
    "BERT": [(768, 768), (768, 3072), (3072, 768), (1024, 4096), (4096, 1024), (768, 30522)],
    "GPT-2": [(768, 2304), (1600, 6400), (6400, 1600), (768, 50257)],
    "ViT": [(1024, 3072), (1152, 4304), (4304, 1152), (1280, 5120), (768, 1000)],
    "Llama": [(4096, 4096), (4096, 1024), (4096, 14336), (14336, 4096), (2048, 8192), (8192, 28672), (2048, 32000)],
    "Qwen": [(3584, 18944), (18944, 3584), (1536, 8960), (3584, 512), (896, 4864)],
    "DeepSeek": [(7168, 2112), (7168, 1536), (1536, 24576), (7168, 4096), (512, 32768)],
    "Gemma": [(2304, 9216), (9216, 2304), (2304, 2048)],
    "U-Net": [(320, 320), (320, 1280), (1280, 320), (640, 2560), (768, 320), (1280, 1280)],
    "ResNet, Swin": [(2048, 1000), (384, 1536), (192, 576), (96, 288), (1024, 21841)],
    "recommender, physics": [(13, 512), (512, 256), (256, 128), (479, 1024), (9, 256), (256, 9), (64, 64), (148, 1152)],
}
HEAD_WIDTHS = (64, 256, 512, 768, 1024, 2048, 4096, 8192)
IMAGE_SIDES = (7, 8, 14, 16, 18, 28, 32, 56, 64, 112)
LAYOUTS = ("nn", "nt", "tn", "tt")
MOST_FLOPS, MOST_FLOPS_FP64, MOST_BYTES = 1e12, 3e11, 1 << 30  # of one call
REDUCED = ("sum", "mean", "amax", "argmax", "logsumexp")
KINDS: list[tuple[torch.dtype, str | None]] = [
    (torch.float32, "highest"),
    (torch.float32, "high"),
    (torch.bfloat16, None),
    (torch.float16, None),
    (torch.float64, None),
]


def logarithmic(draw: random.Random, least: int, most: int) -> int:
    return round(math.exp(draw.uniform(math.log(least), math.log(most))))


def products(seed: int, count: int = PRODUCTS) -> list[matmul.Shape]:
    """`count` products that `seed` alone decides, the first of them whatever `count` is."""
    draw = random.Random(f"products {seed}")
    found: dict[matmul.Shape, None] = {}
    while len(found) < count:
        batch = logarithmic(draw, 2, 1024) if draw.random() < 0.2 else 1
        most = 16384 if batch == 1 else 1024
        m, n, k = logarithmic(draw, 1, most), logarithmic(draw, 32, most), logarithmic(draw, 32, most)
        n, k = (size // 8 * 8 if draw.random() < 0.6 else size for size in (n, k))
        shape = matmul.Shape(m, n, k, batch, LAYOUTS[len(found) % len(LAYOUTS)])
        if 2.0 * batch * m * n * k <= MOST_FLOPS and 4 * batch * (m * k + k * n + m * n) <= MOST_BYTES:
            found[shape] = None
    return list(found)


def fits_fp64(shape: matmul.Shape) -> bool:
    return 2.0 * shape.batch * shape.m * shape.n * shape.k <= MOST_FLOPS_FP64


def layers(seed: int) -> Iterator[tuple[int, int, int, str]]:
    """tokens, in, out, activation."""
    draw = random.Random(f"layers {seed}")
    for _ in range(LAYERS):
        size, wide = (logarithmic(draw, 64, 16384) // 8 * 8 for _ in range(2))
        yield logarithmic(draw, 1, 8192), size, wide, draw.choice(list(ACTIVATIONS))


def gradients(seed: int) -> Iterator[tuple[str, matmul.Shape]]:
    """The two products of a layer's backward, by the layer's sizes: with K = tokens, and with K = outputs."""
    draw = random.Random(f"gradients {seed}")
    for _ in range(GRADIENTS):
        inputs, outputs, tokens = draw.choice(WIDTHS), draw.choice(WIDTHS), logarithmic(draw, 128, 16384)
        yield "weight gradients", matmul.Shape(outputs, inputs, tokens, layout="tn")
        yield "input gradients", matmul.Shape(tokens, inputs, outputs)


def model_layers(seed: int) -> list[matmul.Shape]:
    """Products x W^T (or x W) of the models' layers and of heads with 1 to 8 outputs."""
    draw = random.Random(f"model layers {seed}")
    found = []
    for _ in range(MODEL_LAYERS):
        inputs, outputs = draw.choice(draw.choice(list(MODELS.values())))
        found.append(matmul.Shape(logarithmic(draw, 1, 16384), outputs, inputs, layout=draw.choice(("nt", "nt", "nn"))))
    for _ in range(HEADS):
        inputs, outputs = draw.choice(HEAD_WIDTHS), logarithmic(draw, 1, 8)
        found.append(matmul.Shape(logarithmic(draw, 1, 8192), outputs, inputs, layout=draw.choice(("nt", "nn"))))
    return found


def images(seed: int) -> Iterator[tuple[str, tuple[int, ...], torch.dtype]]:
    """An operator and (N, C, H, W), of which all but C are reduced."""
    draw = random.Random(f"images {seed}")
    for _ in range(IMAGES):
        side = draw.choice(IMAGE_SIDES)
        shape = (logarithmic(draw, 1, 256), logarithmic(draw, 3, 1024), side, side)
        yield draw.choice(("sum", "mean", "amax")), shape, draw.choice([torch.float32, torch.bfloat16])


def classes(seed: int) -> Iterator[tuple[tuple[int, ...], int, torch.dtype]]:
    """Softmax over the classes of a segmentation, a small dim of tensors of any size, or the experts of a router."""
    draw = random.Random(f"classes {seed}")
    for _ in range(CLASSES):
        dtype = draw.choice([torch.float32, torch.bfloat16])
        if draw.random() < 0.3:
            yield (logarithmic(draw, 1, 32768), draw.choice([8, 16, 64, 128, 256])), 1, dtype
        else:
            shape = logarithmic(draw, 1, 64), logarithmic(draw, 2, 256), logarithmic(draw, 4, 65536)
            yield shape if math.prod(shape) <= 1 << 28 else (1, *shape[1:]), 1, dtype


def tensors(draw: random.Random) -> tuple[int, ...]:
    """One to four sizes, of 2^10 to 2^27 elements together."""
    elements, dims = draw.uniform(10, 27), draw.randint(1, 4)
    cuts = sorted(draw.uniform(0, elements) for _ in range(dims - 1))
    return tuple(max(1, round(2 ** (b - a))) for a, b in zip([0.0, *cuts], [*cuts, elements], strict=True))


def reductions(seed: int) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...], torch.dtype]]:
    """An operator, a shape, the reduced dims, a dtype."""
    draw = random.Random(f"reductions {seed}")
    for i in range(REDUCTIONS):
        op, shape = REDUCED[i % len(REDUCED)], tensors(draw)
        dims = tuple(d for d in range(len(shape)) if draw.random() < 0.5) or (draw.randrange(len(shape)),)
        if op == "argmax":
            dims = dims[:1]
        yield op, shape, dims, draw.choice([torch.float32, torch.bfloat16, torch.float16])


def softmaxes(seed: int) -> Iterator[tuple[tuple[int, ...], int, torch.dtype]]:
    """A shape, a dim, a dtype."""
    draw = random.Random(f"softmaxes {seed}")
    for _ in range(SOFTMAXES):
        shape = tensors(draw)
        dim = len(shape) - 1 if draw.random() < 0.6 else draw.randrange(len(shape))
        yield shape, dim, draw.choice([torch.float32, torch.bfloat16])


def reference(op: str, dims: tuple[int, ...], x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The float64 result and the scale that its tolerance speaks of."""
    x = x.double()
    if op in ("sum", "mean"):
        return getattr(torch, op)(x, dims), getattr(torch, op)(x.abs(), dims)
    result = x.logsumexp(dims) if op == "logsumexp" else x.amax(dims)
    return result, result.abs() + (op == "logsumexp")


def reduction(op: str, shape: tuple[int, ...], dims: tuple[int, ...], dtype: torch.dtype) -> Case:
    terms, size = math.prod(shape[d] for d in dims), math.prod(shape)
    dim = dims[0] if op == "argmax" else dims

    def value(output: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """argmax: the element that an index names, since of several equal ones any index is right."""
        return x.gather(dims[0], output.unsqueeze(dims[0])).squeeze(dims[0]) if op == "argmax" else output

    ours, theirs = (partial(getattr(source, op), dim=dim) for source in (torch.ops.xgemm, torch))
    return Case(
        name=f"{'x'.join(map(str, shape))} dims {','.join(map(str, dims))}",
        shape={"sizes": list(shape), "dims": list(dims)},
        dtype=dtype,
        make=lambda device: (torch.randn(shape, dtype=dtype, device=device),),
        contenders=[Contender("xgemm", ours), Contender("torch", theirs)],
        reference=partial(reference, op, dims),
        tolerance=0.0 if op in ("amax", "argmax") else sum_tolerance(terms, dtype),
        read=size * dtype.itemsize,
        written=size // terms * (8 if op == "argmax" else dtype.itemsize),
        comparable=value,
    )


def cases(options: Options) -> list[Case]:
    """All of the seed's cases; `--quick`: the smallest of each operator and dtype; on a CPU one of each, in fp32."""
    seed, found = options.seed, []

    def add(op: str, case: Case, *groups: str) -> None:
        name = f"{op} {case.name} seed {seed}"
        fields = {"op": op, "seed": seed}
        found.append(replace(case, name=name, groups=groups, fields=fields, rotating=True, eager=False))

    kinds = [kind for kind in KINDS if options.cuda or kind[1] != "high"]
    for shape in products(seed):
        for dtype, mode in kinds:
            if dtype == torch.float64 and not fits_fp64(shape):
                continue
            aligned = shape.n % 8 == 0 and shape.k % 8 == 0
            detail = "batched" if shape.batch > 1 else shape.layout if aligned else "unaligned"
            add("matmul", matmul.case(shape, dtype, mode, options), "matmul", f"matmul, {detail}")
    for kind, shape in gradients(seed):
        for dtype, mode in [(torch.float32, "highest"), (torch.bfloat16, None)]:
            add("matmul", matmul.case(shape, dtype, mode, options), "matmul, gradients", f"matmul, {kind}")
    for shape in model_layers(seed):
        aligned = "aligned" if shape.n % 8 == 0 and shape.k % 8 == 0 else "unaligned"
        group = "heads" if shape.n <= 8 else f"layers, {aligned}"
        for dtype, mode in kinds:
            if dtype == torch.float64 and not fits_fp64(shape):
                continue
            add("matmul", matmul.case(shape, dtype, mode, options), "models", f"models, {group}")
    for layer in layers(seed):
        for dtype in (torch.float32, torch.bfloat16):
            add("linear", linear.case(*layer, dtype, options), "linear")
    for op, *problem in reductions(seed):
        add(op, reduction(op, *problem), "reductions")
    for op, shape, dtype in images(seed):
        add(op, reduction(op, shape, (0, 2, 3), dtype), "models, statistics of images")
    for shape, dim, dtype in softmaxes(seed):
        add("softmax", softmax.case(shape, dtype, options, dim), "softmax")
    for shape, dim, dtype in classes(seed):
        add("softmax", softmax.case(shape, dtype, options, dim), "models, softmax of classes")
    for problem, dtype in attention.random_problems(seed)[:ATTENTIONS]:
        add(
            "attention", replace(attention.case(problem, dtype, options), peak_memory=False, baseline=None), "attention"
        )
    if not options.cuda:
        return few([case for case in found if case.dtype == torch.float32], 1)
    return few(found, 5) if options.quick else found


def few(found: list[Case], count: int) -> list[Case]:
    """Of each operator and dtype the `count` cases with the least to do."""
    kinds: dict[tuple, list[Case]] = {}
    for case in found:
        kinds.setdefault((case.fields["op"], case.dtype, case.mode), []).append(case)
    return [
        case for of in kinds.values() for case in sorted(of, key=lambda of: of.flops + of.read + of.written)[:count]
    ]


# ---- how long a run takes --------------------------------------------------------------------------------------------

# TFLOP/s that the slower contender reaches, GB/s, and seconds of a case: its data, the check, captured graphs.
RATES = {"highest": 45.0, "high": 250.0, torch.bfloat16: 500.0, torch.float16: 500.0, torch.float64: 45.0}
BYTES_S, LAUNCH_S, CASE_S, BLOCK_S, ROUNDS = 3e12, 5e-6, 0.15, 0.012, 11.5


def estimate_s(of: Case) -> float:
    """Seconds that a case takes on an H200 with no budget: the check, then eleven rounds."""
    call = max(of.flops / RATES.get(of.mode or of.dtype, 45.0) / 1e12, (of.read + of.written) / BYTES_S, LAUNCH_S)
    check = 2 * of.flops / 40e12 + 12 * (of.read + of.written) / BYTES_S
    return CASE_S + check + ROUNDS * len(of.contenders) * max(BLOCK_S, 10 * call)


def main(argv: list[str] | None = None) -> int:
    module = sys.modules[__name__]
    options = options_or_estimate(module, argv)
    if options is None:
        return 0
    benchmark = run_op(module, options, machine(options.device))
    show_notes(benchmark)
    print(random_tables(benchmark.rows))
    return finish(benchmark)


if __name__ == "__main__":
    sys.exit(main())

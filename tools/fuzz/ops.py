"""A random valid call of every operator, what torch computes there, and how far from float64 it may be."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from test_attention import Reference, rounds_weights
from test_linear import ACTIVATIONS
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tools.fuzz.check import Bound, Case, Inputs, raw, smallest
from tools.fuzz.draw import HALVES, MOST, Draw

PRECISIONS = ["highest", "highest", "ieee", "high", "medium"]
PLANS = ["simt", "gemv", "dot", "sweep", "outputs", "sliced", "wgmma", "bf16x3", "tf32", "mma"]
PLANS += ["wgmma_few_rows", "wgmma/swapped"]


def accumulator(dtype: torch.dtype) -> tuple[float, float]:
    """Half an ulp and the least normal number of what sums are kept in; float64's reference errs as much itself."""
    info = torch.finfo(torch.float64 if dtype is torch.float64 else torch.float32)
    return info.eps * (1 if dtype is torch.float64 else 0.5), info.smallest_normal


def size_of(x: Tensor) -> Tensor:
    """|x| where that is a number: what is infinite is compared as such."""
    return x.abs().nan_to_num(0.0, 0.0, 0.0)


def widened(f: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Half precision computed in fp32 and rounded once, as the ops do."""

    def g(**inputs: Any) -> Tensor:
        dtype = inputs["input"].dtype
        if dtype not in HALVES:
            return f(**inputs)
        single = {k: x.float() if isinstance(x, Tensor) and x.is_floating_point() else x for k, x in inputs.items()}
        return f(**single).to(dtype)

    return g


def with_tails(x: Tensor, activation: str) -> Tensor:
    """gelu whose tails do not round to 0, as half precision's do not: a tail times Inf is Inf, 0 times Inf is NaN."""
    if activation == "gelu":
        return 0.5 * x * torch.erfc(-x * math.sqrt(0.5))
    if activation == "gelu_tanh":
        return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return ACTIVATIONS[activation](x)


def rounded_once(draw: Draw, f: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """torch's own result; of Inf and NaN the one in fp32, where its gelu(inf) is not that of half precision."""
    return widened(f) if draw.theme == "special" else f


# ---- products ----------------------------------------------------------------------------------------------------


def roundings(draw: Draw, k: int, dtype: torch.dtype, precision: str) -> tuple[float, Callable[[Tensor], Tensor]]:
    """The componentwise bound (tests/test_matmul.py): a factor of |A||B|, and |x| of an operand.

    TF32 rounds a denormal number as it does the least normal one.
    """
    rounding = {"high": 2.0**-10, "medium": 2.0**-7}.get(precision, 0.0) if dtype is torch.float32 else 0.0
    factor = max(rounding, (k + 8 if draw.irregular else 2 * math.sqrt(k) + 8) * accumulator(dtype)[0])
    if not rounding:
        return factor, size_of
    least = torch.finfo(dtype).smallest_normal
    return factor, lambda x: torch.where(x != 0, size_of(x).clamp(min=least), 0.0)


def product_options(draw: Draw, dtype: torch.dtype) -> tuple[Inputs, dict[str, str]]:
    environment = {}
    if draw.chance(0.1):
        environment["float32_matmul_precision"] = draw.choice(["high", "medium"])
    if draw.cuda and draw.chance(0.3):
        environment["XGEMM_MATMUL_PLAN"] = draw.choice(PLANS)
    return {"precision": draw.choice(PRECISIONS)}, environment


def product_budget(draw: Draw) -> int:
    return 1 << (26 if draw.cuda else 21)


def rows_unless(case: Case, name: str, dim: int, out_dim: int) -> Case:
    """Slices along a dim, where there is something to slice and the plan is free."""
    x = case.inputs[name]
    if x.shape[dim] > 1 and "XGEMM_MATMUL_PLAN" not in case.environment:
        case.rows, case.out_dim = {name: dim}, out_dim
    return case


def matmul(draw: Draw) -> Case:
    dtype = draw.dtype()
    batch = draw.batch()
    m, n, k = draw.product_sizes(batch, product_budget(draw))
    a_shape, b_shape = [*draw.broadcast(batch), m, k], [*draw.broadcast(batch), k, n]
    if draw.chance(0.1):
        a_shape = [k]
    if draw.chance(0.1):
        b_shape = [k]
    options, environment = product_options(draw, dtype)
    a, b = draw.tensor(a_shape, dtype), draw.tensor(b_shape, dtype)
    factor, measure = roundings(draw, k, dtype, options["precision"])

    def bound(a: Tensor, b: Tensor, **_: Any) -> Bound:
        size = torch.matmul(measure(a), measure(b))
        return Bound(factor * (size + accumulator(dtype)[1]), size)

    case = Case(
        "matmul",
        {"a": a, "b": b, **options},
        lambda a, b, **_: torch.matmul(a, b),
        bound,
        exactly=draw.theme == "integers",
        environment=environment,
    )
    if len(a_shape) > 1:
        rows_unless(case, "a", -2, -1 if len(b_shape) == 1 else -2)
    return case


def addmm(draw: Draw) -> Case:
    dtype = draw.dtype()
    m, n, k = draw.product_sizes([], product_budget(draw))
    options, environment = product_options(draw, dtype)
    whole = draw.theme == "integers"
    beta = draw.choice([1.0, 0.0, 0.5, 2.0] if whole else [1.0, 1.0, 0.0, 0.5, -1.25, 1e-3])
    alpha = draw.choice([1.0, 0.5, -2.0] if whole else [1.0, 1.0, 2.0, -0.3, 1e3])
    input_shape = draw.broadcast([m, n])
    if beta == 0 and draw.chance(0.1):  # not read, so of any shape
        input_shape = draw.batch()
    input = draw.tensor(input_shape, dtype)
    a, b = draw.tensor([m, k], dtype), draw.tensor([k, n], dtype)
    factor, measure = roundings(draw, k, dtype, options["precision"])

    def torchs(input: Tensor, mat1: Tensor, mat2: Tensor, **_: Any) -> Tensor:
        product = alpha * torch.matmul(mat1, mat2)
        return product if beta == 0 else product + beta * input

    def bound(input: Tensor, mat1: Tensor, mat2: Tensor, **_: Any) -> Bound:
        size = torch.matmul(measure(mat1), measure(mat2))
        scaled = abs(alpha) * size
        if beta != 0:
            scaled = scaled + abs(beta) * size_of(input)
        return Bound(factor * (scaled + accumulator(dtype)[1] * max(1, abs(alpha))), torch.maximum(size, scaled))

    case = Case(
        "addmm",
        {"input": input, "mat1": a, "mat2": b, "beta": beta, "alpha": alpha, **options},
        torchs,
        bound,
        exactly=whole,
        environment=environment,
    )
    if len(input_shape) < 2 or (len(input_shape) == 2 and input_shape[0] != m):
        rows_unless(case, "mat1", 0, 0)
    elif m > 1 and input_shape == [m, n] and "XGEMM_MATMUL_PLAN" not in environment:
        case.rows = {"mat1": 0, "input": 0}
    return case


def linear(draw: Draw, op: str = "linear") -> Case:
    dtype = draw.dtype()
    batch = draw.batch()
    m, n, k = draw.product_sizes(batch, product_budget(draw))
    batch = [] if draw.chance(0.1) else [*batch, m]
    options, environment = product_options(draw, dtype)
    x, w = draw.tensor([*batch, k], dtype), draw.tensor([n, k], dtype)
    bias = draw.tensor([n], dtype) if draw.chance(0.6) else None
    residual = draw.tensor(draw.broadcast([*batch, n]), dtype) if draw.chance(0.4) else None
    activation = draw.choice(["none", "none", *ACTIVATIONS])
    factor, measure = roundings(draw, k, dtype, options["precision"])

    def torchs(input: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, **_: Any) -> Tensor:
        y = ACTIVATIONS[activation](F.linear(input, weight, bias))
        return y if residual is None else y + residual

    def bound(input: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, **_: Any) -> Bound:
        size = F.linear(measure(input), measure(weight), None if bias is None else size_of(bias))
        total = 1.13 * size if residual is None else 1.13 * size + size_of(residual)  # 1.13: the steepest activation
        return Bound(factor * (total + accumulator(dtype)[1]), total)

    inputs = {"input": x, "weight": w, "bias": bias, "activation": activation, "residual": residual, **options}
    if op == "linear_prepared":
        inputs["prepared"] = raw("prepare")(weight=w, precision=options["precision"])
    whole = draw.theme == "integers" and activation in ("none", "relu")
    case = Case(op, inputs, rounded_once(draw, torchs), bound, exactly=whole, environment=environment)
    if batch and residual is None:
        rows_unless(case, "input", 0, 0)
    return case


def prepare(draw: Draw) -> Case:
    dtype = draw.dtype()
    inputs = {"weight": draw.tensor(draw.sizes(2, 1 << 20), dtype), "precision": draw.choice(PRECISIONS)}
    return Case("prepare", inputs, lambda **inputs: raw("prepare")(**inputs))


def gated_linear(draw: Draw) -> Case:
    dtype = draw.dtype()
    batch = draw.batch()
    m, n, k = draw.product_sizes(batch, product_budget(draw) // 2)
    batch = [] if draw.chance(0.1) else [*batch, m]
    options, environment = product_options(draw, dtype)
    x = draw.tensor([*batch, k], dtype)
    weights = {f"weight_{name}": draw.tensor([n, k], dtype) for name in ("gate", "up")}
    biases = {f"bias_{name}": draw.tensor([n], dtype) if draw.chance(0.5) else None for name in ("gate", "up")}
    activation = draw.choice([*ACTIVATIONS, "silu"])
    factor, measure = roundings(draw, k, dtype, options["precision"])

    def torchs(
        input: Tensor, weight_gate: Tensor, weight_up: Tensor, bias_gate: Tensor, bias_up: Tensor, **_: Any
    ) -> Tensor:
        gate, up = F.linear(input, weight_gate, bias_gate), F.linear(input, weight_up, bias_up)
        exact = dtype in HALVES and input.dtype is torch.float64
        return (with_tails(gate, activation) if exact else ACTIVATIONS[activation](gate)) * up

    def bound(
        input: Tensor, weight_gate: Tensor, weight_up: Tensor, bias_gate: Tensor, bias_up: Tensor, **_: Any
    ) -> Bound:
        g, u = (
            F.linear(measure(input), measure(w), None if b is None else size_of(b))
            for w, b in ((weight_gate, bias_gate), (weight_up, bias_up))
        )
        least, g = accumulator(dtype)[1], 1.13 * g
        error = (g + least) * (u + least)  # the errors of both factors, their product, and the last rounding
        return Bound((2 * factor + factor**2) * error + 2**-22 * g * u, torch.maximum(torch.maximum(g, u), g * u))

    whole = draw.theme == "integers" and activation in ("none", "relu") and k < 256
    inputs = {"input": x, **weights, **biases, "activation": activation, **options}
    case = Case("gated_linear", inputs, rounded_once(draw, torchs), bound, exactly=whole, environment=environment)
    if batch:
        rows_unless(case, "input", 0, 0)
    return case


# ---- reductions --------------------------------------------------------------------------------------------------


def dims(draw: Draw, rank: int) -> list[int] | None:
    """None, all, none, one or several, from either end."""
    if rank == 0 or draw.chance(0.15):
        return draw.choice([None, []]) if rank == 0 or draw.chance(0.7) else list(range(rank))
    chosen = draw.rng.sample(range(rank), draw.rng.choices(range(1, rank + 1), [10 * 0.4**i for i in range(rank)])[0])
    return [d - rank if draw.chance(0.3) else d for d in chosen]


def reduced(dim: int | list[int] | None, rank: int) -> list[int]:
    if dim is None or dim == []:
        return list(range(rank))
    return [d % rank if rank else 0 for d in (dim if isinstance(dim, list) else [dim])]


def number_of(x: Tensor, dim: int | list[int] | None) -> int:
    return math.prod(x.shape[d] for d in reduced(dim, x.dim()))


def front_rows(case: Case, name: str, dim: int | list[int] | None) -> Case:
    """Slices along the first dim, where that is kept."""
    x = case.inputs[name]
    if x.dim() > 1 and x.shape[0] > 1 and 0 not in reduced(dim, x.dim()):
        case.rows = {name: 0}
    return case


def sum_or_mean(op: str, draw: Draw) -> Case:
    dtype = draw.any_dtype()
    x = draw.tensor(draw.shape(), dtype)
    dim, keepdim = dims(draw, x.dim()), draw.chance(0.4)
    floating = dtype.is_floating_point
    to = None
    if draw.chance(0.25) or (op == "mean" and not floating):
        to = draw.dtype() if op == "mean" or floating or draw.chance(0.5) else torch.int64
    # ATen's CPU ops round the input to `to` first, or not, as the layout has it.
    either = to in HALVES and to is not dtype and not draw.cuda
    converted = x.double() if either else x if to is None else x.to(to)
    out = to or (dtype if floating else torch.int64)
    every, n = reduced(dim, x.dim()), number_of(x, dim)

    def torchs(input: Tensor, dim: list[int], keepdim: bool) -> Tensor:
        return getattr(torch, op)(input, dim, keepdim)

    def bound(input: Tensor, dim: list[int], keepdim: bool) -> Bound:
        total = size_of(input).sum(dim, keepdim)
        scale = total / n if op == "mean" and n else total
        # ATen on the CPU adds one by one what a stride of 0 repeats (equal terms round alike) and sums of outer dims.
        additions = 32.0
        if not draw.cuda and (draw.irregular or len(every) > 1):
            additions = max(32.0, n if draw.irregular else 2 * math.sqrt(n))
        error = additions * accumulator(out)[0] * (scale + accumulator(out)[1])
        if not either:
            return Bound(error, total)
        info = torch.finfo(out)
        return Bound(error + info.eps * scale + n * info.smallest_normal, total.masked_fill(total > info.max, math.inf))

    inputs = {"input": x, "dim": dim, "keepdim": keepdim} | ({"dtype": to} if to else {})
    source = {"input": converted, "dim": every, "keepdim": keepdim}
    whole = draw.theme == "integers" and op == "sum" and out.is_floating_point and floating and not either
    judged = bound if out.is_floating_point else None
    return front_rows(Case(op, inputs, torchs, judged, source, out, exactly=whole), "input", dim)


def extremum(op: str, draw: Draw) -> Case:
    shape = [max(1, n) for n in draw.shape()] if draw.chance(0.8) else draw.shape()
    x = draw.tensor(shape, draw.any_dtype())
    dim, keepdim = dims(draw, x.dim()), draw.chance(0.4)
    if number_of(x, dim) == 0 or any(x.shape[d] == 0 for d in reduced(dim, x.dim())):
        dim, x = None, draw.tensor([3, 5], torch.float32)
    inputs = {"input": x, "dim": dim, "keepdim": keepdim}
    case = Case(
        op,
        inputs,
        lambda input, dim, keepdim: getattr(torch, op)(input, reduced(dim, input.dim()), keepdim),
        bound=(lambda **_: Bound(0.0)) if x.is_floating_point() else None,
        exactly=True,
    )
    return front_rows(case, "input", dim)


def index_of_extremum(op: str, draw: Draw) -> Case:
    dtype = draw.any_dtype()
    dtype = torch.int8 if dtype is torch.bool else dtype
    x = draw.tensor([max(1, n) for n in draw.shape()], dtype)
    dim = None if draw.chance(0.2) else draw.rng.randrange(-max(1, x.dim()), max(1, x.dim()))

    def first(input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
        """The first position of NaN, else of the extremum, by comparisons alone."""
        whole = dim is None or input.dim() == 0
        flat, along = (input.reshape(-1), 0) if whole else (input, dim)
        best = getattr(torch, "amax" if op == "argmax" else "amin")(flat, along, True)
        here = flat == best
        if input.dtype.is_floating_point:
            here |= flat.isnan()
        shape = [1] * flat.dim()
        shape[along] = -1
        position = torch.arange(flat.shape[along], device=flat.device).view(shape)
        found = torch.where(here, position, flat.shape[along]).amin(along, keepdim and not whole)
        return found.view([1] * input.dim()) if keepdim and whole else found

    inputs = {"input": x, "dim": dim, "keepdim": draw.chance(0.4)}
    return front_rows(Case(op, inputs, first), "input", dim)


def roundings_of_sum(draw: Draw, n: int, last: bool) -> float:
    """Of n exponentials. ATen's CPU kernels add one by one along dims but the last: equal ones round alike."""
    return n if not (draw.cuda or last) else math.sqrt(n)


def spread(x: Tensor, dim: Any) -> Tensor:
    """How far each element lies below the largest; 0 where that is no number."""
    return (size_of(x) if x.numel() == 0 else (x.amax(dim, True) - x).abs()).nan_to_num(0.0, 0.0, 0.0)


def logsumexp(draw: Draw) -> Case:
    dtype = draw.any_dtype()
    x = draw.tensor(draw.shape(), dtype)
    dim, keepdim = dims(draw, x.dim()), draw.chance(0.4)
    out = dtype if dtype.is_floating_point else torch.float32
    along = reduced(dim, x.dim())
    last = along == [x.dim() - 1] and x.stride(-1) == 1
    additions = roundings_of_sum(draw, number_of(x, dim), last)

    def torchs(input: Tensor, dim: list[int], keepdim: bool) -> Tensor:
        return torch.logsumexp(input, dim, keepdim)

    def bound(input: Tensor, dim: list[int], keepdim: bool) -> Bound:
        exact = size_of(torch.logsumexp(input, dim, keepdim))
        return Bound(accumulator(out)[0] * (8 * (1 + exact) + additions), exact)

    source = {"input": x.to(out), "dim": along, "keepdim": keepdim}
    inputs = {"input": x, "dim": dim, "keepdim": keepdim}
    return front_rows(Case("logsumexp", inputs, torchs, bound, source, out), "input", dim)


def cross_entropy(draw: Draw) -> Case:
    dtype = draw.dtype()
    places = draw.batch(3)
    classes, rows = (max(1, n) for n in draw.sizes(2, MOST // 27))
    form = draw.choice(["(C)", "(N, C)", "(N, C)", "(N, C, ...)"])
    shape = {"(C)": [classes], "(N, C)": [rows, classes]}.get(form) or [rows, classes, *places]
    x = draw.tensor(shape, dtype)
    target_shape = shape[:1] + shape[2:] if len(shape) > 1 else []
    small = classes <= 255 and draw.chance(0.15)
    target = draw.integers(target_shape, 0, classes, torch.uint8 if small else torch.int64)
    ignore = draw.choice([-100, -100, 0, classes - 1, -1])
    reduction = draw.choice(["none", "mean", "sum"])
    smoothing = draw.choice([0.0, 0.0, 0.1, 0.7, 1.0])
    step, least = accumulator(dtype)
    additions = roundings_of_sum(draw, classes, last=x.dim() < 3)

    def torchs(input: Tensor, target: Tensor, **_: Any) -> Tensor:
        batched, t = (input[None], target[None]) if input.dim() == 1 else (input, target)
        options = {"ignore_index": ignore, "reduction": reduction, "label_smoothing": smoothing}
        loss = F.cross_entropy(batched, t.long(), **options)
        return loss.reshape(()) if input.dim() == 1 else loss

    def bound(input: Tensor, target: Tensor, **_: Any) -> Bound:
        x, t = (input[None], target[None].long()) if input.dim() == 1 else (input, target.long())
        size = size_of(torch.logsumexp(x, 1)) + size_of(x.gather(1, t[:, None]).squeeze(1))
        size = size + smoothing * size_of(x).mean(1)
        error = step * (8 * (1 + size) + additions + 16 * smoothing * size) + least
        if reduction == "none":
            return Bound(error.view(target.shape), (size * (classes if smoothing else 1)).view(target.shape))
        total = size.sum() * (classes if smoothing else 1)
        error = error.sum() + 32 * step * size.sum()
        return Bound(error / (t != ignore).sum().clamp_min(1) if reduction == "mean" else error, total)

    inputs = {
        "input": x,
        "target": target,
        "ignore_index": ignore,
        "reduction": reduction,
        "label_smoothing": smoothing,
    }
    case = Case("cross_entropy", inputs, torchs, bound, dtype=dtype)
    if reduction == "none" and len(shape) > 1 and shape[0] > 1:
        case.rows = {"input": 0, "target": 0}
    return case


# ---- softmax -----------------------------------------------------------------------------------------------------


def softmax_or_log(op: str, draw: Draw) -> Case:
    dtype = draw.any_dtype()
    x = draw.tensor(draw.shape(), dtype)
    dim = draw.rng.randrange(-x.dim(), x.dim()) if x.dim() else draw.choice([0, -1])
    to = draw.dtype() if not dtype.is_floating_point or draw.chance(0.2) else None
    out = to or dtype
    n = x.shape[dim] if x.dim() else 1
    step = accumulator(out)[0]

    def torchs(input: Tensor, dim: int) -> Tensor:
        return getattr(torch, op)(input, dim)

    def bound(input: Tensor, dim: int) -> Bound:
        below = spread(input, dim)
        relative = 16 + math.sqrt(n) + 2 * below
        if op == "log_softmax":
            return Bound(step * (relative + 4 * below), below)
        return Bound(torch.expm1((step * relative).clamp(max=80)) * size_of(torch.softmax(input, dim)), below)

    inputs = {"input": x, "dim": dim} | ({"dtype": to} if to else {})
    case = Case(op, inputs, torchs, bound, {"input": x.to(out), "dim": dim}, out, as_torch=True)
    return front_rows(case, "input", dim)


def scaled_masked_softmax(draw: Draw) -> Case:
    dtype = draw.dtype()
    x = draw.tensor(draw.shape(), dtype)
    dim = draw.rng.randrange(-x.dim(), x.dim()) if x.dim() else draw.choice([0, -1])
    scale = draw.choice([1.0, 0.125, -0.5, 3.0, 0.0])
    kind = draw.choice([None, torch.bool, torch.float32, dtype])
    mask = None if kind is None else draw.tensor(draw.broadcast(x.shape), kind)
    n = x.shape[dim] if x.dim() else 1
    step = accumulator(dtype)[0]

    def logits(input: Tensor, mask: Tensor | None) -> Tensor:
        y = input * scale
        if mask is None:
            return y
        return y.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else y + mask

    def torchs(input: Tensor, mask: Tensor | None, **_: Any) -> Tensor:
        return torch.softmax(logits(input, mask), dim)

    def bound(input: Tensor, mask: Tensor | None, **_: Any) -> Bound:
        y = logits(input, mask)
        size = size_of(input * scale)
        if mask is not None and mask.dtype is not torch.bool:
            size = size + size_of(mask)
        size = size.where(y.isfinite(), 0.0)
        largest = size.amax(dim, True) if size.numel() else size
        relative = 16 + math.sqrt(n) + 2 * spread(y, dim) + 4 * (size + largest)
        error = torch.expm1((step * relative).clamp(max=80)) * size_of(torch.softmax(y, dim))
        # Beyond that, which element is largest depends on roundings.
        return Bound(error, torch.where(step * relative < 20, largest, math.inf))

    inputs = {"input": x, "mask": mask, "scale": scale, "dim": dim}
    case = Case("scaled_masked_softmax", inputs, widened(torchs), bound, as_torch=True)
    if mask is None or mask.dim() < x.dim() or x.dim() == 0 or mask.shape[0] == 1:
        front_rows(case, "input", dim)
    return case


def topk_softmax(draw: Draw) -> Case:
    dtype = draw.any_dtype()
    x = draw.tensor(draw.shape(), dtype)
    dim = draw.rng.randrange(-x.dim(), x.dim()) if x.dim() else draw.choice([0, -1])
    n = x.shape[dim] if x.dim() else 1
    k = 1 if x.dim() == 0 else min(n, draw.choice([0, 1, 2, 3, 8, 31, 32, 33, 63, 64]))
    to = draw.dtype() if not dtype.is_floating_point or draw.chance(0.2) else None
    out, renormalize = to or dtype, draw.chance(0.5)
    step = accumulator(out)[0]

    def chosen(input: Tensor) -> tuple[Tensor, Tensor]:
        y = input.reshape(1) if input.dim() == 0 else input
        # With NaN, only the CPU's stable sort is one.
        values, order = (y.cpu() if draw.theme == "special" else y).sort(dim=dim, descending=True, stable=True)
        return values.narrow(dim, 0, k).to(y.device), order.narrow(dim, 0, k).to(y.device)

    def torchs(input: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
        values, where = chosen(input)
        y = input.reshape(1) if input.dim() == 0 else input
        values = torch.softmax(values, dim) if renormalize else torch.softmax(y, dim).gather(dim, where)
        return (values, where) if input.dim() else (values.reshape(()), where.reshape(()))

    def bound(input: Tensor, **_: Any) -> tuple[Bound, Bound]:
        values = torchs(input)[0]
        below = spread(chosen(input)[0], dim).reshape(values.shape) if values.numel() else 0.0 * values
        return Bound(torch.expm1((step * (16 + math.sqrt(n) + 2 * below)).clamp(max=80)) * size_of(values)), Bound(0.0)

    inputs = {"input": x, "k": k, "dim": dim, "renormalize": renormalize} | ({"dtype": to} if to else {})
    case = Case("topk_softmax", inputs, torchs, bound, {"input": x.to(out)}, out, as_torch=True)
    return front_rows(case, "input", dim)


# ---- attention ---------------------------------------------------------------------------------------------------


def attention_inputs(draw: Draw) -> tuple[Inputs, list[int], bool]:
    """A call, the output's batch dims, and whether it has options that torch's op has not."""
    dtype = draw.dtype()
    batch, gqa = draw.batch(3), draw.chance(0.2)
    heads = 8 if gqa else 1
    sq, sk, d = draw.product_sizes([*batch, heads], product_budget(draw))
    fitting = MOST // (heads * max(sq, sk, 1) * math.prod(max(1, n) for n in batch))
    d = min(d, 256)
    dv = d if draw.chance(0.5) else min(draw.size(256), 256, fitting)
    mode = draw.choice(["full", "full", "top_left", "bottom_right", "bool", "additive"])
    if mode in ("top_left", "bottom_right") and draw.theme == "special":
        mode = "full"  # whether a key that nobody may see spreads its NaN is open
    if gqa:
        heads, groups, value_groups = (draw.rng.randint(1, 2) for _ in range(3))
        query_heads = heads * groups * value_groups
        shapes = [[*batch, query_heads, sq, d], [*batch, heads * groups, sk, d], [*batch, heads, sk, dv]]
        batch = [*batch, query_heads]
    else:
        whole = draw.choice([True, False])
        leading = [batch if whole else draw.broadcast(batch) for _ in range(3)]
        shapes = [[*lead, *size] for lead, size in zip(leading, ([sq, d], [sk, d], [sk, dv]), strict=True)]
        batch = list(torch.broadcast_shapes(*leading))
    query, key, value = (draw.tensor(shape, dtype) for shape in shapes)
    inputs: Inputs = {
        "query": query,
        "key": key,
        "value": value,
        "enable_gqa": gqa,
        "precision": draw.choice(PRECISIONS),
    }
    # A weight that is 0 where it should be tiny makes NaN of an infinite value: no large scores in cases about Inf.
    inputs["scale"] = draw.choice([None, None, 0.1, 0.0] if draw.theme == "special" else [None, 0.1, 1.0, -0.5, 0.0])
    if mode in ("bool", "additive"):
        kind = torch.bool if mode == "bool" else draw.choice([dtype, torch.float32])
        inputs["attn_mask"] = draw.tensor(draw.broadcast([*batch, sq, sk]), kind)
    elif mode != "full":
        inputs |= {"is_causal": True, "causal_alignment": mode}
    more = draw.theme != "special" and draw.chance(0.3)
    if more:
        inputs["window"] = tuple(draw.choice([-1, -1, 0, draw.rng.randint(0, max(sk, 1))]) for _ in range(2))
        inputs.setdefault("causal_alignment", draw.choice(["top_left", "bottom_right"]))
        inputs["softcap"] = draw.choice([0.0, 0.0, 1.0, 30.0])
        inputs["sinks"] = draw.tensor(draw.broadcast(batch), draw.choice([dtype, torch.float32]))
    return inputs, batch, more


def least_weight(draw: Draw, dtype: torch.dtype, sk: int, precision: str) -> float:
    """A weight below this may be lost, relative to its row's largest."""
    if not draw.cuda and dtype is torch.float16:  # torch's kernel has fp32 weights
        return torch.finfo(torch.float32).smallest_normal
    info = torch.finfo(dtype)
    if draw.cuda and dtype in (torch.float16, torch.float64):  # denormal ones are kept
        return info.smallest_normal * info.eps
    if draw.cuda and dtype is torch.float32 and sk >= 64 and precision != "ieee":  # fp16 parts
        return 2.0**-39 if precision == "highest" else 2.0**-28
    return info.smallest_normal


def attention_bounds(
    draw: Draw, query: Tensor, reference: Reference, precision: str, scale: float | None, mask: Tensor | None = None
) -> tuple[Bound, Bound]:
    """Of the output and the log-sum-exp of `query`, in its own dtype."""
    dtype, sk = query.dtype, reference.sk
    rounding = 2.0**-10 if draw.cuda and dtype is torch.float32 and precision in ("high", "medium") else 0.0
    step, weight = accumulator(dtype)[0], least_weight(draw, dtype, sk, precision)
    ulps = reference.score_ulps + (sk if draw.irregular else 2 * math.sqrt(sk)) + 16
    if rounding and sk:  # of operands and weights to TF32's 11 bits
        ulps = ulps + rounding / step * (1 + reference.slack.amax(-1, keepdim=True))
    # A weight that underflows takes its value with it.
    lost = weight * reference.values.clamp(min=1).sum(-2, keepdim=True)
    error = torch.expm1((2 * step * ulps).clamp(max=80)) * reference.scale + lost
    if dtype in HALVES:
        # Weights that are rounded lose what is below their least normal number.
        rounded = draw.cuda and rounds_weights(query)
        error = 2 * error + (torch.finfo(dtype).smallest_normal if rounded else smallest(dtype, draw.device))
        if rounds_weights(query):
            error = error + torch.finfo(dtype).eps * reference.scale
    # Nothing is asked where roundings decide which score is the largest, or where a score overflows.
    open_rows = step * ulps >= 20
    if sk:
        if draw.cuda and dtype in HALVES:  # too large for units of log2: docs/attention.md, Range
            open_rows = open_rows | ((reference.largest.abs() > 5e7) & reference.largest.isfinite())
        # The CUDA kernels multiply the product by the scale: 0 times one that overflows is NaN there.
        size = reference.products if draw.cuda and scale == 0 else reference.slack
        largest = 1e307 if dtype is torch.float64 else 1e37
        overflow = 0.0 if draw.theme == "special" else math.inf  # of infinite operands, or in fp64
        open_rows = open_rows | (size.nan_to_num(0.0, overflow, 0.0).amax(-1, True) > largest)
    # Nor whether a key that a mask hides spreads its NaN and Inf.
    hidden = (reference.lse == -math.inf).unsqueeze(-1)
    if mask is not None:
        masked = ~mask if mask.dtype is torch.bool else mask == -math.inf
        no_number = reference.unmasked.isnan() | (reference.unmasked == math.inf)
        open_rows = open_rows | (masked & no_number).any(-1, True)
        hidden = hidden | masked
    hidden = hidden.expand(*hidden.shape[:-1], sk).double()
    open_values = open_rows | (hidden @ reference.infinite.double() > 0)
    if draw.cuda and sk and dtype is not torch.float64:  # sums may overflow before the division: docs/attention.md
        open_values = open_values | (reference.values.sum(-2, keepdim=True) > torch.finfo(torch.float32).max)
    unsure = torch.zeros_like(ulps).masked_fill(open_rows, math.inf)
    unsure_values = torch.zeros_like(error).masked_fill(open_values, math.inf)
    output = Bound(error, torch.maximum(reference.scale.nan_to_num(0.0, 0.0, 0.0), unsure_values))
    exact = size_of(reference.lse)
    return output, Bound(step * (2 * ulps.squeeze(-1) + 4 * exact), unsure.squeeze(-1).expand(exact.shape))


def attention(draw: Draw, op: str = "attention") -> Case:
    inputs, batch, more = attention_inputs(draw)
    query = inputs["query"]
    sq = query.shape[-2]

    def torchs(query: Tensor, key: Tensor, value: Tensor, precision: str, **options: Any) -> Any:
        if query.dtype is torch.float64:
            reference = Reference(query, key, value, **options)
            return reference.output if op == "attention" else (reference.output, reference.lse)
        # Of an empty batch, torch's kernel on the CPU ends the process (SIGFPE).
        if options.pop("causal_alignment", "top_left") != "top_left" or more or not query.numel() or not key.numel():
            return (None, None)[: 1 + (op != "attention")]
        with sdpa_kernel(SDPBackend.MATH) if draw.cuda else contextlib.nullcontext():  # others want aligned tensors
            output = F.scaled_dot_product_attention(query, key, value, **options)
        return output if op == "attention" else (output, None)

    def bound(**options: Any) -> Any:
        given = (options["precision"], options["scale"], options.get("attn_mask"))
        output, lse = attention_bounds(draw, query, Reference(**options), *given)
        return output if op == "attention" else (output, lse)

    case = Case(op, inputs, torchs, bound)
    full = "attn_mask" not in inputs and "is_causal" not in inputs
    in_front = query.dim() > 2 and len(batch) + 2 == query.dim()
    if op == "attention" and full and not more and in_front and sq > 1:
        case.rows, case.out_dim = {"query": -2}, -2
    return case


def sequences_of(inputs: Inputs) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Query, key and value of each sequence, (heads, rows, columns)."""
    table, used = inputs.get("block_table"), inputs.get("cache_seqlens", inputs.get("seqused_k"))
    keys, values = (inputs.get(f"{name}_cache", inputs.get(name)) for name in ("key", "value"))
    starts = inputs.get("cu_seq_q")
    for i in range(len(inputs["query"]) if starts is None else len(starts) - 1):
        q = inputs["query"][i] if starts is None else inputs["query"][starts[i] : starts[i + 1]]
        if table is not None:
            rows = [t[table[i].long()].flatten(0, 1) for t in (keys, values)]
        elif starts is None:
            rows = [t[i] for t in (keys, values)]
        else:
            rows = [t[inputs["cu_seq_k"][i] : inputs["cu_seq_k"][i + 1]] for t in (keys, values)]
        rows = [t if used is None else t[: used[i]] for t in rows]
        yield q.transpose(0, 1), *(t.transpose(0, 1) for t in rows)


def sequences(op: str) -> Callable[[Draw], Case]:
    """A call of attention_varlen or attention_with_cache that appends nothing, which would write to an input."""
    packed, with_lse = op.startswith("attention_varlen"), op.endswith("_lse")

    def draw_case(draw: Draw) -> Case:
        def int32(numbers: Sequence) -> Tensor:
            return torch.tensor(numbers, dtype=torch.int32, device=draw.device)

        dtype, count = draw.dtype(), draw.rng.randint(1, 3)
        shared, group = draw.rng.randint(1, 2), draw.choice([1, 1, 2, 4])
        widest = 576 if draw.chance(0.2) else 130
        d, dv = (min(draw.size(widest), widest) for _ in "dv")
        keys = [min(draw.size(130), 130) for _ in range(count)]
        queries = [min(draw.size(70), 70) for _ in range(count)] if packed else [draw.size(20)] * count
        heads, most = shared * group, max(keys)
        inputs: Inputs = {
            "query": draw.tensor([sum(queries), heads, d] if packed else [count, queries[0], heads, d], dtype),
            "precision": draw.choice(PRECISIONS),
            "scale": draw.choice([None, 0.1] if draw.theme == "special" else [None, 0.1, 1.0]),
        }
        if packed:
            inputs |= {"cu_seq_q": int32([0, *accumulate(queries)]), "cu_seq_k": None}
            inputs |= {"max_q": max(queries), "max_k": most}
        lengths, names = "seqused_k" if packed else "cache_seqlens", ("key", "value")
        names = names if packed else tuple(f"{name}_cache" for name in names)
        if draw.chance(0.5):
            page = draw.choice([1, 3, 16])
            columns = max(1, -(-most // page))
            pages = draw.rng.randint(1, count * columns)
            rows = [pages, page]
            table = [[draw.rng.randrange(pages) for _ in range(columns)] for _ in range(count)]
            inputs |= {"block_table": int32(table), lengths: int32(keys)}
        elif packed:
            rows = [sum(keys)]
            inputs["cu_seq_k"] = int32([0, *accumulate(keys)])
        else:
            rows = [count, most]
            inputs[lengths] = int32(keys)
        inputs |= {names[0]: draw.tensor([*rows, shared, d], dtype), names[1]: draw.tensor([*rows, shared, dv], dtype)}
        if draw.theme != "special" and draw.chance(0.6):
            inputs["is_causal"] = draw.chance(0.5)
            inputs["window"] = tuple(draw.choice([-1, -1, 0, draw.rng.randint(0, max(most, 1))]) for _ in range(2))
            inputs["softcap"] = draw.choice([0.0, 0.0, 30.0])
            inputs["sinks"] = draw.tensor([heads], draw.choice([dtype, torch.float32]))
        names_of_options = ("is_causal", "scale", "window", "softcap", "sinks")

        def references(given: Inputs) -> list[Reference]:
            options = {name: given[name] for name in names_of_options if given.get(name) is not None}
            return [
                Reference(*one, enable_gqa=True, causal_alignment="bottom_right", **options)
                for one in sequences_of(given)
            ]

        def joined(outputs: Sequence[Tensor], lses: Sequence[Tensor]) -> Any:
            outputs = [t.transpose(0, 1) for t in outputs]
            if packed:
                results = torch.cat(outputs), torch.cat(list(lses), 1)
            else:
                results = torch.stack(outputs), torch.stack(list(lses))
            return results if with_lse else results[0]

        def torchs(**given: Any) -> Any:
            if given["query"].dtype is not torch.float64:
                return (None, None) if with_lse else None
            found = references(given)
            return joined([r.output for r in found], [r.lse for r in found])

        def bound(**given: Any) -> Any:
            own, found = list(sequences_of(inputs)), references(given)
            bounds = [
                attention_bounds(draw, one[0], r, inputs["precision"], inputs["scale"])
                for one, r in zip(own, found, strict=True)
            ]

            def of(what: str) -> Any:
                def expanded(b: Bound, like: Tensor) -> Tensor:
                    return torch.as_tensor(getattr(b, what), dtype=torch.float64, device=like.device).expand(like.shape)

                outputs = [expanded(b, r.output) for (b, _), r in zip(bounds, found, strict=True)]
                return joined(outputs, [expanded(b, r.lse) for (_, b), r in zip(bounds, found, strict=True)])

            error, size = of("error"), of("size")
            return tuple(map(Bound, error, size)) if with_lse else Bound(error, size)

        return Case(op, inputs, torchs, bound)

    return draw_case


SEQUENCES = [f"attention_{op}{lse}" for op in ("varlen", "with_cache") for lse in ("", "_lse")]


OPS: dict[str, Callable[[Draw], Case]] = {
    "matmul": matmul,
    "addmm": addmm,
    "linear": linear,
    "linear_prepared": lambda draw: linear(draw, "linear_prepared"),
    "prepare": prepare,
    "gated_linear": gated_linear,
    **{op: lambda draw, op=op: sum_or_mean(op, draw) for op in ("sum", "mean")},
    **{op: lambda draw, op=op: extremum(op, draw) for op in ("amax", "amin")},
    **{op: lambda draw, op=op: index_of_extremum(op, draw) for op in ("argmax", "argmin")},
    "logsumexp": logsumexp,
    "cross_entropy": cross_entropy,
    **{op: lambda draw, op=op: softmax_or_log(op, draw) for op in ("softmax", "log_softmax")},
    "scaled_masked_softmax": scaled_masked_softmax,
    "topk_softmax": topk_softmax,
    "attention": attention,
    "attention_lse": lambda draw: attention(draw, "attention_lse"),
    **{op: sequences(op) for op in SEQUENCES},
}

"""Host time of one call of every op, from Python to the launch, against torch's op. The device is not awaited."""

import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F

from benchmarks.common import Case, Contender, Options, main

OP = "host"
FOLDERS = ("attention", "device", "matmul", "reduce", "softmax", "topk_softmax", "torch")
SOURCES = [f"csrc/{folder}" for folder in FOLDERS]

Call = Callable[..., torch.Tensor]


def case(name: str, ours: Call, theirs: Call, *sizes: tuple[int, ...], by_ops: Call | None = None) -> Case:
    """`ours` and `theirs` on fresh fp32 tensors of `sizes`; torch's own result is the reference here.

    `by_ops`: torch's op called the way ours is called, through `torch.ops`, which costs over a microsecond by itself.
    """

    def reference(*inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        expected = theirs(*(x.double() for x in inputs)).double()
        return expected, expected.abs() + 1

    return Case(
        name=name,
        shape={"sizes": [list(size) for size in sizes]},
        dtype=torch.float32,
        make=lambda device: tuple(torch.randn(size, device=device) for size in sizes),
        contenders=[
            Contender("xgemm", ours),
            Contender("torch", theirs),
            *([Contender("torch_ops", by_ops)] if by_ops else []),
        ],
        reference=reference,
        tolerance=1e-4,
        read=0,
        written=0,
        host=True,
    )


def cases(options: Options) -> list[Case]:
    square, head = (128, 128), (1, 4, 64, 64)
    x, aten = torch.ops.xgemm, torch.ops.aten

    def over_rows(op: Call) -> Call:
        return lambda t: op(t, -1)

    def reduction(name: str, by_ops: Call | None = None) -> Case:
        ours, theirs = getattr(x, name), getattr(torch, name)
        return case(name, over_rows(ours), over_rows(theirs), square, by_ops=by_ops and over_rows(by_ops))

    return [
        case("matmul", x.matmul, torch.matmul, square, square),
        case("addmm", x.addmm, torch.addmm, square, square, square),
        case("linear", x.linear, F.linear, square, square, square[:1]),
        case("sum", x.sum, torch.sum, square, by_ops=aten.sum),
        case("mean", x.mean, torch.mean, square),
        reduction("amax", aten.amax),
        reduction("argmax"),
        reduction("logsumexp"),
        reduction("softmax", aten.softmax),
        reduction("log_softmax"),
        case(
            "topk_softmax",
            lambda t: x.topk_softmax(t, 8)[0],
            lambda t: torch.softmax(torch.topk(t, 8)[0], -1),
            square,
        ),
        case("attention", x.attention, F.scaled_dot_product_attention, head, head, head),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))

"""torch.ops.xgemm.cross_entropy, mean over the rows, against torch.nn.functional.cross_entropy."""

import sys

import torch

from benchmarks.common import Case, Contender, Options, cases_of, compiled, main, sum_tolerance

OP = "cross_entropy"
SOURCES = ["csrc/device", "csrc/reduce"]

# Tokens and vocabularies of language models (GPT-2's 50257 has rows at odd addresses), and image classes.
SHAPES = [(8192, 128256), (8192, 32000), (4096, 50257), (65536, 1000)]
QUICK = [(8192, 32000), (4096, 50257)]
CPU = [(256, 1000)]


def reference(x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    loss = torch.cat(
        [
            torch.logsumexp(rows.double(), -1) - rows.double().gather(-1, wanted[:, None])[:, 0]
            for rows, wanted in zip(x.split(1024), target.split(1024), strict=True)
        ]
    )
    return loss.mean(), loss.abs().mean() + 1


def case(rows: int, classes: int, dtype: torch.dtype, options: Options) -> Case:
    def make(device: torch.device) -> tuple[torch.Tensor, ...]:
        return torch.randn(rows, classes, dtype=dtype, device=device), torch.randint(0, classes, (rows,), device=device)

    theirs = torch.nn.functional.cross_entropy
    # torch rounds its log-probabilities, up to about 16 here, to a half-precision input's dtype.
    rounded = 0.0 if dtype == torch.float32 else torch.finfo(dtype).eps
    return Case(
        name=f"{rows}x{classes}",
        shape={"sizes": [rows, classes]},
        dtype=dtype,
        make=make,
        contenders=[
            Contender("xgemm", torch.ops.xgemm.cross_entropy),
            Contender("torch", theirs, tolerance=rounded),
            *compiled(theirs, options),
        ],
        reference=reference,
        tolerance=sum_tolerance(classes, dtype),
        read=rows * classes * dtype.itemsize + rows * 8,
        written=dtype.itemsize,
    )


def cases(options: Options) -> list[Case]:
    return cases_of(case, SHAPES, QUICK, CPU, options)


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))

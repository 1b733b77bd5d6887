"""What a benchmark is made of: cases, their contenders, and the options of the command line."""

import contextlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}
SHORT = {dtype: name for name, dtype in DTYPES.items()}
COMPILED = "torch_compile"


@dataclass(frozen=True)
class Contender:
    """One implementation. `call(*inputs)` returns the output; `context` is entered outside every timing."""

    name: str
    call: Callable[..., torch.Tensor]
    context: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext
    tolerance: float = 0.0  # where wider than the case's, e.g. a TF32 product beside an fp32 case
    fields: dict[str, Any] = field(default_factory=dict, compare=False)  # that its rows have beside the usual ones


class Named(Protocol):
    """What the command line chooses by."""

    dtype: torch.dtype
    groups: tuple[str, ...]

    @property
    def key(self) -> str: ...


@dataclass(frozen=True)
class Case:
    """One problem: how to make its inputs, who competes, what is right, what bytes and operations it owes."""

    name: str
    shape: dict[str, Any]
    dtype: torch.dtype
    make: Callable[[torch.device], tuple[torch.Tensor, ...]]
    contenders: list[Contender]
    # inputs -> (float64 result, float64 scale). |output - result| may be `tolerance` of the scale, and one rounding of
    # the result to its dtype on top; tolerance 0 means exactly equal.
    reference: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    tolerance: float
    read: int
    written: int
    flops: float = 0.0
    mode: str | None = None
    comparable: Callable[..., torch.Tensor] = field(
        default=lambda output, *inputs: output
    )  # what `reference` speaks of
    host: bool = False  # time the host's side of a call only
    groups: tuple[str, ...] = ()  # what a report sums up together
    eager: bool = True  # False: a call that is short enough for a CUDA graph is measured there only
    peak_memory: bool = False
    # An implementation whose error the rows have beside the contender's own; it is not timed.
    baseline: Callable[..., torch.Tensor] | None = None
    rotating: bool = False  # measured once: cold, or hot in a CUDA graph where the data are too small to be made cold
    fields: dict[str, Any] = field(default_factory=dict)  # that its rows have beside the usual ones
    whole_model: bool = False  # in a CUDA graph too, however long it takes; its rows have milliseconds and no rates

    @property
    def key(self) -> str:
        return f"{self.name} {SHORT[self.dtype]}" + (f" {self.mode}" if self.mode else "")


@dataclass
class Options:
    """The command line, and what follows from it."""

    device: torch.device = field(default_factory=lambda: torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    quick: bool = False
    filter: str = ""
    budget: float = math.inf
    set: str = "peers"
    dtypes: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    seed: int = 0
    compile: bool = False
    compile_filter: str = ""
    out: Path | None = None
    measurements: Path | None = None

    @property
    def cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def all(self) -> bool:
        return self.set == "all"

    def wants(self, case: Named) -> bool:
        """Whether dtype, groups and filter name the case."""
        of_dtype = not self.dtypes or SHORT[case.dtype] in self.dtypes
        of_group = not self.groups or not set(self.groups).isdisjoint(case.groups)
        return of_dtype and of_group and re.search(self.filter, case.key) is not None


def sum_tolerance(terms: int, dtype: torch.dtype) -> float:
    """Rounding while `terms` terms are added in fp32 (fp64 for fp64), relative to the sum of their magnitudes."""
    unit = 2.0**-53 if dtype == torch.float64 else 2.0**-24
    return (2 * math.sqrt(min(terms, 16384)) + 8) * unit  # longer sums are made of partial sums


def compiled(call: Callable[..., torch.Tensor], options: Options) -> list[Contender]:
    """torch.compile of a peer as one more contender, where the command line asks for it."""
    if not options.compile:
        return []
    torch._dynamo.config.recompile_limit = 1000  # each case is a shape of its own, and none is to fall back to eager
    return [Contender(COMPILED, torch.compile(call, dynamic=False))]


def row_case(
    shape: tuple[int, ...],
    dim: int | None,
    dtype: torch.dtype,
    ours: Callable[..., torch.Tensor],
    theirs: Callable[..., torch.Tensor],
    reference: Callable[..., tuple[torch.Tensor, torch.Tensor]],
    tolerance: float,
    options: Options,
    *,
    prefix: str = "",
    result_bytes: int | None = None,
    comparable: Callable[..., torch.Tensor] = lambda output, *inputs: output,
) -> Case:
    """An op that takes one contiguous tensor of normal data: `ours(x)` against `theirs(x)`, over `dim` (None: all)."""
    size = math.prod(shape)
    name = "x".join(map(str, shape)) + (" all" if dim is None else f" dim{dim % len(shape)}")
    if result_bytes is None:
        result_bytes = (1 if dim is None else size // shape[dim]) * dtype.itemsize
    return Case(
        name=f"{prefix} {name}".strip(),
        shape={"sizes": list(shape), "dim": dim},
        dtype=dtype,
        make=lambda device: (torch.randn(shape, dtype=dtype, device=device),),
        contenders=[Contender("xgemm", ours), Contender("torch", theirs), *compiled(theirs, options)],
        reference=reference,
        tolerance=tolerance,
        read=size * dtype.itemsize,
        written=result_bytes,
        comparable=comparable,
    )


def cases_of(
    case: Callable[..., Case], problems: list[tuple], quick: list[tuple], cpu: list[tuple], options: Options
) -> list[Case]:
    """`case(*problem, dtype, options)` in fp32 and bf16 on a GPU, of `quick` where asked for, and in fp32 on a CPU."""
    if not options.cuda:
        return [case(*problem, torch.float32, options) for problem in cpu]
    chosen = quick if options.quick else problems
    return [case(*problem, dtype, options) for dtype in (torch.float32, torch.bfloat16) for problem in chosen]

"""What every benchmark shares: cases and contenders, the check before the timing, the interleaved timing, the files.

How a figure is made. Every contender's result is first compared with a float64 reference; one that is wrong is not
timed. The contenders of a case then take turns, a block of calls each, over several rounds; a figure is the median of
its blocks and the spread their quartiles. A row says where its data lay and what launched it:

- ``l2: hot, graph: false``: the same buffers again and again, launched from Python (a call costs at least its launch);
- ``l2: hot, graph: true``: the same calls back to back in a CUDA graph, without Python's launch cost;
- ``l2: cold``: inputs and outputs rotate over buffers that together exceed three times the L2 (in a graph where the
  call is short). A case whose data alone exceed four times the L2 is cold by nature and is measured once.
"""

import argparse
import contextlib
import datetime
import gc
import json
import math
import re
import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils.benchmark import timer as synchronised_clock

import torch_ext  # noqa: F401  (registers torch.ops.xgemm)
from benchmarks.results import (
    RESULTS,
    commit,
    cpu_name,
    dump,
    geomean,
    gpu_folder,
    grouped,
    machine_code,
    merge_rows,
    sources_digest,
)

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}
SHORT = {dtype: name for name, dtype in DTYPES.items()}

# Dense rates of an H200 by its datasheet, in TFLOP/s: what floors divide operations by. "highest" is three products in
# half precision (the fp32 split on tensor cores), "ieee" the CUDA cores.
TFLOPS = {
    (torch.float32, "highest"): 990.0 / 3,
    (torch.float32, "ieee"): 67.0,
    (torch.float32, "high"): 495.0,
    (torch.float32, "medium"): 990.0,
    (torch.float32, None): 67.0,
    (torch.bfloat16, None): 990.0,
    (torch.float16, None): 990.0,
    (torch.float64, None): 67.0,
}
LAUNCH_BOUND_S = 300e-6  # a call shorter than this is also measured inside a CUDA graph
GRAPH_CALLS_S = 1e-3  # work captured into one graph
COMPILED = "torch_compile"
MAX_COPIES = 256  # of a case's data, when they rotate; smaller data than this can make cold are measured hot only


class WrongResult(AssertionError):
    """A contender's result is further from the float64 reference than its case allows."""


class ContextLost(RuntimeError):
    """The CUDA context no longer works: nothing more can be measured in this process."""


@dataclass(frozen=True)
class Contender:
    """One implementation. `call(*inputs)` returns the output; `context` is entered outside every timing."""

    name: str
    call: Callable[..., torch.Tensor]
    context: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext
    tolerance: float = 0.0  # where wider than the case's, e.g. a TF32 product beside an fp32 case


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
    compile: bool = False
    compile_filter: str = ""
    out: Path | None = None

    @property
    def cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def all(self) -> bool:
        return self.set == "all"

    def wants(self, dtype: torch.dtype) -> bool:
        return not self.dtypes or SHORT[dtype] in self.dtypes


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


# ---- where and what: metadata ----------------------------------------------------------------------------------------


class Gpu:
    """Driver version and SM clock, from NVML where its Python binding is there, else from nvidia-smi."""

    def __init__(self, device: torch.device) -> None:
        self.clocks: list[int] = []
        self._handle = self._nvml = None
        self._index = str(device.index or 0)
        self._asked = -math.inf
        try:
            import pynvml

            pynvml.nvmlInit()
            uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
            self._handle, self._nvml = pynvml.nvmlDeviceGetHandleByUUID(uuid), pynvml
            version = pynvml.nvmlSystemGetDriverVersion()
            self.driver = version.decode() if isinstance(version, bytes) else version
        except Exception:  # no binding, no library, or a container that hides NVML: figures matter more than the clock
            self.driver = self._smi("driver_version") or "unknown"

    def _smi(self, field_name: str) -> str:
        command = ["nvidia-smi", f"--query-gpu={field_name}", "--format=csv,noheader,nounits", "-i", self._index]
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
        return ""

    def sample_clock(self) -> None:
        """Notes the SM clock; to be called right after a block of work, outside every timing."""
        if self._nvml is not None:
            with contextlib.suppress(self._nvml.NVMLError):
                self.clocks.append(self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM))
        elif time.monotonic() - self._asked > 5:  # a process each time: seldom
            self._asked = time.monotonic()
            if (value := self._smi("clocks.sm")).isdigit():
                self.clocks.append(int(value))


@dataclass
class Machine:
    """What the run runs on, with its measured bandwidths: one for all ops of a process."""

    name: str
    l2: int
    copy_gbps: float | None = None
    read_gbps: float | None = None
    gpu: Gpu | None = None

    def floor_us(self, case: Case) -> float | None:
        """The larger of bytes over measured bandwidth and operations over the stated rate; None where not measured."""
        if case.host or self.copy_gbps is None or self.read_gbps is None:
            return None
        # A stream of reads is faster than a copy: the copy's figure holds once writes are a good part of the traffic.
        gbps = self.copy_gbps if 8 * case.written >= case.read else self.read_gbps
        return max((case.read + case.written) / gbps / 1e3, case.flops / TFLOPS[case.dtype, case.mode] / 1e6)

    def memory_bound(self, case: Case) -> bool:
        """Whether the bytes are the larger term of the floor."""
        if self.copy_gbps is None:
            return False
        return (case.read + case.written) / self.copy_gbps / 1e3 >= case.flops / TFLOPS[case.dtype, case.mode] / 1e6


def machine(device: torch.device) -> Machine:
    """Describes the device; on a GPU also warms it up and measures copy and read bandwidth (about 0.2 s)."""
    if device.type != "cuda":
        return Machine(cpu_name(), 0)
    properties = torch.cuda.get_device_properties(device)
    size = min(4 << 30, properties.total_memory // 4) // 4

    def best(call: Callable[[], object], repeats: int) -> float:
        """Seconds of one call, the least of several: a ceiling."""
        times = []
        for _ in range(repeats):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            call()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / 1e3)
        return min(times)

    source = torch.randn(2, size // 2, device=device)
    read = 4 * source.numel() / best(source.sum, 20) / 1e9
    copy = 4 * source.numel() / best(partial(source[0].copy_, source[1]), 20) / 1e9
    del source
    torch.cuda.empty_cache()
    return Machine(properties.name, properties.L2_cache_size, copy, read, Gpu(device))


# ---- the check before the timing -------------------------------------------------------------------------------------


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


# ---- timing ----------------------------------------------------------------------------------------------------------


@dataclass
class Runner:
    """One contender made ready for one way of measuring: `block(n)` gives seconds per call over n repetitions."""

    contender: Contender
    block: Callable[[int], float]
    calls: int = 1  # in one repetition
    repetitions: int = 1
    block_s: float = 0.0
    seconds: list[float] = field(default_factory=list)

    @property
    def call_s(self) -> float:
        """Seconds of one call: measured, or as calibrated."""
        return statistics.median(self.seconds) if self.seconds else self.block_s / (self.repetitions * self.calls)

    def calibrate(self, block_s: float) -> None:
        """Warms up and chooses the repetitions that fill a block."""
        with self.contender.context():
            seconds = self.block(1) * self.calls
            if seconds < block_s:  # a first block of short calls tells little
                seconds = self.block(max(1, int(block_s / 4 / max(seconds, 1e-7)))) * self.calls
        self.repetitions = max(1, int(block_s / max(seconds, 1e-7)))
        self.block_s = self.repetitions * seconds


def eager_runner(contender: Contender, sets: list[tuple]) -> Runner:
    """Calls from Python, over the sets in turn; with several, outputs stay alive for a turn: they rotate too."""
    call, outputs = contender.call, [None] * len(sets)
    if len(sets) == 1:
        statement, scope = "call(*inputs)", {"call": call, "inputs": sets[0]}
    else:

        def turn() -> None:
            for i, inputs in enumerate(sets):
                outputs[i] = call(*inputs)

        statement, scope = "turn()", {"turn": turn}
    # torch.utils.benchmark's clock (it synchronises) without its Timer's two warm-up calls a block, which would triple
    # the slow cases.
    timing = timeit.Timer(statement, globals=scope, timer=synchronised_clock)
    return Runner(contender, lambda n: timing.timeit(n) / (n * len(sets)), len(sets))


def host_runner(contender: Contender, sets: list[tuple]) -> Runner:
    """Time until the call has returned, the device not awaited; batches too short to fill the launch queue."""
    scope = {"call": contender.call, "inputs": sets[0]}
    timing = timeit.Timer("call(*inputs)", globals=scope, timer=timeit.default_timer)

    def block(n: int) -> float:
        total = 0.0
        for start in range(0, n, 100):
            synchronised_clock()
            total += timing.timeit(min(100, n - start))
        synchronised_clock()
        return total / n

    return Runner(contender, block)


def graph_runner(contender: Contender, sets: list[tuple], calls: int) -> Runner:
    """`calls` calls captured back to back in one CUDA graph, timed by events around its replays."""
    stream = torch.cuda.Stream()
    graph, outputs = torch.cuda.CUDAGraph(), []
    with contender.context():
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            contender.call(*sets[0])  # what an implementation sets up once (handles, workspaces) stays out of the graph
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(calls):
                output = contender.call(*sets[i % len(sets)])
                if len(sets) > 1:
                    outputs.append(output)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def block(n: int) -> float:
        torch.cuda.synchronize()
        start.record()
        for _ in range(n):
            graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / (n * calls)

    return Runner(contender, block, calls)


def interleave(runners: list[Runner], budget_s: float, rounds: int, gpu: Gpu | None) -> None:
    """Blocks in turn, forward and backward, so that drift of the clocks meets every contender alike."""
    total = sum(runner.block_s for runner in runners)
    rounds = int(max(3, min(rounds, budget_s / max(total, 1e-9))))
    for round_ in range(rounds):
        for runner in runners if round_ % 2 == 0 else reversed(runners):
            with runner.contender.context():
                runner.seconds.append(runner.block(runner.repetitions))
            if gpu:
                gpu.sample_clock()


# ---- one op's run ----------------------------------------------------------------------------------------------------


def alive() -> None:
    """Raises ContextLost where the CUDA context no longer answers."""
    if torch.cuda.is_available():
        try:
            torch.cuda.synchronize()
        except Exception as error:
            raise ContextLost(str(error).splitlines()[0]) from error


class Benchmark:
    """Runs the cases of one op and keeps what came out: rows, failures, skipped cases."""

    def __init__(
        self, op: str, sources: list[str], options: Options, where: Machine, *, keep: bool | None = None
    ) -> None:
        """`keep`: whether rows go to the result files (by default: on a GPU, or with `--out`)."""
        self.op, self.sources, self.options, self.where = op, sources, options, where
        self.keep = (options.cuda or options.out is not None) if keep is None else keep
        self.wrong = 0  # results that the check refused, whoever made them
        self.rows: list[dict] = []
        self.failures: list[str] = []  # xgemm's own: they make the exit code
        self.notes: list[str] = []  # peers that failed, cases without room
        self.lost = False  # the CUDA context is gone
        self.digest = sources_digest(sources)  # as they are when the run starts
        self.machine_code = machine_code(sources) if options.cuda else None
        self.commit = commit()
        self._deadline = time.monotonic() + options.budget
        self._block_s = 0.01  # of the case that is being measured: what a block of calls takes
        self._first_clock = len(where.gpu.clocks) if where.gpu else 0

    @property
    def clocks(self) -> list[int]:
        return self.where.gpu.clocks[self._first_clock :] if self.where.gpu else []

    def run(self, cases: list[Case], progress: Callable[[str], None] = lambda text: None) -> None:
        """Measures all cases within the budget; what is left over at its end is noted, not measured."""
        pattern = re.compile(self.options.filter)
        cases = [case for case in cases if self.options.wants(case.dtype) and pattern.search(case.key)]
        gc.collect()
        gc.freeze()  # what is imported stays: collecting between cases looks at theirs only
        written = time.monotonic()
        try:
            for index, case in enumerate(cases):
                left = self._deadline - time.monotonic()
                if left <= 0:
                    self.notes.append(
                        f"budget spent: {len(cases) - index} of {len(cases)} cases not measured, from {case.key} on"
                    )
                    break
                progress(case.key)
                self.measure(case, left / (len(cases) - index))
                if self.keep and time.monotonic() - written > 5:
                    write_results(self)
                    written = time.monotonic()
        finally:
            if self.keep:
                write_results(self)

    def measure(self, case: Case, share_s: float = 60.0) -> list[dict]:
        """Checks every contender of `case`, then times those that are right; returns (and keeps) the rows."""
        started = time.monotonic()
        rows: list[dict] = []
        try:
            with torch.inference_mode():
                inputs = case.make(self.options.device)
                reference = case.reference(*inputs)
                passed: list[tuple[Contender, dict]] = []
                compiles = re.search(self.options.compile_filter, case.key)
                for contender in case.contenders:
                    if contender.name == COMPILED and not compiles:
                        continue
                    with self._guard(case, contender.name):
                        passed.append((contender, self._check(case, contender, inputs, reference)))
                del reference
                self._block_s = 0.004 if self.options.quick else min(max(share_s / 60, 0.003), 0.01)
                for l2, graph, runners in self._ways(case, inputs, passed):
                    share = max(share_s - (time.monotonic() - started), 0.0)
                    interleave(runners, share / 2, 5 if self.options.quick else 11, self.where.gpu)
                    rows += self._rows(case, l2, graph, runners, {c.name: error for c, error in passed})
                    del runners
        except ContextLost:
            raise
        except (
            Exception
        ) as error:  # the inputs or the reference did not fit, or a timed block broke: the next case may do
            self._note(case, "case", error)
        self.rows += rows
        gc.collect()
        if self.options.cuda and torch.cuda.memory_reserved() > 16 << 30:  # each time would take as long as short cases
            torch.cuda.empty_cache()
        return rows

    @contextlib.contextmanager
    def _guard(self, case: Case, name: str) -> Iterator[None]:
        """One contender's failure is noted and the run goes on; a lost context ends it."""
        try:
            yield
        except Exception as error:
            self._note(case, name, error)

    def _note(self, case: Case, name: str, error: Exception) -> None:
        self.wrong += isinstance(error, WrongResult)
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
        text = reason if isinstance(error, WrongResult) else f"{name} on {case.key}: {reason}"
        ours = name in ("xgemm", "case") and not isinstance(error, torch.OutOfMemoryError)
        (self.failures if ours else self.notes).append(f"{self.op}: {text}")
        error.__traceback__ = None  # its frames hold tensors
        alive()

    def _check(self, case: Case, contender: Contender, inputs: tuple, reference: tuple) -> dict:
        cuda = self.options.cuda and not case.host
        with contender.context():
            if cuda:
                poison(reference[0], case.dtype)
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
            output = contender.call(*inputs)
            error = {}
            if cuda and case.peak_memory:
                torch.cuda.synchronize()
                error["peak_bytes"] = torch.cuda.max_memory_allocated() - before
        return error | {"error": check(case, contender, output, inputs, reference)}

    def _ways(self, case: Case, inputs: tuple, passed: list) -> Iterator[tuple[str, bool, list]]:
        """The ways in which this case is measured, one after the other so that only one holds memory."""
        if case.host or not self.options.cuda:
            make = host_runner if case.host else eager_runner
            yield "hot", False, self._ready(case, passed, lambda c: make(c, [inputs]))
            return
        data = case.read + case.written
        runners = self._ready(case, passed, lambda c: eager_runner(c, [inputs]))
        by_nature = data >= 4 * self.where.l2
        short = bool(runners) and min(runner.call_s for runner in runners) < LAUNCH_BOUND_S
        if case.eager or by_nature or not short:
            yield "cold" if by_nature else "hot", False, runners
        if not runners or by_nature:
            return
        kept = [entry for entry in passed if any(entry[0] is runner.contender for runner in runners)]
        seconds_of = {runner.contender.name: runner.call_s for runner in runners}

        def calls(contender: Contender, turn: int) -> int:
            return turn * max(1, min(64, int(GRAPH_CALLS_S / seconds_of[contender.name])) // turn)

        if short:
            yield "hot", True, self._ready(case, kept, lambda c: graph_runner(c, [inputs], calls(c, 1)))
        copies = math.ceil(3 * self.where.l2 / max(data, 1)) + 1
        if copies > MAX_COPIES or not self.where.memory_bound(case):
            return
        sets = [inputs, *(case.make(self.options.device) for _ in range(copies - 1))]
        if short:
            yield "cold", True, self._ready(case, kept, lambda c: graph_runner(c, sets, calls(c, copies)))
        else:
            yield "cold", False, self._ready(case, kept, lambda c: eager_runner(c, sets))

    def _ready(self, case: Case, passed: list, make: Callable[[Contender], Runner]) -> list[Runner]:
        runners = []
        for contender, _ in passed:
            with self._guard(case, contender.name):
                runner = make(contender)
                runner.calibrate(self._block_s)
                runners.append(runner)
        return runners

    def _rows(self, case: Case, l2: str, graph: bool, runners: list[Runner], errors: dict) -> list[dict]:
        rows = []
        floor = self.where.floor_us(case)
        bandwidth = not case.host and self.where.memory_bound(case)
        for runner in runners:
            us = statistics.median(runner.seconds) * 1e6
            low, _, high = statistics.quantiles(runner.seconds, n=4, method="inclusive")
            row = {
                "case": case.name,
                "shape": case.shape,
                "dtype": str(case.dtype).removeprefix("torch."),
                "mode": case.mode,
                "l2": l2,
                "graph": graph,
                "contender": runner.contender.name,
                "us": round(us, 3),
                "us_quartiles": [round(low * 1e6, 3), round(high * 1e6, 3)],
                "tflops": round(case.flops / us / 1e6, 2) if case.flops and not case.host else None,
                "gbps": round((case.read + case.written) / us / 1e3, 1) if bandwidth else None,
                "floor_us": round(floor, 3) if floor is not None else None,
            }
            groups = {"groups": list(case.groups)} if case.groups else {}
            rows.append(row | errors[runner.contender.name] | groups)
        return rows


# ---- result files ----------------------------------------------------------------------------------------------------


def write_results(benchmark: Benchmark) -> Path | None:
    """Merges the rows into `<op>.json` and returns its path; None where nothing was measured.

    Rows stay that an earlier run measured on the same sources and kernels; others go. With `--out DIR` the file is
    written there and, when DIR has none yet, starts from the committed one: a partial run brings a whole file back.
    """
    if not benchmark.rows:
        return None
    where, options = benchmark.where, benchmark.options
    folder = RESULTS / (gpu_folder(where.name) if options.cuda else "cpu")
    path = (options.out or folder) / f"{benchmark.op}.json"
    sources = {"paths": benchmark.sources, "sha256": benchmark.digest}
    clocks = list(benchmark.clocks)
    old_rows: list[dict] = []
    for candidate in (path, folder / path.name):
        if candidate.exists():
            old = json.loads(candidate.read_text())
            same_kernels = old.get("machine_code") == benchmark.machine_code
            if old["sources"] == sources and same_kernels and old["gpu"] == where.name:
                old_rows, clocks = old["rows"], clocks + old["clocks_mhz"]
            break
    document = {
        "op": benchmark.op,
        "gpu": where.name,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": benchmark.commit,
        "versions": {
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "driver": where.gpu.driver if where.gpu else None,
        },
        "clocks_mhz": [min(clocks), max(clocks)] if clocks else [],
        "ceilings_gbps": {
            "copy": round(where.copy_gbps, 1) if where.copy_gbps else None,
            "read": round(where.read_gbps, 1) if where.read_gbps else None,
        },
        "sources": sources,
        "machine_code": benchmark.machine_code,
        "rows": merge_rows(old_rows, benchmark.rows),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(dump(document))
    temporary.replace(path)
    return path


# ---- what a person sees ----------------------------------------------------------------------------------------------


def rate(row: dict) -> str:
    if row["gbps"] is not None:
        return f"{row['gbps']:.0f} GB/s"
    if row["tflops"] is not None:
        return f"{row['tflops']:.1f} TF"
    return "-"


def table(rows: list[dict]) -> str:
    """One short line a measurement: our time, rate, part of the floor, spread, and each peer's time over ours."""
    lines = []
    for group in grouped(rows):
        first = next(iter(group.values()))
        ours = group.get("xgemm")
        how = first["l2"] + ("/g" if first["graph"] else "")
        mode = f"/{first['mode']}" if first["mode"] not in (None, "highest") else ""
        kind = SHORT[getattr(torch, first["dtype"])] + mode
        line = f"{first['case']:<26} {kind:<5} {how:<6}"
        if ours:
            spread = (ours["us_quartiles"][1] - ours["us_quartiles"][0]) / max(ours["us"], 1e-9)
            floor = f"{ours['floor_us'] / ours['us']:4.0%}" if ours["floor_us"] else "   -"
            line += f" {ours['us']:>9.1f}us {rate(ours):>9} {floor} ±{spread:.0%}"
        for name, row in group.items():
            if name != "xgemm":
                line += f" {name} {row['us'] / ours['us']:.2f}x" if ours else f" {name} {row['us']:.1f}us"
        lines.append(line)
    return "\n".join(lines)


def summary(benchmark: Benchmark) -> str:
    """Per peer: the geometric mean and the worst of its time over ours."""
    ratios: dict[str, list[tuple[float, str]]] = {}
    for group in grouped(benchmark.rows):
        if ours := group.get("xgemm"):
            for name, row in group.items():
                if name != "xgemm":
                    how = f"{row['case']} {row['dtype']} {row['l2']}{'/g' if row['graph'] else ''}"
                    ratios.setdefault(name, []).append((row["us"] / ours["us"], how))
    return "\n".join(
        f"{benchmark.op:<12} {name:<16} {geomean([value for value, _ in entries]):5.2f}x of {len(entries)}; worst "
        f"{min(entries)[0]:.2f}x {min(entries)[1]}"
        for name, entries in ratios.items()
    )


# ---- command line ----------------------------------------------------------------------------------------------------


def parser(description: str = "") -> argparse.ArgumentParser:
    """The options that every benchmark takes."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--quick", action="store_true", help="fewer and shorter blocks, a subset of the cases")
    found.add_argument("--filter", default="", help="regular expression over 'case dtype mode', e.g. '^4096x.* fp32'")
    found.add_argument("--budget", type=float, default=math.inf, help="seconds; cases beyond it are left out and named")
    found.add_argument("--set", choices=["peers", "all"], default="peers", help="all: the extra shapes too")
    found.add_argument("--dtypes", default="", help="comma-separated: fp32,bf16,fp16,fp64")
    found.add_argument(
        "--modes", default="", help="fp32 precisions of matmul, of highest,ieee,high,medium (highest,high)"
    )
    found.add_argument("--compile", action="store_true", help="torch.compile of the peer as one more contender")
    found.add_argument("--compile-filter", default="", help="and of which cases, as --filter: each takes seconds")
    found.add_argument("--out", type=Path, help="folder of the result files (GPU: benchmarks/results/<gpu>, CPU: none)")
    found.add_argument("--device", type=torch.device, default=Options().device)
    return found


def parse(argv: list[str] | None = None, description: str = "") -> Options:
    return options_of(parser(description).parse_args(argv))


def options_of(arguments: argparse.Namespace) -> Options:
    values = {name: getattr(arguments, name) for name in Options.__dataclass_fields__}
    for name in ("dtypes", "modes"):
        values[name] = tuple(part for part in values[name].split(",") if part)
    return Options(**values)


def run_op(
    module: ModuleType, options: Options, where: Machine, progress: Callable[[str], None] = lambda text: None
) -> Benchmark:
    """Measures one benchmark module (its OP, SOURCES and cases(options)) and prints its table."""
    benchmark = Benchmark(module.OP, module.SOURCES, options, where)
    try:
        benchmark.run(module.cases(options), progress)
    except ContextLost as error:
        benchmark.lost = True
        benchmark.failures.append(f"{module.OP}: the CUDA context is lost, the run ends here: {error}")
    return benchmark


def show(benchmark: Benchmark) -> None:
    print(f"\n== {benchmark.op} on {benchmark.where.name} (time, rate, of floor, spread; peers: their time over ours)")
    print(table(benchmark.rows))
    for note in benchmark.notes:
        print(f"note: {note}")
    for failure in benchmark.failures:
        print(f"FAILED: {failure}")


def main(module: ModuleType, argv: list[str] | None = None) -> int:
    """`python -m benchmarks.<op>`: exit code 1 where a result of ours was wrong or failed."""
    options = parse(argv, (module.__doc__ or "").splitlines()[0])
    benchmark = run_op(module, options, machine(options.device), lambda text: print(f"… {text}", file=sys.stderr))
    show(benchmark)
    print(summary(benchmark))
    return 1 if benchmark.failures else 0

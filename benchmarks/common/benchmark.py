"""Runs the cases of one operator: the check, the ways in which a case is measured, the rows."""

import contextlib
import gc
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence

import torch
from torch.utils.benchmark import Measurement

from benchmarks.common.cases import Case, Contender, Named, Options
from benchmarks.common.check import WrongResult, check, poison
from benchmarks.common.files import write_results
from benchmarks.common.machine import Machine
from benchmarks.common.timing import Runner, eager_runner, graph_runner, host_runner, interleave, quartiles_s
from benchmarks.results import commit, machine_code, sources_digest
from torch_ext import _load

LAUNCH_BOUND_S = 300e-6  # a call shorter than this is also measured inside a CUDA graph
GRAPH_CALLS_S = 1e-3  # work captured into one graph
MOST_S = 60.0  # for a case, where no budget says less
MAX_COPIES = 256  # of a case's data, when they rotate; smaller data than this can make cold are measured hot only


class ContextLost(RuntimeError):
    """The CUDA context no longer works: nothing more can be measured in this process."""


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
        self.clocks: list[int] = []  # SM clocks in MHz, read during the blocks
        self.measurements: list[Measurement] = []  # one a row, which is its metadata
        self.failures: list[str] = []  # xgemm's own: they make the exit code
        self.notes: list[str] = []  # peers that failed, cases without room
        self.lost = False  # the CUDA context is gone
        self.digest = sources_digest(sources)  # as they are when the run starts
        self.machine_code = machine_code(sources, _load.LIBRARY) if options.cuda else None
        self.commit = commit()
        self._deadline = time.monotonic() + options.budget
        self._block_s = 0.01  # of the case that is being measured: what a block of calls takes

    def run(self, cases: Sequence[Named], progress: Callable[[str], None] = lambda text: None) -> None:
        """Measures all cases within the budget; what is left over at its end is noted, not measured.

        A lost CUDA context ends the run as a failure; the notes name the contender that it happened to.
        """
        cases = [case for case in cases if self.options.wants(case)]
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
                self.measure(case, min(left / (len(cases) - index), MOST_S))
                if self.keep and time.monotonic() - written > 5:
                    write_results(self)
                    written = time.monotonic()
        except ContextLost as error:
            self.lost = True
            self.failures.append(f"{self.op}: the CUDA context is lost, the run ends here: {error}")
        finally:
            if self.keep:
                write_results(self)

    def measure(self, case: Case, share_s: float = MOST_S) -> list[dict]:
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
                    if contender.name.endswith("_compile") and not compiles:
                        continue
                    with self._guard(case, contender.name):
                        passed.append((contender, self._check(case, contender, inputs, reference)))
                baseline = self._baseline(case, inputs, reference)
                del reference
                self._block_s = 0.004 if self.options.quick else min(max(share_s / 60, 0.003), 0.01)
                for l2, graph, runners in self._ways(case, inputs, passed):
                    share = max(share_s - (time.monotonic() - started), 0.0)
                    interleave(runners, share / 2, 5 if self.options.quick else 11, self.where.gpu)
                    rows += self._rows(case, l2, graph, runners, {c.name: error | baseline for c, error in passed})
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
    def _guard(self, case: Named, name: str) -> Iterator[None]:
        """One contender's failure is noted and the run goes on; a lost context ends it."""
        try:
            yield
        except Exception as error:
            self._note(case, name, error)

    def _note(self, case: Named, name: str, error: Exception) -> None:
        self.wrong += isinstance(error, WrongResult)
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
        text = reason if isinstance(error, WrongResult) else f"{name} on {case.key}: {reason}"
        ours = (name == "case" or name.startswith("xgemm")) and not isinstance(error, torch.OutOfMemoryError)
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

    def _baseline(self, case: Case, inputs: tuple, reference: tuple) -> dict:
        """The error of the case's baseline, as every row of the case has it."""
        if case.baseline is None:
            return {}
        anything = Contender("baseline", case.baseline, tolerance=math.inf)
        with self._guard(case, anything.name):
            return {"baseline_error": check(case, anything, case.baseline(*inputs), inputs, reference)}
        return {}

    def _ways(self, case: Case, inputs: tuple, passed: list) -> Iterator[tuple[str, bool, list]]:
        """The ways in which this case is measured, one after the other so that only one holds memory."""
        if case.host or not self.options.cuda:
            make = host_runner if case.host else eager_runner
            yield "hot", False, self._ready(case, passed, make, [inputs], "hot", False)
            return
        data = case.read + case.written
        by_nature = data >= 4 * self.where.l2
        l2 = "cold" if by_nature else "hot"
        runners = self._ready(case, passed, eager_runner, [inputs], l2, False)
        shortest_s = min((runner.call_s for runner in runners), default=math.inf)
        short = shortest_s < LAUNCH_BOUND_S or case.whole_model
        copies = math.ceil(3 * self.where.l2 / max(data, 1)) + 1
        rotates = case.rotating and not by_nature and copies <= MAX_COPIES
        if not rotates and (case.eager or by_nature or not short):
            yield l2, False, runners
        if not runners or by_nature:
            return
        kept = [entry for entry in passed if any(entry[0] is runner.contender for runner in runners)]
        seconds_of = {runner.contender.name: runner.call_s for runner in runners}

        def in_graph(contender: Contender, sets: list[tuple], **names: str) -> Runner:
            turn = len(sets)
            calls = turn * max(1, min(64, int(GRAPH_CALLS_S / seconds_of[contender.name])) // turn)
            return graph_runner(contender, sets, calls, **names)

        if short and not rotates:
            yield "hot", True, self._ready(case, kept, in_graph, [inputs], "hot", True)
        if copies > MAX_COPIES or not (rotates or self.where.memory_bound(case)):
            return
        sets = [inputs, *(case.make(self.options.device) for _ in range(copies - 1))]
        yield "cold", short, self._ready(case, kept, in_graph if short else eager_runner, sets, "cold", short)

    def _ready(
        self, case: Case, passed: list, make: Callable[..., Runner], sets: list[tuple], l2: str, graph: bool
    ) -> list[Runner]:
        """The calibrated runners of one way of measuring."""
        way = f"{case.key} {l2}" + (", graph" if graph else "")
        runners = []
        for contender, _ in passed:
            with self._guard(case, contender.name):
                runner = make(contender, sets, label=self.op, sub_label=way, description=contender.name)
                runner.calibrate(self._block_s)
                runners.append(runner)
        return runners

    def _rows(self, case: Case, l2: str, graph: bool, runners: list[Runner], errors: dict) -> list[dict]:
        rows = []
        floor = self.where.floor_us(case)
        bandwidth = not case.host and self.where.memory_bound(case)
        for runner in runners:
            measurement = runner.measurement()
            us, (low, high) = measurement.median * 1e6, quartiles_s(measurement)
            row = {
                "case": case.name,
                "shape": case.shape,
                "dtype": str(case.dtype).removeprefix("torch."),
                "mode": case.mode,
                "l2": l2,
                "graph": graph,
                "contender": runner.contender.name,
            }
            if case.whole_model:
                row |= {"ms": round(us / 1e3, 4), "ms_quartiles": [round(low * 1e3, 4), round(high * 1e3, 4)]}
            else:
                row |= {
                    "us": round(us, 3),
                    "us_quartiles": [round(low * 1e6, 3), round(high * 1e6, 3)],
                    "tflops": round(case.flops / us / 1e6, 2) if case.flops and not case.host else None,
                    "gbps": round((case.read + case.written) / us / 1e3, 1) if bandwidth else None,
                    "floor_us": round(floor, 3) if floor is not None else None,
                }
            row |= runner.condition() | case.fields | runner.contender.fields
            groups = {"groups": list(case.groups)} if case.groups else {}
            measurement.metadata = row | errors[runner.contender.name] | groups
            rows.append(measurement.metadata)
            self.measurements.append(measurement)
            self.clocks += [reading.clock_mhz for reading in runner.readings]
        return rows

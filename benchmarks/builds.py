"""Times builds of the library side by side: two versions of a kernel, on the cases of one op.

    python -m benchmarks.builds attention --builds torch_ext/libxgemm.so,pingpong=/tmp/pingpong.so --groups prefill

A process registers one library, so that each build has a process of its own (XGEMM_LIBRARY names its file), which stays
for the whole run and measures when its turn comes: case by case, first to last build and back. The first build's
contender is `xgemm`, another's `xgemm_<label>`. Nothing is written but `--measurements`, after each case.
"""

import dataclasses
import importlib.util
import multiprocessing
import os
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch.utils.benchmark import Measurement

from benchmarks import common
from benchmarks.common.benchmark import MOST_S
from benchmarks.common.command import to_stderr
from benchmarks.common.timing import quartiles_s

VARIABLE = "XGEMM_LIBRARY"
OURS = "xgemm"


def cases_of_build(op: str, options: common.Options, name: str) -> list[common.Case]:
    """The op's cases with our contender alone, under the build's name."""
    found = []
    for case in filter(options.wants, importlib.import_module(f"benchmarks.{op}").cases(options)):
        ours = next(contender for contender in case.contenders if contender.name == OURS)
        found.append(dataclasses.replace(case, contenders=[dataclasses.replace(ours, name=name)], baseline=None))
    return found


def serve(pipe: Connection, op: str, options: common.Options, name: str) -> None:
    """A build's process: says which library it has, then measures each case that it is asked for."""
    cases = cases_of_build(op, options, name)
    where = common.machine(options.device)
    pipe.send((list(torch.ops.loaded_libraries), where.name, len(cases)))
    benchmark = common.Benchmark(op, [], options, where, keep=False)
    while (task := pipe.recv()) is not None:
        index, share_s = task
        done = len(benchmark.measurements), len(benchmark.failures), len(benchmark.notes)
        try:
            benchmark.measure(cases[index], share_s)
        except common.ContextLost as error:
            benchmark.failures.append(f"{name}: the CUDA context is lost: {error}")
        pipe.send((benchmark.measurements[done[0] :], benchmark.failures[done[1] :], benchmark.notes[done[2] :]))


def named(text: str) -> dict[str, Path]:
    """'PATH,LABEL=PATH,...' as libraries by the names of their contenders."""
    found: dict[str, Path] = {}
    for part in text.split(","):
        label, _, path = part.rpartition("=")
        name = f"{OURS}_{label}" if label else OURS
        if bool(label) != bool(found) or name in found:
            raise SystemExit(f"--builds: expected PATH,LABEL=PATH,... with labels of their own, got {text}")
        found[name] = Path(path).absolute()
        if not found[name].is_file():
            raise SystemExit(f"--builds: expected a built library, got {path}")
    return found


@dataclasses.dataclass
class Build:
    """One build, its process, and the way to talk to it."""

    name: str
    library: Path
    pipe: Connection
    process: multiprocessing.process.BaseProcess

    @classmethod
    def start(cls, name: str, library: Path, op: str, options: common.Options) -> "Build":
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=serve, args=(there, op, options, name), daemon=True)
        before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = str(library)
        try:
            process.start()
        finally:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before
        there.close()  # so that the end of the process ends the reading
        return cls(name, library, here, process)

    def ask(self, index: int, share_s: float) -> tuple[list[Measurement], list[str], list[str]]:
        """Measurements, failures and notes of one case, which may take about `share_s` seconds."""
        self.pipe.send((index, share_s))
        return self.pipe.recv()


def merged(measurements: list[Measurement]) -> list[Measurement]:
    """The turns of a case as one measurement each way and build, with its row."""
    found = Measurement.merge(measurements)
    rows = {measurement.task_spec: measurement.metadata for measurement in measurements}
    for measurement in found:
        low, high = quartiles_s(measurement)
        row = {name: value for name, value in rows[measurement.task_spec].items() if name not in ("tflops", "gbps")}
        us = {"us": measurement.median * 1e6, "us_quartiles": [low * 1e6, high * 1e6]}
        measurement.metadata = row | us
    return found


def main(argv: list[str] | None = None) -> int:
    parser = common.parser((__doc__ or "").splitlines()[0])
    parser.add_argument("op", help="a benchmark's name, e.g. attention")
    parser.add_argument("--builds", required=True, help="comma-separated libraries: PATH,LABEL=PATH,...")
    arguments = parser.parse_args(argv)
    if importlib.util.find_spec(f"benchmarks.{arguments.op}") is None:
        parser.error(f"there is no benchmark {arguments.op}")
    options = common.options_of(arguments)
    builds = [Build.start(*build, arguments.op, options) for build in named(arguments.builds).items()]
    total = common.Benchmark(arguments.op, [], options, common.Machine("", 0), keep=False)
    keys = [case.key for case in cases_of_build(arguments.op, options, OURS)]
    try:
        for build in builds:
            libraries, total.where.name, count = build.pipe.recv()
            if str(build.library) not in libraries or count != len(keys):
                raise SystemExit(
                    f"{build.name}: expected {build.library} and {len(keys)} cases, got {libraries}, {count}"
                )
            print(f"{build.name}: {build.library}")
        deadline = time.monotonic() + options.budget
        for index, key in enumerate(keys):
            left, cases = deadline - time.monotonic(), len(keys) - index
            if left <= 0:
                total.notes.append(f"budget spent: {cases} of {len(keys)} cases not measured, from {key} on")
                break
            to_stderr(key)
            turns: list[Measurement] = []
            share_s = min(left / cases, MOST_S) / (2 * len(builds))
            for build in [*builds, *reversed(builds)]:
                measured, failures, notes = build.ask(index, share_s)
                turns += measured
                total.failures += failures
                total.notes += notes
            total.measurements += merged(turns)
            if options.measurements:
                common.save_measurements(options.measurements, total.measurements)
        for build in builds:
            build.pipe.send(None)
            build.process.join()
    except (EOFError, BrokenPipeError):
        total.failures.append("a build's process ended; the run ends here")
    total.rows = [measurement.metadata for measurement in total.measurements]
    common.show(total)
    print(common.summary(total))
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())

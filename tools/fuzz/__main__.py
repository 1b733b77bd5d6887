"""Fuzzes every operator: random calls, valid and not, against float64 and torch's own samples (docs/fuzz.md).

``python -m tools.fuzz`` runs for 5 minutes on the GPU, or on the CPU where there is none. Cases run in worker
processes, so that a crash or a hang costs one case. A failure prints the command that replays it:
``python -m tools.fuzz --replay 'softmax 7 1234'``. The exit status is 1 when something failed.
"""

import argparse
import importlib
import json
import os
import re
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from tools.fuzz import ROOT
from tools.fuzz.check import REPEATS
from tools.fuzz.worker import POSITION, STREAMS, run_block
from tools.gpu_tests import shard

CHUNK = 64  # cases of one stream that a worker is given at a time
SHOWN = 5  # failures of a stream that are printed
KEPT = 50  # failures of a stream that --json has
STARTING = 600.0  # seconds that a worker may take to import torch and to reach the device

# What is wrong today and known: (stream, "message | case"), regular expressions, and why. They are counted, and fail
# nothing.
KNOWN: list[tuple[str, str, str]] = [
    ("", "Not yet supported ScalarType QUInt8", "torch's stable C interface knows no quantised dtype="),
]


def is_known(stream: str, message: str, case: str) -> bool:
    return any(re.search(s, stream) and re.search(what, f"{message} | {case}") for s, what, _ in KNOWN)


@dataclass(frozen=True)
class Work:
    """A range of a stream's cases. The worker waits for the device once a block."""

    stream: str
    seed: int
    first: int
    count: int
    block: int


class Died(Exception):
    """The worker is gone, or had to be ended, at a block."""

    def __init__(self, first: int, reason: str) -> None:
        super().__init__(reason)
        self.first = first


class Worker:
    """A process that runs cases, and its pipes."""

    def __init__(self, device: str, modules: list[str], timeout: float) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="fuzz")
        self.position, self.log = Path(self.folder.name, "position"), Path(self.folder.name, "stderr")
        self.position.write_bytes(POSITION.pack(-1, 0))
        self.timeout = timeout
        command = [sys.executable, "-m", "tools.fuzz.worker", device, str(self.position), *modules]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={"OMP_NUM_THREADS": "1", **os.environ},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.buffer = b""
        try:
            self.answer(STARTING)
        except BaseException:
            self.end()
            raise

    def at(self) -> tuple[int, int]:
        return POSITION.unpack(self.position.read_bytes())

    def answer(self, timeout: float) -> dict[str, Any]:
        """The next line; Died when the process has ended, or has begun no block for `timeout` seconds."""
        seen, since = self.at(), time.monotonic()
        assert self.process.stdout is not None
        while b"\n" not in self.buffer:
            if select.select([self.process.stdout], [], [], 0.2)[0]:
                data = os.read(self.process.stdout.fileno(), 1 << 16)
                if not data:
                    raise Died(self.at()[0], self.last_words())
                self.buffer += data
            elif self.at() != seen:
                seen, since = self.at(), time.monotonic()
            elif time.monotonic() - since > timeout:
                raise Died(self.at()[0], f"hung: no end after {timeout:.0f} s")
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def last_words(self) -> str:
        status = self.process.wait()
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return f"crashed: {how}" + (f": {lines[-1][:200]}" if lines and status > 0 else "")

    def run(self, work: Work, report: Callable[[int, str, str], None]) -> tuple[int, bool]:
        """How many cases there were, and whether the stream has ended."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # the answer says why
            self.process.stdin.write(json.dumps(vars(work)).encode() + b"\n")
            self.process.stdin.flush()
        while True:
            answer = self.answer(self.timeout)
            if "ran" in answer:
                return answer["ran"], answer["ended"]
            report(answer["number"], answer["case"], answer["message"])

    def end(self) -> None:
        self.process.kill()
        with suppress(BrokenPipeError):
            self.process.communicate()
        self.folder.cleanup()


class Fuzzer:
    """Hands out the work, and keeps what came of it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.lock = threading.Lock()
        self.ended: set[str] = set()  # streams without further cases
        self.stopped = False
        self.cases: Counter[str] = Counter()
        self.findings: dict[tuple[str, int], dict[str, Any]] = {}
        self.start = time.monotonic()
        self.work = self.every_work()
        self.block = 16 if torch.device(options.device).type == "cuda" else 1

    def seconds(self) -> float:
        return time.monotonic() - self.start

    def every_work(self) -> Iterator[Work]:
        """All streams in turn, until there are cases or minutes enough; of those, this process's shard."""
        index, count = map(int, self.options.shard.split("/"))
        left, first = self.options.cases, 0
        while len(self.ended) < len(self.options.ops):
            for number, stream in enumerate(self.options.ops, first // CHUNK):
                if self.options.minutes is not None and self.seconds() > 60 * self.options.minutes:
                    return
                if stream in self.ended:
                    continue
                size = CHUNK
                if left is not None and not stream.startswith("opinfo."):  # torch's samples come on top
                    size = min(CHUNK, left)
                    left -= size
                if self.stopped or size == 0:
                    return
                if number % count == index - 1:  # ended streams have numbers too: processes see them end at other times
                    yield Work(stream, self.options.seed, first, size, self.block)
            first += CHUNK

    def next_work(self) -> Work | None:
        with self.lock:
            return next(self.work, None)

    def record(self, stream: str, number: int, case: str, message: str) -> None:
        with self.lock:
            if (stream, number) in self.findings:
                return
            replay = f"{stream} {self.options.seed} {number}"
            known = is_known(stream, message, case)
            self.findings[stream, number] = {"replay": replay, "case": case, "message": message, "known": known}
            shown = sum(s == stream and not f["known"] for (s, _), f in self.findings.items())
            if not known and shown <= SHOWN:
                command = f"python -m tools.fuzz --device {self.options.device} --replay '{replay}'"
                print(f"FAILED {stream}: {message}\n    {case}\n    {command}", flush=True)

    def count(self, stream: str, cases: int) -> None:
        with self.lock:
            self.cases[stream] += cases

    def job(self) -> None:
        """One worker after the other, until there is no more work."""
        worker: Worker | None = None
        try:
            while work := self.next_work():
                todo = [work]
                while todo:
                    work = todo.pop()
                    try:
                        if worker is None:
                            worker = Worker(self.options.device, self.options.use, self.options.timeout)
                        ran, ended = worker.run(work, lambda *what, stream=work.stream: self.record(stream, *what))
                        self.count(work.stream, ran)
                        if ended:
                            with self.lock:
                                self.ended.add(work.stream)
                    except Died as died:
                        if worker is None:
                            raise RuntimeError(f"a worker did not start: {died}") from None
                        worker.end()
                        worker = None
                        todo = [] if self.stopped else [*todo, *self.after(work, died)]
        finally:
            if worker:
                worker.end()

    def after(self, work: Work, died: Died) -> list[Work]:
        """What is left of the work. A block in which the worker died is run again, case by case."""
        end, stop = work.first + work.count, min(died.first + work.block, work.first + work.count)
        self.count(work.stream, died.first - work.first)
        rest = [replace(work, first=stop, count=end - stop)] if stop < end else []
        if work.block > 1:
            return [*rest, replace(work, first=died.first, count=stop - died.first, block=1)]
        self.count(work.stream, 1)
        self.record(work.stream, died.first, "", str(died))
        return rest

    def run(self) -> dict[str, Any]:
        with ThreadPoolExecutor(self.options.jobs) as pool:
            try:
                for job in [pool.submit(self.job) for _ in range(self.options.jobs)]:
                    job.result()
            finally:
                self.stopped = True
        failed = [f for f in self.findings.values() if not f["known"]]
        of = Counter(stream for (stream, _), f in self.findings.items() if not f["known"])
        kept: list[dict[str, Any]] = []
        for stream in self.options.ops:
            kept += [f for (s, _), f in sorted(self.findings.items()) if s == stream][:KEPT]
        return {
            "device": torch.cuda.get_device_name() if self.block > 1 else "cpu",
            "seed": self.options.seed,
            "seconds": round(self.seconds(), 1),
            "cases": self.cases.total(),
            "failures": len(failed),
            "crashes": sum(f["message"].startswith("crashed: ") for f in failed),
            "hangs": sum(f["message"].startswith("hung: ") for f in failed),
            "known": len(self.findings) - len(failed),
            "ops": {s: {"cases": self.cases[s], "failures": of[s]} for s in self.options.ops if self.cases[s] or of[s]},
            "findings": kept,
        }


def replay(which: str, device: str) -> int:
    """Runs one case in this process."""
    case = re.fullmatch(r"(\S+) (\d+) (\d+)", which.strip())
    if case is None or case[1] not in STREAMS:
        sys.exit(f"fuzz: --replay: expected 'OP SEED CASE' as a failure prints it, got {which!r}")
    stream, seed, number = case.groups()
    found: list[str] = []

    def report(_: int, case: str, message: str) -> None:
        found.append(message)
        print(f"FAILED {stream}: {message}\n    {case}")

    first = int(number)
    if not run_block(stream, int(seed), range(first, first + 1), torch.device(device), report):
        sys.exit(f"fuzz: {stream} has no case {number}")
    print("failed" if found else "passed")
    return bool(found)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cuda = torch.cuda.is_available()
    parser.add_argument("--minutes", type=float, help="how long (default: 5, or without end where --cases is given)")
    parser.add_argument("--cases", type=int, help="how many random cases of all ops together")
    parser.add_argument("--seed", type=int, help="which cases (default: others at every run)")
    parser.add_argument("--ops", nargs="+", metavar="OP", default=STREAMS, help=f"some of: {' '.join(STREAMS)}")
    parser.add_argument("--device", default="cuda" if cuda else "cpu", help="cpu or cuda")
    parser.add_argument("--jobs", type=int, help="worker processes (default: a core each, at most 8)")
    parser.add_argument("--timeout", type=float, default=120, metavar="S", help="a case that takes longer has hung")
    parser.add_argument("--repeats", type=int, default=2, metavar="N", help="calls of a case, all with the same bits")
    parser.add_argument("--shard", type=shard, default="1/1", metavar="I/N", help="run the I-th of N parts only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write counts and failures")
    parser.add_argument("--use", nargs="+", default=[], metavar="MODULE", help="imported by the workers first")
    parser.add_argument("--replay", metavar="'OP SEED CASE'", help="run one case in this process")
    options = parser.parse_args(arguments)
    if torch.device(options.device).type == "cuda" and not cuda:
        parser.error("--device cuda: there is no NVIDIA GPU here")
    if options.repeats < 2:
        parser.error(f"--repeats: expected a number of at least 2, got {options.repeats}")
    os.environ[REPEATS] = str(options.repeats)  # of the workers too
    if options.replay:
        for module in options.use:
            importlib.import_module(module)
        return replay(options.replay, options.device)
    if unknown := set(options.ops) - set(STREAMS):
        parser.error(f"--ops: expected some of {' '.join(STREAMS)}, got {' '.join(sorted(unknown))}")
    if options.cases is not None and options.cases < 0:
        parser.error(f"--cases: expected a number of at least 0, got {options.cases}")
    options.jobs = options.jobs or min(8, os.cpu_count() or 1)
    options.seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    if options.minutes is None and options.cases is None:
        options.minutes = 5.0
    print(f"fuzz: seed {options.seed}, {options.jobs} workers on {options.device}", flush=True)
    result = Fuzzer(options).run()
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(
        "fuzz: {cases} cases in {seconds} s on {device}, seed {seed}: {failures} failures "
        "({crashes} crashes, {hangs} hangs), {known} known".format(**result)
    )
    return result["failures"] > 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())

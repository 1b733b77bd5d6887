"""The process that runs cases. It may die or hang: the parent reads from a file which case it was at."""

import importlib
import json
import os
import struct
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import torch

from tools.fuzz import bad, check
from tools.fuzz.check import CUDA_ERROR, Finding, Wrong
from tools.fuzz.draw import Draw
from tools.fuzz.ops import OPS
from tools.fuzz.samples import Sample, Unavailable, streams

BAD = 0.15  # of all cases have a bad argument
STREAMS = [*OPS, *streams()]
POSITION = struct.Struct("qq")  # the first case of the block at hand, and how many blocks have begun


def begin(stream: str, seed: int, number: int, device: torch.device) -> tuple[Any, Iterator[Finding]]:
    """The case, and what is to be checked of it."""
    draw = Draw(stream, seed, number, device)
    if stream.startswith("opinfo."):
        sample = Sample(draw, stream.removeprefix("opinfo."), seed, number)
        return sample, sample.run()
    with_bad_argument = draw.chance(BAD)
    case = OPS[stream](draw)
    return case, bad.run(case, draw) if with_bad_argument else check.run(case, draw)


def attempt(stream: str, seed: int, number: int, device: torch.device) -> tuple[Any, list[Finding], str]:
    """A case, what the device has yet to say of it, and what is wrong with it already."""
    case: Any = None
    findings: list[Finding] = []
    try:
        case, checks = begin(stream, seed, number, device)
        for finding in checks:
            findings.append(finding)
    except Wrong as wrong:
        return case, findings, str(wrong)
    except (StopIteration, Unavailable):
        raise
    except Exception as error:
        if CUDA_ERROR.search(str(error)):
            raise
        return case, findings, "the fuzzer itself: " + " | ".join(traceback.format_exc(limit=-2).split("\n")[1:])
    return case, findings, ""


def run_block(
    stream: str, seed: int, numbers: range, device: torch.device, report: Callable[[int, str, str], None]
) -> int:
    """Runs cases one after the other, waits for the device once, reports the failed ones: how many cases there were."""
    pending: list[tuple[int, Any, Finding]] = []
    ran = 0
    for number in numbers:
        try:
            case, findings, wrong = attempt(stream, seed, number, device)
        except (StopIteration, Unavailable):
            break
        if wrong:
            report(number, str(case), wrong)
        pending += [(number, case, finding) for finding in findings]
        ran += 1
    failed = set()
    if pending:
        good = torch.stack([finding.ok for _, _, finding in pending]).tolist()
        for (number, case, finding), ok in zip(pending, good, strict=True):
            if not ok and number not in failed:
                failed.add(number)
                report(number, str(case), finding.message())
    return ran


def serve(position: int, requests: TextIO, answers: TextIO, device: torch.device) -> None:
    """Answers each request, {"stream", "seed", "first", "count", "block"}, by its failures and a last line."""

    def report(number: int, case: str, message: str) -> None:
        print(json.dumps({"number": number, "case": case, "message": message}), file=answers, flush=True)

    begun = 0
    for line in requests:
        request = json.loads(line)
        first, end, ran = request["first"], request["first"] + request["count"], 0
        while first < end:
            block = range(first, min(first + request["block"], end))
            begun += 1
            os.pwrite(position, POSITION.pack(first, begun), 0)
            count = run_block(request["stream"], request["seed"], block, device, report)
            ran += count
            first = block.stop if count == len(block) else end
        print(json.dumps({"ran": ran, "ended": ran < request["count"]}), file=answers, flush=True)


def main(device: str, position: str) -> None:
    """Requests come on stdin, answers go to what was stdout; whatever else prints goes to stderr."""
    warnings.filterwarnings("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    chosen = torch.device(device)
    if chosen.type == "cuda":
        torch.zeros(1, device=chosen)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    serve(os.open(position, os.O_WRONLY | os.O_CREAT), sys.stdin, answers, chosen)


if __name__ == "__main__":
    for module in sys.argv[3:]:
        importlib.import_module(module)
    main(sys.argv[1], sys.argv[2])

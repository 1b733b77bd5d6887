"""How contenders are timed: each is a `torch.utils.benchmark.Timer`, and their blocks of calls take turns."""

import statistics
import sys
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch.utils.benchmark import Measurement, Timer
from torch.utils.benchmark import timer as synchronised_clock

from benchmarks.common.cases import Contender
from benchmarks.common.machine import Gpu, Reading

WARM_UP = 2  # runs of the statement that Timer.timeit makes before it starts the clock (or 1 % of the block's)
LEAST = 8  # runs of the statement in a block: its warm-up is at most a fifth of the whole
LONG_S, LEAST_LONG = 0.03, 3  # so many of a statement that takes longer, as large models do: the clocks keep still
LAUNCH_QUEUE = 100  # calls that the host issues before it waits for the device, where the host is what is timed


@dataclass
class Runner:
    """One contender made ready for one way of measuring, and the blocks measured so far."""

    contender: Contender
    timer: Timer
    calls: int = 1  # of the contender in one run of the statement
    batch: int = sys.maxsize  # the most runs between two readings of the clock; a block of more adds up its batches
    number: int = 1  # runs of the statement in a block
    calibrated_s: float = 0.0  # of one run
    blocks: list[Measurement] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)  # of the GPU, during the blocks

    def block(self, number: int) -> Measurement:
        """One block of `number` runs; its times are seconds a call."""
        batches = range(0, number, self.batch)
        parts = [self.timer.timeit(min(self.batch, number - first)) for first in batches]
        return Measurement(number * self.calls, [sum(part.raw_times[0] for part in parts)], parts[0].task_spec)

    def measurement(self) -> Measurement:
        """All blocks as one Measurement."""
        first = self.blocks[0]
        return Measurement(first.number_per_run, [block.raw_times[0] for block in self.blocks], first.task_spec)

    def condition(self) -> dict[str, float | None]:
        """SM clock and board power during the blocks: medians, None where nothing was read."""
        clocks = [reading.clock_mhz for reading in self.readings]
        watts = [reading.watts for reading in self.readings if reading.watts is not None]
        return {
            "clock_mhz": round(statistics.median(clocks)) if clocks else None,
            "watts": round(statistics.median(watts), 1) if watts else None,
        }

    @property
    def call_s(self) -> float:
        """Seconds of one call: measured, or as calibrated."""
        return self.measurement().median if self.blocks else self.calibrated_s / self.calls

    @property
    def block_s(self) -> float:
        """Seconds that a block will take, the Timer's warm-up included."""
        return (self.number + max(WARM_UP, self.number // 100)) * self.calibrated_s

    def calibrate(self, block_s: float) -> None:
        """Warms up and chooses the runs of a block: enough for `block_s` seconds, and a least."""
        with self.contender.context():
            seconds = self.block(1).raw_times[0]
            if seconds < block_s:  # a first block of short calls tells little
                number = max(1, int(block_s / 4 / max(seconds, 1e-7)))
                seconds = self.block(number).raw_times[0] / number
        self.number = max(LEAST if seconds < LONG_S else LEAST_LONG, int(block_s / max(seconds, 1e-7)))
        self.calibrated_s = seconds


def new_timer(statement: str, scope: dict, clock: Callable = synchronised_clock, **names: str) -> Timer:
    """A Timer that leaves torch's number of threads as it is. `names`: label, sub_label, description; and setup."""
    return Timer(statement, globals=scope, timer=clock, num_threads=torch.get_num_threads(), **names)


def eager_runner(contender: Contender, sets: list[tuple], **names: str) -> Runner:
    """Calls from Python, over the sets in turn; with several, outputs stay alive for a turn: they rotate too."""
    call, outputs = contender.call, [None] * len(sets)
    if len(sets) == 1:
        return Runner(contender, new_timer("call(*inputs)", {"call": call, "inputs": sets[0]}, **names))

    def turn() -> None:
        for i, inputs in enumerate(sets):
            outputs[i] = call(*inputs)

    return Runner(contender, new_timer("turn()", {"turn": turn}, **names), len(sets))


def host_runner(contender: Contender, sets: list[tuple], **names: str) -> Runner:
    """Time until the call has returned, the device not awaited; batches too short to fill the launch queue."""
    scope = {"call": contender.call, "inputs": sets[0], "wait_for_device": synchronised_clock}
    timer = new_timer("call(*inputs)", scope, timeit.default_timer, setup="wait_for_device()", **names)
    return Runner(contender, timer, batch=LAUNCH_QUEUE)


class DeviceTime:
    """A point in the work of torch's current CUDA stream. As a Timer's clock: the difference of two is in seconds."""

    def __init__(self) -> None:
        self.event = torch.cuda.Event(enable_timing=True)
        self.event.record()

    def __sub__(self, earlier: "DeviceTime") -> float:
        self.event.synchronize()
        return earlier.event.elapsed_time(self.event) / 1e3


def graph_runner(contender: Contender, sets: list[tuple], calls: int, **names: str) -> Runner:
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
    timer = new_timer("graph.replay()", {"graph": graph}, DeviceTime, setup="torch.cuda.synchronize()", **names)
    return Runner(contender, timer, calls)


def interleave(runners: list[Runner], budget_s: float, rounds: int, gpu: Gpu | None) -> None:
    """Blocks in turn, forward and backward, so that drift of the clocks meets every contender alike."""
    total = sum(runner.block_s for runner in runners)
    rounds = int(max(3, min(rounds, budget_s / max(total, 1e-9))))
    for round_ in range(rounds):
        for runner in runners if round_ % 2 == 0 else reversed(runners):
            with runner.contender.context():
                started = time.monotonic()
                runner.blocks.append(runner.block(runner.number))
            if gpu:
                runner.readings += gpu.readings(started, time.monotonic())


def quartiles_s(measurement: Measurement) -> tuple[float, float]:
    """Seconds a call: what a quarter of the blocks stays under, and what a quarter of them exceeds."""
    low, _, high = statistics.quantiles(measurement.times, n=4, method="inclusive")
    return low, high

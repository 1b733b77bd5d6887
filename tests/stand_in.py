"""A stand-in for a GPU, for programs that time kernels: an H200 of little memory whose tensors are the CPU's.

A graph's replay only waits as long as its calls took, at most 1 ms.
"""

import contextlib
import time
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

H200 = types.SimpleNamespace(name="NVIDIA H200", uuid="0", L2_cache_size=1 << 16, total_memory=1 << 24)


class Event:
    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.time = time.perf_counter()

    def synchronize(self) -> None:
        self.awaited = True

    def elapsed_time(self, end: "Event") -> float:
        assert end.awaited
        return 1e3 * (end.time - self.time)


class Stream:
    def wait_stream(self, other: "Stream") -> None:
        pass

    def synchronize(self) -> None:
        pass


class Graph:
    capturing = False

    def replay(self) -> None:
        end = time.perf_counter() + min(self.seconds, 1e-3)
        while time.perf_counter() < end:
            pass


@contextlib.contextmanager
def capture(graph: Graph, stream: Stream) -> Iterator[None]:
    Graph.capturing, start = True, time.perf_counter()
    try:
        yield
    finally:
        Graph.capturing, graph.seconds = False, time.perf_counter() - start


def synchronize() -> None:
    assert not Graph.capturing, "operation not permitted when stream is capturing"


class OnCpu(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if torch.device(kwargs.get("device") or "cpu").type == "cuda":
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


@contextlib.contextmanager
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    fakes = {
        **{"is_available": lambda: True, "get_device_properties": lambda *_: H200},
        "get_device_name": lambda *_: H200.name,
        **{"Event": Event, "Stream": Stream, "current_stream": Stream, "stream": contextlib.nullcontext},
        **{"CUDAGraph": Graph, "graph": capture, "synchronize": synchronize, "empty_cache": lambda: None},
        **{"memory_reserved": lambda: 17 << 30, "memory_allocated": lambda: 100, "max_memory_allocated": lambda: 300},
        "reset_peak_memory_stats": lambda: None,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    with OnCpu():
        yield

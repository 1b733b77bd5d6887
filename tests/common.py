"""Helpers of all operators' tests: data in unusual layouts, poisoned outputs, float64 references, error bounds."""

import fcntl
import io
import math
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

SANITIZER = os.environ.get("XGEMM_SANITIZER", "")  # the tool that watches this process (tools/gpu_tests.py)
SANITIZED = bool(SANITIZER)  # fewer and smaller cases: racecheck takes 0.1 to 2 s per launch
CSRC = Path(__file__).parents[1] / "csrc"
FLOATING = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
OPS_ALONG_DIMS = ["sum", "mean", "amax", "amin", "argmax", "argmin", "logsumexp", "softmax", "log_softmax"]
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **{"none": lambda x: x, "relu": F.relu, "gelu": F.gelu, "silu": F.silu},
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


class Recorder(TorchDispatchMode):
    """The operators that run, their arguments by name and results; none of torch's own may be `forbidden`."""

    def __init__(self, forbidden: str = "") -> None:
        super().__init__()
        self.forbidden, self.seen = forbidden, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.partition("::")[2]
        assert func.namespace == "xgemm" or not re.fullmatch(self.forbidden, name), name
        result = func(*args, **(kwargs or {}))
        self.seen.append(SimpleNamespace(func=func, kwargs=kwargs or {}, result=result))
        return result

    @property
    def ours(self) -> list[SimpleNamespace]:
        return [call for call in self.seen if call.func.namespace == "xgemm"]

    @property
    def counts(self) -> Counter[str]:
        return Counter(str(call.func) for call in self.ours)


def TorchMath() -> Recorder:
    """Fails on a product, softmax or attention that torch does itself."""
    return Recorder(r"mm|addmm|bmm|baddbmm|_softmax|_log_softmax|.*attention.*")


def runs_hopper_kernels() -> bool:
    """Is there a Hopper GPU, and not made another architecture by XGEMM_ARCH?"""
    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9 and not os.environ.get("XGEMM_ARCH")


def on_hopper(test: Callable[..., None]) -> Callable[..., None]:
    return pytest.mark.cuda(pytest.mark.skipif(not runs_hopper_kernels(), reason="needs a Hopper GPU")(test))


def tile_names(family: str) -> list[str]:
    """A family's tiles in csrc/matmul/plan/tiles.h, in its order."""
    table = (CSRC / "matmul" / "plan" / "tiles.h").read_text()
    return re.findall(rf'^    (?:\{{|\w+\()"({family}_\w+)"', table, re.MULTILINE)


def randn(*shape: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> torch.Tensor:
    """Signed normal data, generated in float64 so that every dtype rounds the same values."""
    return torch.randn(shape, dtype=torch.float64, device=device).to(dtype)


def needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"no {program}")


def run(*command: object, check: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=check, **options)


def compile_host_code(folder: Path, *arguments: str | Path) -> None:
    """Runs the C++ compiler in `folder` with the build's warnings, on csrc's host code; -O0 compiles fastest."""
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if not compiler:
        pytest.skip("no C++ compiler")
    flags = ["-std=c++20", "-O0", "-Wall", "-Wextra", "-Werror", f"-I{CSRC}"]
    subprocess.run([compiler, *flags, *arguments], check=True, cwd=folder)


def compile_program(folder: Path, program: str, *sources: str | Path) -> Path:
    """Compiles a C++ program with host code of csrc (`sources`: paths below csrc) that tests then query."""
    (folder / "main.cpp").write_text(program)
    compile_host_code(folder, "main.cpp", *(CSRC / source for source in sources), "-o", "program")
    return folder / "program"


def compiled_once(factory: pytest.TempPathFactory, program: Path, *sources: Path) -> Path:
    """A C++ program with host code of csrc, compiled once for all processes of pytest-xdist.

    As one file: most of the compiler's time goes to the standard library's headers.
    """
    temporary = factory.getbasetemp()
    folder = (temporary.parent if "PYTEST_XDIST_WORKER" in os.environ else temporary) / program.stem
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "program").exists():
            compile_program(folder, "".join(f'#include "{source}"\n' for source in (*sources, program)))
    return folder / "program"


@contextmanager
def conversation(program: Path) -> Iterator[Callable[..., list[str]]]:
    """Runs a program that answers each line of words with a line of words."""
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(*words: object) -> list[str]:
        process.stdin.write(" ".join(map(str, words)) + "\n")
        process.stdin.flush()
        return process.stdout.readline().split()

    yield ask
    process.stdin.close()
    assert process.wait() == 0


def poison(device: torch.device | str, megabytes: int = 64) -> None:
    """Leaves freed blocks full of NaN in the allocator, so that an output element that is not written shows."""
    if torch.device(device).type != "cuda" or SANITIZED:
        return  # initcheck finds such an element itself, and large copies are slow under a sanitizer
    sizes = (512, 4096, 1 << 16, 1 << 20, megabytes << 20)
    _ = [torch.full((size // 4,), float("nan"), device=device) for size in sizes]  # freed as the function returns


def foreign(dtype: torch.dtype) -> float | int:
    """The value of storage outside a view: it shows in any result that reads it."""
    return float("nan") if dtype.is_floating_point else 1


def misaligned(x: torch.Tensor) -> torch.Tensor:
    """The same values, contiguous, at a storage offset of one element: no vector access is aligned."""
    storage = torch.full((x.numel() + 1,), foreign(x.dtype), dtype=x.dtype, device=x.device)
    return storage[1:].view(x.shape).copy_(x)


def transposed(x: torch.Tensor) -> torch.Tensor:
    """The same values and shape, the last two dims stored in reverse order."""
    return x.mT.contiguous().mT


def sliced(x: torch.Tensor) -> torch.Tensor:
    """The same values as every second element of the last dim of a larger tensor."""
    wide = torch.full((*x.shape[:-1], 2 * x.shape[-1] + 1), foreign(x.dtype), dtype=x.dtype, device=x.device)
    view = wide[..., 1::2][..., : x.shape[-1]]
    return view.copy_(x)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda x: x.contiguous(),
    "misaligned": misaligned,
    "transposed": transposed,
    "sliced": sliced,
}


def componentwise_error(c: torch.Tensor, c64: torch.Tensor, scale: torch.Tensor) -> float:
    """max |c - c64| / scale, where scale is |A||B| (or the sum of |x|), as in SGEMM's error bound."""
    if c.numel() == 0:
        return 0.0
    error = (c.double() - c64).abs()
    assert not torch.isnan(error).any(), "NaN in the result"
    return (error / scale.clamp_min(torch.finfo(torch.float64).tiny)).max().item()


def assert_as_good_as(
    ours: torch.Tensor, theirs: torch.Tensor, reference: torch.Tensor, *, ulps: float = 1.0, noise: float = 0.0
) -> None:
    """Our error is at most twice torch's, `ulps` roundings of the largest element and `noise` in all."""
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    if ours.numel() == 0:
        return
    error, allowed = (ours.double() - reference).abs(), (theirs.double() - reference).abs()
    assert not torch.isnan(error).any(), "NaN in the result"
    floor = ulps * torch.finfo(ours.dtype).eps * reference.abs().max().item() + noise
    assert error.max().item() <= 2 * allowed.max().item() + floor


def assert_product(
    out: torch.Tensor, theirs: Callable[[], torch.Tensor], exact: torch.Tensor, scale: torch.Tensor, k: int
) -> None:
    """SGEMM's error bound; in half precision the error is at most twice torch's."""
    if out.dtype in (torch.float16, torch.bfloat16):
        assert_as_good_as(out, theirs(), exact)
    else:
        assert componentwise_error(out, exact, scale) <= (2 * math.sqrt(k) + 8) * torch.finfo(out.dtype).eps / 2


def saved_and_loaded(module: torch.nn.Module) -> torch.nn.Module:
    torch.save(module, file := io.BytesIO())
    file.seek(0)
    return torch.load(file, weights_only=False)


def tuple_of(result: object) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def check_replays(call: Callable[[], object], *inputs: torch.Tensor, replays: int = 1) -> None:
    """A captured call reads its inputs anew in each replay, and has the bits of a plain call."""
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call()
    for _ in range(replays):
        for x in inputs:
            x.copy_(torch.randn_like(x))
        for y in tuple_of(captured):
            y.fill_(foreign(y.dtype))
        graph.replay()
        assert all(torch.equal(y, z) for y, z in zip(tuple_of(captured), tuple_of(call()), strict=True))


def on_streams(calls: Sequence[Callable[[], Any]], times: int) -> list[Any]:
    """The results of the calls, each on a stream of its own, `times` times in turn."""
    streams, results = [torch.cuda.Stream() for _ in calls], []
    torch.cuda.synchronize()
    for _ in range(times):
        for call, stream in zip(calls, streams, strict=True):
            with torch.cuda.stream(stream):
                results.append(call())
    torch.cuda.synchronize()
    return results


def check_side_stream(call: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> None:
    """The inputs are written late on another stream: a launch that does not wait for that would read NaN."""
    expected, late, stream = call(*inputs), [torch.full_like(x, math.nan) for x in inputs], torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        for y, x in zip(late, inputs, strict=True):
            y.copy_(x)
        output = call(*late)
    stream.synchronize()
    assert torch.equal(output, expected)


@contextmanager
def torch_in_tf32(allowed: bool) -> Iterator[None]:
    before, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def kernels_of(f: Callable[[], object]) -> list[str]:
    """The names of what a second call runs on the GPU."""
    f()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        f()
        torch.cuda.synchronize()
    cuda = torch.autograd.DeviceType.CUDA
    return [e.name for e in profile.events() if e.device_type == cuda and "Synchronize" not in e.name]


def torchs_on(device: torch.device, ours: torch.Tensor, exact: torch.Tensor, its: torch.Tensor) -> torch.Tensor:
    """`exact`; on a CPU torch's own in that dtype where we have it: oneDNN's Inf and NaN depend on the CPU."""
    return exact if device.type != "cpu" else torch.where(torch.isclose(ours, its, equal_nan=True), its, exact)


def sanitized(parameters: Iterable[Any], *chosen: Any) -> list[Any]:
    """Marks the chosen parameters for the sanitizers, which are 10 to 50 times slower than a plain run."""

    def marked(p: Any) -> Any:
        return pytest.param(*(p if isinstance(p, tuple) else (p,)), marks=pytest.mark.sanitize) if p in chosen else p

    return [marked(p) for p in parameters]

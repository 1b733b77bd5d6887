"""Shared set-up: the device fixture, the cuda marker, poisoned memory."""

import functools
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from common import runs_hopper_kernels
from emulation.build import build, cuda_include

import torch_ext
from tools.gpu_tests import NO_GPU
from torch_ext._load import build_info

# The name of pytest-xdist's process (`-n`), empty without it.
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")

# These files first: a process that has nothing left takes over tests from the end of another's list, and would make
# again what a file's tests share.
LONG = {
    *("test_attention_wgmma", "test_attention_fp16_split", "test_emulation", "test_plan_costs"),
    *("test_attention_sequences", "test_attention_mma", "test_distributed", "test_loading", "test_fuzz"),
}


# They say what Hopper serves: elsewhere fp64, TF32 and attention in fp32 are torch's, and the lab ends early.
OF_HOPPER = {"test_enable", "test_export", "test_lab_kernels", "test_replace", "test_sdpa_registry"}


# The lab's calls are in a library with CUDA alone.
collect_ignore_glob = [] if build_info()["cuda"] else ["test_lab*"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cuda: needs an NVIDIA GPU")
    if WORKER:
        torch.set_num_threads(max(1, torch.get_num_threads() // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])))


def pytest_xdist_auto_num_workers() -> int:
    """Processes of `-n auto`: one if there is a GPU, whose memory large tests fill; each takes 2 GB of host memory."""
    return 1 if torch.cuda.is_available() else min(4, len(os.sched_getaffinity(0)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in LONG)
    if torch.cuda.is_available():
        if not runs_hopper_kernels():
            skip = pytest.mark.skip(reason="says what a Hopper GPU serves")
            for item in items:
                if "cuda" in item.keywords and item.path.stem in OF_HOPPER:
                    item.add_marker(skip)
        return
    if WORKER:  # to skip a test costs both processes milliseconds, and half of the tests need a GPU
        items[:] = [item for item in items if "cuda" not in item.keywords]
        return
    skip = pytest.mark.skip(reason=NO_GPU)
    for item in items:
        if "cuda" in item.keywords:
            item.add_marker(skip)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("numprocesses", None) and not torch.cuda.is_available():
        terminalreporter.write_line(f"{NO_GPU}: tests marked cuda are left out")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Runs the test on the CPU and, where there is one, on the GPU."""
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def fresh_seed(request: pytest.FixtureRequest) -> None:
    """Fresh random data on every run; the seed is printed when the test fails."""
    seed = torch.seed() & 0x7FFFFFFF
    torch.manual_seed(seed)
    request.node.user_properties.append(("seed", seed))
    print(f"torch.manual_seed({seed})")


@pytest.fixture(autouse=True)
def memory_is_given_back() -> Iterator[None]:
    """What a large test has reserved: processes side by side (tools/gpu_tests.py --jobs) share the GPU's memory."""
    yield
    if torch.cuda.is_available() and torch.cuda.memory_reserved() > 4 << 30:
        torch.cuda.empty_cache()


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    """No test meets what another one has compiled."""
    yield
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()


@pytest.fixture(scope="session")
def emulator() -> None:
    if platform.machine() != "x86_64" or platform.system() != "Linux" or shutil.which("g++") is None:
        pytest.skip("the emulator needs g++ on x86-64 Linux")
    try:
        cuda_include()
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def emulated(emulator: None) -> Callable[..., Path]:
    """Builds tests/emulation/programs/NAME.cpp, with more sources, for the emulator."""
    folder = Path(__file__).resolve().parents[1] / "build" / "emulation"

    @functools.cache
    def make(name: str, *more: Path, reads: bool = False) -> Path:
        source = Path(__file__).resolve().parent / "emulation" / "programs" / f"{name}.cpp"
        return build([source, *more], folder / (f"{name}_reads" if reads else name), folder, reads=reads)

    return make


@pytest.fixture
def float32_precision() -> Iterator[Callable[[str], None]]:
    before = torch.get_float32_matmul_precision()
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision(before)


@pytest.fixture
def batch_invariant() -> Iterator[None]:
    """The mode in which a row's bits depend on its own data alone, until the end of the test."""
    with torch_ext.batch_invariant():
        yield


@pytest.fixture
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)

"""Where the kernels' memory comes from (csrc/torch/cuda.cpp), with a CUDA runtime that is made up; and on a GPU."""

import ctypes
import os
import sys
from pathlib import Path

import pytest
import torch
from common import CSRC, compile_host_code, randn, run

import torch_ext
from tools import find_nvcc

PROGRAM = r"""
#include <dlfcn.h>

#include <cstdlib>
#include <iostream>

#include "device/counters.h"
#include "torch/cuda.h"

int mallocs = 0, memsets = 0, of_torch = 0;
bool full = false, capturing = false;
unsigned long long stream_id = 1;
cudaError_t last = cudaSuccess;
cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal, mode_of_malloc = mode;

extern "C" {
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 9, cudaSuccess; }
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void**, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult*) {
  return cudaErrorNotSupported;  // no green contexts
}
cudaError_t cudaGetLastError() { return std::exchange(last, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
cudaError_t cudaMemGetInfo(std::size_t*, std::size_t*) { return cudaSuccess; }
cudaError_t cudaStreamGetId(cudaStream_t, unsigned long long* id) { return *id = stream_id, cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  return *status = capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone, cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* m) { return std::swap(*m, mode), cudaSuccess; }
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  ++mallocs, mode_of_malloc = mode;
  if (full) return last = cudaErrorMemoryAllocation;
  return *memory = std::malloc(bytes), cudaSuccess;
}
cudaError_t cudaMemsetAsync(void*, int, std::size_t, cudaStream_t) { return ++memsets, cudaSuccess; }
AOTITorchError aoti_torch_get_current_cuda_stream(std::int32_t, void** s) { return *s = nullptr, TORCH_SUCCESS; }
AOTITorchError aoti_torch_get_current_device_index(std::int32_t* index) { return *index = 0, TORCH_SUCCESS; }
AOTITorchError aoti_torch_empty_strided(std::int64_t rank, const std::int64_t* sizes, const std::int64_t* strides,
                                        std::int32_t dtype, std::int32_t, std::int32_t, AtenTensorHandle* out) {
  using Empty = decltype(&aoti_torch_empty_strided);
  static const auto torchs = reinterpret_cast<Empty>(dlsym(RTLD_NEXT, "aoti_torch_empty_strided"));
  return ++of_torch, torchs(rank, sizes, strides, dtype, aoti_torch_device_type_cpu(), 0, out);
}
}

namespace xgemm {
char counters[1 << 16];
void* counters_for_capture(int, std::size_t, cudaStream_t) { return counters; }
void prepare_captures(int) {}
}  // namespace xgemm

int main() {
  const xgemm::TensorView x{.op = "sum", .name = "input", .tensor = nullptr, .data = nullptr, .sizes = {},
                            .strides = {}, .dtype = xgemm::ScalarType::Float, .device_index = 0, .cuda = true};
  const auto say = [&](const char* when, std::size_t partial_bytes) {
    mallocs = memsets = of_torch = 0;
    const xgemm::CudaScope scope(x);
    const xgemm::MeetingPlace place = scope.meeting_place(64, partial_bytes);
    scope.check_launch();
    const bool relaxed = mode_of_malloc == cudaStreamCaptureModeRelaxed && mode == cudaStreamCaptureModeGlobal;
    std::cout << when << (place.counters && place.partials ? "" : " null") << (relaxed ? " relaxed" : "")
              << " cudaMalloc " << mallocs << " torch " << of_torch << " memset " << memsets << "\n";
    mode_of_malloc = cudaStreamCaptureModeGlobal;
    return place.counters;
  };
  const void* const first = say("first", 4096);
  if (say("again", 4096) != first) std::cout << "elsewhere\n";
  say("large", 1 << 20);
  stream_id = 2;
  if (say("stream", 4096) == first) std::cout << "shared\n";
  stream_id = 3, full = true;
  say("full", 4096);
  full = false;
  say("later", 4096);
  stream_id = 4, capturing = true;
  if (say("captured", 4096) != xgemm::counters) std::cout << "elsewhere\n";
  capturing = false;
  int standing = 3;
  for (stream_id = 4; stream_id < 200; ++stream_id) {
    mallocs = 0;
    const xgemm::CudaScope scope(x);
    scope.meeting_place(64, 4096);
    standing += mallocs;
  }
  mode_of_malloc = cudaStreamCaptureModeGlobal;
  std::cout << "of 200 streams " << standing << " have memory of their own\n";
  say("another", 4096);
  stream_id = 1;
  if (say("first", 4096) != first) std::cout << "elsewhere\n";
}
"""


def test_memory_of_a_stream_is_not_of_torchs_pools(tmp_path: Path) -> None:
    """A pool of the caller's (torch.compile's CUDA graphs, torch.cuda.use_mem_pool) keeps nothing after the call."""
    nvcc = find_nvcc.find_nvcc()
    if nvcc is None:
        pytest.skip("no CUDA toolkit")
    home = Path(torch.__file__).parent
    (tmp_path / "main.cpp").write_text(PROGRAM)
    compile_host_code(
        tmp_path,
        *("-fvisibility=hidden", "-DXGEMM_WITH_CUDA"),
        *("-DTORCH_STABLE_ONLY", "-DTORCH_TARGET_VERSION=0x020a000000000000"),
        *(f"-isystem{folder}" for folder in (home / "include", Path(nvcc).resolve().parent.parent / "include")),
        *("main.cpp", *(CSRC / file for file in ("torch/cuda.cpp", "torch/tensor.cpp", "device/properties.cpp"))),
        *(f"-L{home / 'lib'}", f"-Wl,-rpath,{home / 'lib'}", "-Wl,--no-as-needed", "-ltorch_cpu", "-lc10", "-ldl"),
        *("-o", "program"),
    )
    assert run(tmp_path / "program", check=True).stdout.splitlines() == [
        "first relaxed cudaMalloc 1 torch 0 memset 1",
        "again cudaMalloc 0 torch 0 memset 0",
        "large cudaMalloc 0 torch 1 memset 0",
        "stream relaxed cudaMalloc 1 torch 0 memset 1",
        "full relaxed cudaMalloc 1 torch 1 memset 1",
        "later relaxed cudaMalloc 1 torch 0 memset 1",
        "captured cudaMalloc 0 torch 1 memset 0",
        "of 200 streams 32 have memory of their own",
        "another cudaMalloc 0 torch 1 memset 1",
        "first cudaMalloc 0 torch 0 memset 0",
    ]


@pytest.mark.cuda
@torch.no_grad()
def test_cuda_graphs_of_torch_compile_take_ops_with_memory_of_the_stream() -> None:
    """Their warm-up refuses whatever is left in its pool. Many CTAs share a long row's sum, which takes such memory."""
    x = randn(1 << 22, device="cuda", dtype=torch.float32)
    compiled = torch.compile(lambda x: torch_ext.sum(x) * 2, fullgraph=True, mode="reduce-overhead")
    for _ in range(4):  # warm-up, capture, replay
        torch.testing.assert_close(compiled(x), torch_ext.sum(x) * 2)


@pytest.mark.cuda
def test_a_pool_of_the_callers_is_empty_after_the_call() -> None:
    x, stream = randn(1 << 22, device="cuda"), torch.cuda.Stream()
    pool = torch.cuda.MemPool()
    with torch.cuda.stream(stream), torch.cuda.use_mem_pool(pool):
        torch_ext.sum(x)
    torch.cuda.synchronize()
    assert [b for s in pool.snapshot() for b in s["blocks"] if b["state"] == "active_allocated"] == []


@pytest.mark.cuda
def test_streams_that_come_and_go() -> None:
    """Each of 200 streams that are destroyed after one call gives the same bits, also one without standing memory."""
    x = randn(1 << 22, device="cuda")
    wanted = torch_ext.sum(x)
    loaded = Path("/proc/self/maps").read_text().split()
    runtime = ctypes.CDLL(next(word for word in loaded if "libcudart" in word))  # torch's
    for _ in range(200):
        handle = ctypes.c_void_p()
        assert runtime.cudaStreamCreateWithFlags(ctypes.byref(handle), 1) == 0
        stream = torch.cuda.ExternalStream(handle.value)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            found = torch_ext.sum(x)
        stream.synchronize()
        assert torch.equal(found, wanted)
        del found
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # torch's own, of this stream
        assert runtime.cudaStreamDestroy(handle) == 0


CALLS_UNDER_AN_ALLOCATOR = """
import torch, torch_ext
torch.manual_seed(0)
x, a = torch.randn(1 << 22, device="cuda"), torch.randn(64, 65536, device="cuda")
q = torch.randn(1, 2, 9000, 64, device="cuda", dtype=torch.bfloat16)
def calls():
    half, wide = a.bfloat16(), q.float()
    return [torch_ext.sum(x), torch_ext.softmax(a, 1), torch_ext.matmul(a, a.mT), torch_ext.matmul(half, half.mT),
            torch_ext.attention(q[:, :, :1], q, q), torch_ext.attention(wide[:, :, :300], wide, wide)]
with torch.no_grad():
    wanted = calls()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        beside = calls()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = calls()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
for w, b, c in zip(wanted, beside, captured):
    assert torch.isfinite(w).all() and torch.equal(w, b) and torch.equal(w, c)
print(torch.cuda.get_allocator_backend())
"""


@pytest.mark.cuda
@pytest.mark.parametrize("backend", ["cudaMallocAsync", "native"])
def test_other_allocators(backend: str) -> None:
    """Calls, a side stream and replays of a graph, in a process of its own: an allocator is chosen once."""
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": f"backend:{backend}"}
    done = run(sys.executable, "-c", CALLS_UNDER_AN_ALLOCATOR, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [backend]

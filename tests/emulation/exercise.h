// Around an exercise of the lab (torch_ext/lab/exercise.py) that is compiled into a library: what host code may call beside
// launches, and exercise() with the emulator's errors as a text.
#pragma once
#include <cstring>
#include <exception>
#include <string>

#include "device/launch.h"

/// The largest block whose shared memory fits, as on an H200 with up to 32 registers a thread.
template <class... Parameters, class Need>
cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int* grid, int* block, void (*)(Parameters...), Need need,
                                                           int limit = 0) {
  *grid = 264, *block = limit > 0 && limit < 1024 ? limit : 1024;
  while (*block > 32 && need(*block) > 227 * 1024) *block -= 32;
  return cudaSuccess;
}
template <class... Parameters>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, void (*kernel)(Parameters...), std::size_t shared = 0,
                                               int limit = 0) {
  return cudaOccupancyMaxPotentialBlockSizeVariableSMem(grid, block, kernel, [=](int) { return shared; }, limit);
}
#define cudaMemsetAsync(pointer, value, bytes, ...) (std::memset(pointer, value, bytes), cudaSuccess)
#define cudaGetLastError() cudaSuccess

namespace emulation {

inline std::string found;

template <auto f>
struct Guarded;
template <class R, class... Arguments, R (*f)(Arguments...)>
struct Guarded<f> {
  static R call(Arguments... arguments) {
    found.clear();
    try {
      return f(arguments...);
    } catch (const std::exception& e) {
      found = e.what();
      return R();
    }
  }
};

}  // namespace emulation

extern "C" const char* emulation_error() { return emulation::found.c_str(); }
extern "C" void emulation_seed(std::uint64_t seed) { emulation::launch_options() = {.seed = seed}; }
/// Behind the exercise.
#define EMULATED_EXERCISE extern "C" void* const guarded_exercise = reinterpret_cast<void*>(&emulation::Guarded<exercise>::call);

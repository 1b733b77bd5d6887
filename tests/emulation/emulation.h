// A functional emulator of CUDA kernels: the project's unmodified kernels, compiled by g++ (build.py), run on the CPU with every
// CUDA thread as a fiber, so that their logic can be tested where there is no GPU.
//
// Modelled: threads, warps, warpgroups, CTAs, clusters; warp collectives; __syncthreads, named and cluster barriers; mbarriers
//   (arrivals, bytes, phases); TMA and bulk copies, cp.async, st.async; wgmma (shared-memory and register A), mma.sync, ldmatrix,
//   stmatrix; shared memory with its addresses, swizzles and limits; global atomics.
// Asynchronous: a copy or a wgmma happens at a random point between its issue and its wait; each seed draws its own
//   order of threads and its own delays, from "at once" to "as late as possible". While a wgmma is in flight its accumulators
//   read as NaN and its registers must not change.
// Errors (emulation::Error, with the place in the source): deadlock, with what each warp waits for; wrong arrival or thread
//   counts; a phase completed twice while a thread waited; copies in flight at the end, or bytes outstanding of an mbarrier
//   that a thread has waited for or bytes have come to; shared-memory addresses out of bounds in emulated instructions, and
//   writes after the dynamic shared memory; divergent collectives. A vector at an address that is not a multiple of its size
//   ends the program (build.py).
// Not modelled: time, registers, bank conflicts, caches. Memory is sequentially consistent and a thread is only interrupted in
//   emulated instructions, so missing fences and missing volatile are not found. One kind of missing proxy fence is found: the
//   one between a thread's ldmatrix, or (in programs built for it: reads.cpp) plain loads, and a copy by TMA that overwrites
//   what it has read. Tensor cores: products are exact, a wgmma's or mma's sum is one sum in double rounded once to fp32 (a GPU
//   truncates aligned terms), in fp64 a chain of fma.
//
// A test's kernel is launched by
//   emulation::launch(kernel, grid, block, shared_bytes, {.seed = 1, .cluster = 2, .concurrent_ctas = 4}, arguments...);
// and csrc's own host code, whose launches end in emulated versions of device/launch.h, by launch_options() and a plain call.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>

namespace emulation {

using Where = std::source_location;

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// All parts in one string.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// The emulator's schedule. Runs with the same seed are equal.
struct Options {
  std::uint64_t seed = 0;
  unsigned cluster = 1;          ///< CTAs of a cluster, along x
  unsigned concurrent_ctas = 0;  ///< that run at once (whole clusters); 0: one cluster
  bool all_ctas = false;         ///< the whole grid at once, for CTAs that wait for each other through memory
  bool proxy_fences = true;      ///< false: not checked, for kernels that use every value before they release its slot
};

/// Options of csrc's own launches (device/launch.h, <<<>>>); `cluster` comes from the launch.
Options& launch_options();

/// Runs `body` in each thread of the grid. Throws Error.
void run(const std::function<void()>& body, dim3 grid, dim3 block, std::size_t shared_bytes, const Options& options);

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, const Options& options,
            Arguments&&... arguments) {
  const std::tuple<std::remove_const_t<Parameters>...> copies(std::forward<Arguments>(arguments)...);
  run([&] { std::apply(kernel, copies); }, grid, block, shared_bytes, options);
}

/// kernel<<<grid, block, shared_bytes, stream>>> as translate.py writes it.
template <class... Parameters>
auto configured(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes = 0, cudaStream_t = nullptr) {
  return [=](auto&&... arguments) { launch(kernel, grid, block, shared_bytes, launch_options(), arguments...); };
}

// Building blocks of emulated instructions. They act for the running thread.

struct ThreadView {
  uint3 thread, block;
  dim3 block_dim, grid_dim;
};
/// The running thread's indices.
extern const ThreadView* self;

/// Ends the launch with an Error.
[[noreturn]] void fail(const std::string& message);
[[noreturn]] void fail(const std::string& message, Where where);

/// Lets other threads run; `spins`: nothing has happened since the last call (many in a row by all threads are a livelock).
void yield(bool spins = false);
/// Yields now and then.
void maybe_yield();
std::uint64_t random_bits();
/// Grows with every scheduling step.
long long clock_ticks();

/// Waits for all lanes of `mask` that have not exited; the last one to arrive runs compute(arguments of each lane or null).
/// Lanes with the same `compute` and name belong together.
using Arguments32 = void* const (&)[32];
void warp_collective(unsigned mask, void* arguments, void (*compute)(Arguments32), const char* name, Where where);

// Shared memory. Addresses are CTA rank << 24 | offset; offsets 0 to 1023 are never valid.
void* dynamic_shared_memory(std::size_t alignment);
void* static_shared_memory(std::uint64_t key, std::size_t bytes, std::size_t alignment);
template <class T, std::size_t kAlignment = alignof(T)>
T* dynamic_shared() {
  return static_cast<T*>(dynamic_shared_memory(kAlignment));
}
template <class T, std::size_t kAlignment = alignof(T)>
T& static_shared(std::uint64_t key) {
  return *static_cast<T*>(static_shared_memory(key, sizeof(T), kAlignment));
}
std::uint32_t shared_address_of(const void* pointer, Where where);
/// Fails unless all `bytes` are shared memory of the launch, aligned to `alignment`.
void* shared_pointer(std::uint32_t address, std::size_t bytes, std::size_t alignment, Where where);
template <class T>
T* shared(std::uint32_t address, Where where) {
  return static_cast<T*>(shared_pointer(address, sizeof(T), sizeof(T), where));
}

void registers_changed(int registers);
/// A plain read of shared memory, which a copy may overwrite (reads.cpp).
void plain_read(const void* from, std::size_t bytes);

// Asynchronous copies; `to` and `barrier` of store_async are shared addresses.
void cp_async(void* to, const void* from, int bytes, int count, Where where);
void cp_async_wait(int pending);
/// Multicast to the CTAs whose bits are set; 0: to this CTA.
void tensor_load(void* to, const void* map, const void* barrier, std::initializer_list<int> at, unsigned ctas, Where where);
void tensor_store(const void* map, const void* from, std::initializer_list<int> at, Where where);
void bulk_wait_read(int pending);
void store_async(std::uint32_t to, const void* value, int bytes, std::uint32_t barrier, Where where);

// Tensor cores.
enum class MmaType { f16, bf16, tf32 };
template <class T>
  requires(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, float>)
inline constexpr MmaType kMmaType = std::is_same_v<T, __half>  ? MmaType::f16
                                    : std::is_same_v<T, float> ? MmaType::tf32
                                                               : MmaType::bf16;
struct WgmmaShape {
  MmaType type;
  int n;
  bool k_major_a, k_major_b;
};
/// Either `a` (four registers) or desc_a.
void wgmma(const WgmmaShape& shape, float* d, const std::uint32_t* a, std::uint64_t desc_a, std::uint64_t desc_b, bool accumulate,
           Where where);
void wgmma_wait(int pending, Where where);
/// 32 bytes of k: 16 of 16 bits, 8 of tf32.
void mma_m16n8(MmaType type, float* d, const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1, Where where);
/// A 16- or 32-bit operand's value.
float operand_value(MmaType type, std::uint32_t bits);
/// fp32 rounded to tf32.
std::uint32_t to_tf32(std::uint32_t bits);

}  // namespace emulation

void __syncthreads(emulation::Where where = emulation::Where::current());
int __syncthreads_or(int value, emulation::Where where = emulation::Where::current());
void __syncwarp(unsigned mask = 0xffffffffu, emulation::Where where = emulation::Where::current());

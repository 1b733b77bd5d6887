// A small pipelined product (TMA, ring of slots, wgmma, TMA store) and variants of it with one mistake each, which the emulator
// must find. Prints a line for each mistake and seed: "<mistake> <seed>: right", "wrong" or the error.
#include "check.h"
#include "device/pipeline.cuh"
#include "device/ptx/cp_async.cuh"
#include "device/ptx/tma.cuh"
#include "device/ptx/warpgroup.cuh"
#include "device/ptx/wgmma.cuh"
#include "device/tensor_map.h"
#include "device/warp.cuh"

using namespace xgemm;

namespace {

// clang-format off: it breaks the lines anew each time
#define MISTAKES(X)                                                                                                             \
  X(none)                                                                                                                       \
  X(no_wait_for_full)                                                                                                           \
  X(no_wait_for_empty) X(wrong_parity) X(early_release) X(no_proxy_fence) X(early_read) X(changed_operand) X(too_many_arrivals) \
      X(too_few_arrivals) X(too_few_bytes) X(too_many_bytes) X(uninitialised_barrier) X(named_count) X(no_store_wait)           \
          X(out_of_bounds) X(unaligned_slots) X(divergent) X(registers) X(copy_at_the_end)
// clang-format on
#define ENUMERATOR(name) name,
#define NAME(name) #name,
enum class Mistake { MISTAKES(ENUMERATOR) };
constexpr const char* kNames[] = {MISTAKES(NAME)};

struct Arguments {
  CUtensorMap a, b, out;
  int blocks;
};
constexpr int kRows = 64, kColumns = 64, kDepth = 64, kSlots = 2, kOperandBytes = 64 * 128, kSlotBytes = 2 * kOperandBytes,
              kStagingBytes = 64 * 128, kShared = 1024 + kSlots * kSlotBytes + kStagingBytes + 2 * kSlots * 8;

/// out (64 x 128 columns of fp32, twice) = a b^T; a from registers in the second half.
template <Mistake kMistake>
__global__ void __launch_bounds__(256, 1) product(const __grid_constant__ Arguments g) {
  extern __shared__ unsigned char shared[];
  unsigned char* const slots =
      shared + ((1024 - (ptx::shared_address(shared) & 1023)) & 1023) * (kMistake == Mistake::unaligned_slots ? 0 : 1) +
      (kMistake == Mistake::out_of_bounds ? 1024 : 0);
  unsigned char* const staging = slots + kSlots * kSlotBytes;
  ptx::Barrier* const full = reinterpret_cast<ptx::Barrier*>(staging + kStagingBytes);
  ptx::Barrier* const empty = full + kSlots;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kSlots; ++s) {
      if (kMistake != Mistake::uninitialised_barrier || s == 0) ptx::barrier_init(&full[s], 1);
      ptx::barrier_init(&empty[s], kMistake == Mistake::too_few_arrivals ? 5 : 4);
    }
    ptx::fence_barrier_init();
  }
  __syncthreads();
  const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32), lane = static_cast<int>(threadIdx.x) % 32;
  PipelineState<kSlots> ring;
  if (warp >= 4) {
    if (kMistake != Mistake::registers || warp == 4) ptx::release_registers<24>();
    if (warp > 4 || !ptx::elect_one()) return;
    constexpr int kBytes = kSlotBytes + (kMistake == Mistake::too_few_bytes ? -16 : kMistake == Mistake::too_many_bytes ? 16 : 0);
    for (int block = 0; block < g.blocks; ++block, ring.advance()) {
      if (kMistake != Mistake::no_wait_for_empty)
        ptx::barrier_wait(&empty[ring.slot], ring.parity ^ (kMistake == Mistake::wrong_parity ? 0 : 1));
      ptx::barrier_arrive_expect(&full[ring.slot], kBytes);
      ptx::tma_load(slots + ring.slot * kSlotBytes, &g.a, &full[ring.slot], block * kDepth, 0, 0);
      ptx::tma_load(slots + ring.slot * kSlotBytes + kOperandBytes, &g.b, &full[ring.slot], block * kDepth, 0, 0);
    }
    return;
  }
  ptx::acquire_registers<240>();
  using Layout = ptx::OperandLayout<true, 128, 0>;
  float sums[kColumns / 2];
  std::uint32_t fragments[4][4];
  for (int block = 0; block < g.blocks; ++block, ring.advance()) {
    const std::uint32_t slot = ptx::shared_address(slots + ring.slot * kSlotBytes);
    if (kMistake != Mistake::no_wait_for_full) ptx::barrier_wait(&full[ring.slot], ring.parity);
    const bool from_registers = block % 2 == 1;
    if (from_registers)
      for (int step = 0; step < 4; ++step)
        for (int i = 0; i < 4; ++i) {
          const int row = 16 * warp + lane / 4 + i % 2 * 8, piece = 2 * step + i / 2;
          std::memcpy(&fragments[step][i], slots + ring.slot * kSlotBytes + row * 128 + (piece ^ row % 8) * 16 + lane % 4 * 4, 4);
        }
    ptx::wgmma_fence();
    for (int step = 0; step < 4; ++step) {
      const std::uint64_t b = Layout::descriptor(slot + kOperandBytes + step * Layout::kStepBytes);
      if (from_registers)
        ptx::WgmmaRegisters<half>::mma(sums, fragments[step], b, true);
      else
        ptx::Wgmma<half, true, true>::mma(sums, Layout::descriptor(slot + step * Layout::kStepBytes), b, block > 0 || step > 0);
    }
    ptx::wgmma_commit();
    if (kMistake == Mistake::changed_operand) fragments[3][0] ^= 1;
    const auto release = [&] {
      if (kMistake != Mistake::no_proxy_fence) ptx::fence_async_shared();  // the fragments were read by plain loads
      __syncwarp();
      if (lane < (kMistake == Mistake::too_many_arrivals ? 2 : 1)) ptx::barrier_arrive(&empty[ring.slot]);
    };
    if (kMistake == Mistake::early_release) release();
    if (kMistake != Mistake::early_read || block + 1 < g.blocks) ptx::wgmma_wait<0>();
    ptx::wgmma_pin(sums);
    if (kMistake != Mistake::early_release) release();
  }
  // Twice 32 columns through the same staging memory, which has the layout of 128-byte swizzle.
  for (int part = 0; part < 2; ++part) {
    if (part > 0) {
      if (threadIdx.x == 0 && kMistake != Mistake::no_store_wait) ptx::tma_store_wait_read<0>();
      ptx::named_barrier_sync(1, 128);
    }
    for (int j = 0; j < 4; ++j)
      for (int i = 0; i < 4; ++i) {
        const int row = 16 * warp + lane / 4 + i / 2 * 8, column = 8 * j + lane % 4 * 2 + i % 2;
        reinterpret_cast<float*>(staging)[row * 32 + ((column / 4) ^ (row % 8)) * 4 + column % 4] = sums[16 * part + 4 * j + i];
      }
    ptx::fence_async_shared();
    if (kMistake == Mistake::divergent && lane < 16) __syncwarp(0xffffu | (part ? 0u : 0x10000u));
    ptx::named_barrier_sync(1, kMistake == Mistake::named_count && warp == 3 ? 96 : 128);
    if (threadIdx.x == 0) {
      ptx::tma_store(&g.out, staging, 32 * part, 0, 0);
      ptx::tma_store_commit();
    }
  }
  if (threadIdx.x == 0) ptx::tma_store_wait_read<0>();
  if (kMistake == Mistake::early_read) ptx::wgmma_wait<0>();
  if (kMistake == Mistake::copy_at_the_end) cp_async<16>(slots + 16 * threadIdx.x, nullptr, 0);  // zeros
}

template <Mistake kMistake>
void check(std::uint64_t seed) {
  constexpr int kM = 50, kN = 60, kK = 5 * kDepth - 24;
  const Buffer<half> a = random_numbers<half>(kM * kK, seed), b = random_numbers<half>(kN * kK, seed + 1);
  Buffer<float> out(kM * kN, NAN);
  Arguments g{.blocks = 5};
  const auto map = [](CUtensorMap& to, const void* data, DType dtype, int inner, int outer, int box) {
    require(make_tensor_map(to, {.data = data,
                                 .dtype = dtype,
                                 .sizes = {inner, outer, 1},
                                 .strides = {inner, inner * outer},
                                 .box = {box, 64},
                                 .swizzle_bytes = 128}),
            "a tensor map");
  };
  map(g.a, a.data(), DType::f16, kK, kM, 64), map(g.b, b.data(), DType::f16, kK, kN, 64);
  map(g.out, out.data(), DType::f32, kN, kM, 32);
  std::string result = "right";
  try {
    emulation::launch(product<kMistake>, dim3(1), dim3(256), kShared, {.seed = seed}, g);
    for (int i = 0; i < kM; ++i)
      for (int j = 0; j < kN; ++j) {
        double sum = 0;
        for (int k = 0; k < kK; ++k)
          sum += static_cast<double>(static_cast<float>(a[i * kK + k]) * static_cast<float>(b[j * kK + k]));
        if (!(std::abs(static_cast<double>(out[i * kN + j]) - sum) < 1e-4)) result = "wrong";
      }
  } catch (const emulation::Error& e) {
    result = e.what();
    for (char& c : result)
      if (c == '\n') c = ';';
  }
  std::printf("%s %d: %s\n", kNames[static_cast<int>(kMistake)], static_cast<int>(seed), result.c_str());
}

template <int kFirst = 0>
void check_all(std::uint64_t seed) {
  check<static_cast<Mistake>(kFirst)>(seed);
  if constexpr (kFirst + 1 < std::size(kNames)) check_all<kFirst + 1>(seed);
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t seeds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 16;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) check_all(seed);
}

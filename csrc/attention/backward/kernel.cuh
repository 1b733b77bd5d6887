// Gradients of attention in fp32, by mma.sync on fp16 parts: FlashAttention-2's backward (Dao 2023), without atomics.
//
//   P = exp(scale Q K^T + bias - lse)   delta = sums of dO O along rows   dS = P (dO V^T - delta)
//   dQ = scale dS K   dK = scale dS^T Q   dV = P^T dO
//
//   CTA        64 keys of a head, or 64 queries, 16 a warp: A of the scores' products. The others, queries or keys, come in
//              blocks by bulk copies (parts.cuh) and are B of all products. Weights and dS stay in the warp's registers: the
//              scores' C fragments are the A fragments of the next product.
//   Order      seven products in place of five, but one warp adds all of a gradient, in one order: the same bits each time.
//   Parts      three products of them. P and dS have a scale for each row of a block, after the others' scales, which lie along
//              k there.
//   Sums       of a block are added to fp32 registers: the tensor core rounds toward zero.
//   Floor      42 Sq Sk D flop of fp16, half of it under a causal limit, of mma.sync's 620 TFLOP/s; 2 Sq Sk exponentials.
#pragma once
#include "attention/backward/parts.cuh"
#include "attention/fp16_split/part_sums.cuh"
#include "device/ptx/bulk_copy.cuh"

namespace xgemm::attention {

/// The copies of blocks to two slots, in shared memory: bulk copies, 5 % faster on Hopper than cp.async, which other GPUs take.
struct BlockCopies {
  ptx::Barrier landed[2];
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  __device__ __forceinline__ void init() {
    if (threadIdx.x == 0) {
      ptx::barrier_init(&landed[0], 1), ptx::barrier_init(&landed[1], 1);
      ptx::fence_barrier_init();
    }
    __syncthreads();
  }
  /// What all threads have read may be overwritten.
  __device__ __forceinline__ void release() { ptx::fence_async_shared(), __syncthreads(); }
  __device__ __forceinline__ void start(int slot, void* to, const void* from, int bytes) {
    if (threadIdx.x != 0 || bytes == 0) return;
    ptx::barrier_arrive_expect(&landed[slot], bytes);
    ptx::bulk_load(to, from, bytes, &landed[slot]);
  }
  /// For the copy started last but one, which was the slot's.
  __device__ __forceinline__ void wait(int slot, unsigned parity) { ptx::barrier_wait(&landed[slot], parity); }
#else
  __device__ __forceinline__ void init() {}
  __device__ __forceinline__ void release() { __syncthreads(); }
  __device__ __forceinline__ void start(int, void* to, const void* from, int bytes) {
#pragma unroll 4
    for (int at = 16 * static_cast<int>(threadIdx.x); at < bytes; at += 16 * static_cast<int>(blockDim.x))
      cp_async_if(static_cast<char*>(to) + at, static_cast<const char*>(from) + at, true);
    cp_async_commit();
  }
  __device__ __forceinline__ void wait(int, unsigned) { cp_async_wait<1>(), __syncthreads(); }
#endif
};

/// A CTA's shared memory.
template <class T>
struct GradientMemory {
  GradientRows<T> own[T::kOwn / T::kRows], others[2];
  BlockCopies copies;
};

/// Two parts of C fragments of 16 rows by kCount, as A fragments.
template <int kCount>
struct WeightParts {
  std::uint32_t of_step[kCount / 16][2][4];
  float inverse[2];  ///< of the scales of the thread's two rows

  __device__ __forceinline__ explicit WeightParts(const float (&x)[kCount / 2]) {
    float scale[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = 0;
#pragma unroll
      for (int i = 2 * h; i < kCount / 2; i += 4) largest = larger_magnitude(larger_magnitude(largest, x[i]), x[i + 1]);
      const RowScale row(warp_reduce<4>(largest, larger_magnitude));
      scale[h] = row.scale, inverse[h] = row.inverse;
    }
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i)
      split_pair(x[2 * i] * scale[i % 2], x[2 * i + 1] * scale[i % 2], of_step[i / 4][0][i % 4], of_step[i / 4][1][i % 4]);
  }
};

/// What a CTA computes.
enum class Gradient { query, key, value, key_and_value };

template <class T, Gradient kGradient>
struct GradientWarp {
  static constexpr bool kKeys = kGradient != Gradient::query, kOfValue = kGradient >= Gradient::value;
  static constexpr bool kOfScores = kGradient != Gradient::value;  // dS is needed
  static constexpr int kColumns = T::kColumns, kRows = T::kRows, kSteps = kColumns / 16, kRowBytes = 2 * kColumns;
  static constexpr int kHeld = kColumns > 64 ? 0 : kGradient == Gradient::query ? 2 : 1;  // own operands that stay in registers

  const GradientArguments& g;
  GradientMemory<T>& memory;
  float factor[2][2];                           ///< [operand][h]: of the scores and of dO V^T
  std::uint32_t held[kHeld + 1][kSteps][2][4];  ///< [operand][step][part]: A fragments
  float result[kOfScores ? kColumns / 2 : 1] = {}, of_value[kOfValue ? kColumns / 2 : 1] = {};

  static __device__ __forceinline__ int lane() { return thread_index() % 32; }
  static __device__ __forceinline__ int own_row(int h) { return thread_index() / 32 * 16 + lane() / 4 + 8 * h; }
  __device__ __forceinline__ int own_rows() const { return kKeys ? g.sk : g.sq; }

  // Read again where they are needed: there are no registers for them in the loop.
  /// The CTA's first own row; under a causal limit those with the most work first.
  __device__ __forceinline__ int first() const {
    int tile = block_index();
    if (kGradient == Gradient::value) tile -= blocks_of_rows(g.sk, T::kOwn);
    return (kKeys ? tile : static_cast<int>(gridDim.x) - 1 - tile) * T::kOwn;
  }
  /// Of the other rows: those that the CTA's see, or that see them.
  __device__ __forceinline__ int begin() const { return kKeys && g.causal ? first() : 0; }
  __device__ __forceinline__ int end() const { return kKeys ? g.sq : g.causal ? min(g.sk, first() + T::kOwn) : g.sk; }

  /// The block of the warp's rows.
  __device__ __forceinline__ const GradientRows<T>& own_block() const { return memory.own[thread_index() / 32 * 16 / kRows]; }
  __device__ __forceinline__ void read_own(std::uint32_t (&a)[2][4], int operand, int step) const {
    const TileReader<kColumns, true> reader;
    const int warp_at = thread_index() / 32 * 16 % kRows * kRowBytes + reader.at(step);
#pragma unroll
    for (int part = 0; part < 2; ++part) ptx::ldmatrix(a[part], own_block().part[operand][part] + warp_at);
  }

  /// Starts the copy of the others' block from `row` on, if there is one.
  __device__ __forceinline__ void copy(const GradientRows<T>* blocks, int row, int slot) {
    constexpr int kBytes = sizeof(GradientRows<T>);
    memory.copies.start(slot, &memory.others[slot], blocks + row / kRows, row < end() ? kBytes : 0);
  }

  /// scale Q K^T or dO V^T of own rows and others, or its transpose.
  __device__ __forceinline__ void multiply(float (&scores)[kRows / 2], const GradientRows<T>& others, int operand) const {
    const TileReader<kColumns, false> reader;
    PartSums sums[kRows / 16];
#pragma unroll(kColumns > 64 ? 4 : kSteps)  // then addresses repeat
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t read[2][4];
      if (operand >= kHeld) read_own(read, operand, step);
      const std::uint32_t(&own)[2][4] = operand < kHeld ? held[operand < kHeld ? operand : 0][step] : std::as_const(read);
#pragma unroll
      for (int n = 0; n < kRows / 16; ++n) {
        std::uint32_t b[2][4];
#pragma unroll
        for (int part = 0; part < 2; ++part)
          ptx::ldmatrix(b[part], others.part[operand][part] + n * 16 * kRowBytes + reader.at(step));
        sums[n].add(own, b);
      }
    }
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i)
      scores[i] = sums[i / 8][i % 8] * factor[operand][i / 2 % 2] * others.inverse[operand][column(i)];
  }

  /// In a block, of element i of C fragments of 16 rows.
  static __device__ __forceinline__ int column(int i) { return i / 4 * 8 + lane() % 4 * 2 + i % 2; }

  __device__ __forceinline__ void add_bias(float (&scores)[kRows / 2], int from) const {
    const float* const bias = g.bias.data + blockIdx.z * g.bias.batch + blockIdx.y * g.bias.head;
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) {
      const int own = first() + own_row(i / 2 % 2), other = from + column(i);  // clamped: what does not exist is not seen
      const int query = min(kKeys ? other : own, g.sq - 1), key = min(kKeys ? own : other, g.sk - 1);
      scores[i] += __ldg(bias + query * g.bias.row + key * g.bias.column);
    }
  }

  /// From the scores and dO V^T: P and dS, times the inverse scales of what they are multiplied with; 0 for what is not seen.
  __device__ __forceinline__ void weigh(float (&scores)[kRows / 2], float (&products)[kRows / 2], const GradientRows<T>& others,
                                        int from) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int own = first() + own_row(h);
      const int low = kKeys && g.causal ? max(own, from) : from, high = kKeys || !g.causal ? end() : min(end(), own + 1);
      const int shift = from + lane() % 4 * 2 - low;
      const auto seen = static_cast<unsigned>(max(high - low, 0));
#pragma unroll
      for (int j = 0; j < kRows / 4; ++j) {
        const int i = j / 2 * 4 + 2 * h + j % 2;
        const GradientRows<T>& queries = kKeys ? others : own_block();
        const int query = kKeys ? column(i) : own_row(h) % kRows;
        float p = exp_of(scores[i] - queries.lse[query]);
        p = static_cast<unsigned>(shift + i / 4 * 8 + i % 2) < seen ? p : 0.f;
        if constexpr (kOfScores) products[i] = p * (products[i] - queries.delta[query]) * others.inverse[0][column(i)];
        if constexpr (kOfValue) scores[i] = p * others.inverse[1][column(i)];
      }
    }
  }

  /// result += weights by the others' rows.
  __device__ __forceinline__ void accumulate(float (&result)[kColumns / 2], const float (&weights)[kRows / 2],
                                             const GradientRows<T>& others, int operand) const {
    const TileReader<kColumns, true> reader;
    const WeightParts<kRows> a(weights);
#pragma unroll
    for (int pair = 0; pair < kSteps; ++pair) {
      float sums[2][4] = {};
      multiply_parts(sums, a.of_step, [&](std::uint32_t(&b)[2][4], int step) {
#pragma unroll
        for (int part = 0; part < 2; ++part)
          ptx::ldmatrix_transposed(b[part], others.part[operand][part] + step * 16 * kRowBytes + reader.at(pair));
      });
#pragma unroll
      for (int i = 0; i < 8; ++i) result[8 * pair + i] = fmaf(sums[i / 4][i % 4], a.inverse[i / 2 % 2], result[8 * pair + i]);
    }
  }

  __device__ __forceinline__ void run() {
    const GradientRows<T>* const blocks = blocks_of<T>(g, blockIdx.z, blockIdx.y, !kKeys);
    const int own = min(T::kOwn / kRows, blocks_of_rows(own_rows(), T::kRows) - first() / kRows);
    memory.copies.start(1, memory.own, blocks_of<T>(g, blockIdx.z, blockIdx.y, kKeys) + first() / kRows,
                        own * static_cast<int>(sizeof(GradientRows<T>)));
    copy(blocks, begin(), 0);
    memory.copies.wait(1, 0);
#pragma unroll
    for (int operand = 0; operand < 2; ++operand) {
#pragma unroll
      for (int h = 0; h < 2; ++h)
        factor[operand][h] = own_block().inverse[operand][own_row(h) % kRows] * (operand == 0 ? g.scale : 1.f);
      if (operand < kHeld)
#pragma unroll
        for (int step = 0; step < kSteps; ++step) read_own(held[operand][step], operand, step);
    }
    unsigned parity = 2;  // of the slots' next blocks: own rows were slot 1's first
#pragma unroll 1
    for (int from = begin(), slot = 0; from < end(); from += kRows) {
      memory.copies.release();  // the other slot
      copy(blocks, from + kRows, slot ^ 1);
      memory.copies.wait(slot, parity >> slot & 1);
      parity ^= 1 << slot;
      const GradientRows<T>& others = memory.others[slot];
      float scores[kRows / 2], products[kRows / 2];
      multiply(scores, others, 0);
      if (g.bias.data != nullptr) add_bias(scores, from);
      if constexpr (kOfScores) multiply(products, others, 1);
      weigh(scores, products, others, from);
      if constexpr (kOfValue) accumulate(of_value, scores, others, 1);
      if constexpr (kOfScores) accumulate(result, products, others, 0);
      slot ^= 1;
    }
    if constexpr (kOfScores) store(kKeys ? g.grad_key : g.grad_query, result, g.scale);
    if constexpr (kOfValue) store(g.grad_value, of_value, 1.f);
  }

  __device__ __forceinline__ void store(float* to, const float (&result)[kColumns / 2], float scale) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first() + own_row(h);
      if (row >= own_rows()) continue;
      float* const line = to + ((static_cast<std::int64_t>(blockIdx.z) * own_rows() + row) * g.heads + blockIdx.y) * g.d;
#pragma unroll
      for (int i = 0; i < kColumns / 8; ++i) {
        const int column = 8 * i + lane() % 4 * 2;
        if (column < g.d)
          *reinterpret_cast<float2*>(line + column) = {result[4 * i + 2 * h] * scale, result[4 * i + 2 * h + 1] * scale};
      }
    }
  }
};

template <class T>
__global__ void __launch_bounds__(T::kThreads, 2) attention_gradients(const __grid_constant__ GradientArguments g) {
  extern __shared__ __align__(128) unsigned char gradient_memory[];
  auto& memory = *reinterpret_cast<GradientMemory<T>*>(gradient_memory);
  memory.copies.init();
  ptx::grid_wait();
  const int tiles = blocks_of_rows(g.sk, T::kOwn), tile = static_cast<int>(blockIdx.x);
  if (tile < tiles)
    GradientWarp<T, T::kTogether ? Gradient::key_and_value : Gradient::key>{g, memory}.run();
  else if (!T::kTogether && tile < 2 * tiles)
    GradientWarp<T, Gradient::value>{g, memory}.run();
  else
    GradientWarp<T, Gradient::query>{g, memory}.run();
}

}  // namespace xgemm::attention

// The documents' single experiments. Each .cu states what it shows; experiments.cpp checks arguments and allocates.
// All arrays are contiguous; n is a number of elements and may be any value from 1.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace xgemm::lab::experiments {

inline constexpr int kThreads = 256;  ///< of a block, where an experiment does not vary or say it

/// Elements of a thread-per-element grid.
inline unsigned blocks_for(std::int64_t n, std::int64_t per_block) {
  return static_cast<unsigned>((n + per_block - 1) / per_block);
}

// coalescing.cu
void strided_copy(const float* in, float* out, std::int64_t n, std::int64_t stride, std::int64_t threads, std::int64_t loads,
                  cudaStream_t);
void empty_launch(std::int64_t blocks, std::int64_t threads, cudaStream_t);

// fma.cu
struct FmaShape {
  std::int64_t threads, chains, iterations, unroll, registers;
};
void fma_chains(const float* in, const float* factors, float* out, std::int64_t blocks, const FmaShape&, cudaStream_t);

// copy.cu
struct CopyShape {
  std::int64_t threads, loads, width;
  std::int64_t blocks;  ///< 0: as many as there are elements for
};
void concurrent_copy(const float* in, float* out, std::int64_t n, const CopyShape&, cudaStream_t);

// intensity.cu
void intensity(const float* in, float* out, std::int64_t n, std::int64_t steps, float b, float c, cudaStream_t);
void intensity(const double* in, double* out, std::int64_t n, std::int64_t steps, double b, double c, cudaStream_t);

// pointer_chase.cu
void pointer_chase(const int* next, std::int64_t n, std::int64_t* out, std::int64_t steps, std::int64_t start, bool shared,
                   cudaStream_t);

// registers.cu
struct RegisterShape {
  std::int64_t registers;
  bool memory;
  std::int64_t iterations, blocks;
};
void register_bound(const float* in, float* out, std::int64_t n, const RegisterShape&, cudaStream_t);

// bandwidth.cu
enum class Level { global, l1, shared };
inline constexpr int kReadChunk = 4096;  ///< elements of a block in L1 or shared memory
struct ReadShape {
  Level level;
  std::int64_t blocks, repeats;
};
/// out: kThreads elements a block. n is a multiple of 4 (global), or kReadChunk elements a block.
void read_rate(const float* in, float* out, std::int64_t n, const ReadShape&, cudaStream_t);

// who_am_i.cu
void who_am_i(std::int64_t* out, std::int64_t blocks, dim3 block, std::int64_t nanoseconds, cudaStream_t);

// divergence.cu
void parity(const int* in, int* out, std::int64_t n, bool branch, cudaStream_t);
void paths(const float* in, float* out, std::int64_t n, std::int64_t count, bool per_lane, cudaStream_t);

// coarsening.cu
enum class Addition { plain, unguarded, privatised, coarsened2, coarsened4, vector2, vector4 };
/// unguarded: n is a multiple of kThreads.
void vector_add(const float* a, const float* b, float* out, std::int64_t n, Addition, cudaStream_t);

// privatisation.cu
inline constexpr int kMaxWindow = 1025;
inline constexpr int kMaxBins = 8192;
void window_sum(const float* in, float* out, std::int64_t n, std::int64_t window, bool shared, cudaStream_t);
void histogram(const int* in, int* counts, std::int64_t n, std::int64_t bins, bool privatised, int sm_count, cudaStream_t);

// transpose.cu
enum class Transposition { naive, tiled, padded, swizzled };
void transpose(const float* in, float* out, std::int64_t rows, std::int64_t cols, Transposition, cudaStream_t);

// tiling.cu
struct Matrices {
  const float *a, *b;
  float* c;
  int m, n, k;
};
enum class Tiling { naive, fixed, dynamic, single_block, conflicting, padded, uncontracted };
void tiled_matmul(const Matrices&, Tiling, std::int64_t tile, cudaStream_t);

}  // namespace xgemm::lab::experiments

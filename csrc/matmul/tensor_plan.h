// Problem -> tensor-core kernel (kernels/wgmma_gemm.cuh), tile, chunks, splits and workspace. Pure host code, tested without a GPU.
//
// Order of additions: a function of N, K and the dtype (see `chunk`), never of M, the batch, the tile or the splits.
#pragma once
#include <optional>

#include "device/properties.h"
#include "matmul/plan.h"

namespace xgemm::matmul {

inline constexpr int kWgmmaTileM = 128;
inline constexpr int kWgmmaTileK = 64;
inline constexpr int kSmallTile = 64, kMiddleTile = 128, kLargeTile = 256;  ///< columns

/// How an operand reaches the kernel: as it lies, or as a copy in the workspace (packed, or split in scaled fp16 parts).
struct TensorOperand {
  bool copied;
  bool k_major;               ///< contiguous along k, else along its lines (rows of A, columns of B)
  std::int64_t inner, other;  ///< sizes of the contiguous dim and of the other
  std::int64_t ld, plane;     ///< strides in elements: of the other dim, and of batches (of parts)
  int batch_step;             ///< 0: one matrix for all batches
  std::int64_t batches;       ///< matrices: 1 or the problem's
  std::int64_t copy, stats;   ///< offsets in the workspace, in bytes
};

struct TensorPlan {
  int parts;   ///< fp16 parts that fp32 operands are split in: 2 "highest", 1 "high" and "medium"; 0: half-precision operands
  int tile_n;  ///< kSmallTile, kMiddleTile or kLargeTile
  std::int64_t chunk;           ///< k-length summed from zero, a multiple of kWgmmaTileK
  std::int64_t chunks, splits;  ///< chunks of K, and CTAs that share a tile's chunks
  TensorOperand a, b;
  std::int64_t counters, counter_bytes, partial;  ///< offsets in the workspace, in bytes
  Plan rest;                ///< fp32: CUDA cores, for the elements that the split cannot do
  std::int64_t rest_space;  ///< offset of its workspace
  std::int64_t workspace_bytes;
};

/// The chunk of K: all of it for half precision and "high", but where N is small and K long, 1/16 of it (at least 1024), so that
/// few tiles can be shared by many CTAs; for "highest" 1024, or 1/32 of K, which keeps the rounding of both levels of sums small.
std::int64_t tensor_chunk(std::int64_t n, std::int64_t k, int parts);

/// The plan, or nothing where the tensor cores cannot do the problem or CUDA cores are faster. `batch_invariant`: the choice
/// between the two does not look at M and the batch either; it costs speed where M is small and the operands are fp32.
std::optional<TensorPlan> plan_tensor(const Problem& p, const DeviceProperties& gpu, bool batch_invariant);

}  // namespace xgemm::matmul

// Step 04, mma.sync: both products on tensor cores, weights handed from one to the other in registers.
//
// Since step 03: a warp owns 16 rows, q as A operands in registers for good, and out as accumulators. The scores of mma.sync lie
// in a lane's registers exactly where the next mma.sync wants its A operand (FlashAttention-2), so weights never pass through
// shared memory, and a row's four lanes need 2 shuffles in 64 keys. cp.async brings the next keys and values while these are
// used; 16-byte piece c of row r lies at c ^ (r % 8), so that ldmatrix meets no bank conflict. Limits: a block
// reads all of K and V from L2 for its 64 rows, 64 operations a byte; each of its 4 warps reads them from shared memory for its
// 16 rows, at 128 bytes a cycle half of what the tensor cores could take; mma.sync itself reaches 62 % of Hopper's peak.
#include "device/ptx/cp_async.cuh"
#include "device/ptx/mma.cuh"
#include "lab/attention/rows.cuh"

namespace xgemm::lab::attention::step_04 {

constexpr int kWarps = 4, kThreads = 32 * kWarps, kRows = 16 * kWarps, kKeys = 64;

template <int kD>
using Tile = __nv_bfloat16[kKeys][kD];
template <int kD>
struct Slot {
  Tile<kD> keys, values;
};

template <int kD>
__device__ __forceinline__ __nv_bfloat16* piece(Tile<kD>& tile, int row, int c) {
  return &tile[row][(c ^ (row % 8)) * 8];
}

/// Starts copies of 64 rows from `row` on; zeros beyond s.
template <int kD>
__device__ __forceinline__ void load(Tile<kD>& tile, const __nv_bfloat16* head, const Problem& p, int row) {
  for (int i = threadIdx.x; i < kKeys * kD / 8; i += kThreads) {
    const int r = i / (kD / 8), c = i % (kD / 8);
    cp_async<16>(piece<kD>(tile, r, c), head + std::int64_t{row + r} * kD + c * 8, row + r < p.s ? 16 : 0);
  }
}

/// Accumulators of 8 columns.
template <int kCount>
__device__ __forceinline__ float (&columns(float (&x)[kCount], int j))[4] {
  return reinterpret_cast<float(&)[4]>(x[4 * j]);
}

template <int kD>
__global__ void __launch_bounds__(kThreads) kernel(const __grid_constant__ Problem p) {
  extern __shared__ __align__(128) unsigned char raw[];
  Slot<kD>* const slots = reinterpret_cast<Slot<kD>*>(raw);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row0 = blockIdx.x * kRows, row = row0 + 16 * warp + lane / 4;
  const std::int64_t head = std::int64_t{blockIdx.y} * p.s * kD;
  const int tiles = (keys_of(p, row0 + kRows - 1) + kKeys - 1) / kKeys;
  const auto fetch = [&](int n) {
    load<kD>(slots[n % 2].keys, p.key + head, p, n * kKeys);
    load<kD>(slots[n % 2].values, p.value + head, p, n * kKeys);
    cp_async_commit();
  };
  fetch(0);

  std::uint32_t q[kD / 16][4];  // rows beyond s are the last one again
#pragma unroll
  for (int k = 0; k < kD / 16; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      q[k][i] = *reinterpret_cast<const std::uint32_t*>(p.query + head + std::int64_t{min(row + i % 2 * 8, p.s - 1)} * kD +
                                                        16 * k + i / 2 * 8 + lane % 4 * 2);
  float out[kD / 2] = {};
  OnlineSoftmax softmax;

  for (int n = 0; n < tiles; ++n) {
    cp_async_wait<0>();
    __syncthreads();  // all of tile n has come, and all have read the tile before
    if (n + 1 < tiles) fetch(n + 1);
    Slot<kD>& slot = slots[n % 2];

    float scores[kKeys / 2] = {};
#pragma unroll
    for (int k = 0; k < kD / 16; ++k)
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        std::uint32_t b[4];
        ptx::ldmatrix(b, piece<kD>(slot.keys, 16 * j + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
        ptx::mma<__nv_bfloat16>(columns(scores, 2 * j), q[k], b[0], b[1]);
        ptx::mma<__nv_bfloat16>(columns(scores, 2 * j + 1), q[k], b[2], b[3]);
      }
    if ((n + 1) * kKeys > keys_of(p, row0)) mask(scores, p, row, n * kKeys);
    softmax.add(scores, out, p.scale_log2);
    std::uint32_t weights[kKeys / 16][4];
    to_fragments(weights, scores);
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k)
#pragma unroll
      for (int j = 0; j < kD / 16; ++j) {  // values lie by keys: transposed on the way
        std::uint32_t b[4];
        ptx::ldmatrix_transposed(b, piece<kD>(slot.values, 16 * k + lane % 16, 2 * j + lane / 16));
        ptx::mma<__nv_bfloat16>(columns(out, 2 * j), weights[k], b[0], b[1]);
        ptx::mma<__nv_bfloat16>(columns(out, 2 * j + 1), weights[k], b[2], b[3]);
      }
  }
  softmax.finish();
  store(p, blockIdx.y, row, out, softmax.sum);
}

const Step named_64 = step<64, kernel<64>, kRows, kThreads, 2 * sizeof(Slot<64>)>(4, "attention 04_mma_sync 64"),
           named_128 = step<128, kernel<128>, kRows, kThreads, 2 * sizeof(Slot<128>)>(4, "attention 04_mma_sync 128");

}  // namespace xgemm::lab::attention::step_04

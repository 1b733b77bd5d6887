// Step 10, mma.sync with cp.async: tiles of 128 x 128 in shared memory, filled three steps ahead.
//
// Idea: steps 03 to 07 again, on tensor cores. A block of 8 warps owns a 128 x 128 tile and walks k by 64; cp.async brings
// 128-byte rows of A and B while earlier ones are multiplied (3 buffers, 96 KiB). Rows are swizzled (swizzled_tile.cuh),
// so that neither cp.async nor ldmatrix meets a bank conflict. A warp owns 64 x 32: an ldmatrix feeds 4 to 8 mma.sync. Limit:
// mma.sync reads its operands from registers, which Hopper's tensor cores outrun: about 62 % of their peak at best, whatever the
// schedule.
#include "device/ptx/mma.cuh"
#include "lab/tensor/swizzled_tile.cuh"

namespace xgemm::lab::tensor::step_10 {

constexpr int kBM = 128, kBN = 128, kBK = 64, kStages = 3, kThreads = 256;
constexpr int kWM = 64, kWN = 32, kWarpsN = kBN / kWN;
static_assert(kBM == kBoxRows && kBN == kBoxRows && kBK == kBoxK);

__global__ void __launch_bounds__(kThreads, 2) kernel(const __grid_constant__ Problem p) {
  extern __shared__ __align__(128) unsigned char shared[];
  Tile *const tiles_a = reinterpret_cast<Tile*>(shared), *const tiles_b = tiles_a + kStages;
  const int row0 = blockIdx.y * kBM, col0 = blockIdx.x * kBN, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = warp / kWarpsN * kWM, col = warp % kWarpsN * kWN, steps = p.k / kBK;
  const __nv_bfloat16 *a = p.a + static_cast<std::int64_t>(row0) * p.k, *b = p.b + static_cast<std::int64_t>(col0) * p.k;

  float sum[kWM / 16][kWN / 8][4] = {};
  const auto fetch = [&](int step) {
    if (step < steps) {
      load<kThreads>(tiles_a[step % kStages], a + step * kBK, p.k);
      load<kThreads>(tiles_b[step % kStages], b + step * kBK, p.k);
    }
    cp_async_commit();  // an empty group at the end keeps the count of groups
  };
  for (int step = 0; step < kStages - 1; ++step) fetch(step);
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<kStages - 2>();
    __syncthreads();
    fetch(step + kStages - 1);
    Tile &ta = tiles_a[step % kStages], &tb = tiles_b[step % kStages];
#pragma unroll
    for (int k = 0; k < kPieces; k += 2) {
      std::uint32_t fa[kWM / 16][4], fb[kWN / 16][4];
#pragma unroll
      for (int i = 0; i < kWM / 16; ++i) ptx::ldmatrix(fa[i], piece(ta, row + i * 16 + lane % 16, k + lane / 16));
#pragma unroll
      for (int j = 0; j < kWN / 16; ++j)
        ptx::ldmatrix(fb[j], piece(tb, col + j * 16 + lane / 16 * 8 + lane % 8, k + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < kWM / 16; ++i)
#pragma unroll
        for (int j = 0; j < kWN / 8; ++j)
          ptx::mma<__nv_bfloat16>(sum[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
    }
  }
#pragma unroll
  for (int i = 0; i < kWM / 16; ++i)
#pragma unroll
    for (int j = 0; j < kWN / 8; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        __nv_bfloat16* to =
            p.out + static_cast<std::int64_t>(row0 + row + i * 16 + lane / 4 + 8 * h) * p.n + col0 + col + j * 8 + lane % 4 * 2;
        *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(sum[i][j][2 * h], sum[i][j][2 * h + 1]);
      }
}

const Step named = step<kernel, kBM, kBN, kThreads, 2 * kStages * sizeof(Tile)>(10, "tensor 10_mma_sync");

}  // namespace xgemm::lab::tensor::step_10

// Step 06, vectorised: step 05 with 16-byte accesses and A transposed on its way into shared memory (xGeMM's step 06,
// siboehm's kernel 6).
//
// Idea: one instruction moves 4 floats. Global loads become LDG.128: 4 a step instead of 16, with four times the bytes in flight.
// A is stored transposed ("corner turning"), so that the 8 rows a thread needs lie side by side: two LDS.128 an element of
// k (step 05's compiler reaches as few by reading four elements of k at once, with bank conflicts). When n, k or a
// pointer is no multiple of 16 bytes, the global side falls back to single elements (kVector = false); the document's kernel
// simply forbade such sizes. Limit: the transposing stores conflict 4 ways (4 lanes of equal row, rows of As 128 floats
// apart), the Bs reads of a warp span 16 columns of 32 bytes (2 ways), and loads still wait on barriers. Documents: 69 to 78 % of
// cuBLAS.
#include "lab/sgemm/access.cuh"

namespace xgemm::lab::sgemm::step_06 {

constexpr int kBM = 128, kBN = 128, kBK = 16;
constexpr int kTM = 8, kTN = 8;
constexpr int kThreads = (kBM / kTM) * (kBN / kTN);

template <bool kVector>
__global__ void __launch_bounds__(kThreads, 2) kernel(const __grid_constant__ Problem p) {
  __shared__ alignas(16) float As[kBK][kBM];  // transposed
  __shared__ alignas(16) float Bs[kBK][kBN];
  const int t = threadIdx.x;
  const int col_tiles = (p.n + kBN - 1) / kBN;
  const int row0 = static_cast<int>(blockIdx.x / col_tiles) * kBM, col0 = static_cast<int>(blockIdx.x % col_tiles) * kBN;
  const int row = t / (kBN / kTN) * kTM, col = t % (kBN / kTN) * kTN;

  float sum[kTM][kTN] = {};
  for (int k0 = 0; k0 < p.k; k0 += kBK) {
#pragma unroll 2  // all at once would cost the registers of another block on the SM
    for (int i = t; i < kBM * kBK / 4; i += kThreads) {
      const int r = i / (kBK / 4), c = i % (kBK / 4) * 4;
      const Float4 v = load4<kVector>(p.a, row0 + r, k0 + c, p.m, p.k);
#pragma unroll
      for (int j = 0; j < 4; ++j) As[c + j][r] = v[j];
    }
#pragma unroll 2
    for (int i = t; i < kBK * kBN / 4; i += kThreads) {
      const int r = i / (kBN / 4), c = i % (kBN / 4) * 4;
      store_vector(&Bs[r][c], load4<kVector>(p.b, k0 + r, col0 + c, p.k, p.n));
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kBK; ++i) {
      Float4 a[kTM / 4], b[kTN / 4];
#pragma unroll
      for (int r = 0; r < kTM / 4; ++r) a[r] = load_vector<4>(&As[i][row + 4 * r]);
#pragma unroll
      for (int c = 0; c < kTN / 4; ++c) b[c] = load_vector<4>(&Bs[i][col + 4 * c]);
#pragma unroll
      for (int r = 0; r < kTM; ++r)
#pragma unroll
        for (int c = 0; c < kTN; ++c) sum[r][c] += a[r / 4][r % 4] * b[c / 4][c % 4];
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < kTM; ++r)
#pragma unroll
    for (int c = 0; c < kTN; c += 4) {
      const float four[4] = {sum[r][c], sum[r][c + 1], sum[r][c + 2], sum[r][c + 3]};
      store4<kVector>(p, row0 + row + r, col0 + col + c, four);
    }
}

const Step named({6}, "sgemm 06_vectorised", kernel<true>, kThreads,
                 launch_tiles<kernel<true>, kernel<false>, kBM, kBN, kThreads>);

}  // namespace xgemm::lab::sgemm::step_06

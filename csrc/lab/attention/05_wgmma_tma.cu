// Step 05, wgmma and TMA: a warpgroup owns 64 rows, takes K and V straight from shared memory and fetches them by one thread.
//
// Since step 04: one wgmma multiplies 64 rows by 128 keys, so that K and V pass from shared memory once for 64 rows and not for
// 16, and no ldmatrix, no address and no copy loop is left. Values are read as they lie (an MN-major B), weights from registers.
// There is one buffer for keys and one for values: the next keys come while the softmax and the second product run, the next
// values during the next first product. Limit: the warpgroup multiplies or computes exponentials, never both: only the 2 blocks
// (d = 128) of an SM fill each other's gaps. (L2 serves several blocks of a head at once: 64 operations a byte do not bind.)
#include "lab/attention/hopper.cuh"

namespace xgemm::lab::attention::step_05 {

template <int kD>
struct Shared {
  QueryTile<kD> query;
  KeyTile<kD> keys, values;
  ptx::Barrier query_full, keys_full, values_full;
};

template <int kD>
__global__ void __launch_bounds__(kWarpgroup) kernel([[maybe_unused]] const __grid_constant__ Problem p) {
#ifdef XGEMM_LAB_HOPPER
  extern __shared__ __align__(1024) unsigned char raw[];
  Shared<kD>& shared = *reinterpret_cast<Shared<kD>*>(raw);
  const int first = blockIdx.x * kQueryRows, head = blockIdx.y;
  const int tiles = (keys_of(p, first + kQueryRows - 1) + kKeyRows - 1) / kKeyRows;
  const bool leads = threadIdx.x == 0;
  if (leads) {
    for (ptx::Barrier* barrier : {&shared.query_full, &shared.keys_full, &shared.values_full}) ptx::barrier_init(barrier, 1);
    ptx::fence_barrier_init();
    load<kD>(shared.query, p.map_query, shared.query_full, first, head);
    load<kD>(shared.keys, p.map_key, shared.keys_full, 0, head);
    load<kD>(shared.values, p.map_value, shared.values_full, 0, head);
  }
  __syncthreads();

  Scores scores;
  Weights weights;
  Out<kD> out = {};
  OnlineSoftmax softmax;
  ptx::barrier_wait(&shared.query_full, 0);
  for (int n = 0; n < tiles; ++n) {
    ptx::barrier_wait(&shared.keys_full, n % 2);
    multiply_keys<kD>(scores, shared.query, shared.keys);
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(scores);
    __syncthreads();  // all four warps have read the keys
    if (leads && n + 1 < tiles) load<kD>(shared.keys, p.map_key, shared.keys_full, (n + 1) * kKeyRows, head);

    soften<kD>(weights, scores, out, softmax, p, first, n * kKeyRows);

    ptx::barrier_wait(&shared.values_full, n % 2);
    multiply_values<kD>(out, weights, shared.values);
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(out);
    __syncthreads();
    if (leads && n + 1 < tiles) load<kD>(shared.values, p.map_value, shared.values_full, (n + 1) * kKeyRows, head);
  }
  finish<kD>(out, softmax, p, head, first);
#endif
}

const Step named_64 = step<64, kernel<64>, kQueryRows, kWarpgroup, sizeof(Shared<64>)>(5, "attention 05_wgmma_tma 64"),
           named_128 = step<128, kernel<128>, kQueryRows, kWarpgroup, sizeof(Shared<128>)>(5, "attention 05_wgmma_tma 128");

}  // namespace xgemm::lab::attention::step_05

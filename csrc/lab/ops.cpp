// Every schema of torch.ops.xgemm_lab: the steps of the classic optimisation ladders, kept runnable so that they can be measured.
// CUDA only; inputs are contiguous. Nothing in torch.ops.xgemm calls these.
#include <torch/csrc/stable/library.h>

STABLE_TORCH_LIBRARY(xgemm_lab, m) {
  // alpha * (a @ b) + beta * c, fp32 row-major; step 1 naive ... 7 warp tile, 8 and 9 steps 07a and 07b (no bank conflicts,
  // double buffering; the ladder's 08 is torch.ops.xgemm itself).
  m.def("sgemm(Tensor a, Tensor b, Tensor? c=None, *, int step, float alpha=1, float beta=0) -> Tensor");
  // a @ b^T in bf16 on tensor cores; step 9 WMMA, 10 mma.sync and cp.async, 11 wgmma and TMA, 12 warp-specialised, 13 persistent
  // with clusters, 14 and 15 steps 11a (wgmma with cp.async) and 13a (TMA store; the ladder's 14 is torch.ops.xgemm itself). m
  // and n are multiples of 256, k of 64; from step 11 on sm_90.
  m.def("tensor_gemm(Tensor a, Tensor b, *, int step) -> Tensor");
  // a @ b^T in fp32 by fp16 products; variant: fp16, split, promoted, scaled. The same shapes; sm_90.
  m.def("fp32_gemm(Tensor a, Tensor b, *, str variant) -> Tensor");
  // Sum of all elements, version 0 (interleaved, modulo) ... 7 (shuffles only). float32 gives float32; int32 gives int32,
  // wrapping. Of versions 6 and 7: 2 or 8 loads in flight a thread, and at most so many blocks an SM.
  m.def("reduce_sum(Tensor x, int version, int loads=8, int blocks_per_sm=8) -> Tensor");
  // Softmax over the last dim, fp32; variant: naive (overflows above 88 by design), safe, online, online4 (four elements a step).
  m.def("softmax(Tensor x, str variant) -> Tensor");
  // softmax(query key^T / sqrt(d)) value of bf16 (batch, heads, length, d), all of one shape, d 64 or 128; step 1 materialised,
  // 2 online softmax, a row a warp, 3 tiled, 4 mma.sync, 5 wgmma and TMA, 6 warp-specialised, 7 ping-pong (step 8 is
  // torch.ops.xgemm itself). From step 5 on sm_90.
  m.def("attention(Tensor query, Tensor key, Tensor value, *, int step, bool is_causal=False) -> Tensor");

  // ---- single experiments: csrc/lab/experiments ----------------------------------------------------------------------------
  // x[(i * stride) % n]: coalesced for stride 1. 1 or 8 loads in flight a thread.
  m.def("strided_copy(Tensor x, int stride, int threads=128, int loads=1) -> Tensor");
  // Launches an empty kernel with a thread an element of x; [blocks, threads], int64 on the CPU.
  m.def("empty_launch(Tensor x, int threads=128) -> Tensor");
  // [threads, minimal grid, registers] of a kernel of the lab, from the occupancy API (shared memory as the block needs it);
  // int64 on the CPU.
  m.def("best_block_size(Tensor x, str name='coalesced copy') -> Tensor");
  // [registers, bytes of shared memory, bytes of local memory, threads of a block, blocks an SM] of a kernel of the lab on x's
  // device, by the CUDA API; int64 on the CPU.
  m.def("kernel_attributes(Tensor x, str name) -> Tensor");
  // A copy with `loads` loads of `width` floats in flight a thread; grid: full, resident (as many blocks as the GPU holds at once
  // walk over x) or one_per_sm (a block an SM).
  m.def("concurrent_copy(Tensor x, int threads, int loads, int width, str grid='one_per_sm') -> Tensor");
  // Each thread runs `chains` chains of FMAs, y <- y b + c from x + 0, x + 1, ..., and returns their sum; factors: [b, c].
  // registers: how many an FMA reads; 2 is y b + b, with one chain and unroll 64.
  m.def("fma_chains(Tensor x, Tensor factors, int threads, int chains, int iterations, int unroll=8, int registers=3) -> Tensor");
  // `steps` times y <- y / 2 + 1 of each element between its load and its store; float32 or float64.
  m.def("intensity(Tensor x, int steps) -> Tensor");
  // One thread follows i <- next[i] from start, 4096 steps unmeasured and then `steps` of them; [i, cycles of `steps`], int64.
  m.def("pointer_chase(Tensor next, int steps, int start=0, bool shared=False) -> Tensor");
  // Blocks of 256 threads read x 16 bytes at a time, `repeats` times, and add what they read: a sum a thread. level: global (the
  // grid walks over x, past L1), l1 or shared (a block stays with its own 4096 elements).
  m.def("read_rate(Tensor x, str level, int blocks, int repeats=1) -> Tensor");
  // A copy (bound: memory), or `iterations` times y <- y / 2 + 1 (arithmetic), by blocks of 512 threads of so many registers
  // each: 31, 33, 40, 41, 64, 65 or 128.
  m.def("register_bound(Tensor x, int registers, str bound, int iterations=0) -> Tensor");
  // Of each thread of `blocks` blocks of shape (x, y, z): lane, first thread of its warp, SM, begin and end in nanoseconds;
  // int64, (blocks, threads, 5). Threads stay for `nanoseconds`. `like`: any tensor of the device.
  m.def("who_am_i(Tensor like, int blocks, int x, int y=1, int z=1, int nanoseconds=0) -> Tensor");
  // int32: even -> 2 x, odd -> x + 1, by a branch or by arithmetic.
  m.def("parity(Tensor x, bool branch) -> Tensor");
  // 256 times y <- y / 2 + path, path chosen by element number or by warp number modulo count.
  m.def("paths(Tensor x, int count, bool per_lane) -> Tensor");
  // variant: plain, unguarded (no test i < n: whole blocks of 256), privatised, coarsened2, coarsened4, vector2, vector4.
  m.def("vector_add(Tensor a, Tensor b, str variant) -> Tensor");
  // Sum over an odd window centred on each element, zeros outside.
  m.def("window_sum(Tensor x, int window, bool shared) -> Tensor");
  // Counts of 0 .. bins - 1 in int32 x; other values are skipped.
  m.def("histogram(Tensor x, int bins, bool privatised) -> Tensor");
  // x^T, rows written after rows; variant: naive, tiled, padded, swizzled.
  m.def("transpose(Tensor x, str variant) -> Tensor");
  // variant: naive, fixed, dynamic, single_block, conflicting, padded, uncontracted.
  m.def("tiled_matmul(Tensor a, Tensor b, str variant, int tile=32) -> Tensor");
}

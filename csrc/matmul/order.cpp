#include "matmul/order.h"

#include <algorithm>

#include "device/integer.h"

namespace xgemm::matmul {

std::int64_t chunk_length(std::int64_t n, std::int64_t k) {
  const std::int64_t wanted = n <= 512 ? 64 : n <= 1024 ? 128 : k <= 512 ? 512 : 256;
  if (k <= wanted) return std::max<std::int64_t>(k, 1);
  return std::max<std::int64_t>(wanted, ceil_div(ceil_div(k, 32), 32) * 32);
}

std::int64_t chunk_count(std::int64_t n, std::int64_t k) { return std::max<std::int64_t>(1, ceil_div(k, chunk_length(n, k))); }

namespace {
constexpr std::int64_t kShortest = 16;  // k-blocks of a segment, at least: adding a segment costs as much as about one
// The same for up to kFewSegments by up to kFewColumns: small products whose chain of k-blocks takes longest.
constexpr std::int64_t kShortestOfFew = 8, kFewSegments = 4, kFewColumns = 1024;
constexpr std::int64_t kMostSegments = 128;
// Long K is cut for any N: then a CTA's total costs little, and few rows of tiles still fill a GPU.
constexpr std::int64_t kShortestOfLong = 96, kMostOfLong = 4;
constexpr std::int64_t kSweepClusterK = 512;  // below, a cluster's start and meeting take longer than its k
static_assert(kSweepExact < kSweepClusterK, "sweep.cu");
}  // namespace

// Enough segments that 64 rows of C fill a GPU: 128 CTAs of 64 columns and a segment each.
std::int64_t fp64_segment(std::int64_t n, std::int64_t k) {
  const std::int64_t blocks = std::max<std::int64_t>(1, ceil_div(k, kFp64TileK));
  const std::int64_t wanted = std::clamp<std::int64_t>(128 / ceil_div(n, 64), 1, kMostSegments);
  const std::int64_t few = n <= kFewColumns ? std::min(kFewSegments, blocks / kShortestOfFew) : 1;
  const std::int64_t of_long = std::clamp<std::int64_t>(blocks / kShortestOfLong, 1, kMostOfLong);
  return ceil_div(blocks, std::max(of_long, std::min(wanted, std::max(few, blocks / kShortest))));
}

std::int64_t split_blocks(std::int64_t k, std::int64_t splits) {
  return round_up(ceil_div(ceil_div(k, kWgmmaTileK), splits), kSplitMultiple);
}

std::int64_t invariant_splits(std::int64_t n, std::int64_t k) {
  std::int64_t splits = 1;
  if (n <= 512 && k >= 16384) {  // long K: enough splits to fill a GPU with 64-column tiles, each at least 1024 long
    splits = std::min(kMaxSplits / ceil_div(n, 64), k / 1024);
    while ((splits - 1) * split_blocks(k, splits) * kWgmmaTileK >= k) --splits;
    return splits;
  }
  // From 513 columns on only if k is long: splits cost many rows 6 to 15 % (docs/log/matmul.md), few rows gain up to 1 us.
  const std::int64_t most = n <= 512 ? kMaxCluster : n <= 1024 && k > 4096 ? 4 : 1;  // few clusters of 8 run at once
  while (splits < most && k >= 1536 * splits && ceil_div(n, 32) * splits * 2 <= kMaxSplits) splits *= 2;
  while (splits > 1 && (splits - 1) * split_blocks(k, splits) * kWgmmaTileK >= k) splits /= 2;  // no empty split
  return splits;
}

int dot_warps(std::int64_t lines, std::int64_t k) {
  int warps = 1;
  while (warps < kDotMaxWarps && ((lines * warps < 2112 && k >= 512 * warps) || k > 8192 * warps)) warps *= 2;
  return warps;
}

int dot_lanes(std::int64_t k) {
  const std::int64_t quads = ceil_div(k, 4), each = k % 4 == 0 ? 4 : 2;  // of a lane; single elements need more lanes
  int lanes = 4;
  while (lanes < 32 && lanes * each < quads) lanes *= 2;
  return lanes;
}

std::int64_t sweep_splits(std::int64_t lines, std::int64_t k) {
  const std::int64_t tiles = ceil_div(lines, kSweepColumns);
  std::int64_t splits = 1;
  // One wave with room to spare, as clusters do not fill every SM; or the work of two blocks per SM.
  const std::int64_t most = tiles > 50 ? 528 : 100;
  while (splits < (tiles > 50 ? 2 : kSweepMaxSplits) && tiles * splits * 2 <= most &&
         k >= std::max<std::int64_t>(kSweepClusterK, splits * 2 * kSweepStrips * kSweepDepth))
    splits *= 2;
  // By two CTAs a tile 48 to 64 of 132 SMs would have nothing to read (docs/log/matmul.md).
  constexpr std::int64_t kThreeFrom = 34, kThreeTo = 42, kThreeK = 8192;
  return tiles >= kThreeFrom && tiles <= kThreeTo && k >= kThreeK ? 3 : splits;
}

}  // namespace xgemm::matmul

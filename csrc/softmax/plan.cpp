#include "softmax/plan.h"

#include <algorithm>

#include "device/environment.h"
#include "device/integer.h"
#include "torch/error.h"

namespace xgemm::softmax {

namespace {

constexpr std::int64_t kWarp = 32, kShortThreads = 128, kMaxThreads = 1024;
constexpr std::int64_t kPortableCluster = 8, kMaxCluster = 16;

/// The longest rows of whole 16-byte vectors that stay in registers: an SM holds too few longer ones to overlap their
/// arithmetic.
constexpr std::int64_t kLongestInRegisters = 32 << 10, kMostInRegisters = 8192;
/// The same for other rows. They are nearly always misaligned, which costs nothing in shared memory. A warp takes several
/// shorter rows.
constexpr std::int64_t kShortestInWarp = 512, kLongestInWarp = 8 << 10;
/// Rows that are not whole vectors, in registers: shorter rows are mostly edges, and a row that takes all lanes of a warp has
/// no neighbour in the warp.
constexpr std::int64_t kLeastOddBlocks = 8, kLeastOddLanes = 4, kMostOddLanes = 16;
/// Up to so many rows, or elements of columns, a kernel of fewer instructions is faster: a short launch waits for its
/// instructions.
constexpr std::int64_t kMostTinyRows = 1 << 14, kMostTinyElements = 1 << 18;
/// Up to so many rows a CTA each, else a warp each, with the same bits.
constexpr std::int64_t kMostTeams = 1 << 10;
/// Six parts of this size fit an SM.
constexpr std::int64_t kPart = 36 << 10, kPadding = 32, kStaticShared = 2048;

/// Does XGEMM_SOFTMAX_WITHOUT name the kernel? It leaves kernels out, to measure what they are worth.
bool left_out(std::string_view kernel) { return environment("XGEMM_SOFTMAX_WITHOUT").find(kernel) != std::string_view::npos; }

/// False if not even a cluster's shared memory holds the row.
bool plan_shared(Plan& plan, std::int64_t vectors, std::int64_t most) {
  plan.kernel = Kernel::shared;
  if (vectors * 16 <= kLongestInWarp) {
    plan.threads = kShortRowThreads;
    plan.lanes = plan.outer <= kMostTeams && !left_out("teams") ? kTeamThreads : kWarp;
    plan.chunk = vectors;
    plan.blocks = ceil_div(plan.outer, plan.threads / plan.lanes);
    return true;
  }
  std::int64_t cluster = ceil_div(vectors * 16, kPart);
  if (cluster > kPortableCluster) cluster = kMaxCluster;
  if (ceil_div(vectors, cluster) * 16 + kPadding > most) return false;
  plan.cluster = static_cast<int>(cluster);
  plan.chunk = ceil_div(vectors, cluster);
  plan.threads = plan.lanes = kBlockThreads;
  plan.blocks = plan.outer * cluster;
  return true;
}

/// `sums`: partial sums of a row; more than `lanes` if a thread has two.
void plan_tiny_rows(Plan& plan, std::int64_t sums) {
  const std::int64_t lanes = std::min(sums, kWarp);
  plan.kernel = Kernel::tiny_rows;
  plan.threads = kTinyThreads;
  plan.lanes = static_cast<int>(lanes);
  plan.steps = static_cast<int>(sums / lanes * kTinyElements);
  plan.blocks = ceil_div(plan.outer, kTinyThreads / lanes);
}

void plan_rows(Plan& plan, std::int64_t width, const DeviceProperties& gpu) {
  if (!left_out("single") && plan.length == 1 && (plan.kept.dims == 0 || (plan.kept.dims == 1 && plan.kept.stride[0] == 1))) {
    plan.kernel = Kernel::single;
    plan.threads = kSingleThreads;
    plan.blocks = ceil_div(plan.outer, kSingleThreads * kSingleSteps * width);
    return;
  }
  const std::int64_t vectors = ceil_div(plan.length, width), bytes = plan.length * (16 / width);
  const bool whole = bytes % 16 == 0;
  const std::int64_t most_blocks = ceil_div(bytes + 16 - 16 / width, 16);  // that a row can touch
  plan.evenly_spaced = plan.kept.dims <= 1 && std::max(plan.outer, plan.kept.stride[0]) <= INT32_MAX;
  const bool odd = !left_out("odd_rows");
  if (odd && !whole && plan.in == plan.out && width > 2 && most_blocks >= kLeastOddBlocks &&
      most_blocks <= kMostOddLanes * kOddSteps) {
    const std::int64_t lanes = std::max(round_up_pow2(ceil_div(most_blocks, kOddSteps)), kLeastOddLanes),
                       steps = ceil_div(most_blocks, lanes);
    // The same bits as odd_rows: partial sums of lanes * width elements, at most two in a thread. tiny_rows is faster for any
    // number of rows where a warp is one row's, and twice as fast as five vectors in each of four lanes.
    const bool tiny =
        plan.outer <= kMostTinyRows || lanes * width == 2 * kWarp || (lanes == kLeastOddLanes && steps == kOddSteps);
    if (plan.evenly_spaced && tiny && !left_out("tiny_for_odd") && lanes * width <= 2 * kWarp)
      return plan_tiny_rows(plan, lanes * width);
    plan.kernel = Kernel::odd_rows;
    plan.threads = kOddThreads;
    plan.lanes = static_cast<int>(lanes);
    plan.steps = static_cast<int>(steps);
    plan.blocks = ceil_div(plan.outer, plan.threads / plan.lanes);
    return;
  }
  if (!left_out("tiny_rows") && !whole && bytes <= kShortestInWarp && plan.length <= kWarp * kTinyElements)
    return plan_tiny_rows(plan, width == 4 && plan.length == 5 ? 2 : round_up_pow2(ceil_div(plan.length, kTinyElements)));
  const bool is_long = bytes > (whole ? kLongestInRegisters : kShortestInWarp) || (whole && plan.length > kMostInRegisters);
  if (gpu.major == 9 && is_long) {
    if (!plan_shared(plan, vectors, static_cast<std::int64_t>(gpu.smem_per_block) - kStaticShared))
      plan.kernel = Kernel::two_pass;
    return;
  }
  plan.kernel = Kernel::rows;
  if (vectors <= kWarp * kRowSteps) {
    plan.threads = kShortThreads;
    plan.lanes = static_cast<int>(round_up_pow2(ceil_div(vectors, vectors <= kWarp * kShortSteps ? kShortSteps : kRowSteps)));
    plan.blocks = ceil_div(plan.outer, plan.threads / plan.lanes);
  } else if (vectors <= kMaxThreads * kRowSteps) {
    plan.threads = plan.lanes = static_cast<int>(ceil_div(ceil_div(vectors, kRowSteps), kWarp) * kWarp);
    plan.blocks = plan.outer;
  } else {
    plan.kernel = Kernel::two_pass;
    return;
  }
  plan.steps = static_cast<int>(ceil_div(vectors, plan.lanes));
}

void plan_columns(Plan& plan, std::int64_t width, std::int64_t max_cluster) {
  // The same bits as columns, in accesses of one element.
  const bool vectors = plan.aligned && plan.columns % width == 0;
  if (!left_out("short_columns") && plan.length <= kShortPositions &&
      (!vectors || plan.outer * plan.length * plan.columns <= kMostTinyElements)) {
    plan.kernel = Kernel::short_columns;
    plan.threads = kShortColumnThreads;
    plan.blocks = ceil_div(plan.outer * plan.columns, kShortColumnThreads);
    return;
  }
  // Length and dtype alone decide cells, CTAs and kernel, because these decide the order of additions. Pieces of 64 bytes take
  // as long as pieces of 128; then two passes are as fast.
  const std::int64_t most = kColumnThreads / (max_cluster > 1 ? kColumnLanes : kColumnLanes / 4),
                     held = max_cluster * most * kCell;
  const std::int64_t rounds = std::max<std::int64_t>(ceil_div(plan.length, held), 1), cell = rounds * kCell;
  if (cell > (width == 8 && max_cluster > 1 ? kMaxCell : kCell)) {
    plan.kernel = Kernel::two_pass;
    return;
  }
  plan.kernel = Kernel::columns;
  plan.cell = static_cast<int>(cell);
  const std::int64_t cells = ceil_div(plan.length, cell), in_block = std::min(cells, most);
  std::int64_t lanes = std::min<std::int64_t>(kColumnLanes, round_up_pow2(ceil_div(plan.columns, width)));
  while (in_block * lanes > kColumnThreads) lanes /= 2;
  const std::int64_t team = round_up_pow2(in_block) * lanes;
  plan.lanes = static_cast<int>(lanes);
  plan.team = static_cast<int>(team);
  plan.cluster = static_cast<int>(std::max<std::int64_t>(ceil_div(cells, most), 1));
  plan.items = static_cast<int>(plan.cluster > 1 ? 1 : std::max<std::int64_t>(kSmallColumnThreads / team, 1));
  plan.threads =
      static_cast<int>(plan.cluster > 1 || plan.items > 1 ? team * plan.items : ceil_div(cells * lanes, kWarp) * kWarp);
  plan.chunk = team / lanes * cell;
  plan.tiles = ceil_div(plan.columns, lanes * width);
  plan.by_tiles = Divider::of(plan.tiles);
  plan.blocks = ceil_div(plan.outer * plan.tiles, plan.items) * plan.cluster;
}

}  // namespace

bool reads_directly(const reduce::Source& source, std::int64_t dim, DType out) {
  if (source.dtype != out && !(is_half(source.dtype) && out == DType::f32)) return false;
  const auto softmax_dim = static_cast<std::size_t>(dim);
  if (source.sizes.empty() || source.sizes[softmax_dim] == 1) return true;
  std::int64_t step = 1;
  for (std::size_t d = source.sizes.size(); d-- > softmax_dim + 1;) {
    if (source.sizes[d] == 1) continue;
    if (source.strides[d] != step) return false;
    step *= source.sizes[d];
  }
  return step > 1 || source.strides[softmax_dim] == 1;
}

Plan make_plan(const char* op, bool log, const reduce::Source& source, std::int64_t dim, DType out, const DeviceProperties& gpu) {
  Plan plan{.in = source.dtype, .out = out, .log = log, .kernel = Kernel::rows};
  const auto softmax_dim = static_cast<std::size_t>(dim);
  if (!source.sizes.empty()) {
    plan.length = source.sizes[softmax_dim];
    plan.length_stride = source.strides[softmax_dim];
  }
  // A softmax over one element is 1 whatever its stride: all dims are then outer dims.
  const std::size_t outer_dims = plan.length == 1 ? source.sizes.size() : softmax_dim;
  for (std::size_t d = outer_dims + 1; plan.length > 1 && d < source.sizes.size(); ++d) plan.columns *= source.sizes[d];
  const auto [map, outer] = reduce::contiguous_map(op, source.sizes.first(outer_dims), source.strides.first(outer_dims));
  plan.kept = map;
  plan.outer = outer;

  const auto bytes = static_cast<std::int64_t>(size_of(plan.in)), width = 16 / bytes;
  const std::int64_t max_cluster = gpu.major == 9 ? kMaxCluster : 1;
  plan.aligned = plan.columns == 1 || plan.length_stride * bytes % 16 == 0;
  for (int d = 0; d < map.dims; ++d) plan.aligned &= map.stride[d] * bytes % 16 == 0;
  plan.last = (plan.length - 1) * plan.length_stride + plan.columns - 1;
  for (std::size_t d = 0; d < outer_dims; ++d) plan.last += (source.sizes[d] - 1) * source.strides[d];
  if (plan.columns == 1)
    plan_rows(plan, width, gpu);
  else
    plan_columns(plan, width, max_cluster);

  if (plan.kernel == Kernel::two_pass) {
    plan.statistics = reduce::make_plan(op,
                                        {.kind = reduce::Kind::logsumexp,
                                         .source = source,
                                         .reduced = std::uint64_t{1} << softmax_dim,
                                         .out = plan.in,
                                         .pairs = true},
                                        gpu);
    const std::size_t pairs =
        static_cast<std::size_t>(plan.outer * plan.columns) * reduce::state_bytes(reduce::State::logsumexp, plan.in);
    plan.statistics_bytes = (pairs + 255) / 256 * 256;
    plan.workspace_bytes = plan.statistics_bytes + plan.statistics.workspace_bytes;
    const bool rows = plan.columns == 1;
    const std::int64_t cells = rows ? 1 : ceil_div(plan.length, kPieces);
    plan.tiles = rows ? ceil_div(plan.length, width * kPieces) : ceil_div(plan.columns, width);
    plan.by_tiles = Divider::of(plan.tiles);
    plan.by_cells = Divider::of(cells);
    plan.threads = 256;
    plan.blocks = ceil_div(plan.outer * cells * plan.tiles, plan.threads);
  }
  check(plan.blocks <= INT32_MAX, op, "expected a problem of fewer than 2^31 CTAs, got ", plan.blocks);
  return plan;
}

}  // namespace xgemm::softmax

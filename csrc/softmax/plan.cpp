#include "softmax/plan.h"

#include <algorithm>

#include "device/integer.h"
#include "torch/error.h"

namespace xgemm::softmax {
namespace {

constexpr std::int64_t kWarp = 32, kShortThreads = 128, kTileThreads = 256, kMaxThreads = 1024;
constexpr std::int64_t kPortableCluster = 8;

/// Bytes of the longest row of whole vectors that stays in registers: an SM holds too few longer ones to overlap arithmetic.
constexpr std::int64_t kLongestInRegisters = 32 << 10;
constexpr std::int64_t kMostInRegisters = 8192;  ///< elements of such a row: 16-bit ones run out of issue slots first
/// Bytes from which on rows that are not whole vectors stay in shared memory, where being misaligned costs nothing.
constexpr std::int64_t kShortestInWarp = 512;
constexpr std::int64_t kLongestInWarp = 8 << 10;  ///< bytes of the longest row that one warp takes in shared memory
constexpr std::int64_t kLeastOddBlocks = 8;       ///< odd_rows: 16-byte blocks of the shortest row; shorter ones are mostly edges
constexpr std::int64_t kLeastOddLanes = 4;        ///< odd_rows: the fewest lanes of a row
/// odd_rows: the most lanes; a row of a whole warp has no neighbour to share a block with.
constexpr std::int64_t kMostOddLanes = 16;
/// elements: the longest row of any number of rows that odd_rows does not take.
constexpr std::int64_t kMostOfWarp = kWarp * kElements;
constexpr std::int64_t kMostOfFloats = 1 << 10;  ///< the same in fp32 where no kernel has rows in shared memory: not on Hopper
/// elements: the most threads of other rows, two waves of an H200. A short launch waits for its instructions.
constexpr std::int64_t kMostElementThreads = 1 << 19;
/// The same of fp32 rows that several warps share, and wait for each other.
constexpr std::int64_t kMostJoinedThreads = 1 << 17;
/// elements: the fewest rows that go through shared memory; of fewer the barriers cost more than the instructions that they save.
constexpr std::int64_t kLeastPacked = 1 << 19;
/// elements: the most elements of columns that are whole vectors, where a thread has a column and where several share one.
constexpr std::int64_t kMostOfThread = 1 << 18, kMostAligned = 1 << 20;
/// The same of other columns of several threads, and where these read less than a sector side by side.
constexpr std::int64_t kMostUnaligned = 1 << 22, kMostScattered = 1 << 19;
constexpr std::int64_t kSector = 32;          ///< bytes of a sector of a cache line
constexpr std::int64_t kPart = 36 << 10;      ///< bytes of a CTA's part of a row: six fit an SM
constexpr std::int64_t kPadding = 32;         ///< bytes beside a part for its misalignment
constexpr std::int64_t kStaticShared = 2048;  ///< bytes of static shared memory of the kernel, rounded up

/// A row of so many vectors or elements in registers, up to `most` of a lane; up to `few` if a warp then holds it. False if not
/// even the largest CTA does.
template <class P>
bool plan_registers(P& plan, std::int64_t pieces, std::int64_t most, std::int64_t few) {
  if (pieces > kMaxThreads * most) return false;
  const bool in_warp = pieces <= kWarp * most;
  plan.threads = static_cast<int>(in_warp ? kShortThreads : round_up(ceil_div(pieces, most), kWarp));
  plan.lanes = in_warp ? static_cast<int>(round_up_pow2(ceil_div(pieces, pieces <= kWarp * few ? few : most))) : plan.threads;
  plan.steps = static_cast<int>(ceil_div(pieces, plan.lanes));
  plan.blocks = ceil_div(plan.outer, plan.threads / plan.lanes);
  return true;
}

/// False if not even the largest cluster's shared memory holds the row.
bool plan_shared(Plan& plan, std::int64_t vectors, std::int64_t most, std::int64_t max_cluster) {
  plan.kernel = Kernel::shared;
  if (vectors * 16 <= kLongestInWarp) {
    plan.threads = kShortRowThreads;
    plan.lanes = kWarp;
    plan.chunk = vectors;
    plan.blocks = ceil_div(plan.outer, plan.threads / plan.lanes);
    return true;
  }
  std::int64_t cluster = ceil_div(vectors * 16, kPart);
  if (cluster > kPortableCluster) cluster = max_cluster;
  if (ceil_div(vectors, cluster) * 16 + kPadding > most) return false;
  plan.cluster = static_cast<int>(cluster);
  plan.chunk = ceil_div(vectors, cluster);
  plan.threads = plan.lanes = kBlockThreads;
  plan.blocks = plan.outer * cluster;
  return true;
}

/// Lanes of a column of the kernel for elements.
std::int64_t element_lanes(std::int64_t length) {
  const std::int64_t lanes = round_up_pow2(ceil_div(length, std::int64_t{kElements}));
  return lanes <= kWarp ? lanes : std::max(round_up_pow2(ceil_div(length, std::int64_t{2 * kElements})), kWarp);
}

/// Can the kernel for elements take these columns, `lanes` threads each?
bool takes_elements(const Plan& plan, std::int64_t lanes) {
  return plan.kept.dims <= 1 && (plan.columns == 1 || plan.outer * plan.columns <= INT32_MAX - kMaxThreads) &&
         lanes <= most_element_threads(size_of(plan.in));
}

/// `beside`: columns of neighbouring threads.
void plan_elements(Plan& plan, std::int64_t lanes, std::int64_t beside) {
  plan.kernel = Kernel::elements;
  plan.lanes = static_cast<int>(lanes);
  plan.beside = static_cast<int>(beside);
  plan.steps = static_cast<int>(ceil_div(plan.length, lanes));
  plan.threads = static_cast<int>(lanes * beside <= kWarp ? kElementThreads : lanes * beside);
  plan.blocks = ceil_div(plan.outer * plan.columns, plan.threads / lanes);
}

/// Rows of a CTA that holds them in shared memory: whole vectors, and eight CTAs for each SM if there are as many rows.
int packed_rows(const Plan& plan, int sm_count) {
  const std::int64_t most = kPackedBytes / (plan.length * static_cast<std::int64_t>(size_of(plan.in))),
                     wanted = std::max<std::int64_t>(ceil_div(plan.outer, std::int64_t{8} * sm_count), kPackedThreads);
  const bool side_by_side = plan.in == plan.out && plan.kept.stride[0] == plan.length;
  return side_by_side && most >= kPackedThreads ? static_cast<int>(std::min(most, wanted) / 8 * 8) : 0;
}

/// `few`: may the number of rows decide?
void plan_rows(Plan& plan, std::int64_t width, const DeviceProperties& gpu, bool few) {
  const bool hopper = gpu.major == 9;
  const std::int64_t vectors = ceil_div(plan.length, width), bytes = plan.length * (16 / width);
  const bool whole = bytes % 16 == 0;
  const std::int64_t most_blocks = ceil_div(bytes + 16 - 16 / width, 16);  // that a row can touch
  const bool odd =
      !whole && plan.in == plan.out && width > 2 && most_blocks >= kLeastOddBlocks && most_blocks <= kMostOddLanes * kOddSteps;
  const std::int64_t odd_lanes = std::max(round_up_pow2(ceil_div(most_blocks, kOddSteps)), kLeastOddLanes),
                     odd_steps = ceil_div(most_blocks, odd_lanes), lanes = element_lanes(plan.length);
  if (!whole && takes_elements(plan, lanes)) {
    // For any number of rows where a warp is one row's, or odd_rows would have five vectors in each of four lanes.
    const bool always = odd ? odd_lanes * width == 2 * kWarp || (odd_lanes == kLeastOddLanes && odd_steps == kOddSteps)
                            : (bytes <= kShortestInWarp && plan.length <= kMostOfWarp) ||
                                  (!hopper && plan.in == DType::f32 && plan.length <= kMostOfFloats);
    const std::int64_t most = hopper && plan.in == DType::f32 && lanes > kWarp ? kMostJoinedThreads : kMostElementThreads;
    if (always || (few && plan.outer * lanes <= most)) {
      plan_elements(plan, lanes, 1);
      if (few && plan.outer >= kLeastPacked) plan.packed = packed_rows(plan, gpu.sm_count);
      return;
    }
  }
  if (odd) {
    plan.kernel = Kernel::odd_rows;
    plan.threads = kOddThreads;
    plan.lanes = static_cast<int>(odd_lanes);
    plan.steps = static_cast<int>(odd_steps);
    plan.blocks = ceil_div(plan.outer, plan.threads / plan.lanes);
    return;
  }
  const bool is_long = bytes > (whole ? kLongestInRegisters : kShortestInWarp) || (whole && plan.length > kMostInRegisters);
  if (hopper && is_long) {
    if (!plan_shared(plan, vectors, static_cast<std::int64_t>(gpu.smem_per_block) - kStaticShared, gpu.max_cluster))
      plan.kernel = Kernel::two_pass;
    return;
  }
  plan.kernel = plan_registers(plan, vectors, kRowSteps, kShortSteps) ? Kernel::rows : Kernel::two_pass;
}

/// False if the kernel for columns is faster.
bool plan_few_columns(Plan& plan, std::int64_t width, std::int64_t sm_count) {
  const std::int64_t lanes = round_up_pow2(ceil_div(plan.length, std::int64_t{2 * kElements})), count = plan.outer * plan.columns,
                     all = std::min(kWarp, round_up_pow2(count));
  if (!takes_elements(plan, lanes) || lanes > most_element_threads(8)) return false;
  const bool vectors = plan.aligned && plan.columns % width == 0;
  std::int64_t beside = lanes == 1 ? 1 : all, most = vectors ? kMostAligned : kMostUnaligned;
  const std::int64_t sector = kSector * width / 16;
  while (beside > 1 && (lanes * beside > most_element_threads(8) || (beside > sector && ceil_div(count, beside) < sm_count)))
    beside /= 2;
  if (lanes == 1)
    most = vectors ? kMostOfThread : INT64_MAX;
  else if (beside < std::min(all, sector))
    most = kMostScattered;
  if (count * plan.length > most) return false;
  plan_elements(plan, lanes, beside);
  return true;
}

void plan_columns(Plan& plan, std::int64_t width, const DeviceProperties& gpu) {
  if (plan_few_columns(plan, width, gpu.sm_count)) return;
  const std::int64_t max_cluster = gpu.major == 9 ? gpu.max_cluster : 1;
  // Accesses of 64 bytes take as long as accesses of 128; then two passes are as fast.
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

/// Are all dims behind `dim` of size 1?
bool is_last(const reduce::Source& source, std::size_t dim) {
  return std::ranges::all_of(source.sizes.subspan(dim + 1), [](std::int64_t size) { return size == 1; });
}

}  // namespace

bool reads_directly(const reduce::Source& source, std::int64_t dim) {
  const auto softmax_dim = static_cast<std::size_t>(dim);
  if (source.sizes.empty() || source.sizes[softmax_dim] == 1) return true;
  if (is_last(source, softmax_dim)) return source.strides[softmax_dim] == 1;
  return reduce::has_dense_rows(source, ~std::uint64_t{1} << dim);
}

bool has_dense_rows(const char* op, const reduce::Source& source, std::int64_t dim) {
  const auto softmax_dim = static_cast<std::size_t>(dim);
  if (source.sizes.empty()) return true;
  if (!is_last(source, softmax_dim) || (source.sizes[softmax_dim] > 1 && source.strides[softmax_dim] != 1)) return false;
  return reduce::contiguous_map(op, source.sizes.first(softmax_dim), source.strides.first(softmax_dim)).map.dims <= 1;
}

Plan make_plan(const char* op, bool log, const reduce::Source& source, std::int64_t dim, DType out, const DeviceProperties& gpu,
               bool batch_invariant) {
  Plan plan{{.in = source.dtype, .out = out, .log = log}, {}};
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
  plan.aligned = plan.columns == 1 || plan.length_stride * bytes % 16 == 0;
  for (int d = 0; d < map.dims; ++d) plan.aligned &= map.stride[d] * bytes % 16 == 0;
  plan.last = (plan.length - 1) * plan.length_stride + plan.columns - 1;
  for (std::size_t d = 0; d < outer_dims; ++d) plan.last += (source.sizes[d] - 1) * source.strides[d];
  if (plan.columns == 1)
    plan_rows(plan, width, gpu, !batch_invariant);
  else
    plan_columns(plan, width, gpu);

  if (plan.kernel == Kernel::two_pass) {
    plan.statistics = reduce::make_plan(op,
                                        {.kind = reduce::Kind::logsumexp,
                                         .source = source,
                                         .reduced = std::uint64_t{1} << softmax_dim,
                                         .out = plan.in,
                                         .pairs = true,
                                         .batch_invariant = batch_invariant},
                                        gpu);
    const bool rows = plan.columns == 1;
    const std::int64_t cells = rows ? 1 : ceil_div(plan.length, kApplyVectors);
    plan.tiles = rows ? ceil_div(plan.length, width * kApplyVectors) : ceil_div(plan.columns, width);
    plan.by_tiles = Divider::of(plan.tiles);
    plan.by_cells = Divider::of(cells);
    plan.threads = 256;
    plan.blocks = ceil_div(plan.outer * cells * plan.tiles, plan.threads);
  }
  check(plan.blocks <= INT32_MAX, op, "expected a problem of fewer than 2^31 CTAs, got ", plan.blocks);
  return plan;
}

Masked make_masked(const char* op, DType dtype, MaskKind mask, double scale, std::span<const std::int64_t> sizes,
                   std::span<const std::int64_t> strides, std::span<const std::int64_t> mask_strides, std::int64_t dim,
                   bool batch_invariant) {
  Masked plan{.dtype = dtype, .mask = mask, .scale = scale};
  const auto d = static_cast<std::size_t>(dim);
  if (!sizes.empty()) {
    plan.length = sizes[d];
    plan.input_stride = strides[d];
    plan.mask_stride = mask_strides[d];
    const auto outer = reduce::contiguous_map(op, sizes.first(d), strides.first(d), mask_strides.first(d));
    const auto columns = reduce::contiguous_map(op, sizes.subspan(d + 1), strides.subspan(d + 1), mask_strides.subspan(d + 1));
    plan.outer_map = outer.map;
    plan.outer = outer.count;
    plan.column_map = columns.map;
    plan.columns = columns.count;
  }
  const std::int64_t width = 16 / static_cast<std::int64_t>(size_of(dtype)), vectors = plan.length / width;
  const bool vector_rows =
      !batch_invariant && plan.length % width == 0 && plan.input_stride == 1 && (mask == MaskKind::none || plan.mask_stride == 1);
  const std::int64_t steps = masked_steps(size_of(dtype));
  if (plan.columns == 1 && vector_rows && plan_registers(plan, vectors, steps, steps)) {
    plan.kernel = MaskedKernel::rows;
    plan.aligned = true;
    for (int i = 0; i < plan.outer_map.dims; ++i)
      plan.aligned &= plan.outer_map.stride[i] % width == 0 && plan.outer_map.out[i] % width == 0;
  } else if (plan.columns == 1 && plan_registers(plan, plan.length, kElementSteps, kElementSteps)) {
    plan.kernel = MaskedKernel::elements;
  } else {
    plan.lanes = static_cast<int>(std::min(kWarp, round_up_pow2(plan.columns)));
    plan.threads = static_cast<int>(std::clamp(plan.lanes * round_up_pow2(ceil_div(plan.length, 8)), kWarp, kTileThreads));
    plan.tiles = ceil_div(plan.columns, plan.lanes);
    plan.blocks = plan.outer * plan.tiles;
  }
  check(plan.blocks <= INT32_MAX, op, "expected a problem of fewer than 2^31 CTAs, got ", plan.blocks);
  return plan;
}

}  // namespace xgemm::softmax

// The experiments' ops of torch.ops.xgemm_lab: argument checks, allocation and launches.
#include "lab/experiments/experiments.h"

#include <algorithm>
#include <array>
#include <string>

#include "lab/checks.h"
#include "torch/register.h"

namespace xgemm::lab {
namespace {

using experiments::kThreads;

void check_one_of(const char* op, const char* name, std::int64_t value, std::initializer_list<std::int64_t> allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  std::string list;
  for (const auto a : allowed) list += (list.empty() ? "" : ", ") + std::to_string(a);
  fail(op, "expected ", name, " to be one of ", list, ", got ", value);
}

void check_in(const char* op, const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
  check(value >= least && value <= most, op, "expected ", name, " in [", least, ", ", most, "], got ", value);
}

constexpr std::int64_t kMost = 1 << 20;  // blocks, and what a thread repeats

void check_blocks(const TensorView& v, std::int64_t threads) {
  check(v.numel() / threads < (std::int64_t{1} << 31) - 1, v.op, "expected fewer than 2^31 blocks, got ", v.numel(),
        " elements and ", threads, " threads");
}

unsigned blocks_for(std::int64_t n, std::int64_t per_block) { return static_cast<unsigned>((n + per_block - 1) / per_block); }

/// Blocks for n elements, `per_block` each.
Grid grid_for(std::int64_t n, std::int64_t per_block = kThreads, std::int64_t threads = kThreads) {
  return {.blocks = dim3(blocks_for(n, per_block)), .threads = dim3(static_cast<unsigned>(threads))};
}

/// As many blocks as the GPU holds at once.
std::int64_t resident_blocks(const CudaScope& scope, const char* op, const std::string& name, std::int64_t threads) {
  int blocks = 0;  // an SM
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, named_kernel(op, name.c_str()).kernel, static_cast<int>(threads), 0);
  return std::int64_t{blocks} * scope.properties().sm_count;
}

/// Allocates a result of shape `sizes` beside `like`, and unless it is empty calls launches(result, scope).
template <class Launches>
Tensor run(const TensorView& like, ShapeRef sizes, ScalarType dtype, Launches&& launches) {
  CudaScope scope(like);
  Tensor out = empty(sizes, dtype, like);
  if (view(like.op, "out", out).numel() == 0) return out;
  launches(out, scope);
  scope.check_launch();
  return out;
}

/// The same for an element of out for each of x, by the kernel of this name: name(x, out, n, more ...).
template <class T, class... More>
Tensor map(const TensorView& x, const std::string& name, More... more) {
  return run(x, x.sizes, x.dtype, [&](const Tensor& out, const CudaScope& scope) {
    launch(scope, name, grid_for(x.numel()), data<T>(x), data<T>(out), x.numel(), more...);
  });
}

Tensor strided_copy(const Tensor& x, std::int64_t stride, std::int64_t threads, std::int64_t loads) {
  const TensorView v = array("lab::strided_copy", "x", x);
  check_in(v.op, "stride", stride, 1, 32);
  check_in(v.op, "threads", threads, 1, 1024);
  check_one_of(v.op, "loads", loads, {1, 8});
  check(loads == 8 || (v.numel() < std::int64_t{1} << 31 && v.numel() * stride <= std::int64_t{1} << 32), v.op,
        "expected fewer than 2^31 elements and up to 2^32 / stride with one load a thread, got ", v.numel());
  check_blocks(v, threads);
  return run(v, v.sizes, v.dtype, [&](const Tensor& out, const CudaScope& scope) {
    const std::int64_t n = v.numel(), block = threads * stride;
    const Grid grid = grid_for(n, threads * loads, threads);
    const float wraps = static_cast<float>(static_cast<double>(block * loads) / static_cast<double>(n));
    if (loads == 8)
      launch(scope, "strided copy 8", grid, data<float>(v), data<float>(out), n, static_cast<int>(stride), block % n, wraps);
    else if (stride == 1)
      launch(scope, "coalesced copy", grid, data<float>(v), data<float>(out), static_cast<unsigned>(n));
    else
      launch(scope, "strided copy 1", grid, data<float>(v), data<float>(out), static_cast<unsigned>(n),
             static_cast<unsigned>(stride));
  });
}

Tensor empty_launch(const Tensor& x, std::int64_t threads) {
  const TensorView v = array("lab::empty_launch", "x", x);
  check_in(v.op, "threads", threads, 1, 1024);
  check_blocks(v, threads);
  const CudaScope scope(v);
  const Grid grid = grid_for(v.numel(), threads, threads);
  if (v.numel() > 0) launch(scope, "empty", grid);
  scope.check_launch();
  return host_numbers(v, {grid.blocks.x, threads});
}

Tensor concurrent_copy(const Tensor& x, std::int64_t threads, std::int64_t loads, std::int64_t width, const Text& grid) {
  const TensorView v = array("lab::concurrent_copy", "x", x);
  check_in(v.op, "threads", threads, 1, 1024);
  check_one_of(v.op, "loads", loads, {1, 2, 4, 8});
  check_one_of(v.op, "width", width, {1, 2, 4});
  check(loads == 1 || width == 1, v.op, "expected loads or width to be 1, got ", loads, " and ", width);
  place_of(v.op, "grid", grid, {"full", "resident", "one_per_sm"});
  check(v.numel() % width == 0 && is_aligned(v, 4 * static_cast<std::uintptr_t>(width)), v.op,
        "expected x aligned to and a multiple of width elements, got ", v.numel(), " elements and width ", width);
  check_blocks(v, threads);
  return run(v, v.sizes, v.dtype, [&](const Tensor& out, const CudaScope& scope) {
    const std::string name = "copy " + std::to_string(loads) + "x" + std::to_string(width);
    const std::int64_t vectors = v.numel() / width;
    Grid blocks = grid_for(vectors, threads * loads, threads);
    if (grid == "one_per_sm") blocks.blocks = dim3(static_cast<unsigned>(scope.properties().sm_count));
    if (grid == "resident") blocks.blocks = dim3(static_cast<unsigned>(resident_blocks(scope, v.op, name, threads)));
    launch(scope, name, blocks, data<float>(v), data<float>(out), vectors);
  });
}

Tensor fma_chains(const Tensor& x, const Tensor& factors, std::int64_t threads, std::int64_t chains, std::int64_t iterations,
                  std::int64_t unroll, std::int64_t registers) {
  const TensorView v = array("lab::fma_chains", "x", x), vf = array("lab::fma_chains", "factors", factors);
  check_same_device(v, vf);
  check(vf.numel() == 2, v.op, "expected factors to be b and c, got ", vf.numel(), " elements");
  check_in(v.op, "threads", threads, 1, 1024);
  check_one_of(v.op, "chains", chains, {1, 2, 4, 8, 16});
  check_one_of(v.op, "unroll", unroll, {8, 64});
  check_one_of(v.op, "registers", registers, {2, 3});
  check(registers == 3 || (chains == 1 && unroll == 64), v.op, "expected one chain and unroll 64 with 2 registers, got ", chains,
        " and ", unroll);
  check_in(v.op, "iterations", iterations, 0, kMost);
  check(v.numel() % threads == 0 && v.numel() / threads <= 65535, v.op,
        "expected x of threads elements a block, up to 65535 blocks, got ", v.numel(), " elements and ", threads, " threads");
  return run(v, v.sizes, v.dtype, [&](const Tensor& out, const CudaScope& scope) {
    const std::string name = "fma " + std::to_string(chains) + "x" + std::to_string(unroll);
    launch(scope, registers == 3 ? name : name + ", 2 registers", grid_for(v.numel(), threads, threads), data<float>(v),
           data<float>(vf), data<float>(out), static_cast<int>(iterations));
  });
}

Tensor intensity(const Tensor& x, std::int64_t steps) {
  constexpr double factor = -(1 - 0x1p-12);  // y keeps changing: equal operands would take less energy
  const TensorView v = array("lab::intensity", "x", x, {ScalarType::Float, ScalarType::Double});
  const std::int64_t width = v.dtype == ScalarType::Float ? 4 : 2, per_block = 2 * kThreads;  // vectors
  check_in(v.op, "steps", steps, 0, kMost);
  check(v.numel() % width == 0 && is_aligned(v), v.op, "expected x aligned to 16 bytes and a multiple of ", width,
        " elements, got ", v.numel(), " elements");
  check_blocks(v, per_block * width);
  return run(v, v.sizes, v.dtype, [&](const Tensor& out, const CudaScope& scope) {
    const auto of_type = [&]<class T>(const char* name, T b) {
      launch(scope, name, grid_for(v.numel() / width, per_block), data<T>(v), data<T>(out), v.numel() / width,
             static_cast<int>(steps), b, T{1});
    };
    if (v.dtype == ScalarType::Float)
      of_type("intensity float", static_cast<float>(factor));
    else
      of_type("intensity double", factor);
  });
}

Tensor pointer_chase(const Tensor& next, std::int64_t steps, std::int64_t start, bool shared) {
  const TensorView v = array("lab::pointer_chase", "next", next, {ScalarType::Int});
  constexpr std::int64_t most_shared = 48 * 1024 / 4;
  check(v.numel() >= 1 && v.numel() < std::int64_t{1} << 31, v.op, "expected next of 1 to 2^31 - 1 elements, got ", v.numel());
  check(!shared || v.numel() <= most_shared, v.op, "expected next of up to ", most_shared, " elements in shared memory, got ",
        v.numel());
  check(start >= 0 && start < v.numel(), v.op, "expected start in [0, ", v.numel(), "), got ", start);
  check_in(v.op, "steps", steps, 0, 1 << 24);
  return run(v, std::array<std::int64_t, 1>{2}, ScalarType::Long, [&](const Tensor& out, const CudaScope& scope) {
    const std::size_t bytes = shared ? static_cast<std::size_t>(v.numel()) * sizeof(int) : 0;
    launch(scope, shared ? "pointer_chase shared" : "pointer_chase", {.blocks = 1, .threads = 1, .shared_bytes = bytes},
           data<int>(v), static_cast<int>(v.numel()), data<std::int64_t>(out), static_cast<int>(steps), static_cast<int>(start));
  });
}

Tensor read_rate(const Tensor& x, const Text& level, std::int64_t blocks, std::int64_t repeats) {
  const TensorView v = array("lab::read_rate", "x", x);
  constexpr std::int64_t width = 4;
  place_of(v.op, "level", level, {"global", "l1", "shared"});
  check_in(v.op, "blocks", blocks, 1, kMost);
  check_in(v.op, "repeats", repeats, 0, kMost);
  check(level == "global" ? v.numel() % width == 0 : v.numel() == experiments::kReadChunk * blocks, v.op,
        "expected x of a multiple of 4 elements (global), or of 4096 a block, got ", v.numel(), " elements and ", blocks,
        " blocks");
  check(is_aligned(v), v.op, "expected x aligned to 16 bytes");
  return run(v, std::array{kThreads * blocks}, v.dtype, [&](const Tensor& out, const CudaScope& scope) {
    const Grid grid = grid_for(blocks, 1);
    if (level == "global")
      launch(scope, "read global", grid, data<float>(v), data<float>(out), v.numel() / width, static_cast<int>(repeats));
    else
      launch(scope, "read " + level, grid, data<float>(v), data<float>(out), static_cast<int>(repeats),
             static_cast<unsigned>(width * kThreads));
  });
}

Tensor register_bound(const Tensor& x, std::int64_t registers, const Text& bound, std::int64_t iterations) {
  const TensorView v = array("lab::register_bound", "x", x);
  check_one_of(v.op, "registers", registers, {31, 33, 40, 41, 64, 65, 128});
  place_of(v.op, "bound", bound, {"memory", "arithmetic"});
  check_in(v.op, "iterations", iterations, 0, kMost);
  return run(v, v.sizes, v.dtype, [&](const Tensor& out, const CudaScope& scope) {
    const std::string name = "registers " + std::to_string(registers) + " " + bound;
    constexpr int threads = 512;
    launch(scope, name, grid_for(resident_blocks(scope, v.op, name, threads), 1, threads), data<float>(v), data<float>(out),
           v.numel(), static_cast<int>(iterations), 0.5f, 1.0f);
  });
}

Tensor who_am_i(const Tensor& like, std::int64_t blocks, std::int64_t x, std::int64_t y, std::int64_t z,
                std::int64_t nanoseconds) {
  const TensorView v = view("lab::who_am_i", "like", like);
  check_in(v.op, "blocks", blocks, 1, kMost);
  check(x >= 1 && y >= 1 && z >= 1 && z <= 64 && x <= 1024 && y <= 1024 && x * y * z <= 1024, v.op,
        "expected a block of up to 1024 threads, z up to 64, got ", x, ", ", y, ", ", z);
  check_in(v.op, "nanoseconds", nanoseconds, 0, 10'000'000);
  return run(v, std::array{blocks, x * y * z, std::int64_t{5}}, ScalarType::Long, [&](const Tensor& out, const CudaScope& scope) {
    const dim3 threads(static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z));
    launch(scope, "who am i", {.blocks = dim3(static_cast<unsigned>(blocks)), .threads = threads}, data<std::int64_t>(out),
           nanoseconds);
  });
}

Tensor parity(const Tensor& x, bool branch) {
  return map<int>(array("lab::parity", "x", x, {ScalarType::Int}), branch ? "parity branch" : "parity arithmetic");
}

Tensor paths(const Tensor& x, std::int64_t count, bool per_lane) {
  const TensorView v = array("lab::paths", "x", x);
  check_in(v.op, "count", count, 1, 32);
  return map<float>(v, "paths", static_cast<int>(count), per_lane);
}

Tensor vector_add(const Tensor& a, const Tensor& b, const Text& variant) {
  const TensorView va = array("lab::vector_add", "a", a), vb = array("lab::vector_add", "b", b);
  check_same_device(va, vb);
  check(std::ranges::equal(va.sizes, vb.sizes), va.op, "expected a and b of one shape, got ", to_string(va.sizes), " and ",
        to_string(vb.sizes));
  place_of(va.op, "variant", variant, {"plain", "unguarded", "privatised", "coarsened2", "coarsened4", "vector2", "vector4"});
  check(!variant.starts_with("vector") || (is_aligned(va) && is_aligned(vb)), va.op,
        "expected a and b aligned to 16 bytes for variant ", variant);
  check(variant != "unguarded" || va.numel() % kThreads == 0, va.op, "expected whole blocks of 256 elements for variant ",
        variant, ", got ", va.numel(), " elements");
  return run(va, va.sizes, va.dtype, [&](const Tensor& out, const CudaScope& scope) {
    const int each = variant.ends_with('2') ? 2 : variant.ends_with('4') ? 4 : 1;  // elements a thread
    launch(scope, "vector_add " + variant, grid_for(va.numel(), kThreads * each), data<float>(va), data<float>(vb),
           data<float>(out), va.numel());
  });
}

Tensor window_sum(const Tensor& x, std::int64_t window, bool shared) {
  const TensorView v = array("lab::window_sum", "x", x);
  check(window >= 1 && window <= experiments::kMaxWindow && window % 2 == 1, v.op,
        "expected window to be odd and in [1, 1025], got ", window);
  return map<float>(v, shared ? "window_sum shared" : "window_sum direct", static_cast<int>(window / 2));
}

Tensor histogram(const Tensor& x, std::int64_t bins, bool privatised) {
  const TensorView v = array("lab::histogram", "x", x, {ScalarType::Int});
  check_in(v.op, "bins", bins, 1, experiments::kMaxBins);
  check(v.numel() < std::int64_t{1} << 31, v.op, "expected fewer than 2^31 elements, which int32 counts, got ", v.numel());
  return run(v, std::array{bins}, v.dtype, [&](const Tensor& out, const CudaScope& scope) {
    const std::size_t bytes = static_cast<std::size_t>(bins) * sizeof(int);
    cudaMemsetAsync(data<int>(out), 0, bytes, scope.stream());
    if (v.numel() == 0) return;
    Grid grid = grid_for(v.numel());
    grid.blocks.x = std::min(grid.blocks.x, static_cast<unsigned>(scope.properties().sm_count) * 8);
    grid.shared_bytes = privatised ? bytes : 0;
    launch(scope, privatised ? "histogram privatised" : "histogram global", grid, data<int>(v), data<int>(out), v.numel(),
           static_cast<int>(bins));
  });
}

Tensor tiled_matmul(const Tensor& a, const Tensor& b, const Text& variant, std::int64_t tile) {
  const TensorView va = view("lab::tiled_matmul", "a", a), vb = view("lab::tiled_matmul", "b", b);
  check_product(va, vb, false);
  place_of(va.op, "variant", variant, {"naive", "fixed", "dynamic", "single_block", "conflicting", "padded", "uncontracted"});
  const std::int64_t m = va.size(0), k = va.size(1), n = vb.size(1);
  const bool any_tile = variant == "naive" || variant == "dynamic";
  if (any_tile)
    check_in(va.op, "tile", tile, 1, 32);
  else if (variant == "fixed")
    check_one_of(va.op, "tile", tile, {8, 16, 32});
  else
    check_one_of(va.op, "tile", tile, {32});
  for (const std::int64_t size : {m, n, k})
    check(size < (std::int64_t{1} << 31) - 1024, va.op, "expected sizes below 2^31 - 1024, got ", size);
  check((m + tile - 1) / tile * ((n + tile - 1) / tile) < std::int64_t{1} << 31, va.op,
        "expected fewer than 2^31 tiles, got sizes ", m, " and ", n, " with tile ", tile);
  check(variant != "single_block" || (m <= 32 && n <= 32 && k * (m + n) <= 48 * 1024 / 4), va.op,
        "expected m, n <= 32 and A and B within 48 KiB for variant single_block, got ", m, ", ", n, " and k = ", k);
  return run(va, std::array{m, n}, va.dtype, [&](const Tensor& out, const CudaScope& scope) {
    const auto side = static_cast<unsigned>(tile);
    Grid grid{.blocks = dim3(blocks_for(m, tile) * blocks_for(n, tile)), .threads = dim3(side, side)};
    if (variant == "dynamic") grid.shared_bytes = 2 * sizeof(float) * side * side;
    if (variant == "single_block") {
      grid.threads = dim3(static_cast<unsigned>(n), static_cast<unsigned>(m));
      grid.shared_bytes = sizeof(float) * static_cast<std::size_t>(k * (m + n));
    }
    launch(scope, "tiled " + variant + " " + (any_tile ? "8" : std::to_string(tile)), grid,
           experiments::Matrices{.a = data<float>(va),
                                 .b = data<float>(vb),
                                 .c = data<float>(out),
                                 .m = static_cast<int>(m),
                                 .n = static_cast<int>(n),
                                 .k = static_cast<int>(k)});
  });
}

Tensor transpose(const Tensor& x, const Text& variant) {
  const TensorView v = view("lab::transpose", "x", x);
  check_matrix(v);
  const std::size_t place = place_of(v.op, "variant", variant, {"naive", "tiled", "padded", "swizzled"});
  const auto tiles = [](std::int64_t size) { return size / 32 + (size % 32 > 0); };
  const std::int64_t rows = v.size(0), cols = v.size(1), blocks = tiles(rows) * tiles(cols);
  check(blocks < std::int64_t{1} << 31, v.op, "expected fewer than 2^31 tiles of 32 x 32, got shape ", to_string(v.sizes));
  return run(v, std::array{cols, rows}, v.dtype, [&](const Tensor& out, const CudaScope& scope) {
    launch(scope, "transpose 0" + std::to_string(place + 1) + "_" + variant,
           {.blocks = dim3(static_cast<unsigned>(blocks)), .threads = dim3(32, kThreads / 32)}, data<float>(v), data<float>(out),
           rows, cols);
  });
}

XGEMM_REGISTER(xgemm_lab, strided_copy, strided_copy);
XGEMM_REGISTER(xgemm_lab, empty_launch, empty_launch);
XGEMM_REGISTER(xgemm_lab, intensity, intensity);
XGEMM_REGISTER(xgemm_lab, pointer_chase, pointer_chase);
XGEMM_REGISTER(xgemm_lab, read_rate, read_rate);
XGEMM_REGISTER(xgemm_lab, register_bound, register_bound);
XGEMM_REGISTER(xgemm_lab, concurrent_copy, concurrent_copy);
XGEMM_REGISTER(xgemm_lab, fma_chains, fma_chains);
XGEMM_REGISTER(xgemm_lab, who_am_i, who_am_i);
XGEMM_REGISTER(xgemm_lab, parity, parity);
XGEMM_REGISTER(xgemm_lab, paths, paths);
XGEMM_REGISTER(xgemm_lab, vector_add, vector_add);
XGEMM_REGISTER(xgemm_lab, window_sum, window_sum);
XGEMM_REGISTER(xgemm_lab, histogram, histogram);
XGEMM_REGISTER(xgemm_lab, transpose, transpose);
XGEMM_REGISTER(xgemm_lab, tiled_matmul, tiled_matmul);

}  // namespace
}  // namespace xgemm::lab

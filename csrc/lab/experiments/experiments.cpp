// The experiments' ops of torch.ops.xgemm_lab: argument checks and allocation.
#include "lab/experiments/experiments.h"

#include <algorithm>
#include <array>

#include "lab/checks.h"
#include "lab/kernels.h"
#include "torch/cuda.h"
#include "torch/register.h"
#include "torch/tensor.h"

namespace xgemm::lab {
namespace {

TensorView array(const char* op, const char* name, const Tensor& t, ScalarType dtype) {
  const TensorView v = view(op, name, t);
  check_dtype(v, {dtype});
  check_contiguous(v);
  return v;
}

void check_threads(const char* op, std::int64_t threads) {
  check(threads >= 1 && threads <= 1024, op, "expected threads in [1, 1024], got ", threads);
}

void check_one_of(const char* op, const char* name, std::int64_t value, std::initializer_list<std::int64_t> allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  std::string list;
  for (const auto a : allowed) list += (list.empty() ? "" : ", ") + std::to_string(a);
  fail(op, "expected ", name, " to be one of ", list, ", got ", value);
}

/// The pointer of a tensor that this file allocated.
template <class T>
T* data(const Tensor& t) {
  return static_cast<T*>(view("lab", "out", t).data);
}

template <class T>
const T* data(const TensorView& v) {
  return static_cast<const T*>(v.data);
}

/// Allocates a result of shape `sizes` beside `like`, and unless it is empty calls launch(result, scope).
template <class Launch>
Tensor run(const TensorView& like, ShapeRef sizes, ScalarType dtype, Launch&& launch) {
  CudaScope scope(like);
  Tensor out = empty(sizes, dtype, like);
  if (view(like.op, "out", out).numel() == 0) return out;
  launch(out, scope);
  scope.check_launch();
  return out;
}

namespace ex = experiments;

void check_blocks(const TensorView& v, std::int64_t threads) {
  check(v.numel() / threads < (std::int64_t{1} << 31) - 1, v.op, "expected fewer than 2^31 blocks, got ", v.numel(),
        " elements and ", threads, " threads");
}

Tensor strided_copy(const Tensor& x, std::int64_t stride, std::int64_t threads, std::int64_t loads) {
  const TensorView v = array("lab::strided_copy", "x", x, ScalarType::Float);
  check(stride >= 1 && stride <= 32, v.op, "expected stride in [1, 32], got ", stride);
  check_threads(v.op, threads);
  check_one_of(v.op, "loads", loads, {1, 8});
  check(loads == 8 || (v.numel() < std::int64_t{1} << 31 && v.numel() * stride <= std::int64_t{1} << 32), v.op,
        "expected fewer than 2^31 elements and up to 2^32 / stride with one load a thread, got ", v.numel());
  check_blocks(v, threads);
  return run(v, v.sizes, v.dtype, [&](const Tensor& out, const CudaScope& scope) {
    ex::strided_copy(data<float>(v), data<float>(out), v.numel(), stride, threads, loads, scope.stream());
  });
}

Tensor empty_launch(const Tensor& x, std::int64_t threads) {
  const TensorView v = array("lab::empty_launch", "x", x, ScalarType::Float);
  check_threads(v.op, threads);
  check_blocks(v, threads);
  const CudaScope scope(v);
  const std::int64_t blocks = (v.numel() + threads - 1) / threads;
  if (blocks > 0) ex::empty_launch(blocks, threads, scope.stream());
  scope.check_launch();
  return host_numbers(v, {blocks, threads});
}

Tensor concurrent_copy(const Tensor& x, std::int64_t threads, std::int64_t loads, std::int64_t width, const Text& grid) {
  const TensorView v = array("lab::concurrent_copy", "x", x, ScalarType::Float);
  check_threads(v.op, threads);
  check_one_of(v.op, "loads", loads, {1, 2, 4, 8});
  check_one_of(v.op, "width", width, {1, 2, 4});
  check(loads == 1 || width == 1, v.op, "expected loads or width to be 1, got ", loads, " and ", width);
  place_of(v.op, "grid", grid, {"full", "resident", "one_per_sm"});
  check(v.numel() % width == 0 && reinterpret_cast<std::uintptr_t>(v.data) % (4 * static_cast<std::uintptr_t>(width)) == 0, v.op,
        "expected x aligned to and a multiple of width elements, got ", v.numel(), " elements and width ", width);
  check_blocks(v, threads);
  return run(v, v.sizes, v.dtype, [&](const Tensor& out, const CudaScope& scope) {
    int blocks = grid == "full" ? 0 : 1;  // an SM
    if (grid == "resident") {
      const std::string name = "copy " + std::to_string(loads) + "x" + std::to_string(width);
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, named_kernel(v.op, name.c_str()).kernel, static_cast<int>(threads),
                                                    0);
    }
    const ex::CopyShape shape{.threads = threads, .loads = loads, .width = width, .blocks = blocks * scope.properties().sm_count};
    ex::concurrent_copy(data<float>(v), data<float>(out), v.numel(), shape, scope.stream());
  });
}

Tensor fma_chains(const Tensor& x, const Tensor& factors, std::int64_t threads, std::int64_t chains, std::int64_t iterations,
                  std::int64_t unroll, std::int64_t registers) {
  const TensorView v = array("lab::fma_chains", "x", x, ScalarType::Float),
                   vf = array("lab::fma_chains", "factors", factors, ScalarType::Float);
  check_same_device(v, vf);
  check(vf.numel() == 2, v.op, "expected factors to be b and c, got ", vf.numel(), " elements");
  check_threads(v.op, threads);
  check_one_of(v.op, "chains", chains, {1, 2, 4, 8, 16});
  check_one_of(v.op, "unroll", unroll, {8, 64});
  check_one_of(v.op, "registers", registers, {2, 3});
  check(registers == 3 || (chains == 1 && unroll == 64), v.op, "expected one chain and unroll 64 with 2 registers, got ", chains,
        " and ", unroll);
  check(iterations >= 0 && iterations <= 1 << 20, v.op, "expected iterations in [0, 2^20], got ", iterations);
  check(v.numel() % threads == 0 && v.numel() / threads <= 65535, v.op,
        "expected x of threads elements a block, up to 65535 blocks, got ", v.numel(), " elements and ", threads, " threads");
  return run(v, v.sizes, v.dtype, [&](const Tensor& out, const CudaScope& scope) {
    const ex::FmaShape shape{
        .threads = threads, .chains = chains, .iterations = iterations, .unroll = unroll, .registers = registers};
    ex::fma_chains(data<float>(v), data<float>(vf), data<float>(out), v.numel() / threads, shape, scope.stream());
  });
}

Tensor intensity(const Tensor& x, std::int64_t steps) {
  constexpr double factor = -(1 - 0x1p-12);  // y keeps changing: equal operands would take less energy
  const TensorView v = view("lab::intensity", "x", x);
  check_dtype(v, {ScalarType::Float, ScalarType::Double});
  check_contiguous(v);
  const std::int64_t width = v.dtype == ScalarType::Float ? 4 : 2;
  check(steps >= 0 && steps <= 1 << 20, v.op, "expected steps in [0, 2^20], got ", steps);
  check(v.numel() % width == 0 && reinterpret_cast<std::uintptr_t>(v.data) % 16 == 0, v.op,
        "expected x aligned to 16 bytes and a multiple of ", width, " elements, got ", v.numel(), " elements");
  check_blocks(v, 512 * width);
  return run(v, v.sizes, v.dtype, [&](const Tensor& out, const CudaScope& scope) {
    if (v.dtype == ScalarType::Float)
      ex::intensity(data<float>(v), data<float>(out), v.numel(), steps, static_cast<float>(factor), 1, scope.stream());
    else
      ex::intensity(data<double>(v), data<double>(out), v.numel(), steps, factor, 1, scope.stream());
  });
}

Tensor pointer_chase(const Tensor& next, std::int64_t steps, std::int64_t start, bool shared) {
  const TensorView v = array("lab::pointer_chase", "next", next, ScalarType::Int);
  constexpr std::int64_t most_shared = 48 * 1024 / 4;
  check(v.numel() >= 1 && v.numel() < std::int64_t{1} << 31, v.op, "expected next of 1 to 2^31 - 1 elements, got ", v.numel());
  check(!shared || v.numel() <= most_shared, v.op, "expected next of up to ", most_shared, " elements in shared memory, got ",
        v.numel());
  check(start >= 0 && start < v.numel(), v.op, "expected start in [0, ", v.numel(), "), got ", start);
  check(steps >= 0 && steps <= 1 << 24, v.op, "expected steps in [0, 2^24], got ", steps);
  return run(v, std::array<std::int64_t, 1>{2}, ScalarType::Long, [&](const Tensor& out, const CudaScope& scope) {
    ex::pointer_chase(data<int>(v), v.numel(), data<std::int64_t>(out), steps, start, shared, scope.stream());
  });
}

Tensor read_rate(const Tensor& x, const Text& level, std::int64_t blocks, std::int64_t repeats) {
  const TensorView v = array("lab::read_rate", "x", x, ScalarType::Float);
  const std::size_t place = place_of(v.op, "level", level, {"global", "l1", "shared"});
  check(blocks >= 1 && blocks <= 1 << 20, v.op, "expected blocks in [1, 2^20], got ", blocks);
  check(repeats >= 0 && repeats <= 1 << 20, v.op, "expected repeats in [0, 2^20], got ", repeats);
  check(level == "global" ? v.numel() % 4 == 0 : v.numel() == 4096 * blocks, v.op,
        "expected x of a multiple of 4 elements (global), or of 4096 a block, got ", v.numel(), " elements and ", blocks,
        " blocks");
  check(reinterpret_cast<std::uintptr_t>(v.data) % 16 == 0, v.op, "expected x aligned to 16 bytes");
  return run(v, std::array{256 * blocks}, v.dtype, [&](const Tensor& out, const CudaScope& scope) {
    ex::read_rate(data<float>(v), data<float>(out), v.numel(),
                  {.level = static_cast<ex::Level>(place), .blocks = blocks, .repeats = repeats}, scope.stream());
  });
}

Tensor register_bound(const Tensor& x, std::int64_t registers, const Text& bound, std::int64_t iterations) {
  const TensorView v = array("lab::register_bound", "x", x, ScalarType::Float);
  check_one_of(v.op, "registers", registers, {31, 33, 40, 41, 64, 65, 128});
  place_of(v.op, "bound", bound, {"memory", "arithmetic"});
  check(iterations >= 0 && iterations <= 1 << 20, v.op, "expected iterations in [0, 2^20], got ", iterations);
  return run(v, v.sizes, v.dtype, [&](const Tensor& out, const CudaScope& scope) {
    const std::string name = "registers " + std::to_string(registers) + " " + bound;
    const NamedKernel& kernel = named_kernel(v.op, name.c_str());
    int blocks = 0;  // an SM
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel.kernel, kernel.threads, 0);
    const ex::RegisterShape shape{.registers = registers,
                                  .memory = bound == "memory",
                                  .iterations = iterations,
                                  .blocks = blocks * scope.properties().sm_count};
    ex::register_bound(data<float>(v), data<float>(out), v.numel(), shape, scope.stream());
  });
}

Tensor who_am_i(const Tensor& like, std::int64_t blocks, std::int64_t x, std::int64_t y, std::int64_t z,
                std::int64_t nanoseconds) {
  const TensorView v = view("lab::who_am_i", "like", like);
  check(blocks >= 1 && blocks <= 1 << 20, v.op, "expected blocks in [1, 2^20], got ", blocks);
  check(x >= 1 && y >= 1 && z >= 1 && z <= 64 && x <= 1024 && y <= 1024 && x * y * z <= 1024, v.op,
        "expected a block of up to 1024 threads, z up to 64, got ", x, ", ", y, ", ", z);
  check(nanoseconds >= 0 && nanoseconds <= 10'000'000, v.op, "expected nanoseconds in [0, 10^7], got ", nanoseconds);
  return run(v, std::array{blocks, x * y * z, std::int64_t{5}}, ScalarType::Long, [&](const Tensor& out, const CudaScope& scope) {
    ex::who_am_i(data<std::int64_t>(out), blocks,
                 dim3(static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)), nanoseconds, scope.stream());
  });
}

Tensor parity(const Tensor& x, bool branch) {
  const TensorView v = array("lab::parity", "x", x, ScalarType::Int);
  return run(v, v.sizes, v.dtype, [&](const Tensor& out, const CudaScope& scope) {
    ex::parity(data<int>(v), data<int>(out), v.numel(), branch, scope.stream());
  });
}

Tensor paths(const Tensor& x, std::int64_t count, bool per_lane) {
  const TensorView v = array("lab::paths", "x", x, ScalarType::Float);
  check(count >= 1 && count <= 32, v.op, "expected count in [1, 32], got ", count);
  return run(v, v.sizes, v.dtype, [&](const Tensor& out, const CudaScope& scope) {
    ex::paths(data<float>(v), data<float>(out), v.numel(), count, per_lane, scope.stream());
  });
}

Tensor vector_add(const Tensor& a, const Tensor& b, const Text& variant) {
  const TensorView va = array("lab::vector_add", "a", a, ScalarType::Float),
                   vb = array("lab::vector_add", "b", b, ScalarType::Float);
  check_same_device(va, vb);
  check(std::ranges::equal(va.sizes, vb.sizes), va.op, "expected a and b of one shape, got ", to_string(va.sizes), " and ",
        to_string(vb.sizes));
  const std::size_t place =
      place_of(va.op, "variant", variant, {"plain", "unguarded", "privatised", "coarsened2", "coarsened4", "vector2", "vector4"});
  const auto unaligned = [](const TensorView& v) { return reinterpret_cast<std::uintptr_t>(v.data) % 16 != 0; };
  check((variant != "vector2" && variant != "vector4") || !(unaligned(va) || unaligned(vb)), va.op,
        "expected a and b aligned to 16 bytes for variant ", variant);
  check(variant != "unguarded" || va.numel() % 256 == 0, va.op, "expected whole blocks of 256 elements for variant ", variant,
        ", got ", va.numel(), " elements");
  return run(va, va.sizes, va.dtype, [&](const Tensor& out, const CudaScope& scope) {
    ex::vector_add(data<float>(va), data<float>(vb), data<float>(out), va.numel(), static_cast<ex::Addition>(place),
                   scope.stream());
  });
}

Tensor window_sum(const Tensor& x, std::int64_t window, bool shared) {
  const TensorView v = array("lab::window_sum", "x", x, ScalarType::Float);
  check(window >= 1 && window <= ex::kMaxWindow && window % 2 == 1, v.op, "expected window to be odd and in [1, 1025], got ",
        window);
  return run(v, v.sizes, v.dtype, [&](const Tensor& out, const CudaScope& scope) {
    ex::window_sum(data<float>(v), data<float>(out), v.numel(), window, shared, scope.stream());
  });
}

Tensor histogram(const Tensor& x, std::int64_t bins, bool privatised) {
  const TensorView v = array("lab::histogram", "x", x, ScalarType::Int);
  check(bins >= 1 && bins <= ex::kMaxBins, v.op, "expected bins in [1, 8192], got ", bins);
  check(v.numel() < std::int64_t{1} << 31, v.op, "expected fewer than 2^31 elements, which int32 counts, got ", v.numel());
  return run(v, std::array{bins}, v.dtype, [&](const Tensor& out, const CudaScope& scope) {
    cudaMemsetAsync(data<int>(out), 0, static_cast<std::size_t>(bins) * sizeof(int), scope.stream());
    if (v.numel() > 0)
      ex::histogram(data<int>(v), data<int>(out), v.numel(), bins, privatised, scope.properties().sm_count, scope.stream());
  });
}

Tensor tiled_matmul(const Tensor& a, const Tensor& b, const Text& variant, std::int64_t tile) {
  const TensorView va = view("lab::tiled_matmul", "a", a), vb = view("lab::tiled_matmul", "b", b);
  check_matrix(va);
  check_matrix(vb);
  check_same_device(va, vb);
  check(va.size(1) == vb.size(0), va.op, "expected a and b of shapes (m, k) and (k, n), got ", to_string(va.sizes), " and ",
        to_string(vb.sizes));
  const std::size_t place =
      place_of(va.op, "variant", variant, {"naive", "fixed", "dynamic", "single_block", "conflicting", "padded", "uncontracted"});
  const std::int64_t m = va.size(0), k = va.size(1), n = vb.size(1);
  if (variant == "naive" || variant == "dynamic")
    check(tile >= 1 && tile <= 32, va.op, "expected tile in [1, 32], got ", tile);
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
    ex::tiled_matmul({.a = data<float>(va),
                      .b = data<float>(vb),
                      .c = data<float>(out),
                      .m = static_cast<int>(m),
                      .n = static_cast<int>(n),
                      .k = static_cast<int>(k)},
                     static_cast<ex::Tiling>(place), tile, scope.stream());
  });
}

Tensor transpose(const Tensor& x, const Text& variant) {
  const TensorView v = view("lab::transpose", "x", x);
  check_matrix(v);
  const std::size_t place = place_of(v.op, "variant", variant, {"naive", "tiled", "padded", "swizzled"});
  const auto tiles = [](std::int64_t size) { return size / 32 + (size % 32 > 0); };
  check(tiles(v.size(0)) * tiles(v.size(1)) < std::int64_t{1} << 31, v.op,
        "expected fewer than 2^31 tiles of 32 x 32, got shape ", to_string(v.sizes));
  return run(v, std::array{v.size(1), v.size(0)}, v.dtype, [&](const Tensor& out, const CudaScope& scope) {
    ex::transpose(data<float>(v), data<float>(out), v.size(0), v.size(1), static_cast<ex::Transposition>(place), scope.stream());
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

// xgemm_lab::reduce_sum: argument checks, the table of versions, and the passes.
#include "lab/reduction/reduction.h"

#include <utility>

#include "lab/checks.h"
#include "torch/register.h"

namespace xgemm::lab {
namespace {

constexpr const char* kOp = "lab::reduce_sum";

template <class T>
void sum_into(T* out, const TensorView& x, const reduction::Grid& grid, void (*version)(const reduction::Pass<T>&),
              const CudaScope& scope) {
  using namespace reduction;
  std::int64_t n = x.numel();
  if (n == 0) {  // the sum of nothing
    cudaMemsetAsync(out, 0, sizeof(T), scope.stream());
    return scope.check_launch();
  }
  // Partial sums go back and forth between two halves of a workspace; the last pass writes the result.
  const std::int64_t blocks = grid.blocks(n), second = grid.blocks(blocks);
  const Tensor space = workspace((blocks + second) * std::int64_t{sizeof(T)}, x);
  T* here = data<T>(space);
  T* there = here + blocks;
  const T* in = data<T>(x);
  const bool single_pass = grid.version >= kFirstSinglePass;
  const MeetingPlace place = scope.meeting_place(grid.version == 8 ? sizeof(unsigned) : 0, 0);
  for (bool done = false; !done;) {
    const std::int64_t count = grid.blocks(n);
    done = count == 1 || single_pass;
    version({.in = in,
             .partials = done && !single_pass ? out : here,
             .out = out,
             .counter = static_cast<unsigned*>(place.counters),
             .n = n,
             .blocks = count,
             .sm_count = grid.sm_count,
             .stream = scope.stream()});
    scope.check_launch();
    in = here;
    n = count;
    std::swap(here, there);
  }
}

Tensor reduce_sum_op(const Tensor& x, std::int64_t version, std::int64_t loads, std::int64_t blocks_per_sm) {
  const TensorView v = array(kOp, "x", x, {ScalarType::Float, ScalarType::Int});
  check(version >= 0 && version <= 9, kOp, "expected version in [0, 9], got ", version);
  check(loads == 2 || loads == 8, kOp, "expected loads to be 2 or 8, got ", loads);
  check(blocks_per_sm >= 1 && blocks_per_sm <= 1024, kOp, "expected blocks_per_sm in [1, 1024], got ", blocks_per_sm);
  const int size = version < reduction::kFirstWithLoads ? 0 : static_cast<int>(loads);
  const auto& launch = step_of<reduction::Version>(kOp, version, 0, 9, size).launch;
  const CudaScope scope(v);
  const Tensor out = empty({}, v.dtype, v);
  const reduction::Grid grid{.version = static_cast<int>(version),
                             .loads = static_cast<int>(loads),
                             .blocks_per_sm = static_cast<int>(blocks_per_sm),
                             .sm_count = scope.properties().sm_count};
  if (v.dtype == ScalarType::Float)
    sum_into(data<float>(out), v, grid, launch.floats, scope);
  else
    sum_into(data<reduction::Int>(out), v, grid, launch.ints, scope);
  return out;
}

XGEMM_REGISTER(xgemm_lab, reduce_sum, reduce_sum_op);

}  // namespace
}  // namespace xgemm::lab

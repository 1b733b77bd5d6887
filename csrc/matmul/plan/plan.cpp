// The choice among the families' candidates.
#include "matmul/plan/plan.h"

namespace xgemm::matmul {
namespace {

/// The flat list: the candidate of least predicted time; of equal ones the first.
Candidate fastest(const Question& q) {
  std::optional<Candidate> best;
  const auto consider = [&](const auto& plan) {
    if (plan && (!best || seconds(*plan) < seconds(*best))) best = *plan;
  };
  consider(offer_outputs(q));
  if (const auto fp64 = offer_fp64(q)) return consider(fp64), *best;  // always faster than whole rows on CUDA cores
  consider(offer_mma(q)), consider(offer_sliced(q)), consider(offer_tf32(q));
  consider(offer_bf16x3(q)), consider(offer_wgmma(q));
  if (!q.hopper || !q.forced.empty()) consider(offer_large(q));
  consider(offer_cuda_cores(q));
  return best ? *best : *offer_large({q.p, q.gpu});  // serves every problem of half precision
}

/// Batch-invariant: tensor cores or CUDA cores, by what is faster for many rows, whatever the number and the layout of its own.
/// Half precision has one order of additions on tensor cores where K is not split, fp64 has one for all its tiles.
Candidate fastest_invariant(const Question& q) {
  const auto offer = [](const Question& x) -> std::optional<Candidate> {
    if (const auto wgmma = offer_wgmma(x)) return wgmma;
    return offer_large(x);
  };
  const Problem many_rows = with_many_rows(q.p);
  const Question many{many_rows, q.gpu};
  const auto own = offer(q), of_many = offer(many);
  const bool half = is_half(q.p.dtype);
  const bool pays = of_many && (half || seconds(*of_many) <= seconds(*offer_cuda_cores(many)));
  if (!own || !pays) return *offer_cuda_cores(q);
  const auto* const wgmma = std::get_if<WgmmaPlan>(&*own);
  const auto mma = half && !(wgmma && wgmma->splits > 1) ? offer_mma(q) : std::nullopt;
  return mma && mma->seconds < seconds(*own) ? Candidate(*mma) : *own;
}

/// A gated product by one kernel, if that takes less time than two products on CUDA cores (batch-invariant: of many rows).
std::optional<WgmmaPlan> whole_gated(const Question& q) {
  const Problem many = with_many_rows(q.p);
  const Question asked{q.p.batch_invariant ? many : q.p, q.gpu};
  const auto wgmma = offer_wgmma(q), timed = q.p.batch_invariant ? offer_wgmma(asked) : wgmma;
  const bool always = is_half(q.p.dtype) || !q.forced.empty();
  return wgmma && timed && (always || timed->seconds <= 2 * seconds(*offer_cuda_cores(asked))) ? wgmma : std::nullopt;
}

/// Does cuBLAS take less time? In fp64 it is fast where all rows are aligned, and for few rows or columns our kernels are as
/// fast. Its time: a launch, and what takes longer of multiplying and memory, without the waves of one tile size that a plan
/// counts; fitted to benchmarks/results/nvidia_h200/matmul.json and random_shapes.json (docs/log/matmul.md).
bool slower_than_torch(const Question& q, double seconds) {
  constexpr std::int64_t kFew = 64, kStart = 3500, kRate = 55;  // nanoseconds, TFLOP/s
  const Problem& p = q.p;
  if (!q.hopper || p.dtype != DType::f64 || std::min(p.m, p.n) <= kFew || p.n % 2 != 0 || !has_vectors(p, lines_of_a(p), 2) ||
      !has_vectors(p, lines_of_b(p), 2))
    return false;
  const double operations = 2.0 * static_cast<double>(p.m * p.n) * static_cast<double>(p.k * p.batches);
  return 1e6 * seconds > 1e-3 * kStart + std::max(1e-6 * operations / kRate, q.memory());
}

}  // namespace

Plan make_plan(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  const Question q{p, gpu, forced};
  const auto choose = p.batch_invariant && forced.empty() && p.dtype != DType::f64 ? fastest_invariant : fastest;
  if (!p.gated) {
    const Candidate chosen = choose(q);
    return {chosen, {}, slower_than_torch(q, seconds(chosen))};
  }
  if (const auto whole = whole_gated(q)) return {*whole, {}};
  const void* const sums = &q;  // any address: the memory is taken when the product is launched
  const Problem up = up_product(p, nullptr), gate = gate_product(p, sums);
  return {choose({gate, gpu, forced}), choose({up, gpu, forced})};
}

}  // namespace xgemm::matmul

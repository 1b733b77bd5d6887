// The choice among the families' candidates.
#include "matmul/plan/plan.h"

namespace xgemm::matmul {
namespace {

/// The flat list: the candidate of least predicted time; of equal ones the first.
Candidate fastest(const Question& q) {
  std::optional<Candidate> best;
  const auto consider = [&](const auto& plan) {
    if (plan && (!best || plan->seconds < seconds(*best))) best = *plan;
  };
  consider(offer_fp64(q)), consider(offer_mma(q)), consider(offer_sliced(q));
  consider(offer_tf32(q)), consider(offer_bf16x3(q)), consider(offer_wgmma(q));
  const Candidate cuda = offer_cuda_cores(q);
  const bool always = !q.forced.empty() || q.p.dtype != DType::f32;  // tensor cores have many times the rate
  return best && (always || seconds(*best) <= (q.p.gated ? 2 : 1) * seconds(cuda)) ? *best : cuda;
}

/// Batch-invariant: tensor cores or CUDA cores, by what is faster for many rows, whatever the number and the layout of its own.
/// Half precision has one order of additions on tensor cores where K is not split, fp64 has one for all its tiles.
Candidate fastest_invariant(const Question& q) {
  const Problem many_rows = with_many_rows(q.p);
  const Question many(many_rows, q.gpu);
  const auto wgmma = offer_wgmma(q), of_many = offer_wgmma(many);
  const bool half = is_half(q.p.dtype);
  const bool pays = of_many && (half || of_many->seconds <= (q.p.gated ? 2 : 1) * seconds(offer_cuda_cores(many)));
  if (!wgmma || !pays) return offer_cuda_cores(q);
  const auto mma = half && wgmma->splits == 1 ? offer_mma(q) : std::nullopt;
  return mma && mma->seconds < wgmma->seconds ? Candidate(*mma) : Candidate(*wgmma);
}

/// Kernels that take any strides. fp64's tiles are always faster than CUDA cores, and so for any M.
Candidate plain(const Question& q) {
  const auto fp64 = offer_fp64(q);
  return fp64 ? Candidate(*fp64) : offer_cuda_cores(q);
}

Plan with_both_products(const Question& q, const Candidate& kernel) {
  if (!q.p.gated || std::holds_alternative<WgmmaPlan>(kernel)) return {kernel, {}};
  if (std::holds_alternative<Fp64Plan>(kernel)) return {kernel, kernel};
  const Problem up = up_product(q.p, nullptr);
  return {kernel, offer_cuda_cores({up, q.gpu, q.forced})};
}

}  // namespace

Plan make_plan(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  const Question q(p, gpu, forced);
  if (!p.batch_invariant || !forced.empty()) return with_both_products(q, fastest(q));
  return with_both_products(q, p.dtype == DType::f64 ? plain(q) : fastest_invariant(q));
}

Plan make_plain_plan(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  const Question q(p, gpu, forced);
  return with_both_products(q, plain(q));
}

}  // namespace xgemm::matmul

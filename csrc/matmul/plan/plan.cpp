#include "matmul/plan/plan.h"

namespace xgemm::matmul {
namespace {

/// The candidate of least predicted time; of equal ones the first.
struct Fastest {
  Candidate best{};
  double least = 1e30;  ///< seconds; as it is if nobody has offered
  template <class FamilyPlan>
  void consider(const std::optional<FamilyPlan>& plan) {
    if (plan && plan->seconds < least) best = *plan, least = plan->seconds;
  }
};

/// The flat list. A family that does not serve the problem, or that `forced` leaves out, offers nothing.
Candidate fastest(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  Fastest fastest;
  fastest.consider(offer_fp64(p, gpu, forced));
  fastest.consider(offer_mma(p, gpu, forced));
  fastest.consider(offer_sliced(p, gpu, forced));
  fastest.consider(offer_tf32(p, gpu, forced));
  fastest.consider(offer_bf16x3(p, gpu, forced));
  fastest.consider(offer_wgmma(p, gpu, forced));
  const Candidate cuda = offer_cuda_cores(p, gpu, forced);
  const double products = p.gated ? 2 : 1;
  const bool always = !forced.empty() || p.dtype != DType::f32;  // tensor cores have many times the rate
  return fastest.least < 1e30 && (always || fastest.least <= products * seconds(cuda)) ? fastest.best : cuda;
}

/// Batch-invariant: tensor cores or CUDA cores, by what is faster for many rows, whatever the number and the layout of its own.
/// Half precision has one order of additions on tensor cores where K is not split, fp64 has one for all its tiles.
Candidate fastest_invariant(const Problem& p, const DeviceProperties& gpu) {
  if (p.dtype == DType::f64) return make_plain_plan(p, gpu).kernel;
  const Problem many = with_many_rows(p);
  const auto wgmma = offer_wgmma(p, gpu), of_many = offer_wgmma(many, gpu);
  const double products = p.gated ? 2 : 1;
  const bool pays = of_many && (is_half(p.dtype) || of_many->seconds <= products * seconds(offer_cuda_cores(many, gpu)));
  if (!wgmma || !pays) return offer_cuda_cores(p, gpu);
  const auto mma = is_half(p.dtype) && wgmma->splits == 1 ? offer_mma(p, gpu) : std::nullopt;
  return mma && mma->seconds < wgmma->seconds ? Candidate(*mma) : Candidate(*wgmma);
}

Plan with_both_products(const Problem& p, const DeviceProperties& gpu, std::string_view forced, const Candidate& kernel) {
  if (!p.gated || std::holds_alternative<WgmmaPlan>(kernel)) return {kernel, {}};
  return {kernel, std::holds_alternative<Fp64Plan>(kernel) ? kernel : offer_cuda_cores(up_product(p, nullptr), gpu, forced)};
}

}  // namespace

Plan make_plan(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  const bool invariant = p.batch_invariant && forced.empty();
  return with_both_products(p, gpu, forced, invariant ? fastest_invariant(p, gpu) : fastest(p, gpu, forced));
}

Plan make_plain_plan(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  const auto fp64 = offer_fp64(p, gpu, forced);  // always faster than CUDA cores, and so for any M
  return with_both_products(p, gpu, forced, fp64 ? Candidate(*fp64) : offer_cuda_cores(p, gpu, forced));
}

}  // namespace xgemm::matmul

#include "matmul/plan.h"

#include <algorithm>
#include <vector>

#include "matmul/forced.h"

namespace xgemm::matmul {
namespace {

/// The candidate of least predicted time; of equal ones the first.
struct Fastest {
  Candidate best;
  double least;
  template <class FamilyPlan>
  void consider(const std::optional<FamilyPlan>& plan) {
    if (plan && plan->seconds < least) best = *plan, least = plan->seconds;
  }
};

// Measured, docs/log/matmul.md, "Shapes that nobody listed": time of CUDA cores that load single elements, relative to quads;
// the share of TF32's time that sliced's prediction must stay below.
constexpr double kSimtSingles = 2, kSlicedShare = 0.9;
constexpr double kTf32Share = 0.8;  // of the time of a kernel for few rows, which TF32 must stay below, as it is less exact
constexpr double kWgmmaPays = 1.1;  // CUDA cores must take at least so many times wgmma's time

/// mma and wgmma give the same bits, so the choice between them may look at M.
Candidate choose_half(const Problem& p, const DeviceProperties& gpu) {
  const auto wgmma = plan_wgmma(p, gpu);
  if (!wgmma) return plan_cuda_cores(p, gpu, {});  // depends on N and K alone, as the bits differ
  const auto mma = plan_mma(p, gpu);
  return mma && mma_pays(*mma, *wgmma) ? Candidate(*mma) : Candidate(*wgmma);
}

Candidate choose_fp32(const Problem& p, const DeviceProperties& gpu) {
  const auto sweep = plan_sweep(p, gpu);
  Candidate cuda = plan_cuda_cores(p, gpu, {});
  const auto* const gemv = std::get_if<GemvPlan>(&cuda);
  const bool few_rows = gemv != nullptr;
  if (sweep && few_rows && gemv->kernel == GemvKernel::gemv) cuda = *sweep;  // reads the same in one launch: always faster
  const auto* const simt = std::get_if<SimtPlan>(&cuda);
  const bool singles = simt && simt->tile != SimtTile::t16x128 && !has_quads_by_size(p);
  Fastest fastest{cuda, (singles ? kSimtSingles : 1) * seconds(cuda)};
  if (const auto wgmma = plan_wgmma(p, gpu); wgmma && wgmma_pays(p, gpu, *wgmma)) fastest = {*wgmma, wgmma->seconds};
  fastest.consider(plan_bf16x3(p, gpu));
  fastest.consider(sweep);
  const auto tf32 = plan_tf32(p, gpu);
  const auto mma = plan_mma(p, gpu);
  if (tf32 && (!few_rows || tf32->seconds < kTf32Share * seconds(cuda))) fastest.consider(tf32);
  if (mma && (!few_rows || mma->seconds < kTf32Share * seconds(cuda))) fastest.consider(mma);
  const auto sliced = plan_sliced(p, gpu);
  if (sliced && (!tf32 || sliced->seconds < kSlicedShare * tf32->seconds)) fastest.consider(sliced);
  return fastest.best;
}

/// The family that `forced` names, if it can do the problem.
Candidate choose_forced(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  std::optional<Candidate> found;
  const auto offer = [&](const auto& plan) {
    if (plan && !found) found = *plan;
  };
  offer(plan_fp64(p, gpu, forced));
  offer(plan_mma(p, gpu, forced));
  offer(plan_sweep(p, gpu, forced));
  offer(plan_sliced(p, gpu, forced));
  offer(plan_tf32(p, gpu, forced));
  offer(plan_bf16x3(p, gpu, forced));
  offer(plan_wgmma(p, gpu, forced));
  return found ? *found : plan_cuda_cores(p, gpu, forced);
}

Plan with_both_products(const Problem& p, const DeviceProperties& gpu, std::string_view forced, const Candidate& kernel) {
  if (!p.gated || std::holds_alternative<WgmmaPlan>(kernel)) return {kernel, {}};
  return {kernel, std::holds_alternative<Fp64Plan>(kernel) ? kernel : plan_cuda_cores(up_product(p, nullptr), gpu, forced)};
}

/// Every name that forces a plan.
std::vector<std::string> collect_names() {
  std::vector<std::string> names{"simt"};
  const auto family = [&](std::string_view any, const auto& tiles) {
    if (!any.empty()) names.emplace_back(any);
    for (const auto& tile : tiles) names.emplace_back(tile.name);
  };
  family("", kSimtTiles);
  names.insert(names.end(), std::begin(kGemvKernels), std::end(kGemvKernels));
  family("sliced", kSlicedTiles);
  for (const auto& tile : kSlicedTiles) names.push_back(std::string(tile.name) + "_apart");
  family("fp64", kFp64Tiles);
  family("mma", kMmaTiles);
  family("tf32", kTf32Tiles);
  family("bf16x3", kBf16x3Tiles);
  family("wgmma", kWgmmaTiles);
  names.emplace_back("wgmma_few_rows");
  return names;
}

const std::vector<std::string>& all_names() {
  static const std::vector<std::string> names = collect_names();
  return names;
}

}  // namespace

// A gemv reads the large operand at the memory's rate; no tile beats that.
Candidate plan_cuda_cores(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  if (const auto gemv = plan_gemv(p, gpu, forced)) return *gemv;
  return plan_simt(p, gpu, forced);
}

bool wgmma_pays(const Problem& p, const DeviceProperties& gpu, const WgmmaPlan& wgmma) {
  const double products = p.gated ? 2 : 1;
  return kWgmmaPays * wgmma.seconds <= products * seconds(plan_cuda_cores(p.batch_invariant ? with_many_rows(p) : p, gpu));
}

Plan make_plan(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  if (!forced.empty()) return with_both_products(p, gpu, forced, choose_forced(p, gpu, forced));
  if (p.dtype == DType::f64) return make_plain_plan(p, gpu);
  return with_both_products(p, gpu, {}, is_half(p.dtype) ? choose_half(p, gpu) : choose_fp32(p, gpu));
}

Plan make_plain_plan(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  const auto fp64 = plan_fp64(p, gpu, forced);  // always faster than CUDA cores, and so for any M
  return with_both_products(p, gpu, forced, fp64 ? Candidate(*fp64) : plan_cuda_cores(p, gpu, forced));
}

bool is_plan_name(std::string_view forced) {
  if (const auto slash = forced.find('/'); slash != forced.npos) {
    const std::string_view splits = forced.substr(slash + 1);
    if (!forced.starts_with("fp64_") && !forced.starts_with("mma_tf32_")) return false;
    if (splits.empty() || splits.find_first_not_of("0123456789") != splits.npos) return false;
    forced = without_splits(forced);
  }
  const auto& names = all_names();
  return std::find(names.begin(), names.end(), forced) != names.end();
}

std::string plan_names() {
  std::string text;
  for (const auto& name : all_names()) text += (text.empty() ? "" : ", ") + name;
  return text + " (fp64_<tile>/<splits> and mma_tf32_<tile>/<splits> also say the number of splits)";
}

}  // namespace xgemm::matmul

// xgemm_lab::attention: argument checks, step 01's workspace, and the table of steps.
#include "lab/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "lab/checks.h"
#include "torch/register.h"

namespace xgemm::lab {
namespace {

constexpr const char* kOp = "lab::attention";
constexpr std::int64_t kFirstHopper = 5;

Tensor attention_op(const Tensor& query, const Tensor& key, const Tensor& value, std::int64_t step, bool is_causal) {
  const TensorView vq = view(kOp, "query", query), vk = view(kOp, "key", key), vv = view(kOp, "value", value);
  for (const TensorView* v : {&vq, &vk, &vv}) {
    check_dtype(*v, {ScalarType::BFloat16});
    check(v->dim() == 4, kOp, "expected ", v->name, " of shape (batch, heads, length, head size), got ", to_string(v->sizes));
    check_contiguous(*v);
    check_same_device(vq, *v);
    check(std::ranges::equal(v->sizes, vq.sizes), kOp, "expected query, key and value of one shape, got ", to_string(vq.sizes),
          " and ", to_string(v->sizes));
  }
  check(vq.size(3) == 64 || vq.size(3) == 128, kOp, "expected a head size of 64 or 128, got ", vq.size(3));
  const auto& chosen = step_of<attention::Step>(kOp, step, 1, 7, static_cast<int>(vq.size(3)));
  const CudaScope scope(vq);
  using namespace attention;
  const std::int64_t heads = vq.size(0) * vq.size(1), s = vq.size(2), d = vq.size(3);
  check(heads <= kMaxHeads && s <= kMaxLength, kOp, "expected at most ", kMaxHeads, " heads of all batches and ", kMaxLength,
        " rows, got ", to_string(vq.sizes));
  for (const TensorView* v : {&vq, &vk, &vv}) check_aligned(*v);
  Tensor out = empty(vq.sizes, ScalarType::BFloat16, vq);
  if (vq.numel() == 0) return out;
  std::optional<Tensor> scores;
  if (step == 1) scores = empty(std::array{heads, s, s}, ScalarType::Float, vq);
  Problem problem{.query = data<__nv_bfloat16>(vq),
                  .key = data<__nv_bfloat16>(vk),
                  .value = data<__nv_bfloat16>(vv),
                  .out = data<__nv_bfloat16>(out),
                  .scores = scores ? data<float>(*scores) : nullptr,
                  .heads = static_cast<int>(heads),
                  .s = static_cast<int>(s),
                  .d = static_cast<int>(d),
                  .scale_log2 = static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(d))),
                  .causal = is_causal};
  if (step >= kFirstHopper) {
    check_hopper(kOp, scope, " for step ", step);
    check(make_maps(problem), kOp, "the driver made no tensor map");
  }
  chosen.launch(problem, scope.stream());
  scope.check_launch();
  return out;
}

XGEMM_REGISTER(xgemm_lab, attention, attention_op);

}  // namespace
}  // namespace xgemm::lab

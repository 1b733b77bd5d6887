#include "attention/backward/gradients.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "attention/backward/arguments.h"
#include "torch/aten.h"
#include "torch/cuda.h"

namespace xgemm::attention {
namespace {

/// `copy` holds a copy of rows that are no aligned vectors.
GradientArguments::Operand operand(const TensorView& given, Tensor& copy) {
  TensorView v = given;
  bool has_vectors = v.stride(3) == 1 && reinterpret_cast<std::uintptr_t>(v.data) % 16 == 0;
  for (std::int64_t d = 0; d < 3; ++d) has_vectors = has_vectors && (v.size(d) == 1 || v.stride(d) % 4 == 0);
  if (!has_vectors) {
    copy = empty(v.sizes, v.dtype, v);
    torch::stable::copy_(copy, *v.tensor);
    v = view(v.op, v.name, copy);
  }
  return {static_cast<const float*>(v.data), v.stride(0), v.stride(1), v.stride(2)};
}

}  // namespace

bool takes(const GradientCall& c) {
  const TensorView& q = c.query;
  if (q.dim() != 4 || c.key.dim() != 4 || c.lse.dim() != 3) return false;
  const Shape queries{q.size(0), q.size(1), q.size(2), q.size(3)}, keys{q.size(0), q.size(1), c.key.size(2), q.size(3)};
  const Shape scores{q.size(0), q.size(1), q.size(2), c.key.size(2)};
  const auto is = [&](const TensorView& v, const Shape& shape) {
    return v.device_index == q.device_index && std::ranges::equal(v.sizes, shape);
  };
  return c.lse.device_index == q.device_index && c.lse.size(2) >= q.size(2) && is(c.output, queries) &&
         is(c.grad_output, queries) && is(c.key, keys) && is(c.value, keys) && (!c.bias || is(*c.bias, scores)) &&
         q.numel() != 0 && c.key.numel() != 0 && q.size(3) % 4 == 0 && q.size(3) <= kWidestGradientHead &&
         std::max(q.size(0), q.size(1)) <= kMostGradientHeads;
}

std::tuple<Tensor, Tensor, Tensor> gradients(const GradientCall& c) {
  const CudaScope scope(c.query);
  const std::int64_t batch = c.query.size(0), heads = c.query.size(1), sq = c.query.size(2), sk = c.key.size(2);
  const std::int64_t d = c.query.size(3);
  Tensor copies[5], lse = dense(*c.lse.tensor);
  GradientArguments g{};
  g.query = operand(c.query, copies[0]), g.key = operand(c.key, copies[1]), g.value = operand(c.value, copies[2]);
  g.output = operand(c.output, copies[3]), g.grad_output = operand(c.grad_output, copies[4]);
  g.lse = static_cast<const float*>(lse.data_ptr()), g.lse_row = static_cast<int>(c.lse.size(2));
  g.batch = static_cast<int>(batch), g.heads = static_cast<int>(heads), g.d = static_cast<int>(d);
  g.sq = static_cast<int>(sq), g.sk = static_cast<int>(sk), g.causal = c.causal;
  g.scale = static_cast<float>(c.scale.value_or(1 / std::sqrt(static_cast<double>(d))));
  if (c.bias)
    g.bias = {static_cast<const float*>(c.bias->data), c.bias->stride(0), c.bias->stride(1), c.bias->stride(2),
              c.bias->stride(3)};
  const auto gradient = [&](std::int64_t length, float*& to) {
    const Tensor x = empty(std::array{batch, length, heads, d}, ScalarType::Float, c.query);
    to = static_cast<float*>(x.data_ptr());
    return torch::stable::transpose(x, 1, 2);
  };
  Tensor query = gradient(sq, g.grad_query), key = gradient(sk, g.grad_key), value = gradient(sk, g.grad_value);
  const Tensor parts = workspace(gradient_bytes(g), c.query);
  g.parts = parts.data_ptr();
  launch_gradients(g, scope.stream());
  scope.check_launch();
  return {query, key, value};
}

}  // namespace xgemm::attention

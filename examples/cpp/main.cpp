// Runs xgemm's operators from C++ on the CPU and, where there is one, on the GPU, and checks each against ATen in float64.
// Exit code 0: everything agrees.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <xgemm/xgemm.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>

namespace {

int failures = 0;

/// Prints the largest difference from ATen's float64 result, relative to the largest value there.
void compare(const char* device, const char* name, const at::Tensor& ours, const at::Tensor& reference, double allowed) {
  const double scale = reference.abs().max().item<double>();
  const double difference = (ours.to(at::kDouble) - reference).abs().max().item<double>() / scale;
  const bool good = ours.sizes() == reference.sizes() && difference <= allowed;  // false for NaN
  std::printf("%-5s %-22s max difference %.2e  %s\n", device, name, difference, good ? "ok" : "WRONG");
  failures += !good;
}

/// A call that must fail, and with a message that says `expected`.
void refuses(const char* device, const char* name, const char* expected, const std::function<void()>& call) {
  std::string message = "no error";
  try {
    call();
  } catch (const std::exception& e) {
    message = e.what();
  }
  const bool good = message.find(expected) != std::string::npos && message.find('\n') == std::string::npos;
  std::printf("%-5s %-22s %s\n", device, name, good ? "ok" : ("WRONG: " + message).c_str());
  failures += !good;
}

void run(at::Device device) {
  const std::string where = device.str();
  const char* d = where.c_str();
  const auto f32 = at::TensorOptions(device).dtype(at::kFloat);
  const at::Tensor a = at::randn({3, 127, 65}, f32), b = at::randn({65, 190}, f32);
  const at::Tensor a64 = a.to(at::kDouble), b64 = b.to(at::kDouble);
  compare(d, "matmul", xgemm::matmul(a, b), at::matmul(a64, b64), 1e-5);
  compare(d, "matmul transposed", xgemm::matmul(b.t(), a[0].t()), at::matmul(b64.t(), a64[0].t()), 1e-5);

  const at::Tensor bias = at::randn({190}, f32);
  compare(d, "linear", xgemm::linear(a, b.t(), bias), at::linear(a64, b64.t(), bias.to(at::kDouble)), 1e-5);
  compare(d, "linear relu", xgemm::linear(a, b.t(), bias, "relu"), at::linear(a64, b64.t(), bias.to(at::kDouble)).relu(), 1e-5);
  compare(d, "addmm", xgemm::addmm(bias, a[0], b, 0.5, 2), at::addmm(bias.to(at::kDouble), a64[0], b64, 0.5, 2), 1e-5);

  const at::Tensor weight = b.t().contiguous();
  compare(d, "linear_prepared", xgemm::linear_prepared(a, weight, xgemm::prepare(weight), bias),
          at::linear(a64, b64.t(), bias.to(at::kDouble)), 1e-5);
  const at::Tensor up = at::randn({190, 65}, f32), up64 = up.to(at::kDouble);
  compare(d, "gated_linear", xgemm::gated_linear(a, b.t(), up, bias),
          at::silu(at::linear(a64, b64.t(), bias.to(at::kDouble))) * at::linear(a64, up64), 1e-5);

  compare(d, "softmax", xgemm::softmax(a, -1), at::softmax(a64, -1), 1e-5);
  compare(d, "topk_softmax", std::get<0>(xgemm::topk_softmax(a, 3, -1, false)), std::get<0>(at::softmax(a64, -1).topk(3)), 1e-5);
  compare(d, "log_softmax", xgemm::log_softmax(a, 1), at::log_softmax(a64, 1), 1e-5);
  const at::Tensor magnitudes = a.abs();  // a sum of both signs may come out near zero, and its relative error large
  compare(d, "sum", xgemm::sum(magnitudes), at::sum(magnitudes.to(at::kDouble)), 1e-6);
  compare(d, "sum of two dims", xgemm::sum(a, {0, 2}, /*keepdim=*/true), at::sum(a64, at::OptionalIntArrayRef({0, 2}), true),
          1e-5);
  compare(d, "mean", xgemm::mean(a, 1), at::mean(a64, 1), 1e-5);
  compare(d, "amax", xgemm::amax(a, -1), at::amax(a64, -1), 0);
  compare(d, "amin", xgemm::amin(a, -1), at::amin(a64, -1), 0);
  compare(d, "argmax", xgemm::argmax(a, -1), at::argmax(a64, -1).to(at::kDouble), 0);
  compare(d, "argmin", xgemm::argmin(a), at::argmin(a64).to(at::kDouble), 0);
  compare(d, "logsumexp", xgemm::logsumexp(a, -1), at::logsumexp(a64, {-1}), 1e-5);

  const at::Tensor q = at::randn({2, 4, 33, 64}, f32), k = at::randn({2, 4, 50, 64}, f32), v = at::randn({2, 4, 50, 64}, f32);
  const at::Tensor q64 = q.to(at::kDouble), k64 = k.to(at::kDouble), v64 = v.to(at::kDouble);
  compare(d, "attention", xgemm::attention(q, k, v), at::scaled_dot_product_attention(q64, k64, v64), 1e-5);
  xgemm::AttentionOptions causal;
  causal.is_causal = true;
  causal.precision = "ieee";
  const auto [output, lse] = xgemm::attention_lse(q, k, v, causal);
  compare(d, "attention causal", output, at::scaled_dot_product_attention(q64, k64, v64, {}, 0.0, true), 1e-5);
  const at::Tensor hidden = at::ones({33, 50}, a64.options().dtype(at::kBool)).tril().logical_not();
  const at::Tensor scores = (at::matmul(q64, k64.mT()) / std::sqrt(64.0)).masked_fill(hidden, -INFINITY);
  compare(d, "attention logsumexp", lse, at::logsumexp(scores, {-1}), 1e-5);

  // Sequences of 20 and 13 queries, 30 and 20 keys, packed; then a batch whose keys are all appended to an empty cache.
  const auto packed = [](const at::Tensor& t) { return t[0].transpose(0, 1); };
  const auto int32 = at::TensorOptions(device).dtype(at::kInt);
  const auto ends = [&](std::initializer_list<int> n) { return at::tensor(at::ArrayRef<int>(n), at::kInt).to(device); };
  const at::Tensor varlen =
      xgemm::attention_varlen(packed(q), packed(k), packed(v), ends({0, 20, 33}), ends({0, 30, 50}), 20, 30);
  const auto rows = [](const at::Tensor& t, std::int64_t from, std::int64_t to) { return t.slice(2, from, to); };
  const at::Tensor second = at::scaled_dot_product_attention(rows(q64, 20, 33), rows(k64, 30, 50), rows(v64, 30, 50));
  compare(d, "attention_varlen", varlen.slice(0, 20), packed(second), 1e-5);
  const at::Tensor keys = at::zeros({2, 50, 4, 64}, f32), values = at::zeros({2, 50, 4, 64}, f32);
  xgemm::SequenceOptions append;
  append.key = k.transpose(1, 2), append.value = v.transpose(1, 2);
  const auto [cached, cached_lse] =
      xgemm::attention_with_cache_lse(q.transpose(1, 2), keys, values, at::zeros({2}, int32), append);
  compare(d, "attention_with_cache", cached.transpose(1, 2), at::scaled_dot_product_attention(q64, k64, v64), 1e-5);
  compare(d, "appended keys", keys.transpose(1, 2), k64, 0);
  compare(d, "cache's logsumexp", cached_lse, at::logsumexp(at::matmul(q64, k64.mT()) / std::sqrt(64.0), {-1}), 1e-5);

  const at::Tensor trainable = at::randn({65, 190}, f32).set_requires_grad(true);
  refuses(d, "refuses to lose a grad", "xgemm::matmul: has no backward", [&] { xgemm::matmul(a, trainable); });
  refuses(d, "refuses a bad shape", "xgemm::matmul: ", [&] { xgemm::matmul(a, a); });
  const c10::InferenceMode inference;
  compare(d, "matmul in inference", xgemm::matmul(a, trainable), at::matmul(a64, trainable.to(at::kDouble)), 1e-5);
}

}  // namespace

int main() {
  try {
    run(at::kCPU);
    if (at::hasCUDA())
      run(at::Device(at::kCUDA, 0));
    else
      std::puts("no CUDA device: ran on the CPU only");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 2;
  }
  std::printf("%s\n", failures == 0 ? "all agree with ATen" : "some results are wrong");
  return failures == 0 ? 0 : 1;
}

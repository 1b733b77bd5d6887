// Development only: torch.ops.xgemm_dev.*, the wgmma variants by number.
#include "split.h"
#include "torch/cuda.h"
#include "torch/register.h"

STABLE_TORCH_LIBRARY(xgemm_dev, m) {
  // 2-D or 3-D (equal batch, or batch stride 0) operands. fp32 inputs: tf32 as they are.
  m.def("gemm(Tensor a, Tensor b, int variant) -> Tensor");
  // fp32 by fp16x3. steps: 1 split, 2 multiply, 4 fallback; 7 is the product.
  m.def("gemm_fp32(Tensor a, Tensor b, int variant, int steps) -> Tensor");
}

namespace xgemm {
namespace {

struct Matrix {
  WgmmaOperand operand;
  bool k_major;
};

/// `line`: dim of M or N, `k`: dim of K.
Matrix matrix(const TensorView& v, int line, int k, bool batched) {
  Matrix out{};
  out.k_major = v.stride(k) == 1 || v.size(k) == 1;
  const std::int64_t inner = out.k_major ? v.size(k) : v.size(line), other = out.k_major ? v.size(line) : v.size(k);
  out.operand.data = v.data;
  out.operand.ld = other == 1 ? (inner + 7) / 8 * 8 : v.stride(out.k_major ? line : k);
  out.operand.batch_step = batched && v.stride(0) != 0 ? 1 : 0;
  out.operand.plane = out.operand.batch_step && v.size(0) > 1 ? v.stride(0) : out.operand.ld * other;
  check(out.k_major || v.stride(line) == 1, v.op, "expected ", v.name, " with one contiguous dim");
  check(tensor_map_possible(v.data, to_dtype(v.dtype), out.operand.ld, out.operand.plane), v.op, "expected ", v.name, " aligned");
  return out;
}

struct Sizes {
  bool batched;
  int m, n, k, batch;
  Shape shape;
};

Sizes sizes(const TensorView& a, const TensorView& b) {
  Sizes s;
  s.batched = a.dim() == 3;
  check(a.dim() == b.dim() && (a.dim() == 2 || a.dim() == 3) && a.size(-1) == b.size(-2) && (!s.batched || a.size(0) == b.size(0)), a.op,
        "bad shapes ", to_string(a.sizes), " and ", to_string(b.sizes));
  s.m = static_cast<int>(a.size(-2)), s.n = static_cast<int>(b.size(-1)), s.k = static_cast<int>(a.size(-1));
  s.batch = s.batched ? static_cast<int>(a.size(0)) : 1;
  s.shape = s.batched ? Shape{s.batch, s.m, s.n} : Shape{s.m, s.n};
  return s;
}

template <class Out>
dev::Plain<Out> plain(const Tensor& out, const Sizes& s) {
  return {static_cast<Out*>(out.data_ptr()), s.n, static_cast<std::int64_t>(s.m) * s.n, s.n % (16 / sizeof(Out)) == 0, {}};
}

Tensor gemm(const Tensor& a, const Tensor& b, std::int64_t variant) {
  const TensorView va = view("gemm", "a", a), vb = view("gemm", "b", b);
  check_same_dtype(va, vb);
  const Sizes s = sizes(va, vb);
  CudaScope scope(va);
  const auto last = [&](int d) { return (s.batched ? 1 : 0) + d; };
  const Matrix ma = matrix(va, last(0), last(1), s.batched), mb = matrix(vb, last(1), last(0), s.batched);
  Tensor out = empty(s.shape, va.dtype, va);
  const WgmmaProblem p{s.m, s.n, s.k, s.batch, ma.operand, mb.operand};
  const int sms = scope.properties().sm_count, v = static_cast<int>(variant);
  int done = -1;
  if (va.dtype == ScalarType::BFloat16) done = dev::gemm_bf16(v, ma.k_major, mb.k_major, p, plain<bf16>(out, s), sms, scope.stream());
  if (va.dtype == ScalarType::Half) done = dev::gemm_f16(v, ma.k_major, mb.k_major, p, plain<half>(out, s), sms, scope.stream());
  if (va.dtype == ScalarType::Float) done = dev::gemm_tf32(v, ma.k_major, mb.k_major, p, plain<float>(out, s), sms, scope.stream());
  check(done != -1, "gemm", "no variant ", variant, " for this layout");
  scope.check_launch();
  check(done == 1, "gemm", "launch refused");
  return out;
}

struct SplitOperand {
  WgmmaOperand operand;
  bool k_major;
  Tensor parts, stats;
};

SplitOperand split(const TensorView& v, int line, int k, bool batched, cudaStream_t stream, bool launch) {
  const bool k_major = v.stride(k) == 1 || v.stride(line) != 1;
  const int lines = static_cast<int>(v.size(line)), depth = static_cast<int>(v.size(k));
  const int batch = batched && v.stride(0) != 0 ? static_cast<int>(v.size(0)) : 1;
  const std::int64_t inner = k_major ? depth : lines, other = k_major ? lines : depth, ld = (inner + 7) / 8 * 8;
  SplitOperand out{{nullptr, ld, ld * other, batched && v.stride(0) != 0 ? 1 : 0},
                   k_major,
                   workspace(static_cast<std::size_t>(2 * batch * other * ld) * sizeof(half), v),
                   workspace(sizeof(LineStats) * static_cast<std::size_t>(lines) * batch, v)};
  out.operand.data = out.parts.data_ptr();
  const std::int64_t batch_stride = batched ? v.stride(0) : 0, row_stride = v.stride(k_major ? line : k);
  const SplitArguments arguments{.in = static_cast<const float*>(v.data),
                                 .line_stride = v.stride(line),
                                 .k_stride = v.stride(k),
                                 .batch_stride = batch_stride,
                                 .out = static_cast<half*>(out.parts.data_ptr()),
                                 .ld = ld,
                                 .stats = static_cast<LineStats*>(out.stats.data_ptr()),
                                 .lines = lines,
                                 .k = depth,
                                 .batch = batch,
                                 .vectors = v.stride(k_major ? k : line) == 1 && is_aligned(v.data, 16) && row_stride % 4 == 0 &&
                                            batch_stride % 4 == 0};
  if (launch) dev::split(arguments, k_major, stream);
  return out;
}

Tensor gemm_fp32(const Tensor& a, const Tensor& b, std::int64_t variant, std::int64_t steps) {
  const TensorView va = view("gemm_fp32", "a", a), vb = view("gemm_fp32", "b", b);
  check_dtype(va, {ScalarType::Float});
  check_same_dtype(va, vb);
  const Sizes s = sizes(va, vb);
  CudaScope scope(va);
  const auto last = [&](int d) { return (s.batched ? 1 : 0) + d; };
  const SplitOperand sa = split(va, last(0), last(1), s.batched, scope.stream(), steps & 1);
  const SplitOperand sb = split(vb, last(1), last(0), s.batched, scope.stream(), steps & 1);
  Tensor out = empty(s.shape, va.dtype, va);
  const auto* stats_a = static_cast<const LineStats*>(sa.stats.data_ptr());
  const auto* stats_b = static_cast<const LineStats*>(sb.stats.data_ptr());
  const std::int64_t step_a = sa.operand.batch_step ? s.m : 0, step_b = sb.operand.batch_step ? s.n : 0;
  if (steps & 2) {
    const dev::Scaled epilogue{static_cast<float*>(out.data_ptr()), s.n, static_cast<std::int64_t>(s.m) * s.n, s.n % 2 == 0,
                               {stats_a, stats_b, step_a, step_b, {}}};
    const WgmmaProblem p{s.m, s.n, s.k, s.batch, sa.operand, sb.operand};
    const int done = dev::gemm_fp16x3(static_cast<int>(variant), sa.k_major, sb.k_major, p, epilogue, scope.properties().sm_count,
                                      scope.stream());
    check(done != -1, "gemm_fp32", "no variant ", variant, " for this layout");
    scope.check_launch();
    check(done == 1, "gemm_fp32", "launch refused");
  }
  if (steps & 4) {
    const auto batch_stride = [&](const TensorView& v) { return s.batched ? v.stride(0) : 0; };
    const FullRangeArguments<NoTransform> g{.a = static_cast<const float*>(va.data),
                                            .b = static_cast<const float*>(vb.data),
                                            .a_row = va.stride(last(0)),
                                            .a_k = va.stride(last(1)),
                                            .a_batch = batch_stride(va),
                                            .b_column = vb.stride(last(1)),
                                            .b_k = vb.stride(last(0)),
                                            .b_batch = batch_stride(vb),
                                            .stats_a = stats_a,
                                            .stats_b = stats_b,
                                            .stats_batch_a = step_a,
                                            .stats_batch_b = step_b,
                                            .out = static_cast<float*>(out.data_ptr()),
                                            .ld = s.n,
                                            .batch_stride = static_cast<std::int64_t>(s.m) * s.n,
                                            .m = s.m,
                                            .n = s.n,
                                            .k = s.k,
                                            .batch = s.batch,
                                            .transform = {}};
    dev::full_range(g, scope.stream());
  }
  scope.check_launch();
  return out;
}

XGEMM_REGISTER(xgemm_dev, gemm, gemm);
XGEMM_REGISTER(xgemm_dev, gemm_fp32, gemm_fp32);

}  // namespace
}  // namespace xgemm

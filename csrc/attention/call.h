// A checked call of attention, and what its CPU and GPU paths share.
#pragma once
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "device/dtype.h"
#include "device/index_map.h"
#include "torch/tensor.h"

namespace xgemm::attention {

inline constexpr std::int64_t kMaxHeadSize = 576;   ///< of keys, and of values: latent attention's 512 + 64
inline constexpr std::int64_t kValueColumns = 256;  ///< of a launch, which has registers for no more; wider values are cut
inline constexpr std::int64_t kMaxLength =
    std::numeric_limits<std::int32_t>::max() - 1024;  // positions, and a tile beyond them, fit 32 bits

/// The optional arguments of the op, as its schema has them (ops.cpp).
struct Options {
  const std::optional<Tensor>& attn_mask;
  bool is_causal;
  std::optional<double> scale;
  bool enable_gqa;
  const std::string& causal_alignment;
  const std::vector<std::int64_t>& window;
  double softcap;
  const std::optional<Tensor>& sinks;
  const std::string& precision;
};

/// A checked call. `batch` is everything in front of the last two dims, broadcast, heads last.
struct Call {
  TensorView query, key, value;
  std::optional<TensorView> mask;
  std::optional<TensorView> sinks;  ///< broadcasts to `batch`
  Shape batch;
  std::int64_t sq, sk, d, dv;
  std::int64_t key_group = 1, value_group = 1;  ///< query heads that share one head of key and of value; 1 unless enable_gqa
  double scale;
  Precision precision;  ///< of fp32
  double softcap;       ///< scores become softcap * tanh(score / softcap); 0: no capping
  /// Row i sees keys max(0, i + first) to min(sk, i + last) - 1. -sq <= first <= sk and -sq <= last <= sk.
  std::int64_t first, last;
  bool heads_beside;  ///< the output lies as (batch, Sq, heads, Dv), since the query lies so

  std::int64_t batches() const {
    std::int64_t n = 1;
    for (auto s : batch) n *= s;
    return n;
  }
  /// The batch dims, and these behind them.
  Shape batch_and(std::initializer_list<std::int64_t> last) const {
    Shape shape = batch;
    shape.insert(shape.end(), last);
    return shape;
  }
  // Keys that some row sees, apart from the mask.
  std::int64_t key_begin() const { return std::clamp<std::int64_t>(first, 0, sk); }
  std::int64_t key_end() const { return std::clamp<std::int64_t>(sq - 1 + last, key_begin(), sk); }
  bool sees_all() const { return first + sq <= 1 && last >= sk; }  ///< Does every row see every key, apart from the mask?
};

/// The scale of scores, after checks of it and of softcap.
double checked_scale(const TensorView& query, std::optional<double> scale, double softcap);
void check_window(const char* op, const std::vector<std::int64_t>& window);
/// Sinks on the query's device, of its dtype or fp32; the shape is the caller's to check.
TensorView checked_sinks(const TensorView& query, const Tensor& sinks);

/// Checks the op's arguments: the same for every device.
Call check_arguments(const char* op, const Tensor& query, const Tensor& key, const Tensor& value, const Options& options);

struct Result {
  Tensor output;
  std::optional<Tensor> lse;
};
/// What an op returns, with the log-sum-exp or without.
template <bool kLse>
using Returned = std::conditional_t<kLse, std::tuple<Tensor, Tensor>, Tensor>;
template <bool kLse>
Returned<kLse> returned(const Result& r) {
  if constexpr (kLse)
    return {r.output, *r.lse};
  else
    return r.output;
}

/// Are the values the keys' first columns (latent attention)?
bool is_latent(const TensorView& key, const TensorView& value);

/// The dtype of sums, and of the log-sum-exp, of a query of this dtype.
ScalarType accumulator(ScalarType dtype);
/// Uninitialised outputs: (batch..., Sq, Dv), laid out as heads_beside says, and, if wanted, contiguous (batch..., Sq).
Result empty_result(const Call& call, bool want_lse);

/// A Call or SequenceCall by `attend(call, want_lse)`, kValueColumns columns of the values at a time.
template <class AnyCall, class Attend>
Result by_value_columns(const AnyCall& whole, bool want_lse, const Attend& attend) {
  Result r = empty_result(whole, false);
  for (std::int64_t column = 0; column < whole.dv; column += kValueColumns) {
    AnyCall call = whole;
    call.dv = std::min(kValueColumns, whole.dv - column);
    const Tensor values = torch::stable::narrow(const_cast<Tensor&>(*whole.value.tensor), -1, column, call.dv);
    call.value = view(whole.query.op, whole.value.name, values);
    Result computed = attend(call, want_lse && column == 0);
    Tensor columns = torch::stable::narrow(r.output, -1, column, call.dv);
    torch::stable::copy_(columns, computed.output);
    if (computed.lse) r.lse = std::move(computed.lse);
  }
  return r;
}

inline constexpr std::size_t kOperands = 5;  ///< one number for each of query, key, value, mask and sinks
using PerOperand = std::array<std::int64_t, kOperands>;

using BatchDim = StridedDim<kOperands>;

/// The batch dims of sizes other than 1, merged where every operand allows it; `heads_apart`: the last dim stays as it is.
std::vector<BatchDim> merged(ShapeRef sizes, const std::array<Shape, kOperands>& strides, bool heads_apart);

/// Strides of the operands over the batch (heads as an operand stores them, maybe grouped) and their last two dims (sinks: 0).
std::array<Shape, kOperands> strides_of(const Call& call);

/// Calls `f` with each operand's offset for every position in the first `count` of `dims`.
template <class F>
void for_each(const std::vector<BatchDim>& dims, std::size_t count, const F& f, PerOperand offset = {}, std::size_t dim = 0) {
  if (dim == count) return f(offset);
  for (std::int64_t i = 0; i < dims[dim].size; ++i) {
    for_each(dims, count, f, offset, dim + 1);
    for (std::size_t o = 0; o < offset.size(); ++o) offset[o] += dims[dim].strides[o];
  }
}

Result run(const Call& call, bool want_lse);
Result attention_cpu(const Call& call, bool want_lse);
Result attention_cuda(const Call& call, bool want_lse);

}  // namespace xgemm::attention

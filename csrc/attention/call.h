// A checked call of attention, and what the CPU's and the GPU's path need of it.
#pragma once
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "torch/tensor.h"

namespace xgemm::attention {

inline constexpr std::int64_t kMaxHeadSize = 256;
inline constexpr std::int64_t kMaxLength =
    std::numeric_limits<std::int32_t>::max() - 1024;  // positions fit 32 bits, a tile beyond them too

/// A checked call. `batch` is everything in front of the last two dims, broadcast, heads last.
struct Call {
  TensorView query, key, value;
  std::optional<TensorView> mask;
  Shape batch;
  std::int64_t sq, sk, d, dv;
  std::int64_t key_group, value_group;  ///< query heads that share one head of key and of value; 1 unless enable_gqa
  double scale;
  bool causal;
  std::int64_t shift;  ///< when causal, row i sees keys 0 .. i + shift

  std::int64_t batches() const {
    std::int64_t n = 1;
    for (auto s : batch) n *= s;
    return n;
  }
};

/// Checks the op's arguments: the same for every device.
Call check_arguments(const char* op, const Tensor& query, const Tensor& key, const Tensor& value,
                     const std::optional<Tensor>& attn_mask, bool is_causal, std::optional<double> scale, bool enable_gqa,
                     const std::string& alignment);

struct Result {
  Tensor output;
  std::optional<Tensor> lse;
};

/// The dtype of sums, and of the log-sum-exp.
ScalarType accumulator(const Call& call);
/// Uninitialised outputs: (batch..., Sq, Dv) and, if wanted, (batch..., Sq).
Result empty_result(const Call& call, bool want_lse);

/// One batch dim that every operand steps through evenly.
struct BatchDim {
  std::int64_t size;
  std::array<std::int64_t, 4> strides;  ///< of query, key, value and mask
};

/// Dims of size 1 left out, neighbours merged where every operand steps through both as through one. `heads_apart`: the last dim
/// stays as it is.
std::vector<BatchDim> merged(ShapeRef sizes, const std::array<Shape, 4>& strides, bool heads_apart);

/// Strides of query, key, value and mask over the batch and their last two dims; over the heads as the operand stores them, which
/// may be grouped.
std::array<Shape, 4> strides_of(const Call& call);

/// Calls `f` with each operand's offset for every position in the first `count` of `dims`.
template <class F>
void for_each(const std::vector<BatchDim>& dims, std::size_t count, const F& f, std::array<std::int64_t, 4> offset = {},
              std::size_t dim = 0) {
  if (dim == count) return f(offset);
  for (std::int64_t i = 0; i < dims[dim].size; ++i) {
    for_each(dims, count, f, offset, dim + 1);
    for (std::size_t o = 0; o < offset.size(); ++o) offset[o] += dims[dim].strides[o];
  }
}

Result attention_cpu(const Call& call, bool want_lse);
Result attention_cuda(const Call& call, bool want_lse);

}  // namespace xgemm::attention

// A torch tensor as this library sees it: metadata read once (each getter is a C call); all ops' checks and allocations.
#pragma once
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/dtype.h"
#include "torch/error.h"

namespace xgemm {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Shape = std::vector<std::int64_t>;
using ShapeRef = std::span<const std::int64_t>;

/// Borrowed from the tensor.
inline ShapeRef sizes_of(const Tensor& t) {
  const auto sizes = t.sizes();
  return {sizes.data(), sizes.size()};
}

/// Metadata of one argument. Borrows sizes and strides from the tensor, which must outlive it.
struct TensorView {
  const char* op = "";    ///< op that received the tensor, for messages
  const char* name = "";  ///< argument name, for messages
  const Tensor* tensor = nullptr;
  void* data = nullptr;
  ShapeRef sizes{}, strides{};
  ScalarType dtype{};
  int device_index = -1;  ///< -1 on the CPU
  bool cuda = false;

  std::int64_t dim() const { return static_cast<std::int64_t>(sizes.size()); }
  std::int64_t size(std::int64_t d) const { return sizes[static_cast<std::size_t>(d < 0 ? d + dim() : d)]; }
  std::int64_t stride(std::int64_t d) const { return strides[static_cast<std::size_t>(d < 0 ? d + dim() : d)]; }
  std::int64_t numel() const;
};

/// Reads the metadata of `t`; rejects layouts other than strided, devices other than CPU and CUDA, and undefined tensors.
TensorView view(const char* op, const char* name, const Tensor& t);

/// A shape, dtype or device in a message. It is formatted with the message, so a check that holds costs nothing.
struct ShapeText {
  ShapeRef shape;
};
struct DtypeText {
  ScalarType dtype;
};
struct DeviceText {
  int index;  ///< -1: the CPU
};
std::ostream& operator<<(std::ostream& out, const ShapeText& text);   ///< "[2, 3]"
std::ostream& operator<<(std::ostream& out, const DtypeText& text);   ///< "float32"
std::ostream& operator<<(std::ostream& out, const DeviceText& text);  ///< "cpu", "cuda:0"
inline ShapeText to_string(ShapeRef shape) { return {shape}; }
inline DtypeText to_string(ScalarType dtype) { return {dtype}; }
inline DeviceText device_name(const TensorView& v) { return {v.device_index}; }

/// All tensors on one device, else: `xgemm::matmul: expected a and b on one device, got cuda:0 and cpu`.
void check_same_device(const TensorView& first, const TensorView& other);
/// All tensors of one dtype, else: `xgemm::matmul: expected a and b of one dtype, got float32 and float64`.
void check_same_dtype(const TensorView& first, const TensorView& other);
void check_dtype(const TensorView& v, std::initializer_list<ScalarType> allowed);
/// The argument `dtype`, or without one v's own dtype: a floating one.
ScalarType floating_dtype(const TensorView& v, const std::optional<ScalarType>& dtype);
/// A factor is inf, NaN, or no larger than what kernels and ATen multiply `v` in can hold: float64 for float64, else float32.
void check_range(const TensorView& v, const char* name, double factor);
inline constexpr std::initializer_list<ScalarType> kFloating = {ScalarType::Float, ScalarType::Half, ScalarType::BFloat16,
                                                                ScalarType::Double};
inline constexpr std::initializer_list<ScalarType> kReal = {ScalarType::Float,  ScalarType::Half, ScalarType::BFloat16,
                                                            ScalarType::Double, ScalarType::Long, ScalarType::Int,
                                                            ScalarType::Short,  ScalarType::Char, ScalarType::Byte};
inline constexpr std::initializer_list<ScalarType> kRealAndBool = {
    ScalarType::Float, ScalarType::Half,  ScalarType::BFloat16, ScalarType::Double, ScalarType::Long,
    ScalarType::Int,   ScalarType::Short, ScalarType::Char,     ScalarType::Byte,   ScalarType::Bool};
inline bool is_floating(ScalarType dtype) { return std::find(kFloating.begin(), kFloating.end(), dtype) != kFloating.end(); }

Precision parse_precision(const char* op, const std::string& s);
/// Wraps a possibly negative dim and checks its range; a 0-d tensor takes -1 and 0.
std::int64_t wrap_dim(const TensorView& v, std::int64_t dim);
/// NumPy broadcasting of two shapes, or an error that names both arguments. `a` and `b` are (parts of) the sizes of va and vb.
Shape broadcast(const TensorView& va, ShapeRef a, const TensorView& vb, ShapeRef b);
bool broadcasts_to(ShapeRef sizes, ShapeRef shape);
/// `view`'s strides when it is broadcast to `shape` (0 where a dim is expanded or missing). The shapes must be compatible.
Shape broadcast_strides(ShapeRef sizes, ShapeRef strides, ShapeRef shape);

/// The kernels' name of a dtype (for dtypes that the library supports at all).
DType to_dtype(ScalarType dtype);

/// New contiguous tensor beside `like`. Never initialised.
Tensor empty(ShapeRef shape, ScalarType dtype, const TensorView& like);
/// Can the CPU's allocator serve a tensor of `shape`? Asked first for large ones: torch prints a stack trace when it cannot.
bool cpu_has_room(ShapeRef shape, ScalarType dtype);
/// Throws in one line if the CPU has no room for a dense copy of `t`, a CPU tensor, in `dtype`.
void check_room_for_copy(const Tensor& t, ScalarType dtype);
/// Scratch memory from torch's caching allocator, alive as long as the tensor is.
Tensor workspace(std::int64_t bytes, const TensorView& like);

}  // namespace xgemm

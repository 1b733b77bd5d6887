#include "torch/tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <iomanip>
#include <limits>
#ifdef XGEMM_WITH_CUDA
#include <cuda_runtime.h>
#endif

namespace xgemm {

std::int64_t TensorView::numel() const {
  std::int64_t n = 1;
  for (auto s : sizes) n *= s;
  return n;
}

TensorView view(const char* op, const char* name, const Tensor& t) {
  check(t.defined(), op, "expected ", name, " to be a tensor, got an undefined one");
  AtenTensorHandle h = t.get();
  std::int32_t device_type = 0, device_index = -1, layout = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_layout(h, &layout));
  check(layout == aoti_torch_layout_strided(), op, "expected ", name,
        " to be a dense (strided) tensor, got a sparse or opaque layout; call to_dense() first");
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(h, &device_type));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(h, &device_index));
  const bool cuda = device_type == aoti_torch_device_type_cuda();
  check(cuda || device_type == aoti_torch_device_type_cpu(), op, "expected ", name, " on cpu or cuda, got another device");
#ifndef XGEMM_WITH_CUDA
  check(!cuda, op, "this libxgemm.so was built without CUDA, got ", name, " on cuda:", device_index);
#endif
  const ShapeRef sizes = sizes_of(t);
  try {
    return {.op = op,
            .name = name,
            .tensor = &t,
            .data = t.data_ptr(),
            .sizes = sizes,
            .strides = {t.strides().data(), sizes.size()},
            .dtype = t.scalar_type(),
            .device_index = cuda ? device_index : -1,
            .cuda = cuda};
  } catch (const std::exception&) {  // quantised and other types that the stable ABI has no name for
    fail(op, "expected ", name, " of a plain floating, integer or bool dtype, got a quantised or other special one");
  }
}

std::ostream& operator<<(std::ostream& out, const ShapeText& text) {
  out << "[";
  for (std::size_t i = 0; i < text.shape.size(); ++i) out << (i ? ", " : "") << text.shape[i];
  return out << "]";
}

namespace {
/// Its number in kRealAndBool and in DType, which have one order; the length of that list for other dtypes.
std::size_t number_of(ScalarType dtype) {
  static_assert(kRealAndBool.size() == static_cast<std::size_t>(DType::boolean) + 1);
  return static_cast<std::size_t>(std::ranges::find(kRealAndBool, dtype) - kRealAndBool.begin());
}

std::string name_of(ScalarType dtype) {
  constexpr const char* kNames[] = {"float32", "float16", "bfloat16", "float64", "int64",
                                    "int32",   "int16",   "int8",     "uint8",   "bool"};
  if (const std::size_t number = number_of(dtype); number < std::size(kNames)) return kNames[number];
  switch (dtype) {
    case ScalarType::ComplexHalf: return "complex32";
    case ScalarType::ComplexFloat: return "complex64";
    case ScalarType::ComplexDouble: return "complex128";
    default: break;
  }
  std::string name = torch::headeronly::toString(dtype);  // "Float8_e4m3fn", but torch's name is float8_e4m3fn
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}
}  // namespace

std::ostream& operator<<(std::ostream& out, const DtypeText& text) { return out << name_of(text.dtype); }

std::ostream& operator<<(std::ostream& out, const DeviceText& text) {
  return text.index < 0 ? out << "cpu" : out << "cuda:" << text.index;
}

void check_same_device(const TensorView& first, const TensorView& other) {
  check(first.device_index == other.device_index, first.op, "expected ", first.name, " and ", other.name, " on one device, got ",
        device_name(first), " and ", device_name(other));
}

void check_same_dtype(const TensorView& first, const TensorView& other) {
  check(first.dtype == other.dtype, first.op, "expected ", first.name, " and ", other.name, " of one dtype, got ",
        to_string(first.dtype), " and ", to_string(other.dtype));
}

void check_dtype(const TensorView& v, std::initializer_list<ScalarType> allowed) {
  if (std::find(allowed.begin(), allowed.end(), v.dtype) != allowed.end()) return;
  std::string names;
  for (auto t : allowed) names += (names.empty() ? "" : ", ") + name_of(t);
  fail(v.op, "expected ", v.name, " of dtype ", names, ", got ", to_string(v.dtype));
}

ScalarType floating_dtype(const TensorView& v, const std::optional<ScalarType>& dtype) {
  const ScalarType result = dtype.value_or(v.dtype);
  check(is_floating(result), v.op, "expected ", dtype ? "dtype" : v.name, " of a floating dtype, got ", to_string(result),
        dtype ? "" : "; pass dtype=, for example torch.float32");
  return result;
}

void check_range(const TensorView& v, const char* name, double factor) {
  check(v.dtype == ScalarType::Double || !std::isfinite(factor) || std::abs(factor) <= std::numeric_limits<float>::max(), v.op,
        "expected ", name, " within the range of float32, got ", factor);
}

Precision parse_precision(const char* op, const std::string& s) {
  if (s == "highest") return Precision::highest;
  if (s == "ieee") return Precision::ieee;
  if (s == "high") return Precision::high;
  if (s == "medium") return Precision::medium;
  fail(op, "expected precision to be highest, ieee, high or medium, got \"", s, "\"");
}

std::int64_t wrap_dim(const TensorView& v, std::int64_t dim) {
  const std::int64_t rank = v.dim() == 0 ? 1 : v.dim();
  check(dim >= -rank && dim < rank, v.op, "expected dim in [", -rank, ", ", rank - 1, "], got ", dim);
  return dim < 0 ? dim + rank : dim;
}

Shape broadcast(const TensorView& va, ShapeRef a, const TensorView& vb, ShapeRef b) {
  Shape out(std::max(a.size(), b.size()));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    check(x == y || x == 1 || y == 1, va.op, "expected ", va.name, " and ", vb.name, " with dims that broadcast, got shapes ",
          to_string(va.sizes), " and ", to_string(vb.sizes));
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

bool broadcasts_to(ShapeRef sizes, ShapeRef shape) {
  if (sizes.size() > shape.size()) return false;
  const ShapeRef last = shape.last(sizes.size());
  return std::equal(sizes.begin(), sizes.end(), last.begin(),
                    [](std::int64_t have, std::int64_t to) { return have == 1 || have == to; });
}

Shape broadcast_strides(ShapeRef sizes, ShapeRef strides, ShapeRef shape) {
  Shape out(shape.size(), 0);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::size_t from = sizes.size() - 1 - i, to = shape.size() - 1 - i;
    if (sizes[from] != 1) out[to] = strides[from];
  }
  return out;
}

DType to_dtype(ScalarType dtype) {
  const std::size_t number = number_of(dtype);
  if (number == kRealAndBool.size()) throw std::runtime_error("xgemm: unsupported dtype " + name_of(dtype));
  return static_cast<DType>(number);
}

namespace {
/// torch's words for it, by which programs know that a smaller batch may do.
[[noreturn]] void fail_to_allocate(ShapeRef shape, ScalarType dtype, const TensorView& like) {
  std::int64_t bytes = static_cast<std::int64_t>(size_of(to_dtype(dtype)));
  for (const std::int64_t size : shape)
    check(!__builtin_mul_overflow(bytes, size, &bytes), like.op, "expected a result of fewer than 2^63 bytes, got shape ",
          to_string(shape), " of ", to_string(dtype));
#ifdef XGEMM_WITH_CUDA
  if (like.cuda) {
    std::size_t free = 0, total = 0;
    if (const cudaError_t e = cudaMemGetInfo(&free, &total); e != cudaSuccess)  // of an earlier kernel, maybe
      fail(like.op, "cannot allocate ", bytes, " bytes on ", device_name(like), ": ", cudaGetErrorString(e));
    fail(like.op, "CUDA out of memory. Tried to allocate ", bytes, " bytes on ", device_name(like), ", which has ", free,
         " of its ", total, " bytes free outside of torch's allocator");
  }
#endif
  fail(like.op, "out of memory. Tried to allocate ", bytes, " bytes on the CPU");
}

double bytes_of(ShapeRef shape, ScalarType dtype) {
  double bytes = static_cast<double>(size_of(to_dtype(dtype)));
  for (const std::int64_t size : shape) bytes *= static_cast<double>(size);
  return bytes;
}
}  // namespace

bool cpu_has_room(ShapeRef shape, ScalarType dtype) {
  constexpr double kSmall = 1 << 26;  // bytes; writing more takes a thousand times as long as to map them
  const double bytes = bytes_of(shape, dtype);
  if (bytes < kSmall) return true;
  if (bytes >= 0x1p63) return false;
  void* const mapped = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mapped != MAP_FAILED && munmap(mapped, static_cast<std::size_t>(bytes)) == 0;
}

void check_room_for_copy(const Tensor& t, ScalarType dtype) {
  const ShapeRef shape = sizes_of(t);
  if (cpu_has_room(shape, dtype)) return;
  std::ostringstream line;
  line << std::fixed << std::setprecision(0) << "out of memory. Tried to allocate " << bytes_of(shape, dtype)
       << " bytes on the CPU";
  throw std::runtime_error(line.str());  // register.cpp puts the op in front
}

Tensor empty(ShapeRef shape, ScalarType dtype, const TensorView& like) {
  std::array<std::int64_t, 8> few;  // no allocation for the usual ranks
  Shape many(shape.size() > few.size() ? shape.size() : 0);
  std::int64_t* const strides = many.empty() ? few.data() : many.data();
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= shape[i] > 1 ? shape[i] : 1;
  }
  AtenTensorHandle out = nullptr;
  if ((!like.cuda && !cpu_has_room(shape, dtype)) ||
      aoti_torch_empty_strided(static_cast<std::int64_t>(shape.size()), shape.data(), strides,
                               torch::stable::detail::to<std::int32_t>(torch::stable::detail::from(dtype)),
                               like.cuda ? aoti_torch_device_type_cuda() : aoti_torch_device_type_cpu(),
                               like.cuda ? like.device_index : 0, &out) != TORCH_SUCCESS)
    fail_to_allocate(shape, dtype, like);
  return Tensor(out);
}

Tensor workspace(std::int64_t bytes, const TensorView& like) { return empty({&bytes, 1}, ScalarType::Byte, like); }

}  // namespace xgemm

// The emulator's content of a CUtensorMap's 128 bytes.
#pragma once
#include <cstdint>

namespace emulation {

struct TensorMap {
  std::uint64_t magic;
  unsigned char* data;
  std::int64_t sizes[5];    ///< elements, innermost first
  std::int64_t strides[5];  ///< bytes; [0] is not used
  std::int16_t box[5];
  std::int8_t rank, element_bytes;
  std::int16_t swizzle;
  bool tf32;
  std::int64_t box_bytes() const {
    std::int64_t bytes = element_bytes;
    for (int i = 0; i < rank; ++i) bytes *= box[i];
    return bytes;
  }
};
static_assert(sizeof(TensorMap) <= 128);

/// Fails unless the bytes are a map that the emulated cuTensorMapEncodeTiled has made.
TensorMap tensor_map_from(const void* bytes);

}  // namespace emulation

// Loads and stores of 16 bytes at any address. An aligned address takes one access. At an unaligned one a load is an aligned
// load, a load of the bytes after it, and a byte shift; a store exchanges bytes with the neighbouring lane. Alignment never
// changes which lane holds which element, so it does not change the order of a sum.
#pragma once
#include <cstdint>

#include "device/numeric.cuh"
#include "device/vector.cuh"
#include "device/warp.cuh"

namespace xgemm {

/// Sixteen raw bytes as elements of T.
template <class T>
struct alignas(16) Pack {
  static constexpr int kCount = 16 / static_cast<int>(sizeof(T));
  T values[kCount];
};

template <class T>
__device__ __forceinline__ Pack<T> as_pack(const uint4& raw) {
  Pack<T> p;
  *reinterpret_cast<uint4*>(p.values) = raw;
  return p;
}

template <class T>
__device__ __forceinline__ uint4 as_raw(const Pack<T>& p) {
  return *reinterpret_cast<const uint4*>(p.values);
}

/// The 16 bytes that start `shift` (0..15) bytes into the 32 bytes lo, hi.
__device__ __forceinline__ uint4 shift_bytes(const uint4& lo, const uint4& hi, unsigned shift) {
  const bool two = shift & 8, one = shift & 4;
  const unsigned a0 = two ? lo.z : lo.x, a1 = two ? lo.w : lo.y, a2 = two ? hi.x : lo.z, a3 = two ? hi.y : lo.w,
                 a4 = two ? hi.z : hi.x, a5 = two ? hi.w : hi.y;
  const unsigned b0 = one ? a1 : a0, b1 = one ? a2 : a1, b2 = one ? a3 : a2, b3 = one ? a4 : a3, b4 = one ? a5 : a4;
  const unsigned bits = (shift & 3) * 8;
  return {__funnelshift_r(b0, b1, bits), __funnelshift_r(b1, b2, bits), __funnelshift_r(b2, b3, bits),
          __funnelshift_r(b3, b4, bits)};
}

__device__ __forceinline__ unsigned misalignment(const void* p) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(p) & 15);
}

__device__ __forceinline__ uint4 load_aligned16(const void* p) { return *reinterpret_cast<const uint4*>(p); }

/// The first `count` (0..15, a multiple of sizeof(T) >= 2) bytes of the aligned block at p, then zeros; reads no byte after them.
template <class T>
__device__ __forceinline__ uint4 load_front(const char* p, unsigned count) {
  uint2 low = {0, 0}, high = {0, 0};
  if (count & 8) low = *reinterpret_cast<const uint2*>(p);
  uint2 rest = {0, 0};
  p += count & 8;
  if (count & 4) rest.x = *reinterpret_cast<const unsigned*>(p);
  if constexpr (sizeof(T) < 4) {
    p += count & 4;
    unsigned last = 0;
    if (count & 2) last = *reinterpret_cast<const unsigned short*>(p);
    (count & 4 ? rest.y : rest.x) |= last;
  }
  (count & 8 ? high : low) = rest;
  return {low.x, low.y, high.x, high.y};
}

/// Sixteen bytes at p, which is aligned to sizeof(T). Reads no byte after them. Bytes before them that it reads lie in the same
/// aligned block and so in the same allocation.
template <class T>
__device__ __forceinline__ uint4 load_shifted16(const T* p) {
  const unsigned shift = misalignment(p);
  const char* q = reinterpret_cast<const char*>(p) - shift;
  const uint4 lo = load_aligned16(q);
  return shift ? shift_bytes(lo, load_front<T>(q + 16, shift), shift) : lo;
}

/// The first `count` elements at p, `stride` apart, one by one, then those of `fill`. kMost: fewer than a vector, or all.
template <class T, int kMost = Pack<T>::kCount - 1>
__device__ __forceinline__ uint4 load_singles(const T* p, int count, const uint4& fill, std::int64_t stride = 1) {
  Pack<T> pack = as_pack<T>(fill);
#pragma unroll
  for (int e = 0; e < kMost; ++e)
    if (e < count) pack.values[e] = p[e * stride];
  return as_raw(pack);
}

/// Shifts a row's vectors, which `lanes` (1 to 32) neighbouring lanes hold: raw[j] becomes the 16 bytes that start kWord words
/// and `bits` bits into the lane's own vector, continued by the next lane's vector. The last lane continues with lane 0's next
/// vector, the last vector with `behind`. All lanes of a warp call it.
template <int kWord, bool kBits, int n>
__device__ __forceinline__ void shift_lanes(uint4 (&raw)[n], const uint4& behind, int lane, int lanes,
                                            [[maybe_unused]] unsigned bits) {
#pragma unroll
  for (int j = 0; j < n; ++j) {
    const uint4 after = j + 1 < n ? raw[j + 1 < n ? j + 1 : j] : behind;
    const unsigned mine[4] = {raw[j].x, raw[j].y, raw[j].z, raw[j].w}, later[4] = {after.x, after.y, after.z, after.w};
    unsigned words[8] = {mine[0], mine[1], mine[2], mine[3]};
#pragma unroll
    for (int w = 0; w < kWord + (kBits ? 1 : 0); ++w)
      words[4 + w] = __shfl_sync(kFullWarp, lane == 0 ? later[w] : mine[w], lane + 1, lanes);
    const auto word = [&](int w) {
      if constexpr (kBits) return __funnelshift_r(words[kWord + w], words[kWord + w + 1], bits);
      return words[kWord + w];
    };
    raw[j] = {word(0), word(1), word(2), word(3)};
  }
}

/// The same by `shift` (0 to 15, in all lanes of the warp; a multiple of sizeof(T)) bytes.
template <class T, int n>
__device__ __forceinline__ void shift_lanes(uint4 (&raw)[n], const uint4& behind, int lane, int lanes, unsigned shift) {
  constexpr bool kBits = sizeof(T) < 4;
  const unsigned bits = kBits ? shift % 4 * 8 : 0;
  switch (shift / 4) {
    case 0:
      if (bits != 0) shift_lanes<0, kBits>(raw, behind, lane, lanes, bits);
      break;
    case 1: shift_lanes<1, kBits>(raw, behind, lane, lanes, bits); break;
    case 2: shift_lanes<2, kBits>(raw, behind, lane, lanes, bits); break;
    default: shift_lanes<3, kBits>(raw, behind, lane, lanes, bits);
  }
}

/// Lane i of each group of `width` (a power of two) lanes stores element-wise neighbouring packs: p of lane i is 16 bytes after p
/// of lane i - 1. Every lane of the warp must call it; a lane with `valid` false stores nothing, and valid lanes come first in a
/// group.
template <class T>
__device__ __forceinline__ void store_shifted16(T* p, const Pack<T>& mine, bool valid, int width) {
  constexpr unsigned kSize = sizeof(T);
  const uint4 raw = as_raw(mine);
  const int lane = static_cast<int>(threadIdx.x) & (kWarpSize - 1), in_group = lane & (width - 1);
  const uint4 before = {__shfl_up_sync(kFullWarp, raw.x, 1), __shfl_up_sync(kFullWarp, raw.y, 1),
                        __shfl_up_sync(kFullWarp, raw.z, 1), __shfl_up_sync(kFullWarp, raw.w, 1)};
  const bool next_valid = __shfl_down_sync(kFullWarp, static_cast<int>(valid), 1) != 0 && in_group != width - 1;
  if (!valid) return;
  const unsigned shift = misalignment(p);
  char* q = reinterpret_cast<char*>(p) - shift;
  if (shift == 0) {
    *reinterpret_cast<uint4*>(q) = raw;
    return;
  }
  if (in_group > 0)  // the previous lane's last `shift` bytes, then this lane's first ones
    *reinterpret_cast<uint4*>(q) = shift_bytes(before, raw, 16 - shift);
#pragma unroll
  for (int e = 0; e < Pack<T>::kCount; ++e) {  // elements outside the group's aligned blocks
    const bool head = static_cast<unsigned>(e) * kSize + shift < 16;
    if (head ? in_group == 0 : !next_valid) p[e] = mine.values[e];
  }
}

}  // namespace xgemm

// Vector loads and stores: N elements as one access of up to 16 bytes.
#pragma once
#include <cstdint>

namespace xgemm {

template <class T, int N>
struct alignas(sizeof(T) * N) Vector {
  static_assert((N & (N - 1)) == 0 && sizeof(T) * N <= 16);
  T values[N];
  __device__ __forceinline__ T& operator[](int i) { return values[i]; }
  __device__ __forceinline__ const T& operator[](int i) const { return values[i]; }
};

/// Elements of T in a 16-byte access.
template <class T>
inline constexpr int kVectorWidth = 16 / static_cast<int>(sizeof(T));

template <int N, class T>
__device__ __forceinline__ Vector<T, N> load_vector(const T* p) {
  return *reinterpret_cast<const Vector<T, N>*>(p);
}

/// The same for data that is read once: it does not allocate in L1.
__device__ __forceinline__ Vector<float, 4> stream_vector(const float* p) {
  Vector<float, 4> v;
  asm volatile("ld.global.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
               : "l"(p));
  return v;
}

template <class T, int N>
__device__ __forceinline__ void store_vector(T* p, const Vector<T, N>& v) {
  *reinterpret_cast<Vector<T, N>*>(p) = v;
}

/// Stores neighbours of a row of so many columns from `column` on: those in bounds. Rows of whole vectors are aligned to vectors.
template <class T, int N>
__device__ __forceinline__ void store_columns(T* row, int column, int columns, const Vector<T, N>& v) {
  if (columns % N == 0) {
    if (column < columns) store_vector(row + column, v);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (column + i < columns) row[column + i] = v[i];
  }
}

/// Host and device: may `p` be accessed `bytes` at a time?
__host__ __device__ __forceinline__ bool is_aligned(const void* p, int bytes) {
  return reinterpret_cast<std::uintptr_t>(p) % static_cast<unsigned>(bytes) == 0;
}

}  // namespace xgemm

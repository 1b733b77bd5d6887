// The inline PTX in csrc outside of device/ptx. translate.py turns an asm statement into a call of the function that matches
// the statement's text, with the outputs and then the inputs.
#pragma once
#include "cuda_language.h"

namespace emulation::assembly {

template <class T>
void thread_index(T& to) {
  to = static_cast<T>(threadIdx.x);
}
template <class T>
void block_index(T& to) {
  to = static_cast<T>(blockIdx.x);
}
inline float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.f, x) : x; }
inline void reciprocal(float& to, float x) { to = flushed(1 / flushed(x)); }
inline void minus_infinity(float& to, float) { to = -INFINITY; }
inline void exp2(float& to, float x) { to = flushed(exp2f(flushed(x))); }
/// As on a GPU +0 is larger than -0.
inline void max_nan(float& to, float a, float b) {
  to = a != a || b != b ? NAN : a == b ? (std::signbit(a) ? b : a) : fmaxf(a, b);
}
template <class T>
void pair_max_nan(unsigned& to, unsigned a, unsigned b) {
  T x, y;
  std::memcpy(&x, &a, 4), std::memcpy(&y, &b, 4);
  float low, high;
  max_nan(low, x.x, y.x), max_nan(high, x.y, y.y);
  const T maximum{low, high};
  std::memcpy(&to, &maximum, 4);
}
template <class To, class A, class B, class C>
void multiply_add_wide(To& to, A a, B b, C c) {
  to = (To)(static_cast<std::int64_t>(a) * static_cast<std::int64_t>(b) + (std::int64_t)c);
}
template <class T, class U>
void load_shared_pair(T& x, T& y, U address, Where where = Where::current()) {
  const T* const from =
      static_cast<const T*>(shared_pointer(static_cast<std::uint32_t>(address), 2 * sizeof(T), 2 * sizeof(T), where));
  x = from[0], y = from[1];
}
template <class T, class U>
void load_global4(T& x, T& y, T& z, T& w, U address) {
  const T* const from = (const T*)address;
  x = from[0], y = from[1], z = from[2], w = from[3];
}
inline void load_acquire(unsigned& to, const unsigned* from) {
  yield(true);
  to = *from;
}
inline void nothing(...) {}
/// A kernel that calls this needs a line in translate.py.
template <class... Any>
[[noreturn]] void unknown(const char* statement, Where where = Where::current()) {
  fail(text("inline PTX that the emulator does not know: ", statement), where);
}

}  // namespace emulation::assembly

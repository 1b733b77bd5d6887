// cp.async (sm_80 and later): asynchronous copies from global to shared memory that bypass registers; a thread waits for them
// in groups.
#pragma once
#include <cstdint>

namespace xgemm {

/// Copies `bytes` (0 to kBytes) from `src` to `dst` and fills dst up to kBytes with zeros; with bytes = 0 `src` is not read. Both
/// pointers are aligned to kBytes: 4, 8 or 16.
template <int kBytes>
__device__ __forceinline__ void cp_async(void* dst, const void* src, int bytes) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  const auto shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(dst));
  if constexpr (kBytes == 16)  // .cg: bypasses L1, which a streaming tile would only thrash
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(src), "r"(bytes) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(src), "n"(kBytes), "r"(bytes) : "memory");
}

/// Copies 16 bytes, or fills with zeros if `exists` is false. A predicate costs less than a size.
__device__ __forceinline__ void cp_async_or_zeros(void* dst, const void* src, bool exists) {
  asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, %2, 0;\ncp.async.cg.shared.global [%0], [%1], 16, p;\n}" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(dst))),
               "l"(src), "r"(static_cast<int>(exists))
               : "memory");
}

/// Copies 16 bytes, or leaves `dst` as it is.
__device__ __forceinline__ void cp_async_if(void* dst, const void* src, bool exists) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\n@p cp.async.cg.shared.global [%0], [%1], 16;\n}" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(dst))),
               "l"(src), "r"(static_cast<int>(exists))
               : "memory");
}

__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most kPending of this thread's committed groups are in flight.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace xgemm

// The emulator's csrc/device/ptx/grid.cuh: launches run one after the other.
#pragma once

namespace xgemm::ptx {

inline void grid_wait() {}
template <class T>
T* grid_wait(T* p) {
  return p;
}
inline void grid_release() {}

}  // namespace xgemm::ptx

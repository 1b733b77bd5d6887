// How v0 to v7 launch a pass.
#pragma once
#include "lab/kernels.h"
#include "lab/reduction/reduction.h"

namespace xgemm::lab::reduction {

template <class T>
void launch(void (*kernel)(const T* in, T* partials, std::int64_t n), const Pass<T>& p) {
  kernel<<<static_cast<unsigned>(p.blocks), kThreads, 0, p.stream>>>(p.in, p.partials, p.n);
}

}  // namespace xgemm::lab::reduction

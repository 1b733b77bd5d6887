// How v0 to v7 launch a pass, and how versions are named.
#pragma once
#include "lab/reduction/reduction.h"

namespace xgemm::lab::reduction {

template <class T>
void launch(void (*kernel)(const T* in, T* partials, std::int64_t n), const Pass<T>& p) {
  kernel<<<static_cast<unsigned>(p.blocks), kThreads, 0, p.stream>>>(p.in, p.partials, p.n);
}

template <auto kFloats, auto kInts>
Version version(StepId id, const char* name) {
  return {id,
          name,
          kFloats,
          kThreads,
          {[](const Pass<float>& p) { launch(kFloats, p); }, [](const Pass<Int>& p) { launch(kInts, p); }}};
}

}  // namespace xgemm::lab::reduction

// Registers one C++ function for every backend on which an op can be called.
#pragma once
#include <torch/csrc/stable/library.h>

#include <list>

namespace xgemm {

using BoxedKernel = void (*)(StableIValue*, std::uint64_t, std::uint64_t);

/// A kernel serves CPU and CUDA (it branches on the tensors' device) and also the sparse, quantised and mkldnn keys, where its
/// own argument checks give one clear line instead of the dispatcher's page.
class Registration {
 public:
  Registration(const char* ns, const char* op, BoxedKernel kernel) {
    using torch::stable::detail::StableLibrary;
    for (const char* key : {"CPU", "CUDA", "SparseCPU", "SparseCUDA", "SparseCsrCPU", "SparseCsrCUDA", "QuantizedCPU",
                            "QuantizedCUDA", "MkldnnCPU"})
      libraries_.emplace_back(StableLibrary::Kind::IMPL, ns, key, __FILE__, __LINE__).impl(op, kernel);
  }

 private:
  std::list<torch::stable::detail::StableLibrary> libraries_;  // an implementation lives as long as its library object
};

}  // namespace xgemm

/// At namespace scope, once an op: XGEMM_REGISTER(xgemm, matmul, matmul_op);
#define XGEMM_REGISTER(ns, op, function) static const ::xgemm::Registration registration_##op(#ns, #op, TORCH_BOX(&function))

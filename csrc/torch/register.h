// Registers one C++ function for every backend on which an op can be called.
#pragma once
#include <torch/csrc/stable/library.h>

#include <list>
#include <string>

#include "torch/gradient.h"

/// The namespace of the library's operators in torch.ops. A package for Hugging Face's kernels has one of its own (CMake's
/// XGEMM_NAMESPACE), so that several versions load into one process.
#ifndef XGEMM_NAMESPACE
#define XGEMM_NAMESPACE xgemm
#endif
#define XGEMM_NAMESPACE_xgemm XGEMM_NAMESPACE
#define XGEMM_NAMESPACE_xgemm_mode C10_CONCATENATE(XGEMM_NAMESPACE, _mode)
#define XGEMM_NAMESPACE_xgemm_lab xgemm_lab  // not in such a package

namespace xgemm {

/// A str argument of an op. Torch's own conversion to std::string (2.10, 2.11) leaks 48 bytes a call.
struct Text : std::string {
  using std::string::string;
};

using BoxedKernel = void (*)(StableIValue*, std::uint64_t, std::uint64_t);

/// Calls `kernel`. An error of torch's own, whose text is a C expression, a file and a line, becomes one line that names `op`.
void call_in_own_words(const char* op, BoxedKernel kernel, StableIValue* stack, std::uint64_t arguments, std::uint64_t results);

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

template <>
struct torch::stable::detail::ToImpl<xgemm::Text> {
  static xgemm::Text call(StableIValue value, std::uint64_t, bool) {
    const StringHandle handle = to<StringHandle>(value);
    std::size_t length = 0;
    const char* data = nullptr;
    TORCH_ERROR_CODE_CHECK(torch_string_length(handle, &length));
    TORCH_ERROR_CODE_CHECK(torch_string_c_str(handle, &data));
    const xgemm::Text text(data, length);
    TORCH_ERROR_CODE_CHECK(torch_delete_string(handle));
    return text;
  }
};

/// At namespace scope, once an op without a derivative: XGEMM_REGISTER(xgemm, argmax, argmax_op);
#define XGEMM_REGISTER(ns, op, function)                                                                                  \
  static const ::xgemm::Registration registration_##op(                                                                   \
      C10_STRINGIZE(XGEMM_NAMESPACE_##ns), #op, [](StableIValue* stack, std::uint64_t arguments, std::uint64_t results) { \
        ::xgemm::call_in_own_words(#ns "::" #op, TORCH_BOX(&function), stack, arguments, results);                        \
      })

/// The same for an op that torch differentiates and this library does not: it refuses inputs that require grad.
#define XGEMM_REGISTER_FORWARD_ONLY(ns, op, ...) XGEMM_REGISTER(ns, op, (::xgemm::ForwardOnly<#op, &__VA_ARGS__>::call))

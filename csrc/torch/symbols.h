// Functions of torch's C++ interface, looked up by their mangled names, where the stable interface has none.
#pragma once
#include <dlfcn.h>
#include <torch/csrc/stable/c/shim.h>

#include <string>

namespace xgemm {

/// The library that has `symbol`; null: none.
inline void* library_of(void* symbol) {
  Dl_info info;
  return symbol && dladdr(symbol, &info) ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
}
/// libtorch_cpu, and the libraries that it needs.
inline void* torch_cpu() { return library_of(reinterpret_cast<void*>(&torch_call_dispatcher)); }

/// Null if `library` has no function of that name.
template <class Function>
void find(Function& function, void* library, const std::string& name) {
  function = library ? reinterpret_cast<Function>(dlsym(library, name.c_str())) : nullptr;
}

/// A setting of at::globalContext(), whose getter has this mangled name; looked up once. `missing`: without the getter.
template <class Result>
class ContextSetting {
 public:
  ContextSetting(const char* name, Result missing) : missing_(missing) {
    find(context_, torch_cpu(), "_ZN2at13globalContextEv");
    find(getter_, torch_cpu(), name);
  }
  Result operator()() const { return context_ && getter_ ? getter_(context_()) : missing_; }

 private:
  const void* (*context_)();
  Result (*getter_)(const void*);
  Result missing_;
};

}  // namespace xgemm

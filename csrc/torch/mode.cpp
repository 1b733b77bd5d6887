// The process's mode, for Python and C++ programs: operators without tensors.
#include "device/environment.h"
#include "torch/register.h"

namespace {

bool get() { return xgemm::batch_invariant(); }
bool set(bool on) { return xgemm::batch_invariant_mode.exchange(on); }

}  // namespace

STABLE_TORCH_LIBRARY(XGEMM_NAMESPACE_xgemm_mode, m) {
  m.def("batch_invariant() -> bool");
  m.def("set_batch_invariant(bool on) -> bool");  // returns what was set before
}

STABLE_TORCH_LIBRARY_IMPL(XGEMM_NAMESPACE_xgemm_mode, CompositeImplicitAutograd, m) {
  m.impl("batch_invariant", TORCH_BOX(&get));
  m.impl("set_batch_invariant", TORCH_BOX(&set));
}

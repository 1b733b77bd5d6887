#include "torch/gradient.h"

#include <atomic>
#include <cstdint>

#include "torch/error.h"
#include "torch/register.h"
#include "torch/symbols.h"

namespace xgemm {
namespace {

/// c10::TensorImpl's getters, and the dispatcher's of this thread's excluded keys.
struct Getters {
  bool (*requires_grad)(const void* impl);
  AtenTensorHandle (*tangent)(const void* impl, std::uint64_t level, AtenTensorHandle tensor);
  bool (*is_excluded)(std::uint16_t key);
  Getters() {
    void* const torch = torch_cpu();
    find(requires_grad, torch, "_ZNK3c1010TensorImpl13requires_gradEv");
    find(tangent, torch, "_ZNK3c1010TensorImpl8_fw_gradEmRKN2at10TensorBaseE");
    find(is_excluded, torch, "_ZN3c104impl28tls_is_dispatch_key_excludedENS_11DispatchKeyE");
  }
};
const Getters& getters() {
  static const Getters found;
  return found;
}

std::atomic<std::int64_t> autograd_key = -1;  ///< c10::DispatchKey::AutogradFunctionality in this torch; -1: no checks

/// Calls from below autograd (torch's own kernels, custom ones) are not differentiated here.
bool is_below_autograd() { return getters().is_excluded(static_cast<std::uint16_t>(autograd_key)); }

/// False if this torch has not got what the check needs.
bool refuse_gradients(std::int64_t key) {
  const Getters& found = getters();
  if (!found.requires_grad || !found.tangent || !found.is_excluded) return false;
  autograd_key = key;
  return true;
}

}  // namespace

void refuse_gradient(const char* op, const torch::stable::Tensor& t) {
  if (autograd_key < 0) return;
  const void* const impl = *reinterpret_cast<void**>(t.get());  // at::Tensor is one pointer
  if (getters().requires_grad(impl) && aoti_torch_grad_mode_is_enabled() && !is_below_autograd())
    fail(op, "has no backward, got an input that requires grad; call it under torch.no_grad() or torch.inference_mode()");
  bool has_tangent = false;
  TORCH_ERROR_CODE_CHECK(aoti_torch_is_defined(getters().tangent(impl, 0, t.get()), &has_tangent));  // torch has one level
  if (has_tangent && !is_below_autograd())
    fail(op, "has no forward-mode derivative, got an input with a tangent; pass forward_ad.unpack_dual(input).primal");
}

}  // namespace xgemm

STABLE_TORCH_LIBRARY_FRAGMENT(XGEMM_NAMESPACE_xgemm_mode, m) { m.def("refuse_gradients(int key) -> bool"); }

STABLE_TORCH_LIBRARY_IMPL(XGEMM_NAMESPACE_xgemm_mode, CompositeImplicitAutograd, m) {
  m.impl("refuse_gradients", TORCH_BOX(&xgemm::refuse_gradients));
}

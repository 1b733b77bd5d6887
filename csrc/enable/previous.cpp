#include "enable/previous.h"

#include "torch/symbols.h"

extern "C" __attribute__((weak)) AOTITorchError aoti_torch_get_current_cuda_stream(std::int32_t device_index, void** stream);

namespace xgemm::enable {
namespace {

Previous look_up(bool cuda) {
  void* const library = cuda ? library_of(reinterpret_cast<void*>(&aoti_torch_get_current_cuda_stream)) : torch_cpu();
  const std::string scope = cuda ? "_ZN2at4cuda" : "_ZN2at3cpu";
  Previous p;
  // `tensor`: the parameters after the first tensor; `out`: the same behind Tensor& out, whose numbers of repeated parts differ.
  const auto both = [&](auto& kernel, const std::string& name, const std::string& tensor, const std::string& out) {
    const auto length = [](const std::string& s) { return std::to_string(s.size()) + s; };
    find(kernel.fresh, library, scope + length(name) + "ERKNS_6TensorE" + tensor);
    find(kernel.into, library, scope + length(name + "_out") + "ERNS_6TensorERKS1_" + out);
  };
  both(p.mm, "mm", "S3_", "S4_"), both(p.bmm, "bmm", "S3_", "S4_");
  if (cuda) find(p.addmm, library, "aoti_torch_cuda_addmm_out"), find(p.baddbmm, library, "aoti_torch_cuda_baddbmm_out");
  both(p.softmax, "_softmax", "lb", "lb"), both(p.log_softmax, "_log_softmax", "lb", "lb");
  const std::string dims = "N3c108ArrayRefIlEEb";
  both(p.amax, "amax", dims, dims), both(p.amin, "amin", dims, dims);
  const std::string typed = "N3c1016OptionalArrayRefIlEEbSt8optionalINS", dtype = "_10ScalarTypeEE";
  both(p.sum, "sum", typed + "4" + dtype, typed + "5" + dtype), both(p.mean, "mean", typed + "4" + dtype, typed + "5" + dtype);
  both(p.argmax, "argmax", "St8optionalIlEb", "St8optionalIlEb"), both(p.argmin, "argmin", "St8optionalIlEb", "St8optionalIlEb");
  find(p.efficient_attention.kernel, library,
       scope + "39_scaled_dot_product_efficient_attentionERKNS_6TensorES3_S3_RKSt8optionalIS1_EbdbS4_IdE");
  // One for all devices. Attention chooses a backend; autograd knows the operators that it calls.
  find(p.attention.fresh, torch_cpu(),
       "_ZN2at25compositeimplicitautograd28scaled_dot_product_attentionERKNS_6TensorES3_S3_RKSt8optionalIS1_EdbS4_IdEb");
  find(p.logsumexp.fresh, torch_cpu(), "_ZN2at25compositeexplicitautograd9logsumexpERKNS_6TensorE" + dims);
  find(p.logsumexp.into, torch_cpu(), "_ZN2at38compositeexplicitautogradnonfunctional13logsumexp_outERNS_6TensorERKS1_" + dims);
  return p;
}

}  // namespace

const Previous& previous(bool cuda) {
  static const Previous kernels[] = {look_up(false), look_up(true)};
  return kernels[cuda];
}

bool tf32_allowed() {
  static const ContextSetting<bool> allowed("_ZNK2at7Context15allowTF32CuBLASEv", false);
  return allowed();
}

}  // namespace xgemm::enable

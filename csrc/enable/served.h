// Which calls of aten's operators this library serves, and the counts of them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "device/dtype.h"

namespace xgemm::enable {

/// aten's names of the operators, most with an `.out` overload. Those that are registered in Python ask and count here.
inline constexpr const char* kNames[] = {
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "addmv",
    "_addmm_activation",
    "_softmax",
    "_log_softmax",
    "logsumexp",
    "sum",
    "mean",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "scaled_dot_product_attention",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_efficient_attention_backward",
    "_flash_attention_forward",
};
enum class Op : std::uint8_t {};  ///< index of the name
constexpr const char* name_of(Op op) { return kNames[static_cast<std::size_t>(op)]; }
/// Nothing if there is no such operator.
constexpr std::optional<Op> op_of(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kNames); ++i)
    if (name == kNames[i]) return static_cast<Op>(i);
  return {};
}
/// "mm"_op; a name that is not there does not compile.
consteval Op operator""_op(const char* name, std::size_t length) { return op_of({name, length}).value(); }

/// Why torch has served a call, or `xgemm`.
enum class By : std::uint8_t { xgemm, off, dtype, device, cpu, shape, strides, option, faster, memory, count };

/// Are calls of this dtype ours? One bit a dtype, set by torch_ext.enable().
bool is_on(Op op, DType dtype);
void set(Op op, std::uint32_t dtypes);
constexpr std::uint32_t bit_of(DType dtype) { return std::uint32_t{1} << static_cast<unsigned>(dtype); }

void count(Op op, By by);
/// A line an operator and server: "mm\txgemm\t12". `reset`: counts from 0 again.
std::string counts(bool reset);

/// Set while this thread serves a call: what its own code asks of aten goes to torch.
inline thread_local bool serving = false;
struct Serving {
  Serving() { serving = true; }
  ~Serving() { serving = false; }
};

}  // namespace xgemm::enable

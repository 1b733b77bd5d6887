// Which calls of aten's operators this library serves, and the counts of them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "device/dtype.h"

namespace xgemm::enable {

/// Operators, most with an `.out` overload. Those that are registered in Python ask and count here.
enum class Op : std::uint8_t {
  mm,
  bmm,
  addmm,
  baddbmm,
  addmv,
  softmax,
  log_softmax,
  logsumexp,
  sum,
  mean,
  amax,
  amin,
  argmax,
  argmin,
  flash_attention,
  efficient_attention,
  flash_attention_forward,
  count
};

/// Why torch has served a call, or `xgemm`.
enum class By : std::uint8_t { xgemm, off, dtype, device, cpu, shape, strides, option, faster, memory, count };

/// aten's name.
const char* name_of(Op op);
/// Nothing if there is no such operator.
std::optional<Op> op_of(std::string_view name);

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

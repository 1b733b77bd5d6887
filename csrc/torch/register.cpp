#include "torch/register.h"

#include <stdexcept>
#include <string_view>

namespace xgemm {
namespace {

/// Of an error's text what is good for a line: of `torch_call_dispatcher("aten::to", ...) API call failed at FILE, line N` the
/// op, of other calls the function; of `FUNCTION, FILE:N, message` the message.
std::string words(std::string_view text) {
  if (text.starts_with("aten::") || text.find("API call failed") != text.npos) {
    if (const auto name = text.find("\"aten::"); name != text.npos) text.remove_prefix(name + 1);
    return std::string(text.substr(0, text.find_first_of("\"("))) +
           " failed, most likely for lack of memory; torch's own message is on stderr";
  }
  for (int comma = 0; comma < 2 && text.find(", ") != text.npos; ++comma) text.remove_prefix(text.find(", ") + 2);
  return std::string(text);
}

}  // namespace

void call_in_own_words(const char* op, BoxedKernel kernel, StableIValue* stack, std::uint64_t arguments, std::uint64_t results) {
  try {
    kernel(stack, arguments, results);
  } catch (const std::exception& error) {
    const std::string_view text = error.what();
    if (text.starts_with("xgemm")) throw;
    throw std::runtime_error(std::string(op) + ": " + words(text));
  }
}

}  // namespace xgemm

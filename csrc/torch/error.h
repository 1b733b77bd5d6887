// Error messages of one line: the op, the argument, what it got, what it needs.
#pragma once
#include <sstream>
#include <stdexcept>

namespace xgemm {

/// Throws RuntimeError with "xgemm::<op>: <parts...>".
template <class... Parts>
[[noreturn]] void fail(const char* op, const Parts&... parts) {
  std::ostringstream line;
  line << "xgemm::" << op << ": ";
  (line << ... << parts);
  throw std::runtime_error(line.str());
}

template <class... Parts>
void check(bool ok, const char* op, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail(op, parts...);
}

}  // namespace xgemm

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

/// For calls that only a CUDA build can serve; view() has refused their tensors before.
[[noreturn]] inline void fail_without_cuda(const char* op) { fail(op, "this libxgemm.so was built without CUDA"); }

}  // namespace xgemm

// The argument `precision`.
#pragma once
#include <string>

#include "device/dtype.h"
#include "torch/error.h"

namespace xgemm {

inline Precision parse_precision(const char* op, const std::string& s) {
  if (s == "highest") return Precision::highest;
  if (s == "ieee") return Precision::ieee;
  if (s == "high") return Precision::high;
  if (s == "medium") return Precision::medium;
  fail(op, "expected precision to be highest, ieee, high or medium, got \"", s, "\"");
}

}  // namespace xgemm

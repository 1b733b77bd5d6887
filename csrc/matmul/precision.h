// The argument `precision`, of matmul and of the ops that follow it.
#pragma once
#include <string>

#include "matmul/problem.h"
#include "torch/error.h"

namespace xgemm::matmul {

inline Precision parse_precision(const char* op, const std::string& s) {
  if (s == "highest") return Precision::highest;
  if (s == "ieee") return Precision::ieee;
  if (s == "high") return Precision::high;
  if (s == "medium") return Precision::medium;
  fail(op, "expected precision to be highest, ieee, high or medium, got ", s);
}

}  // namespace xgemm::matmul

// Where the rows of the output lie in memory.
#pragma once
#include "device/index_map.h"

namespace xgemm::attention {

/// Rows are numbered as a contiguous (batch, heads, Sq) is, the order of the log-sum-exp. They lie in that order, or, with
/// `beside` heads, as (batch, Sq, heads).
struct OutputRows {
  Divider sq = {}, beside = {};  ///< a divisor of 0: heads do not lie beside each other

  static constexpr OutputRows of(std::int64_t sq, std::int64_t beside) {
    return {Divider::of(sq), beside == 0 ? Divider{} : Divider::of(beside)};
  }

  XGEMM_HOST_DEVICE std::int64_t position(std::int64_t row) const {
    return row - sq.divide(row) * static_cast<std::int64_t>(sq.divisor);
  }
  /// The row of memory that holds row `row`.
  XGEMM_HOST_DEVICE std::int64_t place(std::int64_t row) const {
    if (beside.divisor == 0) return row;
    const auto heads = static_cast<std::int64_t>(beside.divisor), positions = static_cast<std::int64_t>(sq.divisor);
    const std::int64_t sequence = sq.divide(row), batch = beside.divide(sequence);
    return (batch * positions + row - sequence * positions) * heads + sequence - batch * heads;
  }
};

}  // namespace xgemm::attention

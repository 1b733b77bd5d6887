// Attention of one query row in double.
#pragma once
#include "check.h"

/// Rows of a matrix, each `step` elements after the one before it.
struct Rows {
  const double* first;
  std::int64_t step;
  const double* operator[](std::int64_t i) const { return first + i * step; }
};

struct AttentionRow {
  std::vector<double> output, magnitudes;  ///< magnitudes: of the weighted values, summed up
  double lse;                              ///< -inf if the row sees neither a key nor a sink
  bool sees_keys;                          ///< a weight is not zero

  explicit AttentionRow(int dv) : output(dv), magnitudes(dv) {}

  /// Attends to keys begin to end - 1. score(j, product): of key j, from its product with the query. `sink`: -inf if there is
  /// none.
  template <class Score>
  void attend(const double* query, int d, const Rows& keys, const Rows& values, std::int64_t begin, std::int64_t end, double sink,
              const Score& score) {
    weights_.clear();
    double largest = sink, sum = 0;
    for (std::int64_t j = begin; j < end; ++j) {
      weights_.push_back(score(j, dot(query, keys[j], d)));
      largest = std::max(largest, weights_.back());
    }
    for (double& weight : weights_) sum += weight = largest == -INFINITY ? 0 : std::exp(weight - largest);
    sees_keys = sum != 0;
    if (sink != -INFINITY) sum += std::exp(sink - largest);
    lse = sum == 0 ? -INFINITY : largest + std::log(sum);
    std::fill(output.begin(), output.end(), 0), std::fill(magnitudes.begin(), magnitudes.end(), 0);
    if (!sees_keys) return;
    for (std::int64_t j = begin; j < end; ++j)
      add_multiple(weights_[j - begin] / sum, values[j], output.size(), output.data(), magnitudes.data());
  }

 private:
  std::vector<double> weights_;
};

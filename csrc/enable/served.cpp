#include "enable/served.h"

#include <array>
#include <atomic>

namespace xgemm::enable {
namespace {

constexpr std::size_t kOps = std::size(kNames), kServers = static_cast<std::size_t>(By::count);
constexpr std::array<const char*, kServers> kServerNames = {"xgemm",
                                                            "torch: not enabled",
                                                            "torch: dtype",
                                                            "torch: tensors of several devices",
                                                            "torch: a CPU",
                                                            "torch: shapes",
                                                            "torch: strides",
                                                            "torch: an argument that xgemm does not take",
                                                            "torch: faster there",
                                                            "torch: not enough memory"};

std::array<std::atomic<std::uint32_t>, kOps> dtypes_on{};
std::array<std::array<std::atomic<std::int64_t>, kServers>, kOps> calls{};

}  // namespace

bool is_on(Op op, DType dtype) { return dtypes_on[static_cast<std::size_t>(op)].load(std::memory_order_relaxed) & bit_of(dtype); }
void set(Op op, std::uint32_t dtypes) { dtypes_on[static_cast<std::size_t>(op)] = dtypes; }

void count(Op op, By by) {
  calls[static_cast<std::size_t>(op)][static_cast<std::size_t>(by)].fetch_add(1, std::memory_order_relaxed);
}

std::string counts(bool reset) {
  std::string lines;
  for (std::size_t op = 0; op < kOps; ++op)
    for (std::size_t by = 0; by < kServers; ++by)
      if (const std::int64_t n = reset ? calls[op][by].exchange(0) : calls[op][by].load())
        lines += std::string(kNames[op]) + '\t' + kServerNames[by] + '\t' + std::to_string(n) + '\n';
  return lines;
}

}  // namespace xgemm::enable

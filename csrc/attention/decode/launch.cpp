#include "attention/decode/launch.h"

namespace xgemm::attention {

void launch_decode(const DecodePlan& plan, const Arguments& a, void* partials, cudaStream_t stream) {
  DecodeArguments g{a};
  g.row_tiles = static_cast<std::uint32_t>(plan.row_tiles);
  g.first_split = plan.first_split, g.splits = plan.splits, g.split_keys = plan.split_keys;
  g.partials = static_cast<float*>(partials);
  const int head_size = plan.info().head_size;
  (head_size == 64 ? launch_decode_64 : head_size == 128 ? launch_decode_128 : launch_decode_256)(plan, g, stream);
}

}  // namespace xgemm::attention

// Head sizes up to 64.
#include "attention/decode/launch.cuh"

namespace xgemm::attention {

void launch_decode_64(const DecodePlan& plan, const DecodeArguments& arguments, cudaStream_t stream) {
  launch_decode_head_size<0>(plan, arguments, stream);
}

}  // namespace xgemm::attention

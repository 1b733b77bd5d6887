// Head sizes up to 128.
#include "attention/decode/launch.cuh"

namespace xgemm::attention {

void launch_decode_128(const DecodePlan& plan, const DecodeArguments& arguments, cudaStream_t stream) {
  launch_decode_head_size<3>(plan, arguments, stream);
}

}  // namespace xgemm::attention

// Head sizes up to 256.
#include "attention/decode/launch.cuh"

namespace xgemm::attention {

void launch_decode_256(const DecodePlan& plan, const DecodeArguments& arguments, cudaStream_t stream) {
  launch_decode_head_size<6>(plan, arguments, stream);
}

}  // namespace xgemm::attention

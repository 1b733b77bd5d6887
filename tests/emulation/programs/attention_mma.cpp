// csrc/attention/mma against attention in double: cases and checks of attention_wgmma.cpp.
#define FAMILY_MMA
#include "programs/attention_wgmma.cpp"

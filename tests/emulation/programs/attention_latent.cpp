// csrc/attention/wgmma/latent.cuh against attention in double: cases and checks of attention_wgmma.cpp.
#define LATENT
#include "programs/attention_wgmma.cpp"

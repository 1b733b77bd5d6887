// csrc/attention/wgmma/wide.cu against attention in double: cases and checks of attention_wgmma.cpp.
#define WIDE
#include "programs/attention_wgmma.cpp"

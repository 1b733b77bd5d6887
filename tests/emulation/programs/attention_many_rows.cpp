// csrc/attention/mma's kernel for many rows against attention in double: cases and checks of attention_wgmma.cpp.
#define MANY_ROWS
#include "programs/attention_mma.cpp"

// csrc/attention/wgmma/wide.cu over sequences: attention_sequences.cpp.
#define FAMILY_WIDE
#include "programs/attention_sequences.cpp"

// Sequences of different lengths on CUDA cores, in fp32: cases and checks of attention_sequences.cpp.
#define FAMILY_SIMT
#include "programs/attention_sequences.cpp"

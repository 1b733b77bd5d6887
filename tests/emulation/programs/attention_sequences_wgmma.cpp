// Sequences of different lengths by wgmma: cases and checks of attention_sequences.cpp.
#define FAMILY_WGMMA
#include "programs/attention_sequences.cpp"

// fp64.cpp with the mma.sync of GPUs before Hopper.
#undef __CUDA_ARCH__
#define __CUDA_ARCH__ 800
#include "device/mma_f64.cuh"
#undef __CUDA_ARCH__
#define __CUDA_ARCH__ 900
#include "programs/fp64.cpp"

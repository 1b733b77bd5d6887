#include "reduce/kernels/launch.cuh"

xgemm::reduce::Launch* const xgemm::reduce::launch_index = launch_floating<MaximumIndex>;

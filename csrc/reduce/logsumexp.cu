#include "reduce/kernels/launch.cuh"
#include "reduce/kernels/operators/logsumexp.cuh"

xgemm::reduce::Launch* const xgemm::reduce::launch_logsumexp = launch_floating<LogSumExp>;

#!/bin/sh
# Development only: builds dev/libxgemm_hopper.so (torch.ops.xgemm_dev) for sm_90a. usage: dev/build.sh [out]
set -e
cd "$(dirname "$0")/.."
T=/work/venv/lib/python3.11/site-packages/torch
B=build-dev; mkdir -p $B
NV="-std=c++20 -O3 -Icsrc -Idev -gencode=arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -lineinfo -Xptxas=-v,--warning-as-error,--warn-on-spills -Xcompiler=-Wall,-Wextra,-fPIC,-fvisibility=hidden -DXGEMM_HANG_TRAP=4000000000ull"
CX="-std=c++20 -O2 -fPIC -fvisibility=hidden -Wall -Wextra -Icsrc -Idev -isystem $T/include -isystem $T/include/torch/csrc/api/include -isystem /usr/local/cuda/include -DTORCH_STABLE_ONLY -DTORCH_TARGET_VERSION=0x020a000000000000 -DXGEMM_WITH_CUDA"
newest_header=$(ls -t csrc/matmul/kernels/*.cuh csrc/device/ptx/*.cuh csrc/device/*.cuh csrc/device/*.h dev/*.h | head -1)
stale() { [ ! -e "$2" ] || [ "$1" -nt "$2" ] || [ "$newest_header" -nt "$2" ]; }
for f in dev/*.cu; do o=$B/$(basename $f .cu).cu.o
  if stale $f $o; then nvcc $NV -c $f -o $o >$B/$(basename $f .cu).log 2>&1 || { cat $B/$(basename $f .cu).log; exit 1; }; fi; done
for f in csrc/torch/tensor.cpp csrc/torch/cuda.cpp csrc/device/properties.cpp csrc/device/tensor_map.cpp; do o=$B/$(basename $f .cpp).o
  if stale $f $o; then g++ $CX -c $f -o $o; fi; done
f=dev/hopper_ops.cpp; o=$B/hopper_ops.o
if stale $f $o; then nvcc -x cu -std=c++20 -O1 -Icsrc -Idev -isystem $T/include -isystem $T/include/torch/csrc/api/include -DTORCH_STABLE_ONLY -DTORCH_TARGET_VERSION=0x020a000000000000 -DXGEMM_WITH_CUDA -gencode=arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -Xcompiler=-fPIC,-fvisibility=hidden -c $f -o $o; fi
g++ -shared -o ${1:-dev/libxgemm_hopper.so} $B/*.o -Wl,--no-as-needed -L$T/lib -ltorch -L/usr/local/cuda/lib64 -lcudart_static -ldl -lrt -lpthread
cat $B/*.log | grep -E "warn|spill stores" | sort | uniq -c

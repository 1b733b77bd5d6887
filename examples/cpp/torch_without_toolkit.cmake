# What find_package(Torch) sets, from the folder of a LibTorch or a pip-installed torch, with no CUDA toolkit on the machine.
find_path(TORCH_INSTALL_PREFIX include/ATen/ATen.h PATH_SUFFIXES ../.. REQUIRED)
add_library(torch_without_toolkit INTERFACE)
target_include_directories(
  torch_without_toolkit SYSTEM INTERFACE ${TORCH_INSTALL_PREFIX}/include ${TORCH_INSTALL_PREFIX}/include/torch/csrc/api/include)
foreach(library c10 torch_cpu c10_cuda torch_cuda torch)
  if(EXISTS ${TORCH_INSTALL_PREFIX}/lib/lib${library}.so)
    target_link_libraries(torch_without_toolkit INTERFACE ${TORCH_INSTALL_PREFIX}/lib/lib${library}.so)
  endif()
endforeach()
set(TORCH_LIBRARIES torch_without_toolkit)

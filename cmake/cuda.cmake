# The CUDA part of the build: the compiler, and what a target with CUDA sources needs.

include(${CMAKE_CURRENT_LIST_DIR}/architectures.cmake)

# Small files of a folder, for the same architectures, are compiled as one: the headers of CUDA alone take three seconds a file.
set(merged_sources
    attention/tiles/ "reduce/(cast|mean_loss)" "softmax/softmax_(apply|elements|odd|short)"
    "lab/attention/0[1-4]" "lab/attention/0[5-7]" lab/experiments/ lab/fp32/ lab/reduction/ lab/sgemm/ lab/softmax/
    "lab/tensor/(09|10)" "lab/tensor/1[1-3]")
foreach(merged IN LISTS merged_sources)
  set(parts ${cuda_sources})
  list(FILTER parts INCLUDE REGEX "/csrc/${merged}")
  list(REMOVE_ITEM cuda_sources ${parts})
  list(TRANSFORM parts REPLACE "${PROJECT_SOURCE_DIR}/csrc/(.+)" "#include \"\\1\"" OUTPUT_VARIABLE includes)
  list(JOIN includes "\n" includes)
  list(GET parts 0 first)
  string(REPLACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/merged first ${first})
  file(CONFIGURE OUTPUT ${first} CONTENT "${includes}\n")
  list(APPEND cuda_sources ${first})
endforeach()

# Kernels that a GPU of another compute capability than 9.0 is never given (the plans and the lab's checks ask for `major == 9`):
# machine code for sm_90a alone, where the list has it.
set(hopper_sources "/csrc/(attention/(fp16_split/kernel|wgmma/)|matmul/(bf16x3|sliced|tf32|wgmma)/|matmul/gemv/sweep|\
softmax/softmax_shared|lab/(attention/0[567]|fp32/|tensor/1[123]))")
foreach(source IN LISTS cuda_sources)
  if(gencode_hopper AND source MATCHES "${hopper_sources}")
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${gencode_hopper}")
  else()
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${gencode}")
  endif()
endforeach()
if(gencode_hopper)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/csrc/device/properties.cpp PROPERTIES COMPILE_DEFINITIONS XGEMM_HOPPER_CODE)
endif()

if(NOT CMAKE_CUDA_COMPILER)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/find_nvcc.py
    OUTPUT_VARIABLE CMAKE_CUDA_COMPILER ERROR_VARIABLE message OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "${message}")
  endif()
endif()
if(NOT CMAKE_CUDA_HOST_COMPILER)
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
endif()
# PyPI's toolkit keeps its libraries in lib/, where its nvcc, which looks in lib64/, does not find them while CMake tries it out.
get_filename_component(toolkit ${CMAKE_CUDA_COMPILER} DIRECTORY)
set(ENV{LIBRARY_PATH} "${toolkit}/../lib:$ENV{LIBRARY_PATH}")
set(CMAKE_CUDA_ARCHITECTURES OFF)  # the sources' -gencode says it all
enable_language(CUDA)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
string(REGEX MATCH "^[0-9]+\\.[0-9]+" cuda_release "${CMAKE_CUDA_COMPILER_VERSION}")
string(REPLACE ";" " " architectures "${arch_list}")
find_library(XGEMM_CUDART cudart_static HINTS ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES} NO_DEFAULT_PATH REQUIRED)

# -std here: CMake knows how to say C++20 to nvcc from 3.25.2 on only, and Debian 12 has 3.25.1.
set(cuda_options -std=c++20 --expt-relaxed-constexpr -Xptxas=--warn-on-spills -Xcompiler=-Wall,-Wextra)
# By default nvcc compresses PTX only; the machine code is 90 % of the library. (Mode `size` makes the file a quarter smaller still,
# in forty times the time: a tenth of the build.)
list(APPEND cuda_options -Xfatbin=-compress-all)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
  list(APPEND cuda_options --compress-mode=balance)
endif()
# Registers are budgeted for the default architectures; elsewhere a spill of a few bytes is no reason not to build.
if(XGEMM_WERROR AND all_tuned)
  list(APPEND cuda_options -Werror=all-warnings -Xptxas=--warning-as-error)
  list(PREPEND CMAKE_CUDA_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/cmake/nvcc_notes.sh)
endif()

function(xgemm_with_cuda target)
  target_compile_definitions(${target} PRIVATE XGEMM_WITH_CUDA)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${cuda_options}>)
  target_include_directories(${target} SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  # The static runtime, so that no libcudart.so is needed beside torch's.
  set_target_properties(${target} PROPERTIES CUDA_RUNTIME_LIBRARY None LINKER_LANGUAGE CXX)
  target_link_libraries(${target} PRIVATE ${XGEMM_CUDART} rt pthread dl)
endfunction()

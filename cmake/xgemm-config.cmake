# find_package(xgemm): the target xgemm::xgemm, the header and the library that registers the operators.
#
#   find_package(Torch REQUIRED)
#   find_package(xgemm REQUIRED)
#   target_link_libraries(app PRIVATE xgemm::xgemm ${TORCH_LIBRARIES})
#
# The header is compiled against the program's own LibTorch (2.10 or newer), so this package names none.
get_filename_component(_xgemm_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
# lib/ in a prefix made by `cmake --install`, the package folder itself in a wheel.
file(GLOB _xgemm_library "${_xgemm_prefix}/lib/libxgemm.so" "${_xgemm_prefix}/libxgemm.so")
if(NOT _xgemm_library)
  set(xgemm_FOUND FALSE)
  set(xgemm_NOT_FOUND_MESSAGE "no libxgemm.so under ${_xgemm_prefix}")
elseif(NOT TARGET xgemm::xgemm)
  add_library(xgemm::xgemm SHARED IMPORTED)
  set_target_properties(
    xgemm::xgemm PROPERTIES
    IMPORTED_LOCATION "${_xgemm_library}"
    INTERFACE_INCLUDE_DIRECTORIES "${_xgemm_prefix}/include"
    INTERFACE_COMPILE_FEATURES cxx_std_17
    # A program refers to no symbol of the library: without this the linker would drop it and the operators would be missing.
    INTERFACE_LINK_OPTIONS "LINKER:--no-as-needed"
    INTERFACE_LINK_LIBRARIES "${CMAKE_DL_LIBS}")
endif()
unset(_xgemm_prefix)
unset(_xgemm_library)

# `cmake --install` installs headers, libraries, the program and a CMake package. Other projects use it with:
#   find_package(Chimera)                         Chimera::chimera, everything; needs LibTorch
#   find_package(Chimera COMPONENTS scheduling)   Chimera::scheduling, the rooms without LibTorch
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Chimera)

add_library(chimera_scheduling INTERFACE)
set_target_properties(chimera_scheduling PROPERTIES EXPORT_NAME scheduling)
get_property(scheduling_rooms GLOBAL PROPERTY CHIMERA_ROOMS)
list(REMOVE_ITEM scheduling_rooms bench)
set(training_rooms)
if(CHIMERA_WITH_TORCH)
  add_library(chimera_training INTERFACE)
  set_target_properties(chimera_training PROPERTIES EXPORT_NAME chimera)
  get_property(training_rooms GLOBAL PROPERTY CHIMERA_TORCH_ROOMS)
  list(REMOVE_ITEM training_rooms profile)
  target_link_libraries(chimera_training INTERFACE chimera_scheduling)
endif()

foreach(half scheduling training)
  set(targets)
  foreach(room ${${half}_rooms})
    list(APPEND targets chimera_${room})
    set_target_properties(chimera_${room} PROPERTIES EXPORT_NAME ${room})
    target_include_directories(chimera_${room} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/chimera>)
    target_compile_features(chimera_${room} INTERFACE cxx_std_20)
    target_link_libraries(chimera_${half} INTERFACE chimera_${room})
  endforeach()
  if(targets)
    install(TARGETS chimera_${half} ${targets} EXPORT ${half} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(EXPORT ${half} NAMESPACE Chimera:: FILE ${half}.cmake DESTINATION ${package_folder})
  endif()
endforeach()

install(TARGETS chimera RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
# The page of `chimera playground`, if ./dev playground has built it.
install(FILES ${PROJECT_SOURCE_DIR}/build/web/playground.html DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/chimera
  COMPONENT runtime OPTIONAL)
if(CHIMERA_WITH_TORCH)
  # The program loads it from this folder.
  install(TARGETS chimera_training_half LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/chimera COMPONENT runtime)
endif()
install(DIRECTORY src/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/chimera FILES_MATCHING PATTERN "*.h")
install(FILES cmake/FindLibTorch.cmake DESTINATION ${package_folder})
configure_package_config_file(cmake/ChimeraConfig.cmake.in ${CMAKE_BINARY_DIR}/ChimeraConfig.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/ChimeraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/ChimeraConfig.cmake ${CMAKE_BINARY_DIR}/ChimeraConfigVersion.cmake
  DESTINATION ${package_folder})

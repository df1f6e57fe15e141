# Packages made by cpack: a Debian package and a tarball of the program, with LibTorch's libraries if it has a training
# half (tools/package; docs/platforms.md).
set(package_share ${CMAKE_INSTALL_DATAROOTDIR}/chimera)
set(package_doc ${CMAKE_INSTALL_DATAROOTDIR}/doc/chimera)
set(reference ${CMAKE_BINARY_DIR}/reference)

install(DIRECTORY machines recipes DESTINATION ${package_share} COMPONENT runtime FILES_MATCHING
  PATTERN "*.json" PATTERN "*.toml")
install(DIRECTORY benchmarks/records DESTINATION ${package_share}/benchmarks COMPONENT runtime FILES_MATCHING
  PATTERN "*.json")
install(DIRECTORY ${reference}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT runtime OPTIONAL FILES_MATCHING
  PATTERN "*.gz")
install(DIRECTORY ${reference}/completions DESTINATION ${package_share} COMPONENT runtime OPTIONAL)
install(FILES ${reference}/completions/chimera DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/bash-completion/completions
  COMPONENT runtime OPTIONAL)
install(FILES ${reference}/completions/_chimera DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/zsh/vendor-completions
  COMPONENT runtime OPTIONAL)
install(FILES ${reference}/completions/chimera.fish
  DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/fish/vendor_completions.d COMPONENT runtime OPTIONAL)

# Files that only packages contain. After `cmake --install`, the program uses the LibTorch of the build.
install(FILES packaging/copyright DESTINATION ${package_doc} COMPONENT package EXCLUDE_FROM_ALL)
install(DIRECTORY docs/ DESTINATION ${package_doc} COMPONENT package EXCLUDE_FROM_ALL FILES_MATCHING PATTERN "*.md")
install(FILES ${CMAKE_BINARY_DIR}/package/changelog.gz ${CMAKE_BINARY_DIR}/package/chimera.spdx.json
  DESTINATION ${package_doc} COMPONENT package EXCLUDE_FROM_ALL OPTIONAL)
install(FILES packaging/lintian-overrides DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/lintian/overrides RENAME chimera
  COMPONENT package EXCLUDE_FROM_ALL)
if(CHIMERA_WITH_TORCH)
  set(cuda_libraries ${LIBTORCH_ROOT}/../nvidia/cu*/lib)
  file(GLOB cuda_runtime ${cuda_libraries}/libcudart.so.* ${cuda_libraries}/libcupti.so.*)
  file(GLOB openmp ${LIBTORCH_ROOT}/lib/libgomp*.so*)
  install(FILES ${LIBTORCH_CPU} ${LIBTORCH_C10} ${openmp} ${cuda_runtime}
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/chimera COMPONENT package EXCLUDE_FROM_ALL)
  # The library of the training half and LibTorch's libraries load each other from their own folder.
  install(CODE "
    file(GLOB libraries \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/chimera/*.so*\")
    foreach(library IN LISTS libraries)
      execute_process(COMMAND patchelf --set-rpath \"\\\$ORIGIN\" \${library} COMMAND_ERROR_IS_FATAL ANY)
    endforeach()" COMPONENT package EXCLUDE_FROM_ALL)
endif()

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME chimera)
set(CPACK_PACKAGE_CONTACT "The Chimera authors <chimera@localhost.localdomain>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "training of large neural networks with bidirectional pipelines")
string(CONCAT CPACK_PACKAGE_DESCRIPTION
  "Chimera trains transformers that are divided into stages on several processes.\n"
  "It generates pipeline schedules, proves that they cannot deadlock, simulates\n"
  "and draws them, plans for a machine, and trains with the gradients of plain\n"
  "mini-batch SGD. The package includes the playground page.")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime package)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(CHIMERA_WITH_TORCH)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${LIBTORCH_ROOT}/lib)
  foreach(library IN LISTS cuda_runtime)
    get_filename_component(folder ${library} DIRECTORY)
    list(APPEND CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${folder})
  endforeach()
endif()
set(CPACK_DEBIAN_COMPRESSION_TYPE xz) # Debian 12's lintian rejects zstd
set(CPACK_THREADS 0)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)

#pragma once
// Version and build options of this program. Every build generates the source with their definitions
// (cmake/BuildInformation.cmake).

#include <string>

namespace chimera::apps {

/// Returns the version number, without other text.
[[nodiscard]] std::string version();
/// Returns the output of --version, without the last line end.
[[nodiscard]] std::string build_information();

}  // namespace chimera::apps

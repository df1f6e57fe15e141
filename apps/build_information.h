#pragma once
// Version and build options of this program, for --version and error reports. The source file is not in the repository:
// every build generates it (cmake/BuildInformation.cmake).

#include <string>

namespace chimera::apps {

/// Returns the version number, such as `1.4.0`.
[[nodiscard]] std::string version();
/// Returns the output of --version, without the last line end.
[[nodiscard]] std::string build_information();

}  // namespace chimera::apps

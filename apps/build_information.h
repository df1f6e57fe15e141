#pragma once
// Which program this is: written anew by every build (cmake/BuildInformation.cmake).

#include <string>

namespace chimera::apps {

/// `0.1.0`.
[[nodiscard]] std::string version();
/// What --version prints: version, commit, compiler, system, LibTorch; lines without the last line end.
[[nodiscard]] std::string build_information();

}  // namespace chimera::apps

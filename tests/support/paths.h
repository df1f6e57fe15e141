#pragma once

#include <string>

namespace chimera::testing {

/// Returns the path of a project file; `below` begins with a slash. Only paths.cc contains the project's folder, so
/// that the compiler cache serves other clones.
[[nodiscard]] std::string source_path(const std::string& below);

}  // namespace chimera::testing

#pragma once

#include <string>

namespace chimera::testing {

/// Returns the path of a file of the project; `below` begins with a slash. The project's folder is compiled into
/// paths.cc alone, so that the compiler cache serves other clones.
[[nodiscard]] std::string source_path(const std::string& below);

}  // namespace chimera::testing

#pragma once

#include <string>

namespace chimera {

/// Writes half a million random lowercase letters and spaces, identical in every call.
void write_random_letters(const std::string& path);

}  // namespace chimera

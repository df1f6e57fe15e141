#pragma once
// A text to train on where any will do.

#include <string>

namespace chimera {

/// Writes half a million random small letters and spaces, the same at each call.
void write_random_letters(const std::string& path);

}  // namespace chimera

#pragma once

// The text on which `chimera plan --run` trains if it gets no --data. Its runs only measure step times.

#include <string>

namespace chimera {

/// Writes a file of 500,000 random lowercase letters and spaces, identical in every call. Throws ConfigError if it
/// cannot write.
void write_random_letters(const std::string& path);

}  // namespace chimera

#pragma once
// Text to train on where what it says makes no difference.

#include <string>

namespace chimera::benchmarks {

/// Half a megabyte of random words, the same at each call.
void write_random_text(const std::string& path);

}  // namespace chimera::benchmarks

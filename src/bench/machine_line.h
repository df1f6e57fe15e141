#pragma once
// What a figure means nothing without: when and where it was measured.

#include <string>

namespace chimera {

/// `2026-01-31 12:00 UTC, AMD EPYC, 2 cores, load 0.12, LibTorch 2.11.0, release build`: one line, to be printed above
/// every table. `library`: what else the figures depend on, with its version.
[[nodiscard]] std::string machine_line(const std::string& library = {});

/// Processes that wanted to run, averaged over the last minute.
[[nodiscard]] std::string load();

}  // namespace chimera

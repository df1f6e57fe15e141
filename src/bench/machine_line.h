#pragma once

#include <string>

namespace chimera {

/// Returns a line to print above tables: `2026-01-31 12:00 UTC, AMD EPYC, 2 cores, load 0.12, LibTorch 2.11.0, release
/// build`. `library`: a dependency with its version.
[[nodiscard]] std::string machine_line(const std::string& library = {});

/// Returns the runnable processes, averaged over the last minute.
[[nodiscard]] std::string load();

}  // namespace chimera

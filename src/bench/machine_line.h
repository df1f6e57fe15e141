#pragma once

#include <string>

namespace chimera {

/// Returns a line to print above tables: `2026-01-31 12:00 UTC, AMD EPYC, 2 cores, load 0.12, LibTorch 2.11.0, release
/// build`. `library` is the name and version of a dependency; empty: none.
[[nodiscard]] std::string machine_line(const std::string& library = {});

/// Returns the load average of the last minute, such as `0.12`, or `unknown`.
[[nodiscard]] std::string load();

}  // namespace chimera

#pragma once

// Describes the machine, its load and the build in one line, so that a reader of measurements can see how they were
// made. `chimera bench` prints the line with its results, and `chimera profile` writes it into the profile.

#include <string>

namespace chimera {

/// Returns, for example, `2026-01-31 12:00 UTC, AMD EPYC, 2 cores, load 0.12, LibTorch 2.11.0, release build`.
/// `library` is the name and version of a dependency; empty: none.
[[nodiscard]] std::string machine_line(const std::string& library = {});

/// Returns the load average of the last minute, such as `0.12`, or `unknown`.
[[nodiscard]] std::string load_average();

}  // namespace chimera

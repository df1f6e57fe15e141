#pragma once
// What this process takes of the machine's memory.

namespace chimera {

/// Largest resident set of this process so far, in bytes.
[[nodiscard]] double peak_resident_bytes();

}  // namespace chimera

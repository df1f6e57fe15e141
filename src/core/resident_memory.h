#pragma once
// The memory that the operating system counts for this process.

namespace chimera {

/// Makes malloc keep freed memory instead of returning it to the operating system. Each training step allocates the
/// same buffers again, and mapping new pages is slow. Must be called before threads start.
void keep_freed_memory();

/// Returns the largest resident set size of this process so far.
[[nodiscard]] double peak_resident_bytes();

}  // namespace chimera

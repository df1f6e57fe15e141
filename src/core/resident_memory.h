#pragma once
// Memory of this process as the operating system counts it. Training ranks call keep_freed_memory() at their start, and
// report peak_resident_bytes() in their metrics.

namespace chimera {

/// Makes malloc keep freed memory instead of returning it to the operating system. Each training step allocates the
/// same buffers again, and mapping new pages is slow. Must be called before threads start.
void keep_freed_memory();

/// Returns the largest resident set size of this process so far, in bytes.
[[nodiscard]] double peak_resident_bytes();

}  // namespace chimera

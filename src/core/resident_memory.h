#pragma once
// The memory of this process as the operating system counts it.

namespace chimera {

/// Makes the C library keep freed memory, because each training step allocates the same again and mapping fresh pages
/// is slow. Must be called before threads start.
void keep_freed_memory();

/// Returns the largest resident set of this process so far.
[[nodiscard]] double peak_resident_bytes();

}  // namespace chimera

#pragma once

// What becomes of memory that a training step frees.

// What this process takes of the machine's memory.

namespace chimera {

/// From now on the C library keeps freed memory for the process instead of returning it to the kernel: every step
/// allocates the same again, and pages that come back have to be cleared and mapped first. To be called once, before
/// threads start; does nothing without glibc.
void keep_freed_memory();

/// Largest resident set of this process so far, in bytes.
[[nodiscard]] double peak_resident_bytes();

}  // namespace chimera

#pragma once
// What becomes of memory that a training step frees.

namespace chimera {

/// From now on the C library keeps freed memory for the process instead of returning it to the kernel: every step
/// allocates the same again, and pages that come back have to be cleared and mapped first. To be called once, before
/// threads start; does nothing without glibc.
void keep_freed_memory();

}  // namespace chimera

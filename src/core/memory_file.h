#pragma once
// Files without a name, for memory that several processes share.

#include <cstddef>
#include <string>

#include "core/file_descriptor.h"

namespace chimera {

/// A new file of `bytes` zeros that has no name and goes with the last process that has it open or maps it. Others open
/// it as /proc/PID/fd/N. It lies in memory (memfd_create). Where the system refuses that, as filters of system calls
/// do, it is a nameless file in /dev/shm or else in $TMPDIR (/tmp), where room for it is taken at once, so that no
/// write to its mapping can fail later.
/// `name` is what /proc/PID/maps shows. Throws Error("cannot make shared memory of N bytes: ...") where all are
/// refused.
[[nodiscard]] FileDescriptor make_memory_file(const char* name, std::size_t bytes);

}  // namespace chimera

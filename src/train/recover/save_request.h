#pragma once
// Asking the run in this process for a checkpoint that it would not save yet.

#include <cstdint>

namespace chimera {

/// A checkpoint is saved after the step under way, or as soon as the one that is being saved has been. It is enough
/// that one rank is asked. May be called by a signal handler.
void request_save() noexcept;

/// How often that was called.
[[nodiscard]] std::uint64_t save_requests() noexcept;

}  // namespace chimera

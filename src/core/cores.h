#pragma once
// The processor as this process may use it.

namespace chimera {

/// Cores that this process may run on, at least 1.
[[nodiscard]] int available_cores();

}  // namespace chimera

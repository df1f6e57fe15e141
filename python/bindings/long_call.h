#pragma once
// Long calls from Python: Ctrl-C ends them, and other Python threads run in the meantime.

#include <nanobind/nanobind.h>

#include <functional>
#include <optional>
#include <string>

namespace chimera {

/// Receives reports of a long computation, from any thread.
using Report = std::function<void(const std::string&)>;

/// Returns the result of `work`, which runs on its own thread without Python and owns its data. Meanwhile the calling
/// thread releases the GIL. Twenty times a second it passes reports to `progress` and checks for signals. If either
/// raises, the call ends at once, and `work` is canceled: throw_if_interrupted() (interruption.h/interruption.h) and
/// the next report throw in it.
[[nodiscard]] std::string run_interruptibly(std::function<std::string(const Report&)> work,
                                            const std::optional<nanobind::callable>& progress);

/// Waits for canceled computations. Must run before the interpreter exits and destroys the data that they read.
void await_canceled();

}  // namespace chimera

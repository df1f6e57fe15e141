#pragma once
// Calls from Python that may take long: Ctrl-C ends them, other threads of Python run meanwhile.

#include <nanobind/nanobind.h>

#include <functional>
#include <optional>
#include <string>

namespace chimera {

/// Takes what a long computation reports now and then, from any thread.
using Report = std::function<void(const std::string&)>;

/// The result of `work`, which runs on a thread of its own and touches nothing of Python. Meanwhile the calling thread,
/// without the GIL, hands reports to `progress` and looks for signals, 20 times a second. What either raises ends the
/// call at once: `work` is told by throw_if_interrupted() (core/interruption.h) and by its next report, and what it
/// still does is of no interest. It owns what it reads.
[[nodiscard]] std::string run_interruptibly(std::function<std::string(const Report&)> work,
                                            const std::optional<nanobind::callable>& progress);

/// Waits for computations that were given up. Before the interpreter ends: what they read does not outlive it.
void await_given_up();

}  // namespace chimera

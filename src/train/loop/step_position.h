#pragma once

// The position of the training loop (trainer.h). Steps count from 1. A step is first computing, then updated (it has
// changed the weights), then closed (replicas are compared, the weights validated, metrics reported and, if due, a
// checkpoint saved; this may be repeated). After the loss of a rank, the loop continues either by computing a step, or
// by closing a step that was updated; resume() decides which.

#include <cstdint>

#include "core/invariant.h"

namespace chimera {

/// Number and phase of the current step.
class StepPosition {
 public:
  /// `first` is the number of steps that earlier runs have made, up to the checkpoint that this run resumes from.
  explicit StepPosition(std::int64_t first) { resume(first, first); }

  // begin(), note_update() and close() take a step through its phases. A call in a wrong phase is an InternalError.
  void begin(std::int64_t step) {
    require_invariant(phase_ != Phase::Updated, "a step begins, but the step before it is not closed");
    step_ = step;
    phase_ = Phase::Computing;
  }
  void note_update() {
    require_invariant(is_computing(), "a step is updated twice");
    phase_ = Phase::Updated;
  }
  void close() {
    require_invariant(phase_ == Phase::Updated, "a step is closed without an update");
    phase_ = Phase::Closed;
  }
  /// Sets the position after `done` updated steps, of which earlier runs made `first`. If this run made the last of
  /// them, the loop closes it again.
  void resume(std::int64_t first, std::int64_t done) {
    first_ = first;
    step_ = done > first ? done : first + 1;
    phase_ = done > first ? Phase::Updated : Phase::Computing;
  }

  /// Returns the number of steps that earlier runs have made.
  [[nodiscard]] std::int64_t first() const { return first_; }
  /// Returns the current step: the step that is computing or updated; when it is closed, the last step.
  [[nodiscard]] std::int64_t step() const { return step_; }
  /// Returns the number of updated steps.
  [[nodiscard]] std::int64_t done() const { return is_computing() ? step_ - 1 : step_; }
  [[nodiscard]] bool is_computing() const { return phase_ == Phase::Computing; }
  /// Returns whether all updated steps are closed.
  [[nodiscard]] bool is_closed() const { return phase_ != Phase::Updated; }

 private:
  enum class Phase : std::uint8_t { Computing, Updated, Closed };
  std::int64_t first_ = 0;
  std::int64_t step_ = 1;
  Phase phase_ = Phase::Computing;
};

}  // namespace chimera

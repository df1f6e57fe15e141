#pragma once

// The numbers of a step that all workers add in one collective, and their order in its buffer (StepReduction).

#include <ATen/core/Tensor.h>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace chimera {

/// Numbers of ranks that agree on checkpoints and on the end of a run (train/recover/checkpointer.h).
struct SaveVotes {
  double wanted = 0;     ///< Ranks that request a checkpoint
  double written = 0;    ///< Ranks that have written their part
  double failed = 0;     ///< Ranks whose save failed
  double committed = 0;  ///< 1 if rank 0 has committed
  double stop = 0;       ///< Ranks that got a stop request

  static constexpr std::size_t kNumbers = 5;
  [[nodiscard]] std::array<double, kNumbers> pack() const { return {wanted, written, failed, committed, stop}; }
  [[nodiscard]] static SaveVotes unpack(std::span<const double, kNumbers> numbers) {
    return {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
  }
};

/// Numbers that all workers sum once in a step. Each worker fills in its own; the others are 0. The packed order is the
/// order of the fields.
struct StepSums {
  std::vector<double> squares;          ///< Squared gradient norms (GradientNorms)
  std::vector<double> losses;           ///< [group][micro-batch]
  std::vector<double> peak_memory;      ///< [group][worker], bytes
  std::vector<double> used_memory;      ///< [group][worker], bytes
  std::optional<SaveVotes> votes = {};  ///< Set on all workers or on none
  /// Ranks whose next step needs a new recording (RecordedSteps). Set on all workers or on none
  std::optional<double> recordings = {};

  [[nodiscard]] std::vector<double> pack() const;
  /// Reads numbers in the order of pack(); the sizes of the fields stay.
  void unpack(std::span<const double> numbers);
  /// Returns the squares in a packed tensor.
  [[nodiscard]] at::Tensor squares_in(const at::Tensor& packed) const;
  /// Returns number `loss` of the losses in a packed tensor, as one element.
  [[nodiscard]] at::Tensor loss_in(const at::Tensor& packed, std::size_t loss) const;
  /// Returns whether all numbers but the votes are finite.
  [[nodiscard]] bool are_finite() const;
};

}  // namespace chimera

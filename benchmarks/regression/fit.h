#pragma once
// Fits numbers of a machine profile to measured step times of known configurations.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/choices.h"
#include "plan/machine.h"
#include "regression/measured_run.h"

namespace chimera {

/// A number of the profile that a fit can change.
enum class FitScalar : std::uint8_t {
  Layers,   ///< factor on the times of all layers
  Sent,     ///< `beta` of messages
  Summed,   ///< `beta` of all-reduces
  Latency,  ///< `alpha` of messages
  Launch,   ///< `block_launch`
  Ranks,    ///< `sum_rank_loss`
  Overlap,  ///< `sums_overlap`
};
template <>
inline constexpr auto kNames<FitScalar> = std::to_array<Named<FitScalar>>({{FitScalar::Layers, "layers"},
                                                                           {FitScalar::Sent, "sent"},
                                                                           {FitScalar::Summed, "summed"},
                                                                           {FitScalar::Latency, "latency"},
                                                                           {FitScalar::Launch, "launch"},
                                                                           {FitScalar::Ranks, "ranks"},
                                                                           {FitScalar::Overlap, "overlap"}});

/// Returns the machine with another value of a scalar, of links within and between nodes alike; of Layers, a factor.
[[nodiscard]] MachineProfile with_scalar(MachineProfile machine, FitScalar scalar, double value);

struct FittedScalar {
  FitScalar scalar;
  double value = 0;
  // 5 % and 95 % quantiles of fits to resampled runs
  double low = 0;
  double high = 0;
};

/// Predicted over measured step times, minus 1.
struct FitErrors {
  std::vector<double> fitted;        // [run]: of the fit to all runs
  std::vector<double> run_left_out;  // [run]: of the fit to all other runs
  // [run]: of the fit to the runs of other figures; empty if fewer than two figures have names
  std::vector<double> figure_left_out;
};

struct MachineFit {
  MachineProfile machine;  // with the fitted values, sources and `expected_error`
  std::vector<FittedScalar> scalars;
  FitErrors errors;
};

/// Fits from the machine's own values (docs/machine_profile.md). Single runs are left out, and runs resampled, with
/// predictions that are linear in the logarithms of the scalars. Deterministic. Throws ConfigError for fewer than two
/// runs per scalar, or if a run cannot be predicted.
[[nodiscard]] MachineFit fit_machine(const MachineProfile& machine, const std::vector<MeasuredRun>& runs,
                                     const std::vector<FitScalar>& scalars);

/// Median and maximum of absolute values.
struct ErrorSummary {
  double median = 0;
  double worst = 0;
};
[[nodiscard]] ErrorSummary summarize_errors(std::vector<double> errors);

/// Returns the scalars, a summary of the errors, and a row for each run.
[[nodiscard]] std::string to_text(const MachineFit& fit, const std::vector<MeasuredRun>& runs);

}  // namespace chimera

#pragma once
// Runs side by side: what differs in their configurations, what they came to, and their curves.

#include <string>
#include <vector>

#include "render/chart.h"
#include "telemetry/run_history.h"

namespace chimera {

/// A field of which not all runs have the same value; empty where a run says nothing of it.
struct Difference {
  std::string field;
  std::vector<std::string> values;  ///< [run]
};
/// The fields that differ, in the order of the first run that has them.
[[nodiscard]] std::vector<Difference> differences_of(const std::vector<RunHistory>& runs);

/// What each run came to, beside the first one, and what differs. Throws ConfigError where a run has no step.
[[nodiscard]] std::string comparison_text(const std::vector<RunHistory>& runs);
/// The same as one JSON object (docs/live.md).
[[nodiscard]] std::string comparison_json(const std::vector<RunHistory>& runs);
/// The losses over the steps, as a picture.
[[nodiscard]] std::string comparison_svg(const std::vector<RunHistory>& runs);
/// A page with all of it: figures, differences, and curves over steps and over time.
[[nodiscard]] std::string comparison_page(const std::vector<RunHistory>& runs);

/// The losses of each run, and its validation losses, over the step or over the seconds that the steps have taken.
enum class CurveOver { Steps, Seconds };
[[nodiscard]] std::vector<Series> loss_curves(const std::vector<RunHistory>& runs, CurveOver over);
/// These as a chart.
[[nodiscard]] LineChart loss_chart(const std::vector<RunHistory>& runs, CurveOver over);
/// A curve for each run: one number of every step.
[[nodiscard]] std::vector<Series> step_curves(const std::vector<RunHistory>& runs, double StepRecord::*field);

}  // namespace chimera

#pragma once

#include <string>
#include <vector>

#include "render/chart.h"
#include "telemetry/run_history.h"

namespace chimera {

/// A configuration field that differs between runs; a value is empty if the run does not record it.
struct Difference {
  std::string field;
  std::vector<std::string> values;  ///< [run]
};
/// Returns the fields in the order of the first run that has them.
[[nodiscard]] std::vector<Difference> differences_of(const std::vector<RunHistory>& runs);

/// Returns tables of results and differences. Throws ConfigError if a run has no step.
[[nodiscard]] std::string comparison_text(const std::vector<RunHistory>& runs);
/// Returns the same as JSON (docs/live.md).
[[nodiscard]] std::string comparison_json(const std::vector<RunHistory>& runs);
/// Returns a chart of the losses over steps.
[[nodiscard]] std::string comparison_svg(const std::vector<RunHistory>& runs);
/// Returns an HTML page with results, differences, and curves over steps and time.
[[nodiscard]] std::string comparison_page(const std::vector<RunHistory>& runs);

/// X axis of training and validation losses: step, or accumulated step time.
enum class CurveOver { Steps, Seconds };
[[nodiscard]] std::vector<Series> loss_curves(const std::vector<RunHistory>& runs, CurveOver over);
[[nodiscard]] LineChart loss_chart(const std::vector<RunHistory>& runs, CurveOver over);
/// Returns a curve over steps for each run.
[[nodiscard]] std::vector<Series> step_curves(const std::vector<RunHistory>& runs, double StepRecord::*field);

}  // namespace chimera

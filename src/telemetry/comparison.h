#pragma once

// Compares training runs, for `chimera compare`: results side by side, the settings that differ, and curves of loss and
// speed. Runs are read from their metrics files (run_history.h).

#include <string>
#include <vector>

#include "render/chart.h"
#include "telemetry/run_history.h"

namespace chimera {

/// A configuration field that differs between runs.
struct Difference {
  std::string field;
  std::vector<std::string> values;  ///< [run]; empty if not recorded
};
/// Returns the fields in the order of the first run that has them.
[[nodiscard]] std::vector<Difference> differences_of(const std::vector<RunHistory>& runs);

/// Throws ConfigError if a run has no step.
[[nodiscard]] std::string comparison_text(const std::vector<RunHistory>& runs);
/// Returns JSON (docs/metrics.md).
[[nodiscard]] std::string comparison_json(const std::vector<RunHistory>& runs);
[[nodiscard]] std::string comparison_svg(const std::vector<RunHistory>& runs);
/// Returns HTML with results, differences, and curves over steps and time.
[[nodiscard]] std::string comparison_page(const std::vector<RunHistory>& runs);

/// X axis: step, or accumulated step time.
enum class CurveOver { Steps, Seconds };
[[nodiscard]] LineChart loss_chart(const std::vector<RunHistory>& runs, CurveOver over);
/// Draws tokens per second over steps.
[[nodiscard]] LineChart speed_chart(const std::vector<RunHistory>& runs);

}  // namespace chimera

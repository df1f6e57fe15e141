#pragma once

// Compares training runs, for `chimera compare`: results side by side, the settings that differ, and curves of loss and
// speed. Runs are read from the files that they wrote (run_history.h).

#include <string>
#include <vector>

#include "render/chart.h"
#include "telemetry/html_page.h"
#include "telemetry/run_history.h"

namespace chimera {

/// A configuration field that differs between runs.
struct Difference {
  std::string field;
  std::vector<std::string> values;  ///< [run]; empty if not recorded
};
/// Returns the fields that differ, in the order of the first run that has them. A field that a run lacks counts as an
/// empty value.
[[nodiscard]] std::vector<Difference> differences_of(const std::vector<RunHistory>& runs);

/// Returns a table of the results, and the differing settings. Throws ConfigError if a run has no step.
[[nodiscard]] std::string comparison_text(const std::vector<RunHistory>& runs);
/// Returns the same as JSON; docs/metrics.md lists the fields. Throws ConfigError if a run has no step.
[[nodiscard]] std::string comparison_json(const std::vector<RunHistory>& runs);
/// Returns the curves of the losses over steps as an SVG picture.
[[nodiscard]] std::string comparison_svg(const std::vector<RunHistory>& runs);
/// Returns an HTML page with results, differences, and curves over steps and time. Throws ConfigError for a run without
/// steps.
[[nodiscard]] std::string comparison_page(const std::vector<RunHistory>& runs);

/// Returns one section with a line for each time that a run changed the order of its ops (changes_of_order()), or no
/// section if no run did.
[[nodiscard]] std::vector<Section> order_sections(const std::vector<RunHistory>& runs);

/// X axis of a curve: the step, or the sum of the step times so far.
enum class CurveOver { Steps, Seconds };
/// Returns a chart of the losses of all runs, in nats.
[[nodiscard]] LineChart loss_chart(const std::vector<RunHistory>& runs, CurveOver over);
/// Returns a chart of tokens per second over steps.
[[nodiscard]] LineChart speed_chart(const std::vector<RunHistory>& runs);

}  // namespace chimera

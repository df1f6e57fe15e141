#pragma once

// Reports on training runs, which are read from the files that they wrote (run_history.h). `chimera compare` shows
// results side by side, the settings that differ, and curves of loss and speed. `chimera train --report` writes a page
// of its run: results, curves of the metrics, a table of predicted and measured values, and the timeline of a measured
// step next to a simulated one.

#include <string>
#include <vector>

#include "render/panel.h"
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

/// A row of the table of predicted and measured values, such as the step time in seconds.
struct PageForecast {
  std::string name;
  std::string unit;
  double predicted = 0;
  double measured = 0;
};

/// Content of the page.
struct RunPage {
  RunHistory run;        ///< Metrics and configuration; its name is the title of the page
  std::string subtitle;  ///< One line
  std::vector<PageForecast> forecasts;
  std::string forecast_note;     ///< A sentence about the prediction
  std::vector<Panel> timelines;  ///< One step: measured, then simulated
};

/// Returns the page as HTML. Throws ConfigError if the run has no step.
[[nodiscard]] std::string to_page(const RunPage& report);

/// X axis of a curve: the step, or the sum of the step times so far.
enum class CurveOver { Steps, Seconds };
/// A chart of a field of all runs.
struct RunChart {
  const char* title;
  const char* y_label;
  double StepMetrics::*field;
  CurveOver over = CurveOver::Steps;
  double unit = 1;  ///< Values are divided by it
};
/// Losses in nats. The y axis does not begin at 0, as other charts' does.
inline constexpr const char* kLossLabel = "loss, nats a token; dashed: validation";
inline constexpr RunChart kLossOverSteps{"Loss over steps", kLossLabel, &StepMetrics::loss};
inline constexpr RunChart kLossOverTime{"Loss over time", kLossLabel, &StepMetrics::loss, CurveOver::Seconds};
inline constexpr RunChart kTokensPerSecond{"Tokens a second", "tokens/s", &StepMetrics::tokens_per_second};
/// Returns the chart as an SVG picture: a curve for each run, and marks of the same color where ranks are lost or the
/// order changes; for losses, also where the validation loss is measured.
[[nodiscard]] std::string to_svg(const RunChart& chart, const std::vector<RunHistory>& runs);

}  // namespace chimera

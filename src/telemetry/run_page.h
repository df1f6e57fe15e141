#pragma once

// The HTML page of a run that `chimera train --report` writes: results, curves of the metrics, a table of predicted and
// measured values, and the timeline of a measured step next to a simulated one.

#include <string>
#include <vector>

#include "render/panel.h"
#include "telemetry/run_history.h"

namespace chimera {

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

}  // namespace chimera

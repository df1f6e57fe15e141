#pragma once

// The page of one run that `chimera train --report` writes: results, curves, predicted against measured figures, and a
// measured step beside the simulated one.

#include <string>
#include <vector>

#include "render/panel.h"
#include "telemetry/run_history.h"

namespace chimera {

struct PageForecast {
  std::string name;
  std::string unit;
  double predicted = 0;
  double measured = 0;
};

struct RunPage {
  RunHistory run;        ///< The name is the page's title
  std::string subtitle;  ///< One line
  std::vector<PageForecast> forecasts;
  std::string forecast_note;     ///< A sentence about the prediction
  std::vector<Panel> timelines;  ///< One step, measured and simulated
};

/// Returns the page of `chimera train --report`.
[[nodiscard]] std::string to_page(const RunPage& report);

}  // namespace chimera

#pragma once
// The page about one run: what `chimera train --report` writes at its end.

#include <string>
#include <vector>

#include "render/panel.h"
#include "telemetry/run_history.h"

namespace chimera {

/// A number that was predicted, and what it came to.
struct ReportedForecast {
  std::string name;
  std::string unit;
  double predicted = 0;
  double measured = 0;
};

struct RunReport {
  RunHistory run;                           ///< its name is the page's title
  std::string subtitle;                     ///< the run in a line
  std::vector<ReportedForecast> forecasts;  ///< predicted beside measured
  std::string forecast_note;                ///< how they were predicted, in a sentence
  std::vector<Panel> timelines;             ///< of one step: as it ran, as simulated
};

/// Figures, loss, throughput, memory, the timelines of a step, predicted beside measured, and the configuration, in one
/// file that loads nothing.
[[nodiscard]] std::string to_page(const RunReport& report);

}  // namespace chimera

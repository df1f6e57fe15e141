#pragma once

#include <string>
#include <utility>
#include <vector>

#include "render/panel.h"
#include "telemetry/run_history.h"

namespace chimera {

/// A table cell; numbers are right-aligned.
struct TableCell {
  std::string text;
  bool is_number = false;
};
/// The first column names the rows. Scrolls horizontally on a narrow page.
[[nodiscard]] std::string html_table(const std::vector<std::string>& head,
                                     const std::vector<std::vector<TableCell>>& rows);

struct Section {
  std::string heading;
  std::string body;
};

/// Returns a self-contained page. `title` and `subtitle` are plain text, bodies are markup.
[[nodiscard]] std::string html_page(const std::string& title, const std::string& subtitle,
                                    const std::vector<Section>& sections);

/// Uses columns if the page is wide enough.
[[nodiscard]] std::string side_by_side(const std::vector<std::string>& pictures);

struct ReportedForecast {
  std::string name;
  std::string unit;
  double predicted = 0;
  double measured = 0;
};

struct RunReport {
  RunHistory run;        ///< The name is the page's title
  std::string subtitle;  ///< One line
  std::vector<ReportedForecast> forecasts;
  std::string forecast_note;     ///< A sentence about the prediction
  std::vector<Panel> timelines;  ///< One step, measured and simulated
};

/// Returns the page of `chimera train --report`.
[[nodiscard]] std::string to_page(const RunReport& report);

}  // namespace chimera

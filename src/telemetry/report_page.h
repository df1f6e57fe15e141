#pragma once

#include <string>
#include <utility>
#include <vector>

#include "render/panel.h"
#include "telemetry/run_history.h"

// Pages about runs: one self-contained HTML file, for light and dark paper, for wide screens and phones.

// The page about one run: what `chimera train --report` writes at its end.

namespace chimera {

/// A table's cell: text, right-aligned where it is a number.
struct TableCell {
  std::string text;
  bool is_number = false;
};
/// A table with a head; its first column names the rows. It scrolls sideways where the page is narrow.
[[nodiscard]] std::string html_table(const std::vector<std::string>& head,
                                     const std::vector<std::vector<TableCell>>& rows);

/// A page's section: a heading, and its markup.
struct Section {
  std::string heading;
  std::string body;
};

/// The page. `title` and `subtitle` may hold any text, bodies are markup. It loads nothing.
[[nodiscard]] std::string html_page(const std::string& title, const std::string& subtitle,
                                    const std::vector<Section>& sections);

/// Pictures side by side where the page is wide enough.
[[nodiscard]] std::string side_by_side(const std::vector<std::string>& pictures);

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

#pragma once
// Bar charts of the paper's figures, drawn with the parts of render/chart.h.

#include <optional>
#include <string>
#include <vector>

#include "render/chart.h"

namespace chimera {

/// Bars in groups. A missing value is drawn as the word `absent`.
struct GroupedBars {
  struct Group {
    std::string name;
    std::vector<std::optional<double>> values;  ///< [series]
  };
  std::string title;
  std::string y_label;
  std::vector<std::string> series;
  std::vector<Group> groups;
  std::string absent = "–";
  ChartSize size = {};
};

/// Draws the chart, and labels every bar.
[[nodiscard]] std::string to_svg(const GroupedBars& chart);

}  // namespace chimera

#pragma once
// The figures of Li and Hoefler (SC'21) of which values are known, drawn anew, with the paper's values beside ours.

#include <string>

namespace chimera::apps {

/// Writes an SVG for each of figures 2 to 13 and for scaling, figures.csv (every value: the paper's, ours) and
/// index.html into the folder, which is made where it is missing. `machine` is the profile with the compute times of a
/// P100.
void write_paper_figures(const std::string& folder, const std::string& machine);

}  // namespace chimera::apps

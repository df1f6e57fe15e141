#pragma once

#include <string>

namespace chimera {

/// Writes SVGs of Li and Hoefler's (SC'21) figures 2 to 13 and of scaling, figures.csv (paper's values and ours) and
/// index.html into a new folder. `machine` is a profile with the compute times of a P100.
void write_paper_figures(const std::string& folder, const std::string& machine);

}  // namespace chimera

// The paper's tables of step times and memory: its measurements and our predictions.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <string>

#include "paper/paper_figures.h"
#include "paper/paper_tables.h"

namespace chimera {
namespace {

double per_cent(double value, double reference) { return 100 * (value / reference - 1); }

void print_step_times(const MachineProfile& machine) {
  fmt::print("BERT-48, 32 nodes, mini-batch 512: sequences a second (figure 13), {} without fitting\n", machine.name);
  fmt::print("{:<10} {:>9} {:>20} {:>20} {:>20}\n", "W D B", "measured", "paper's model", "equation 1", "simulator");
  const std::vector<Prediction> predictions = predict_figure_13(machine);
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    const ThroughputRow& row = figure_13()[i];
    const auto cell = [&](double value) {
      return fmt::format("{:.1f} ({:+.1f} %)", value, per_cent(value, row.measured));
    };
    const Prediction& ours = predictions[i];
    const double by_equation = ours.sequences_per_second * ours.step_seconds / ours.paper->seconds;
    fmt::print("{:<10} {:>9.1f} {:>20} {:>20} {:>20}\n",
               fmt::format("{} {} {}", row.data_parallel, row.stages, row.micro_batch_size), row.measured,
               cell(row.paper_model), cell(by_equation), cell(ours.sequences_per_second));
  }
}

void print_memory(const MachineProfile& machine, double score_bytes) {
  const MemoryFit fit = fit_figure_9(machine, score_bytes);
  fmt::print("\nGB on a worker, most / least, predicted (error), 32 nodes, mini-batch 512 (figure 9)\n");
  fmt::print(
      "fitted on Chimera's three maxima of BERT-48: {:.2f} bytes a parameter, base {:.3f} GB, activations {:.3f} "
      "times ours; {:g} bytes a head and pair of tokens assumed\n",
      fit.bytes_per_parameter, fit.base / 1e9, fit.activation_scale, score_bytes);
  for (const MemoryRow& row : figure_9()) {
    fmt::print("{} W{} D{} B{}\n", row.model, row.data_parallel, row.stages, row.micro_batch_size);
    for (const auto& [schedule, cell] : row.cells) {
      const MemoryRange ours = predict_memory(machine, row, schedule, fit, score_bytes);
      if (cell) {
        fmt::print("  {:<14} measured {:>5.2f} / {:>5.2f}  predicted {:>6.2f} ({:+5.1f} %) / {:>5.2f} ({:+5.1f} %)\n",
                   schedule, cell->most, cell->least, ours.most, per_cent(ours.most, cell->most), ours.least,
                   per_cent(ours.least, cell->least));
      } else {
        const bool undecided = std::abs(ours.most / kCapacity - 1) <= 0.1;
        fmt::print("  {:<14} out of memory           predicted {:>6.2f}: {}\n", schedule, ours.most,
                   undecided ? "undecided" : (ours.most > kCapacity ? "out of memory" : "fits"));
      }
    }
  }
}

}  // namespace
}  // namespace chimera

int main(int argc, char** argv) {
  CLI::App app("The paper's figures 9 and 13 beside our predictions");
  std::string machine = "machines/p100-aries.json";
  std::string figures;
  double score_bytes = chimera::kScoreBytes;
  app.add_option("--machine", machine, "profile with the compute times (default machines/p100-aries.json)");
  app.add_option("--figures", figures, "write all figures into this folder instead, as pictures, a page and CSV")
      ->type_name("DIR");
  app.add_option("--score-bytes", score_bytes, "that attention keeps for a head and pair of tokens (default 13)");
  CLI11_PARSE(app, argc, argv);
  try {
    if (!figures.empty()) {
      chimera::write_paper_figures(figures, machine);
      return 0;
    }
    const chimera::MachineProfile profile = chimera::read_machine(machine);
    chimera::print_step_times(profile);
    chimera::print_memory(profile, score_bytes);
  } catch (const std::exception& error) {
    fmt::print(stderr, "paper: {}\n", error.what());
    return 2;
  }
  return 0;
}

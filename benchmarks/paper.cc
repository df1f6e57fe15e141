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
  const std::vector<std::pair<std::string, ThroughputPrediction>> models = {
      {"equation 1", predict_figure_13(machine, StepModel::EquationOne)},
      {"simulator, post", predict_figure_13(machine, StepModel::SumsAfterOps)},
      {"simulator, eager-opt", predict_figure_13(machine, StepModel::OverlappedSums)}};
  fmt::print("BERT-48, 32 nodes, mini-batch 512: sequences a second (figure 13)\n{:<10} {:>9} {:>20}", "W D B",
             "measured", "paper's model");
  for (const auto& [name, prediction] : models) fmt::print(" {:>20}", name);
  fmt::print("\n");
  for (std::size_t i = 0; i < figure_13().size(); ++i) {
    const ThroughputRow& row = figure_13()[i];
    const auto cell = [&](double value) {
      return fmt::format("{:.1f} ({:+.1f} %)", value, per_cent(value, row.measured));
    };
    fmt::print("{:<10} {:>9.1f} {:>20}", fmt::format("{} {} {}", row.data_parallel, row.stages, row.micro_batch_size),
               row.measured, cell(row.paper_model));
    for (const auto& [name, prediction] : models) fmt::print(" {:>20}", cell(prediction.sequences_per_second[i]));
    fmt::print("  {}\n", i == 0 || i == 3 ? "fitted" : "held out");
  }
  for (const auto& [name, prediction] : models)
    fmt::print("fitted, {}: {:.2f} s a GB sent, {:.3f} s a GB summed\n", name, prediction.fit.seconds_per_gigabyte_sent,
               prediction.fit.seconds_per_gigabyte_summed);
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
  chimera::Contention contention;
  app.add_option("--ops-by-sums", contention.ops_by_sums, "share that an op takes longer beside a sum (default 0)");
  app.add_option("--sums-by-ops", contention.sums_by_ops, "share that a sum takes longer beside an op (default 0)");
  app.add_option("--transfers", contention.transfers,
                 "share that messages and sums of a worker take longer for each other one (default 0)");
  CLI11_PARSE(app, argc, argv);
  try {
    if (!figures.empty()) {
      chimera::write_paper_figures(figures, machine);
      return 0;
    }
    chimera::MachineProfile profile = chimera::read_machine(machine);
    profile.contention = contention;
    chimera::print_step_times(profile);
    chimera::print_memory(profile, score_bytes);
  } catch (const std::exception& error) {
    fmt::print(stderr, "paper: {}\n", error.what());
    return 2;
  }
  return 0;
}

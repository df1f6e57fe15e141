#include "paper/paper_tables.h"

#include <Eigen/LU>

#include <algorithm>

#include "plan/worker_memory.h"

namespace chimera {
namespace {

constexpr std::int64_t kNodes = 32;
constexpr std::int64_t kMiniBatch = 512;
constexpr double kGigabyte = 1e9;

PlanProblem problem_of(const MachineProfile& machine, const std::string& model, std::int64_t sequence) {
  PlanProblem problem;
  problem.model = find_model(model);
  problem.machine = machine;
  problem.workers = kNodes;
  problem.mini_batch = kMiniBatch;
  problem.memory_bytes = kCapacity * kGigabyte;
  problem.workload.sequence = sequence;
  return problem;
}

std::optional<MemoryRange> range(double most, double least) { return MemoryRange{most, least}; }

}  // namespace

const std::vector<ThroughputRow>& figure_13() {
  static const std::vector<ThroughputRow> rows = {
      {2, 16, 16, 129.2, 142.0}, {4, 8, 16, 157.2, 163.4}, {8, 4, 8, 173.3, 169.6}, {16, 2, 4, 134.0, 123.7}};
  return rows;
}

std::vector<Prediction> predict_figure_13(const MachineProfile& machine, AllReducePlacement sync) {
  PlanProblem problem = problem_of(machine, "bert-48", 128);
  problem.sync = sync;
  Predictor predictor(problem);
  std::vector<Prediction> predictions;
  for (const ThroughputRow& row : figure_13()) {
    predictions.push_back(predictor.predict(
        {.schedule = "chimera",
         .shape = {.stages = row.stages, .micro_batches = kMiniBatch / row.data_parallel / row.micro_batch_size},
         .data_parallel = row.data_parallel,
         .micro_batch_size = row.micro_batch_size}));
  }
  return predictions;
}

const std::vector<MemoryRow>& figure_9() {
  static const std::vector<MemoryRow> rows = {{"bert-48",
                                               48,
                                               128,
                                               2,
                                               16,
                                               8,
                                               {{"chimera", range(7.89, 5.74)},
                                                {"1f1b", range(8.13, 2.95)},
                                                {"gems", range(3.32, 2.56)},
                                                {"pipedream", range(12.45, 3.40)},
                                                {"pipedream-2bw", range(8.59, 3.41)},
                                                {"gpipe", std::nullopt}}},
                                              {"bert-48",
                                               48,
                                               128,
                                               4,
                                               8,
                                               8,
                                               {{"chimera", range(9.21, 7.65)},
                                                {"1f1b", range(8.26, 4.33)},
                                                {"gems", range(4.92, 3.74)},
                                                {"pipedream", range(12.11, 5.06)},
                                                {"pipedream-2bw", range(9.53, 4.63)},
                                                {"gpipe", std::nullopt}}},
                                              {"bert-48",
                                               48,
                                               128,
                                               4,
                                               8,
                                               16,
                                               {{"chimera", range(15.70, 12.57)},
                                                {"1f1b", range(14.75, 5.98)},
                                                {"gems", range(6.35, 4.74)},
                                                {"pipedream", std::nullopt},
                                                {"pipedream-2bw", std::nullopt},
                                                {"gpipe", std::nullopt}}},
                                              {"gpt2-32",
                                               32,
                                               632,
                                               1,
                                               32,
                                               1,
                                               {{"chimera", range(7.79, 4.87)},
                                                {"1f1b", range(8.59, 1.18)},
                                                {"gems", range(3.92, 1.40)},
                                                {"pipedream", std::nullopt},
                                                {"pipedream-2bw", range(9.28, 1.35)},
                                                {"gpipe", std::nullopt}}},
                                              {"gpt2-32",
                                               32,
                                               632,
                                               2,
                                               16,
                                               1,
                                               {{"chimera", range(8.38, 5.89)},
                                                {"1f1b", range(8.79, 1.93)},
                                                {"gems", range(4.82, 2.36)},
                                                {"pipedream", std::nullopt},
                                                {"pipedream-2bw", range(10.35, 2.91)},
                                                {"gpipe", std::nullopt}}},
                                              {"gpt2-32",
                                               32,
                                               632,
                                               2,
                                               16,
                                               2,
                                               {{"chimera", range(15.23, 10.24)},
                                                {"1f1b", range(15.63, 2.93)},
                                                {"gems", range(6.23, 3.17)},
                                                {"pipedream", std::nullopt},
                                                {"pipedream-2bw", std::nullopt},
                                                {"gpipe", std::nullopt}}}};
  return rows;
}

MemoryRange predict_memory(MachineProfile machine, const MemoryRow& row, const std::string& schedule,
                           const MemoryFit& fit, double score_bytes) {
  machine.activation_scale = fit.activation_scale;
  machine.score_bytes = score_bytes;
  PlanProblem problem = problem_of(machine, row.model, row.sequence);
  Candidate candidate{
      .schedule = schedule,
      .shape = {.stages = row.stages, .micro_batches = kMiniBatch / row.data_parallel / row.micro_batch_size},
      .data_parallel = row.data_parallel,
      .micro_batch_size = row.micro_batch_size};
  Predictor predictor(problem);
  PlannedSchedule planned = predictor.prepare(candidate);
  planned.model.costs.buffers = {};
  for (std::size_t s = 0; s < planned.model.footprints.size(); ++s) {
    const auto parameters = static_cast<double>(planned.model.footprints[s].parameters);
    StageMemory& memory = planned.model.costs.memory[s];
    memory.weights = 4 * parameters;
    memory.gradients = 4 * parameters;
    memory.optimizer = (fit.bytes_per_parameter - 8) * parameters;
  }
  const auto peaks = peaks_by_order(*planned.schedule, planned.model, {});
  return {(std::ranges::max(peaks) + fit.base) / kGigabyte, (std::ranges::min(peaks) + fit.base) / kGigabyte};
}

MemoryFit fit_figure_9(MachineProfile machine, double score_bytes) {
  using Eigen::Vector3d;
  const auto most = [&](const Vector3d& x) {
    Vector3d predicted;
    for (Eigen::Index row = 0; row < 3; ++row) {
      const MemoryRow& configuration = figure_9()[static_cast<std::size_t>(row)];
      predicted[row] = predict_memory(machine, configuration, "chimera", {x[0], x[1], x[2]}, score_bytes).most;
    }
    return predicted;
  };
  Vector3d measured;
  for (Eigen::Index row = 0; row < 3; ++row)
    measured[row] = figure_9()[static_cast<std::size_t>(row)].cells.at("chimera")->most;
  Vector3d x(16, 0, 1.5);
  const Vector3d step(0.01, 1e6, 1e-3);
  for (int i = 0; i < 10; ++i) {  // Newton's method; nearly linear
    const Vector3d now = most(x);
    Eigen::Matrix3d slopes;
    for (Eigen::Index k = 0; k < 3; ++k) slopes.col(k) = (most(x + step[k] * Vector3d::Unit(k)) - now) / step[k];
    x += slopes.partialPivLu().solve(measured - now);
  }
  return {x[0], x[1], x[2]};
}

}  // namespace chimera

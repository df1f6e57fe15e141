#include "paper/paper_tables.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

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

/// Bisects a rising function; returns an end of the interval if no point inside reaches `target`.
double solve(const std::function<double(double)>& rising, double target, double low, double high) {
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (rising(middle) < target ? low : high) = middle;
  }
  return (low + high) / 2;
}

/// Scales heads to the paper's FLOPs, which score every token at once (docs/footprint.md).
MachineProfile score_every_token(MachineProfile machine) {
  for (LayerTimes& layer : machine.layers) {
    if (layer.kind != LayerKind::Head || layer.model.family != Family::Bert) continue;
    const auto width = static_cast<double>(layer.model.hidden);
    const auto vocabulary = static_cast<double>(layer.model.vocabulary);
    for (LayerTime& time : layer.times) {
      const auto sequences = static_cast<double>(time.micro_batch_size);
      const double tokens = sequences * static_cast<double>(layer.sequence);
      const double flops = 2 * tokens * width * (vocabulary + width) + 2 * sequences * width * (width + 2);
      const Workload workload{.micro_batch_size = time.micro_batch_size, .sequence = layer.sequence};
      const LayerFootprint ours = layer_footprint(layer.model, LayerKind::Head, workload);
      time.forward *= flops / ours.forward_flops;
      time.weight_gradient *= flops / ours.weight_gradient_flops;
      time.input_gradient = time.weight_gradient;
    }
  }
  return machine;
}

class Figure13 {
 public:
  Figure13(const MachineProfile& machine, StepModel model)
      : predictor_(problem_of(score_every_token(machine), "bert-48", 128)), model_(model) {
    for (const ThroughputRow& row : figure_13()) {
      candidates_.push_back(
          {.schedule = "chimera",
           .shape = {.stages = row.stages, .micro_batches = kMiniBatch / row.data_parallel / row.micro_batch_size},
           .data_parallel = row.data_parallel,
           .micro_batch_size = row.micro_batch_size});
      planned_.push_back(predictor_.prepare(candidates_.back()));
      if (model == StepModel::SumsAfterOps) planned_.back().model.costs.all_reduce_placement = AllReducePlacement::Post;
    }
  }

  ThroughputPrediction run() {
    constexpr double kSlowest = 100;
    const auto summed_for = [&](double sent) {
      return solve([&](double summed) { return seconds(3, {sent, summed}); }, measured(3), 0, kSlowest);
    };
    const double sent = solve(
        [&](double each) {
          return seconds(0, {each, summed_for(each)});
        },
        measured(0), 0, kSlowest);
    ThroughputPrediction result{{sent, summed_for(sent)}, {}};
    for (std::size_t row = 0; row < planned_.size(); ++row)
      result.sequences_per_second.push_back(kMiniBatch / seconds(row, result.fit));
    return result;
  }

 private:
  static double measured(std::size_t row) { return kMiniBatch / figure_13()[row].measured; }

  double seconds(std::size_t row, const LinkFit& fit) {
    PlannedSchedule& planned = planned_[row];
    CostModel& costs = planned.model.costs;
    costs.links->alpha = 0;
    costs.links->beta = fit.seconds_per_gigabyte_sent / kGigabyte;
    const double copies = 2 * static_cast<double>(figure_13()[row].data_parallel);
    for (std::size_t s = 0; s < costs.stages.size(); ++s) {
      const double bytes = 4 * static_cast<double>(planned.model.footprints[s].parameters);
      costs.all_reduce->seconds[s] = 2 * (copies - 1) / copies * bytes * fit.seconds_per_gigabyte_summed / kGigabyte;
    }
    if (model_ != StepModel::EquationOne) return predictor_.step_seconds(planned, candidates_[row]);
    return equation_one(*planned.paper, *planned.schedule, candidates_[row].shape, costs).seconds;
  }

  Predictor predictor_;
  StepModel model_;
  std::vector<Candidate> candidates_;
  std::vector<PlannedSchedule> planned_;
};

/// Uses the paper's head, which scores every token at once (also unmasked tokens of BERT), keeps the log-probabilities
/// until backward, and has a second tensor of this size in both.
void keep_all_logits(PlannedSchedule& planned, std::size_t stage, const PlanProblem& problem,
                     const Candidate& candidate, double scale) {
  Workload workload = problem.workload;
  workload.micro_batch_size = candidate.micro_batch_size;
  const bool bert = problem.model.family == Family::Bert;
  const auto tokens = static_cast<double>(workload.micro_batch_size * workload.sequence);
  const auto width = static_cast<double>(problem.model.hidden);
  const double logits = 4 * tokens * static_cast<double>(problem.model.vocabulary);
  const double norms = 8 * tokens + 4 * tokens * width * (bert ? 3 : 1);  // BERT's transform has two more layers
  const double freed_by_ours = bert ? 4 * tokens * width : 0;             // the last block's output
  const double ours = layer_footprint(problem.model, LayerKind::Head, workload).activations - freed_by_ours;
  planned.model.costs.memory[stage].activations += scale * (norms + logits - ours);
  StageFootprint& footprint = planned.model.footprints[stage];
  const auto raise = [scale](double& bytes, double least) { bytes = std::max(bytes, scale * least); };
  raise(footprint.forward_working_set, logits);
  raise(footprint.backward_working_set, 2 * logits);
}

std::optional<MemoryRange> range(double most, double least) { return MemoryRange{most, least}; }

/// Cramer's rule.
using Row = std::array<double, 3>;
double determinant(const std::array<Row, 3>& m) {
  return m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0]) +
         m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0]);
}
Row solved(const std::array<Row, 3>& matrix, const Row& right) {
  Row result{};
  for (std::size_t column = 0; column < 3; ++column) {
    auto replaced = matrix;
    for (std::size_t row = 0; row < 3; ++row) replaced[row][column] = right[row];
    result[column] = determinant(replaced) / determinant(matrix);
  }
  return result;
}

}  // namespace

const std::vector<ThroughputRow>& figure_13() {
  static const std::vector<ThroughputRow> rows = {
      {2, 16, 16, 129.2, 142.0}, {4, 8, 16, 157.2, 163.4}, {8, 4, 8, 173.3, 169.6}, {16, 2, 4, 134.0, 123.7}};
  return rows;
}

ThroughputPrediction predict_figure_13(const MachineProfile& machine, StepModel model) {
  return Figure13(machine, model).run();
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
  keep_all_logits(planned, planned.model.footprints.size() - 1, problem, candidate, fit.activation_scale);
  const auto peaks = peaks_by_order(*planned.schedule, planned.model, {});
  return {(std::ranges::max(peaks) + fit.base) / kGigabyte, (std::ranges::min(peaks) + fit.base) / kGigabyte};
}

MemoryFit fit_figure_9(MachineProfile machine, double score_bytes) {
  const auto most = [&](std::size_t row, const Row& x) {
    return predict_memory(machine, figure_9()[row], "chimera", {x[0], x[1], x[2]}, score_bytes).most;
  };
  Row x = {16, 0, 1.5};
  const Row step = {0.01, 1e6, 1e-3};
  for (int i = 0; i < 10; ++i) {  // Newton's method; nearly linear
    std::array<Row, 3> slopes{};
    Row missing{};
    for (std::size_t row = 0; row < 3; ++row) {
      const double now = most(row, x);
      missing[row] = figure_9()[row].cells.at("chimera")->most - now;
      for (std::size_t column = 0; column < 3; ++column) {
        Row moved = x;
        moved[column] += step[column];
        slopes[row][column] = (most(row, moved) - now) / step[column];
      }
    }
    const Row change = solved(slopes, missing);
    for (std::size_t column = 0; column < 3; ++column) x[column] += change[column];
  }
  return {x[0], x[1], x[2]};
}

}  // namespace chimera

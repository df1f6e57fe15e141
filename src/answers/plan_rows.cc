#include "answers/plan_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "generate/registry.h"
#include "generate/shape_axis.h"

namespace chimera {
namespace {

constexpr double kBytesInGiB = 1 << 30;

/// The schedule with what is special about its shape.
std::string schedule_text(const Candidate& candidate) {
  const std::string text = in_words(candidate);
  return text.substr(0, text.find("  "));
}

/// W x D, or W x T x D where `split`: some candidate splits operators. `far` where copies are not side by side.
std::string workers_text(const Candidate& candidate, bool split) {
  const std::string tensor = split ? fmt::format("{} x ", candidate.tensor_parallel) : "";
  const bool near = candidate.replica_layout == ReplicaLayout::Near;
  return fmt::format("{}{} x {}{}", near ? "" : "far ", candidate.data_parallel, tensor, candidate.shape.stages);
}

std::string csv_line(std::vector<std::string> cells) {
  for (std::string& cell : cells) {
    if (cell.find(',') != std::string::npos) cell = "\"" + cell + "\"";  // a list of stages
  }
  return fmt::format("{}\n", fmt::join(cells, ","));
}

}  // namespace

std::string recomputed(const Candidate& candidate) {
  return to_text(recompute_choice(candidate.recompute, num_stages(candidate)));
}

std::string plan_rows(const std::vector<ReportedCandidate>& candidates) {
  const bool split =
      std::ranges::any_of(candidates, [](const auto& each) { return each.ranked.candidate.tensor_parallel > 1; });
  std::size_t width = 8;
  for (const auto& each : candidates) width = std::max(width, schedule_text(each.ranked.candidate).size());
  std::string text =
      fmt::format("{:>3}  {:<{}}  {:>11}  {:>9}  {:<9}  {:<9}  {:>8}  {:>8}  {:>6}  {:>6}  {:>8}{}\n", "", "schedule",
                  width, split ? "W x T x D" : "W x D", "N x b", "recompute", "partition", "s/step", "seq/s", "bubble",
                  "GiB", "equation", candidates.front().measured_seconds ? "  measured" : "");
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const auto& [candidate, prediction] = candidates[i].ranked;
    const std::string again = recomputed(candidate);
    text += fmt::format("{:>3}  {:<{}}  {:>11}  {:>9}  {:<9}  {:<9}  {:>8.4g}  {:>8.4g}  {:>6.3f}  {:>6.2f}  {:>8}",
                        i + 1, schedule_text(candidate), width, workers_text(candidate, split),
                        fmt::format("{} x {}", candidate.shape.micro_batches, candidate.micro_batch_size),
                        again.size() > 9 ? fmt::format("{} stages", candidate.recompute.size()) : again,
                        candidate.partition.rule == PartitionRule::Even ? "even" : "uneven", prediction.step_seconds,
                        prediction.sequences_per_second, prediction.bubble_ratio,
                        prediction.peak_memory_bytes / kBytesInGiB,
                        prediction.paper ? fmt::format("{:.4g}", prediction.paper->seconds) : "-");
    if (const auto& measured = candidates[i].measured_seconds)
      text += fmt::format("  {:.4g} ({:+.1f} %)", *measured, 100 * (prediction.step_seconds / *measured - 1));
    text += "\n";
  }
  return text;
}

std::string explained_rows(const std::vector<ReportedCandidate>& candidates) {
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].parts) rows.push_back(i);
  }
  if (rows.empty()) return "";
  std::string text = fmt::format("{:<22}", "");
  for (const std::size_t row : rows) text += fmt::format("  {:>17}", fmt::format("row {}", row + 1));
  text += "\n";
  for (const Named<StepPart>& part : kNames<StepPart>) {
    text += fmt::format("{:<22}", part.name);
    for (const std::size_t row : rows) {
      const double seconds = candidates[row].parts->of(part.value);
      text +=
          fmt::format("  {:>8.4g} {:>6.1f} %", seconds, 100 * seconds / candidates[row].ranked.prediction.step_seconds);
    }
    text += "\n";
  }
  text += fmt::format("{:<22}", "in all");
  for (const std::size_t row : rows)
    text += fmt::format("  {:>8.4g} {:>6.1f} %", candidates[row].ranked.prediction.step_seconds, 100.0);
  return text + "\n";
}

std::string plan_csv(const PlanReport& report) {
  std::vector<std::string> columns = {"rank",   "schedule",      "data_parallel",   "tensor_parallel",
                                      "stages", "micro_batches", "micro_batch_size"};
  for (const ShapeAxis& axis : shape_axes()) columns.emplace_back(axis.name);
  columns.insert(columns.end(), {"replica_layout", "partition", "recompute", "step_seconds", "sequences_per_second",
                                 "bubble_ratio", "peak_memory_bytes", "equation_1_seconds"});
  std::string text = csv_line(columns);
  for (std::size_t i = 0; i < report.candidates.size(); ++i) {
    const auto& [candidate, prediction] = report.candidates[i].ranked;
    const PipelineShape& shape = candidate.shape;
    std::vector<std::string> cells = {std::to_string(i + 1),
                                      candidate.schedule,
                                      std::to_string(candidate.data_parallel),
                                      std::to_string(candidate.tensor_parallel),
                                      std::to_string(shape.stages),
                                      std::to_string(shape.micro_batches),
                                      std::to_string(candidate.micro_batch_size)};
    for (const ShapeAxis& axis : shape_axes()) {
      const bool taken = find_axis(find_generator(candidate.schedule), axis.axis) != nullptr;
      cells.push_back(taken ? axis.text(shape) : "");
    }
    cells.insert(cells.end(),
                 {std::string(to_text(candidate.replica_layout)), to_text(candidate.partition), recomputed(candidate)});
    for (const double number : {prediction.step_seconds, prediction.sequences_per_second, prediction.bubble_ratio,
                                prediction.peak_memory_bytes})
      cells.push_back(fmt::format("{:.10g}", number));
    cells.push_back(prediction.paper ? fmt::format("{:.10g}", prediction.paper->seconds) : "");
    text += csv_line(cells);
  }
  return text;
}

}  // namespace chimera

// analyze_plan() runs the planner and asks the predictor further questions about its best candidates. plan_text(),
// plan_json() and plan_csv() write the result. Each function before analyze_plan() makes a few lines of the text or one
// object of the JSON; a part that does not apply to a plan is an empty text.

#include "answers/plan_answer.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "core/json.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "generate/detours.h"
#include "generate/generator.h"
#include "generate/registry.h"
#include "model_config/parameters.h"
#include "plan/device_model.h"
#include "plan/predict.h"
#include "simulate/simulate.h"

namespace chimera {
namespace {

using Json = nlohmann::ordered_json;

// Twice the memory must save at least 0.1 % of the step to be worth a line.
constexpr double kGain = 0.999;
constexpr double kWorthSaying = 0.05;  // relative difference above which models are explained

std::string recompute_text(const Candidate& candidate) { return to_text(recompute_choice(candidate)); }

/// Returns `, offload 0,1`; empty if nothing is offloaded.
std::string offload_suffix(const Candidate& candidate) {
  return candidate.offload.empty() ? "" : ", offload " + to_text(offload_choice(candidate));
}

std::string schedule_text(const Candidate& candidate) {
  // describe() begins with the schedule and its parameters; the table has columns for the rest.
  const std::string text = describe(candidate);
  return text.substr(0, text.find("  ")) + (candidate.shard_optimizer ? ", sharded" : "");
}

/// Returns W x D, or W x T x D if `split`, after `far` if copies are not adjacent.
std::string workers_text(const Candidate& candidate, bool split) {
  const std::string tensor = split ? fmt::format("{} x ", candidate.tensor_parallel) : "";
  const bool near = candidate.replica_layout == ReplicaLayout::Near;
  // Neighboring copies are the usual case and are not mentioned.
  return fmt::format("{}{} x {}{}", near ? "" : "far ", candidate.data_parallel, tensor, candidate.shape.stages);
}

std::string csv_line(std::vector<std::string> cells) {
  for (std::string& cell : cells) {
    // Quotes as in RFC 4180; no cell contains a quote itself.
    if (cell.find(',') != std::string::npos) cell = "\"" + cell + "\"";  // list of stages
  }
  return fmt::format("{}\n", fmt::join(cells, ","));
}

std::string cell_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? fmt::format("{:.10g}", value.get<double>()) : json_text(value);
}

/// Sequences of a user's own layers are samples.
double tokens_per_second(const PlanProblem& problem, const Prediction& prediction) {
  const double length = problem.layers.empty() ? static_cast<double>(problem.workload.sequence) : 1;
  return length * prediction.sequences_per_second;
}

/// Returns the part of the peak of all workers that the model's FLOPs take; 0 if the profile has no peak of the type.
double utilization(const PlanProblem& problem, const Prediction& prediction) {
  if (!problem.layers.empty()) return 0;
  const MachineProfile& machine = problem.machine;
  const std::int64_t on_node = std::min(problem.workers, machine.workers_per_node);
  double peak = 0;
  for (const Named<DataType>& type : kNames<DataType>)
    if (bytes_of(type.value) == problem.workload.compute_bytes)
      peak = matrix_peak(machine, type.value, on_node, machine.threads);
  // matrix_peak() is for the workers of one node, which may share its cores. All nodes are equal.
  peak *= static_cast<double>(problem.workers) / static_cast<double>(on_node);
  // FLOPs of a single sequence, times sequences per second.
  Workload sequence = problem.workload;
  sequence.micro_batch_size = 1;
  sequence.slices = 1;
  return peak > 0 ? model_flops(problem.model, sequence) * prediction.sequences_per_second / peak : 0;
}

std::string wrong_profile(const PlanProblem& problem) {
  return fmt::format(
      "an MFU above 100 % is impossible: in the machine profile '{}', matrix_flops is too low or the times of layers "
      "are too short; measure it again with `chimera profile`",
      problem.machine.name);
}

std::string plan_rows(const PlanProblem& problem, const std::vector<AnalyzedCandidate>& candidates) {
  const bool split =
      std::ranges::any_of(candidates, [](const auto& each) { return each.ranked.candidate.tensor_parallel > 1; });
  std::size_t width = 8;
  for (const auto& each : candidates) width = std::max(width, schedule_text(each.ranked.candidate).size());
  std::string text =
      fmt::format("{:>3}  {:<{}}  {:>11}  {:>9}  {:<9}  {:<9}  {:>8}  {:>8}  {:>6}  {:>6}  {:>6}  {:>8}{}\n", "",
                  "schedule", width, split ? "W x T x D" : "W x D", "N x b", "recompute", "partition", "s/step",
                  "tok/s", "MFU", "bubble", "GiB", "equation", candidates.front().measured_seconds ? "  measured" : "");
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const auto& [candidate, prediction] = candidates[i].ranked;
    const double utilized = utilization(problem, prediction);
    // One column for both ways to save activations, as few candidates use both.
    const std::string again = recompute_choice(candidate).rule == StageRule::None && !candidate.offload.empty()
                                  ? "offload"
                                  : recompute_text(candidate);
    text += fmt::format(
        "{:>3}  {:<{}}  {:>11}  {:>9}  {:<9}  {:<9}  {:>8.4g}  {:>8.4g}  {:>6}  {:>6.3f}  {:>6.2f}  {:>8}", i + 1,
        schedule_text(candidate), width, workers_text(candidate, split),
        fmt::format("{} x {}", candidate.shape.micro_batches, candidate.micro_batch_size),
        again.size() <= 9                  ? again
        : candidate.blocks.counts_blocks() ? "blocks"
                                           : fmt::format("{} stages", candidate.recompute.size()),
        candidate.partition.rule == PartitionRule::Even ? "even" : "uneven", prediction.step_seconds,
        tokens_per_second(problem, prediction), utilized > 0 ? fmt::format("{:.1f} %", 100 * utilized) : "-",
        prediction.bubble_ratio, prediction.peak_memory_bytes / kGiB,
        prediction.paper ? fmt::format("{:.4g}", prediction.paper->seconds) : "-");
    if (const auto& measured = candidates[i].measured_seconds)
      text += fmt::format("  {:.4g} ({:+.1f} %)", *measured, 100 * (prediction.step_seconds / *measured - 1));
    text += "\n";
  }
  const auto is_impossible = [&](const auto& each) { return utilization(problem, each.ranked.prediction) > 1; };
  return std::ranges::any_of(candidates, is_impossible) ? text + wrong_profile(problem) + "\n" : text;
}

/// Returns a column per explained candidate: seconds and percent of its step by part.
std::string explained_rows(const std::vector<AnalyzedCandidate>& candidates) {
  std::vector<std::string> names = names_of<StepPart>();
  names.emplace_back("in all");
  std::string head = fmt::format("{:<22}", "");
  auto lines = mapped(names, [](const std::string& name) { return fmt::format("{:<22}", name); });
  std::string blocks;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i].parts) continue;
    const auto& [candidate, prediction] = candidates[i].ranked;
    std::vector<double> seconds =
        mapped(kNames<StepPart>,
               [&parts = *candidates[i].parts](const Named<StepPart>& part) { return parts.of(part.value); });
    seconds.push_back(prediction.step_seconds);
    head += fmt::format("  {:>17}", fmt::format("row {}", i + 1));
    for (std::size_t p = 0; p < seconds.size(); ++p)
      lines[p] += fmt::format("  {:>8.4g} {:>6.1f} %", seconds[p], 100 * seconds[p] / prediction.step_seconds);
    const StageChoice again = recompute_choice(candidate);
    if (again.counts_blocks()) blocks += fmt::format("row {} recomputes blocks of stages: {}\n", i + 1, to_text(again));
  }
  return fmt::format("{}\n{}\n{}", head, fmt::join(lines, "\n"), blocks);
}

/// Returns which numbers of a device's model the compute time comes from, the largest part first.
std::string shares_text(const PlanProblem& problem, const Candidate& candidate) {
  const MachineProfile& machine = problem.machine;
  if (!machine.has_device() || !problem.layers.empty()) return "";
  Workload workload = problem.workload;
  // The times of kernels depend on the sizes of this candidate, not on those of the problem.
  workload.micro_batch_size = candidate.micro_batch_size;
  workload.slices = candidate.shape.slices;
  const KernelSeconds all = kernel_seconds(machine, problem.model, workload, candidate.tensor_parallel);
  std::vector<std::pair<double, std::string>> parts = {
      {all.products, fmt::format("products, at up to {:.0f} % of the peak", 100 * machine.device.products)},
      {all.attention, fmt::format("attention, at {:.0f} %", 100 * machine.attention_share())},
      {all.bytes, fmt::format("other kernels' bytes, at {:.3g} TB/s", machine.memory_bandwidth / 1e12)},
      {all.launches, "waits for the host's launches"}};
  std::ranges::sort(parts, std::greater{}, &std::pair<double, std::string>::first);
  std::string text = "compute";
  for (std::size_t i = 0; i < parts.size(); ++i) {
    text += fmt::format("{} {:.1f} % {}", i == 0 ? ":" : ",", 100 * parts[i].first / all.all(), parts[i].second);
    if (i == 0) text += " (this share dominates the prediction)";
  }
  return text + "\n";
}

std::string parts_of_a_step(const Prediction& prediction) {
  std::string text = fmt::format("  a worker's step: {:.4g} s of ops", prediction.busy_seconds);
  // Causes without idle time are left out of the line.
  for (int cause = 0; cause < kIdleCauses; ++cause) {
    const double seconds = prediction.idle_seconds[static_cast<std::size_t>(cause)];
    if (seconds > 0) text += fmt::format(", {:.4g} s {}", seconds, to_text(static_cast<IdleCause>(cause)));
  }
  return text + "\n";
}

std::string both_models(const AnalyzedCandidate& reported) {
  if (!reported.models) return "  equation 1 has no closed form for this schedule\n";
  const ModelComparison& models = *reported.models;
  // Models that agree within 5 % need no explanation.
  const double off = models.paper_seconds / models.simulated_seconds - 1;
  const EquationOne& paper = *reported.ranked.prediction.paper;
  std::string text = fmt::format(
      "  equation 1: {:.4g} s ({:+.1f} %) = ({:.4g} + {:.4g}) x {} + ({:.4g} + {:.4g}) x {} + {:.4g} of sums\n",
      models.paper_seconds, 100 * off, paper.forward, paper.point_to_point, paper.critical.forwards, paper.backward,
      paper.point_to_point, paper.critical.backwards, paper.unoverlapped);
  if (std::abs(off) <= kWorthSaying || models.causes.empty()) return text;
  text += "    the simulator adds";
  for (std::size_t i = 0; i < models.causes.size(); ++i)
    text += fmt::format("{} {:+.4g} s {}", i == 0 ? "" : ",", models.causes[i].seconds, models.causes[i].name);
  return text + "\n";
}

std::string gains_text(const PlanAnalysis& report) {
  const AnalyzedCandidate& chosen = report.candidates.front();
  const double seconds = chosen.ranked.prediction.step_seconds;
  const auto gain = [&](const char* what, double other) {
    return fmt::format("  {}: {:.4g} s ({:.2f} times as fast)", what, other, seconds / other);
  };
  std::string text = gain("a network that takes no time", chosen.gains->free_network_seconds) + "\n";
  if (recompute_choice(chosen.ranked.candidate).rule != StageRule::None)
    text += gain("memory for no recomputation", chosen.gains->without_recomputation_seconds) + "\n";
  if (report.with_more_memory) {
    const auto& [candidate, prediction] = *report.with_more_memory;
    text += gain("twice the memory", prediction.step_seconds) +
            fmt::format(": {}, recompute {}{}\n", describe(candidate), recompute_text(candidate),
                        offload_suffix(candidate));
  } else if (report.rule != PlanRule::Paper) {
    text += "  twice the memory: no gain\n";
  }
  return text;
}

/// Returns [worker of a group]: the time of a step without this worker (`--recover reroute`), divided by the time of a
/// step with all workers. Both are simulated with the plan's times of ops and its latency, without bandwidth and
/// all-reduces. 0: a stage has no other holder. Empty: the schedule is asynchronous, or has too many ops to try all
/// workers quickly.
std::vector<double> slowdowns_without_worker(const PlannedSchedule& planned, std::int64_t data_parallel) {
  constexpr std::int64_t kMaxTriedOps = 100'000;  // Of the schedules of all lost workers; takes about a second
  constexpr std::int64_t kOrders = 12;            // Attempts for each
  const Schedule& healthy = *planned.schedule;
  if (healthy.updates || num_ops(healthy) * data_parallel * std::ssize(healthy.workers) > kMaxTriedOps) return {};
  CostModel costs{.stages = planned.model.costs.stages, .latency = planned.model.costs.latency};
  costs.recompute = planned.model.costs.recompute;
  costs.slices = planned.model.costs.slices;
  const double step = simulate(in_all_groups(healthy, data_parallel), costs).makespan;
  std::vector<double> ratios;
  for (std::int64_t w = 0; w < std::ssize(healthy.workers); ++w) {
    try {
      const Detours detours = make_detours({.healthy = healthy,
                                            .groups = data_parallel,
                                            .slow = {{WorkerId(w)}},
                                            .effort = kOrders * num_ops(healthy) * data_parallel});
      ratios.push_back(simulate(detours.schedule, costs).makespan / step);
    } catch (const ConfigError&) {
      // No other worker holds the stages of this one: training cannot go on without it.
      ratios.push_back(0);
    }
  }
  return ratios;
}

std::string loss_text(const PlanAnalysis& report) {
  if (report.slowdowns.empty()) return "";
  const auto [least, most] = std::minmax_element(report.slowdowns.begin(), report.slowdowns.end());
  if (*least == 0) return "  without a worker: a stage has no other holder\n";
  return fmt::format("  without a worker (--recover reroute): {:.2f} to {:.2f} times as long\n", *least, *most);
}

/// Returns the errors of runs with the job's kernels; null: unknown.
const TestedErrors* tested_errors(const MachineProfile& machine) {
  const auto found = machine.errors.find(machine.kernels);
  return found == machine.errors.end() ? nullptr : &found->second;
}

/// Returns the least and the most seconds of a step that are expected.
std::pair<double, double> expected_range(const PlanAnalysis& report, const TestedErrors& errors) {
  const double seconds = report.candidates.front().ranked.prediction.step_seconds;
  // The errors are parts of the prediction, such as -0.1 and 0.2.
  return {(1 + errors.low) * seconds, (1 + errors.high) * seconds};
}

std::string error_text(const PlanAnalysis& report) {
  const MachineProfile& machine = report.problem.machine;
  if (const TestedErrors* errors = tested_errors(machine)) {
    const auto [least, most] = expected_range(report, *errors);
    return fmt::format(
        "expected error of a step time: {:.1f} %, and with 80 % chance row 1 takes {:.4g} to {:.4g} s ({} runs of {} "
        "kernels that fitted nothing)\n",
        100 * errors->median, least, most, errors->runs, to_text(machine.kernels));
  }
  if (machine.has_device())
    return fmt::format("expected error of a step time: unknown, as no run of {} kernels tests this profile\n",
                       to_text(machine.kernels));
  const double error = machine.expected_error;
  if (error == 0) return "expected error of a step time: unknown (build/benchmarks/fit adds it to a profile)\n";
  return fmt::format("expected error of a step time: {:.1f} %\n", 100 * error);
}

std::string tie_text(const PlanAnalysis& report) {
  if (report.plan.tied < 2) return "";
  return fmt::format("rows 1 to {} tie: they differ by less than {:.0f} %, so the one with most room is first\n",
                     report.plan.tied, 100 * kTie);
}

/// Returns why a plan without a pipeline is best; empty for others.
std::string no_pipeline_text(const PlanAnalysis& report) {
  const auto depth = [](const AnalyzedCandidate& each) { return each.ranked.candidate.shape.stages; };
  const AnalyzedCandidate& chosen = report.candidates.front();
  if (depth(chosen) > 1 || report.rule == PlanRule::Paper) return "";
  if (report.problem.workers == 1) return "no pipeline: there is one worker\n";
  const double seconds = chosen.ranked.prediction.step_seconds;
  const std::string text = fmt::format(
      "no pipeline is best here: the model fits on {}, which never wait in a bubble, and exposed sums of gradients "
      "take {:.1f} % of the step",
      chosen.ranked.candidate.tensor_parallel > 1 ? "the workers that share its layers" : "each of the workers",
      100 * (1 - chosen.gains->free_network_seconds / seconds));
  // The table may contain a pipeline further down, and the reader wants to know how far it is behind.
  const auto found = std::ranges::find_if(report.candidates, [&](const auto& each) { return depth(each) > 1; });
  if (found == report.candidates.end()) return text + fmt::format("; no row has a pipeline\n");
  return text + fmt::format("; the pipeline of row {} is {:+.1f} % in time and has {:.1f} % of bubbles\n",
                            found - report.candidates.begin() + 1,
                            100 * (found->ranked.prediction.step_seconds / seconds - 1),
                            100 * found->ranked.prediction.bubble_ratio);
}

Json idle_json(const Prediction& prediction) {
  Json idle = Json::object();
  for (int cause = 0; cause < kIdleCauses; ++cause)
    idle[json_key(to_text(static_cast<IdleCause>(cause)))] = prediction.idle_seconds[static_cast<std::size_t>(cause)];
  return idle;
}

Json equation_json(const EquationOne& equation, const std::optional<ModelComparison>& models) {
  Json json = {{"seconds", equation.seconds},
               {"forward", equation.forward},
               {"backward", equation.backward},
               {"point_to_point", equation.point_to_point},
               {"critical_forwards", equation.critical.forwards},
               {"critical_backwards", equation.critical.backwards},
               {"all_reduce", equation.all_reduce},
               {"unoverlapped", equation.unoverlapped}};
  if (!models) return json;
  json["simulator_beyond"] = mapped(models->causes, [](const DifferenceCause& cause) {
    return Json{{"cause", cause.name}, {"seconds", cause.seconds}};
  });
  return json;
}

Json parts_json(const StepParts& parts) {
  Json json = Json::object();
  for (const Named<StepPart>& part : kNames<StepPart>) json[json_key(std::string(part.name))] = parts.of(part.value);
  return json;
}

Json candidate_json(const PlanProblem& problem, const AnalyzedCandidate& reported) {
  const auto& [candidate, prediction] = reported.ranked;
  Json json = {{"schedule", candidate.schedule},
               {"data_parallel", candidate.data_parallel},
               {"tensor_parallel", candidate.tensor_parallel},
               {"replica_layout", to_text(candidate.replica_layout)},
               {"stages", candidate.shape.stages},
               {"micro_batch_size", candidate.micro_batch_size},
               {"micro_batches", candidate.shape.micro_batches}};
  for (const ShapeAxis& axis : shape_axes()) {
    // Only plans with slices have this field.
    if (axis.axis == Axis::Slices && candidate.shape.slices == 1) continue;
    json[std::string(axis.name)] = axis_json(axis, axis.get(candidate.shape));
  }
  json.update({{"partition", to_text(candidate.partition)},
               {"recompute", recompute_text(candidate)},
               {"step_seconds", prediction.step_seconds},
               {"sequences_per_second", prediction.sequences_per_second},
               {"tokens_per_second", tokens_per_second(problem, prediction)},
               {"bubble_ratio", prediction.bubble_ratio},
               {"peak_memory_bytes", prediction.peak_memory_bytes},
               {"worker_memory_bytes", prediction.worker_bytes},
               {"fits", prediction.fits},
               {"busy_seconds", prediction.busy_seconds},
               {"idle_seconds", idle_json(prediction)}});
  if (reported.gains) {
    json.update({{"free_network_seconds", reported.gains->free_network_seconds},
                 {"without_recomputation_seconds", reported.gains->without_recomputation_seconds}});
  }
  if (const double utilized = utilization(problem, prediction); utilized > 0) {
    json["utilization"] = utilized;
    if (utilized > 1) json["warning"] = wrong_profile(problem);
  }
  if (problem.shard_optimizer || candidate.shard_optimizer) json["shard_optimizer"] = true;
  if (!candidate.offload.empty()) json["offload"] = to_text(offload_choice(candidate));
  if (prediction.paper) json["equation_1"] = equation_json(*prediction.paper, reported.models);
  if (reported.parts) json["step_parts"] = parts_json(*reported.parts);
  if (reported.measured_seconds) json["measured_step_seconds"] = *reported.measured_seconds;
  return json;
}

AnalyzedCandidate report_candidate(Predictor& predictor, const RankedCandidate& ranked) {
  AnalyzedCandidate result{.ranked = ranked, .gains = possible_gains(predictor, ranked.candidate)};
  // Equation 1 covers the schedules of the paper only.
  if (ranked.prediction.paper) result.models = compare_models(predictor, ranked.candidate);
  return result;
}

/// Explains the row (from 1) and the next row, or the first after the last.
void explain_beside_next(Predictor& predictor, std::int64_t row, PlanAnalysis& report) {
  const auto count = static_cast<std::int64_t>(report.candidates.size());
  if (row > count) reject("--explain {}: the table has {} rows; name one of them, or raise --top", row, count);
  // The next row shows what another choice would cost. After the last row comes the first.
  for (const std::int64_t index : {row - 1, row % count}) {
    AnalyzedCandidate& each = report.candidates[static_cast<std::size_t>(index)];
    each.parts = step_parts(predictor, each.ranked.candidate);
  }
}

std::optional<RankedCandidate> with_more_memory(const Predictor& predictor, PlanOptions options, double seconds) {
  options.top = 1;
  // The same search with twice the memory; its costs per candidate are known already.
  Predictor roomy = predictor.with_memory(2 * predictor.problem().memory_bytes);
  const Plan plan = make_plan(roomy, options);
  if (plan.ranked.front().prediction.step_seconds >= kGain * seconds) return std::nullopt;
  return plan.ranked.front();
}

}  // namespace

std::string machine_text(const PlanProblem& problem) {
  const MachineProfile& machine = problem.machine;
  if (problem.workers <= machine.workers_per_node) return machine.name;
  if (!problem.network.empty()) return machine.name + ", network " + problem.network;
  const double beta = machine.all_reduce.between_nodes.beta;
  if (beta == 0) return machine.name + ", a network that takes no time";
  // GPUs whose transfers do not slow each other down have network adapters of their own.
  const bool is_each = machine.cores == 0 && machine.contention.node_transfers == 0;
  return fmt::format("{}, network usable at {:.3g} Gb/s{}", machine.name, 8e-9 / beta, is_each ? " per GPU" : "");
}

nlohmann::ordered_json axis_json(const ShapeAxis& axis, std::int64_t value) {
  return axis.is_number() ? Json(value) : Json(axis.text(value));
}

PlanAnalysis analyze_plan(const PlanProblem& problem, const PlanOptions& options, PlanRule rule,
                          const PlanQuestions& questions) {
  Predictor predictor(problem);
  const bool by_paper = rule == PlanRule::Paper;
  PlanAnalysis report{.problem = problem,
                      .plan = by_paper ? plan_by_paper_rule(predictor, options.top) : make_plan(predictor, options),
                      .rule = rule};
  for (const RankedCandidate& ranked : report.plan.ranked)
    report.candidates.push_back(report_candidate(predictor, ranked));
  const Candidate& chosen = report.candidates.front().ranked.candidate;
  if (chosen.tensor_parallel == 1)  // Ranks that share layers cannot be left out
    report.slowdowns = slowdowns_without_worker(predictor.prepare(chosen), chosen.data_parallel);
  if (questions.explain > 0) explain_beside_next(predictor, questions.explain, report);
  if (questions.pareto)
    for (const RankedCandidate& ranked : plan_pareto_front(predictor, options))
      report.frontier.push_back(report_candidate(predictor, ranked));
  if (!by_paper)
    report.with_more_memory = with_more_memory(predictor, options, report.plan.ranked.front().prediction.step_seconds);
  return report;
}

std::string plan_text(const PlanAnalysis& report) {
  const PlanProblem& problem = report.problem;
  std::string text =
      fmt::format("{}: {} parameters, sequences of {}; {} ({}) of {:.4g} GiB, mini-batch {}\n", problem.model.name,
                  parameter_count(problem.model), problem.workload.sequence, counted(problem.workers, "worker"),
                  machine_text(problem), problem.memory_bytes / kGiB, problem.mini_batch);
  for (const std::string& note : report.notes) text += "  " + note + "\n";
  text += "\n" + plan_rows(problem, report.candidates);
  if (std::ranges::any_of(report.candidates, [](const auto& each) { return each.ranked.candidate.shape.stages == 1; }))
    text += "D = 1 is data parallelism without a pipeline, which is the same for every schedule\n";
  text += tie_text(report) + error_text(report);
  const AnalyzedCandidate& chosen = report.candidates.front();
  text += fmt::format("\nchosen{}: {}, recompute {}{}\n", report.rule == PlanRule::Paper ? " by the paper's rule" : "",
                      describe(chosen.ranked.candidate), recompute_text(chosen.ranked.candidate),
                      offload_suffix(chosen.ranked.candidate));
  if (const std::string why = no_pipeline_text(report); !why.empty()) text += "  " + why;
  text += parts_of_a_step(chosen.ranked.prediction) + both_models(chosen) + gains_text(report) + loss_text(report);
  if (std::ranges::any_of(report.candidates, [](const auto& each) { return each.parts.has_value(); })) {
    text += "\ntime of a worker's step, in seconds\n" + explained_rows(report.candidates) +
            shares_text(problem, chosen.ranked.candidate) + "\n";
  }
  if (!report.frontier.empty())
    text += "\ntime against memory: the fastest, then the fastest in at least 5 % less, and so on\n" +
            plan_rows(problem, report.frontier) + "\n";
  text += fmt::format("{}: {} do not fit, {} cannot be faster than the slowest above\n",
                      counted(report.plan.considered, "candidate"), report.plan.too_large, report.plan.pruned);
  for (const std::string& line : report.assumptions) text += line + "\n";
  return text;
}

std::string plan_json(const PlanAnalysis& report) {
  Json candidates = Json::array();
  for (const AnalyzedCandidate& each : report.candidates) {
    candidates.push_back(candidate_json(report.problem, each));
    // The rows that tie are the first ones.
    if (report.plan.tied > 1 && std::ssize(candidates) <= report.plan.tied) candidates.back()["tied"] = true;
  }
  Json json = {{"chosen", candidates.front()},       {"candidates", candidates},
               {"rule", to_text(report.rule)},       {"considered", report.plan.considered},
               {"too_large", report.plan.too_large}, {"pruned", report.plan.pruned}};
  if (!report.slowdowns.empty()) json["slowdowns_without_worker"] = report.slowdowns;
  json["tied"] = report.plan.tied;
  json["tie"] = kTie;
  if (report.problem.machine.has_device()) json["kernels"] = to_text(report.problem.machine.kernels);
  if (const TestedErrors* errors = tested_errors(report.problem.machine)) {
    const auto [least, most] = expected_range(report, *errors);
    json["expected_error"] = errors->median;
    json["expected_seconds"] = {least, most};
  } else if (const double error = report.problem.machine.expected_error; error > 0) {
    json["expected_error"] = error;
  }
  for (const AnalyzedCandidate& each : report.frontier) json["pareto"].push_back(candidate_json(report.problem, each));
  if (report.with_more_memory)
    json["with_twice_the_memory"] = candidate_json(report.problem, {.ranked = *report.with_more_memory});
  return json_report(json);
}

std::string plan_csv(const PlanAnalysis& report) {
  std::vector<std::string> columns = {"rank",   "schedule",      "data_parallel",   "tensor_parallel",
                                      "stages", "micro_batches", "micro_batch_size"};
  for (const ShapeAxis& axis : shape_axes()) columns.emplace_back(axis.name);
  columns.insert(columns.end(), {"replica_layout", "partition", "recompute", "offload", "step_seconds",
                                 "sequences_per_second", "bubble_ratio", "peak_memory_bytes", "equation_1_seconds"});
  const auto none = [&](const auto& has) {
    return std::ranges::none_of(report.candidates, [&](const auto& each) { return has(each.ranked.candidate); });
  };
  if (none([](const Candidate& each) { return each.shape.slices > 1; })) std::erase(columns, "slices");
  if (none([](const Candidate& each) { return !each.offload.empty(); })) std::erase(columns, "offload");
  std::string text = csv_line(columns);
  for (std::size_t i = 0; i < report.candidates.size(); ++i) {
    const auto& [candidate, prediction] = report.candidates[i].ranked;
    Json json = candidate_json(report.problem, report.candidates[i]);
    json["rank"] = i + 1;
    json["offload"] = to_text(offload_choice(candidate));
    if (prediction.paper) json["equation_1_seconds"] = prediction.paper->seconds;
    for (const ShapeAxis& axis : shape_axes()) {
      // A parameter that the schedule does not have gets an empty cell, not its default.
      const bool taken = find_axis(find_generator(candidate.schedule), axis.axis) != nullptr;
      json[std::string(axis.name)] = taken ? axis_json(axis, axis.get(candidate.shape)) : Json("");
    }
    text += csv_line(mapped(
        columns, [&](const auto& column) { return json.contains(column) ? cell_of(json[column]) : std::string(); }));
  }
  return text;
}

}  // namespace chimera

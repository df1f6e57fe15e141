// The costs of a simulation from the steps of a trace (trace.h).

#include <algorithm>
#include <functional>
#include <numeric>

#include "traces/trace.h"

namespace chimera {
namespace {

/// Returns the mean over three fifths of the steps, around the median. One step has too few ops and messages for a
/// mean: the system delays some by many times their own time.
double over_usual_steps(const Trace& trace, const std::function<double(const TraceStep&)>& of) {
  const auto order = trace.steps_by_seconds();
  const std::size_t outer = std::min((order.size() + 4) / 5, (order.size() - 1) / 2);
  std::vector<double> values;
  for (std::size_t i = outer; i < order.size() - outer; ++i) values.push_back(of(trace.steps[order[i]]));
  return mean(values);
}

}  // namespace

double mean(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

std::vector<std::size_t> Trace::steps_by_seconds() const {
  std::vector<std::size_t> order(steps.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::size_t k) { return steps[k].seconds; });
  return order;
}

std::array<double, kOpKinds> trace_host_seconds(const Trace& trace) {
  std::array<double, kOpKinds> host{};
  for (std::size_t kind = 0; kind < kOpKinds; ++kind)
    host[kind] = over_usual_steps(trace, [&](const TraceStep& step) { return step.costs.host[kind]; });
  auto& [forward, whole, input, weight] = host;
  // A trace has whole backwards or split ones. Each half of a split one has launches of its own, so the host takes
  // the same time for each as for a whole.
  if (input == 0) input = weight = whole;
  if (whole == 0) whole = input;
  return host;
}

CostModel trace_costs(const Trace& trace) {
  const Schedule& schedule = trace.schedule;
  const auto stages = static_cast<std::size_t>(schedule.stages);
  const auto host = trace_host_seconds(trace);
  CostModel costs;
  costs.stages.resize(stages);
  costs.steps_overlap = trace.steps_overlap;
  costs.latency = over_usual_steps(trace, [](const TraceStep& step) { return step.costs.latency; });
  std::vector<double> copies;  // Of boundaries between workers; they are part of the ops beside them
  for (std::size_t b = 0; b + 1 < stages; ++b)
    copies.push_back(over_usual_steps(trace, [&](const TraceStep& step) { return step.costs.copies[b]; }));
  for (std::size_t s = 0; s < stages; ++s) {
    // The simulator adds the start of each message to its op (LinkCosts::copies), and the measured op has it already.
    // Weight gradients send nothing.
    const double starts = (s > 0 ? copies[s - 1] : 0) + (s + 1 < stages ? copies[s] : 0);
    std::array<double, kOpKinds> seconds{};
    for (std::size_t kind = 0; kind < kOpKinds; ++kind) {
      const double whole = over_usual_steps(trace, [&](const TraceStep& step) { return step.costs.ops[s][kind]; });
      seconds[kind] = std::max(0.0, whole - (kind == static_cast<std::size_t>(OpKind::BackwardWeight) ? 0 : starts));
    }
    const auto [forward, whole, input, weight] = seconds;
    StageCosts& stage = costs.stages[s];
    // A whole backward launches once, where two halves launch twice.
    const double both = std::max(0.0, input + weight - host[static_cast<std::size_t>(OpKind::BackwardWeight)]);
    stage = {forward, whole > 0 ? whole : both, input, weight};
    // From here on, the trace has whole backwards alone, and its halves are estimated for schedules that split them.
    if (whole == 0 || weight > 0) continue;
    const double share = trace.weight_share.value_or(0.5);
    // Each half takes the host's time of a whole. torch's first stage needs no gradient of its input.
    const double own = trace.weight_share ? std::min(whole, host[static_cast<std::size_t>(OpKind::Backward)]) : 0;
    const bool is_first = trace.weight_share && s == 0;
    stage.input_gradient = is_first ? 0 : own + (whole - own) * (1 - share);
    // In torch, the weight gradients of a stage are a backward of their own for each weight.
    const double launches = over_usual_steps(trace, [&](const TraceStep& step) { return step.costs.launches[s]; });
    stage.weight_gradient = is_first ? whole : own + (whole - own) * share + launches;
  }
  if (const auto sent = std::ranges::count_if(copies, [](double copy) { return copy > 0; }); sent > 0) {
    const double usual = mean(copies) * static_cast<double>(copies.size()) / static_cast<double>(sent);
    std::ranges::replace(copies, 0.0, usual);  // Between stages of one worker; other schedules may send there
    costs.links = LinkCosts{.bytes = std::vector<double>(stages - 1, 0), .copies = std::move(copies)};
  }
  const auto groups = stage_groups(schedule.placement);
  // What a worker does between two steps is divided evenly over its stages.
  std::vector<double> held(schedule.workers.size(), 0);
  for (const auto& group : groups)
    for (const WorkerId worker : group) ++held[worker.index()];
  for (const auto& group : groups) {
    double update = 0;
    for (const WorkerId worker : group) {
      std::vector<double> own;
      for (const TraceStep& step : trace.steps) own.push_back(step.costs.between[worker.index()]);
      // Unknown for the last step of a trace, which has no step after it.
      std::erase_if(own, [](double seconds) { return seconds < 0; });
      update += median(own) / held[worker.index()] / static_cast<double>(group.size());
    }
    costs.optimizer.push_back(update);
  }
  if (trace.data_parallel > 1 && std::ranges::any_of(trace.sums, [](const auto& sums) { return !sums.empty(); })) {
    costs.all_reduce.emplace();
    costs.all_reduce->data_parallel = trace.data_parallel;
    for (const auto& sums : trace.sums) costs.all_reduce->seconds.push_back(median(sums));
  }
  return costs;
}

}  // namespace chimera

// CostRequest::costs_of() leads from a request to a CostModel: the costs of the file or of the single times, then
// lengths of slices, links, and last what --costs files do not contain (groups, launch of all-reduces, blocking sends).
// Fields that contradict each other are refused here and not by the simulator, because only here their flags are known.

#include "answers/cost_request.h"

#include <algorithm>

#include "core/reject.h"
#include "passes/pair_neighbors.h"
#include "simulate/costs_json.h"

namespace chimera {
namespace {

struct TimeField {
  const char* name;
  std::optional<double> CostRequest::*time;
  const char* meaning;
};
constexpr auto kTimes = std::to_array<TimeField>(
    {{"forward", &CostRequest::forward, "forward time of a worker, all its stages together (default 1)"},
     {"backward", &CostRequest::backward, "backward time of a worker (default 2)"},
     {"input_gradient", &CostRequest::input_gradient,
      "input-gradient time of a worker, for split backwards; needs --weight-gradient"},
     {"weight_gradient", &CostRequest::weight_gradient, "weight-gradient time of a worker; needs --input-gradient"},
     {"latency", &CostRequest::latency, "delay of a message between two workers (default 0)"},
     {"attention", &CostRequest::attention,
      "attention's part of an op's time on a whole micro-batch, 0 to 1; it grows along the slices (default 0)"}});

std::string flag_of(const TimeField& field) { return Field{field.name}.flag_name(); }

/// Throws ConfigError unless there are as many factors as the schedule, or a group of it, needs.
void require_count(const std::vector<double>& factors, const Schedule& schedule, std::int64_t count, const char* what) {
  const std::int64_t given = std::ssize(factors);
  // A file may have the factors of one group, which hold for all groups.
  if (given == 0 || given == count || given * schedule.groups == count) return;
  reject("--costs: {} has {} entries; expected {}", what, given, count / schedule.groups);
}

/// Throws ConfigError for costs that a file gives, too.
void require_no_costs(const CostRequest& costs) {
  const auto refuse = [](bool is_given, const std::string& flag) {
    if (is_given) reject("{}: --costs gives it already; give one of the two", flag);
  };
  for (const TimeField& field : kTimes) refuse((costs.*field.time).has_value(), flag_of(field));
  refuse(!costs.stage_factors.empty(), "--stage-factors");
  refuse(costs.all_reduce > 0, "--all-reduce");
  refuse(costs.weights > 0, "--weights");
  refuse(costs.activations > 0, "--activations");
}

/// Returns the bounds of slices of these lengths as fractions of the sequence: 0, then the end of each slice, up to 1.
std::vector<double> bounds_of(std::vector<double> lengths, std::int64_t slices) {
  // `balanced`: without bounds, the simulator computes slices that take equal times.
  if (lengths.empty()) return {};
  // One length stands for equal slices of any number.
  if (lengths.size() == 1) lengths.assign(static_cast<std::size_t>(slices), 1);
  if (std::ssize(lengths) != slices)
    reject("--slice-lengths: {0} lengths for {1} slices; give --slices {0}", lengths.size(), slices);
  std::vector<double> bounds = {0};
  for (const double length : lengths) bounds.push_back(bounds.back() + length);
  const double sum = bounds.back();
  for (double& bound : bounds) bound /= sum;
  return bounds;
}

}  // namespace

void CostRequest::visit(Door& door, FieldValues counts) {
  const bool takes_lists = counts == FieldValues::Lists;
  door.group("Costs");
  door.object("costs", [&](Door& costs) {
    for (const TimeField& field : kTimes)
      costs.text({field.name, field.meaning, takes_lists ? "X|LIST" : "X"},
                 [this, &field, takes_lists](const std::string& text) {
                   if (!takes_lists) require_no_list(flag_of(field), text);
                   std::vector<double> values = parse_number_list(flag_of(field), text, 0);
                   // The first value stands for a list until combinations() sets each value in turn.
                   this->*field.time = values.front();
                   if (values.size() > 1) lists.push_back({field.name, field.time, std::move(values)});
                 });
    costs.text(
        {"slice_lengths", "tokens of the slices: balanced, which take equal times; equal; or a list (default balanced)",
         "balanced|equal|N,N"},
        [this](const std::string& text) { slice_lengths = parse_slice_lengths(text); });
    costs.field({"stage_factors", "factor of each stage's times, or one for all (default 1)", "X,X"}, stage_factors);
    costs.field({"all_reduce", "time of the all-reduce of a stage's gradients (default 0)"}, all_reduce);
    costs.field({"weights", "bytes of a worker's share of weights, gradients and optimizer state (default 0)"},
                weights);
    costs.field({"activations", "bytes of a micro-batch's activations on a worker's share (default 0)"}, activations);
    costs.document(
        {.name = "file",
         .meaning =
             "JSON file with costs of every stage and op, links, all-reduces and memory (docs/schedule_format.md)",
         .flag = "--costs"},
        file);
    costs.document({"links",
                    "JSON or CSV file with alpha and beta of the link between each pair of workers; replaces --latency "
                    "and the links in --costs"},
                   links);
  });
  door.field({"sync", "when a worker launches the gradient all-reduces of --costs (default eager-opt)"}, sync);
  door.field({"data_parallel", "data-parallel groups that all-reduce together (W; default 1)", "N", 1}, data_parallel);
  door.field({"blocking_sends", "a sender waits until the message has arrived"}, blocking_sends);
}

CostModel CostRequest::costs_of(const Schedule& schedule, std::int64_t steps) const {
  if (file.is_given()) require_no_costs(*this);
  CostModel costs = file.is_given() ? costs_from_json(file.text, file.source, schedule.stages) : given_costs(schedule);
  require_count(costs.workers, schedule, std::ssize(schedule.workers), "workers");
  require_count(costs.micro_batches, schedule, schedule.micro_batches / steps, "micro_batches");
  if (slice_lengths) costs.slices.bounds = bounds_of(*slice_lengths, schedule.slices);
  if (links.is_given()) {
    if (latency) reject("--latency: --links gives it already; give one of the two");
    // A cost file may hold the bytes of messages, which betas of --links need.
    if (!costs.links) costs.links.emplace();
    costs.links->matrix = links_from_text(links.text, links.source);
    if (costs.links->matrix->needs_bytes() && costs.links->bytes.empty())
      reject("--links: betas need the bytes of messages; say them in --costs FILE (links: bytes)");
  }
  if (refuses_unused && !costs.all_reduce) {
    if (sync) reject("--sync needs all-reduces: say in --costs FILE what they cost (all_reduce)");
    if (data_parallel > 1 && !shared_cores)
      reject(
          "--data-parallel changes all-reduces and shared cores alone: say in --costs FILE what all-reduces cost, or "
          "leave it out");
  }
  if (costs.all_reduce) costs.all_reduce->data_parallel = data_parallel;
  costs.all_reduce_placement = sync.value_or(AllReducePlacement::EagerOpt);
  costs.blocking_sends = blocking_sends;
  return costs;
}

std::vector<std::string> CostRequest::unused_without_slices() const {
  std::vector<std::string> lines;
  if (attention) lines.emplace_back("--attention has no effect without --slices");
  if (slice_lengths) lines.emplace_back("--slice-lengths has no effect without --slices");
  return lines;
}

std::vector<CostRequest> CostRequest::combinations() const {
  // Each list multiplies the combinations so far, which makes the first list vary slowest.
  std::vector<CostRequest> all = {*this};
  for (const TimeList& list : lists) {
    if (all.size() * list.values.size() > kMaxListed)
      reject("the lists of times name more than {} combinations; list fewer", kMaxListed);
    std::vector<CostRequest> varied;
    for (const CostRequest& each : all)
      for (const double value : list.values) varied.emplace_back(each).*list.time = value;
    all = std::move(varied);
  }
  return all;
}

CostModel CostRequest::given_costs(const Schedule& schedule) const {
  const bool split = input_gradient || weight_gradient;
  if (refuses_unused && input_gradient.has_value() != weight_gradient.has_value())
    reject("--input-gradient and --weight-gradient come together");
  if (split && backward) reject("give --backward, or --input-gradient and --weight-gradient, not both");
  // Without other times, a backward is half input gradients and half weight gradients, as in a linear layer.
  const double half = backward.value_or(2) / 2;
  const double input = input_gradient.value_or(half);
  const double weight = weight_gradient.value_or(half);
  CostModel costs =
      CostModel::uniform(schedule, {forward.value_or(1), input + weight, input, weight}, latency.value_or(0));
  if (!stage_factors.empty()) {
    const bool is_single = stage_factors.size() == 1;
    if (!is_single && stage_factors.size() != costs.stages.size())
      reject("--stage-factors: {} entries; expected {}, one for each stage", stage_factors.size(), costs.stages.size());
    for (std::size_t s = 0; s < costs.stages.size(); ++s)
      for (const auto time : kStageTimes) costs.stages[s].*time *= stage_factors[is_single ? 0 : s];
  }
  if (attention.value_or(0) > 1) reject("--attention: {} is not 0 to 1", *attention);
  costs.slices.attention = attention.value_or(0);
  if (all_reduce > 0 && !schedule.updates) {
    costs.all_reduce.emplace();
    // The simulator ignores the time of a stage that a single worker holds.
    costs.all_reduce->seconds.assign(costs.stages.size(), all_reduce);
  }
  if (weights > 0 || activations > 0) {
    const double share = stage_fraction(schedule);
    costs.memory.assign(costs.stages.size(), {.weights = weights * share, .activations = activations * share});
  }
  return costs;
}

std::vector<double> parse_slice_lengths(const std::string& text) {
  if (text == "balanced") return {};
  if (text == "equal") return {1};
  // What does not begin with a digit was meant as one of the two words.
  if (text.find_first_of("0123456789") != 0)
    reject("--slice-lengths: '{}' is not balanced, equal or a list such as 512,256,256", text);
  const std::vector<double> lengths = parse_number_list("--slice-lengths", text, 0);
  if (std::ranges::any_of(lengths, [](double length) { return length == 0; }))
    reject("--slice-lengths: '{}' has a slice without tokens", text);
  return lengths;
}

void PairRequest::visit(Door& door) {
  door.field({"pairs",
              "which pairs of ops may overlap: those of the schedule; each forward with the next backward of another "
              "micro-batch; or none (default own)"},
             choice);
}

void PairRequest::visit_time(Door& door) {
  door.field({"pair_time",
              "time of an overlapped pair relative to the sum of its two ops; at least the longer op (default 1)"},
             time);
}

Schedule PairRequest::apply_to(Schedule schedule) const {
  if (choice == PairChoice::Own) return schedule;
  if (choice == PairChoice::None) return without_pairs(std::move(schedule));
  if (schedule.slices > 1)
    reject("--pairs neighbors: {} has slices, which run one after the other; leave out --pairs or --slices",
           schedule.name);
  return pair_neighbors(std::move(schedule));
}

CostModel PairRequest::with_time(CostModel costs) const {
  if (!time) return costs;
  if (costs.pair) reject("--pair-time: --costs gives it already; give one of the two");
  costs.pair = time;
  return costs;
}

void LimitRequest::visit(Door& door, const std::string& consequence) {
  door.group("Limits");
  // What happens above the limit differs: `simulate` refuses, `sweep` leaves out, `search` obeys.
  const std::string end = consequence.empty() ? "" : "; " + consequence;
  door.field({"max_in_flight",
              "maximum activations of a worker, in stage units: one full micro-batch on the whole share of a worker is "
              "one unit" +
                  end},
             max_in_flight);
  door.field({"memory", "maximum bytes of a worker; needs --activation-bytes and --weight-bytes" + end}, memory);
  door.field({"activation_bytes", "bytes of one stage unit of activations"}, activation_bytes);
  door.field({"weight_bytes",
              "bytes of the weights of one worker's share, with gradients and optimizer state if they count; each "
              "replica and each stashed version counts again"},
             weight_bytes);
}

Limits LimitRequest::limits() const {
  Limits limits{.in_flight = max_in_flight};
  if (!memory) {
    for (const auto& [value, flag] :
         {std::pair(activation_bytes, "--activation-bytes"), {weight_bytes, "--weight-bytes"}})
      if (value) reject("{} is for --memory; give that too, or leave it out", flag);
    return limits;
  }
  if (!activation_bytes || !weight_bytes) reject("--memory, --activation-bytes and --weight-bytes come together");
  limits.memory = {.bytes = *memory, .weight_bytes = *weight_bytes, .activation_bytes = *activation_bytes};
  return limits;
}

std::string LimitRequest::text() const {
  std::string text;
  if (max_in_flight) text += fmt::format("--max-in-flight {:g}", *max_in_flight);
  if (memory) text += fmt::format("{}--memory {:g}", text.empty() ? "" : ", ", *memory);
  return text;
}

}  // namespace chimera

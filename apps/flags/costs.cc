#include "flags/costs.h"
#include "simulate/costs_json.h"

#include <fmt/format.h>
#include <algorithm>
#include <span>
#include <utility>

#include "core/console.h"
#include "core/error.h"
#include "core/files.h"
#include "flags/shape.h"
#include "flags/values.h"
#include "help.h"
#include "passes/pair_neighbors.h"

namespace chimera::apps {
namespace {

/// Keeps standard input, because costs are made for several schedules or orders.
std::string read_again(const std::string& path) {
  static std::string input;
  if (path != "-") return read_whole(path);
  if (input.empty()) input = read_whole(path);
  return input;
}

}  // namespace

void CostFlags::add_to(CLI::App& app, FlagValues counts) {
  begin_group(app, heading::kCosts);
  // In the order of kTimeColumns, which names the flags and the columns of `sweep`.
  const std::array<std::pair<double CostFlags::*, const char*>, kTimeColumns.size()> described = {
      {{&CostFlags::forward, "forward time of a worker, all its stages together (default 1)"},
       {&CostFlags::backward, "backward time of a worker (default 2)"},
       {&CostFlags::input_gradient, "input-gradient time of a worker, for split backwards; needs --weight-gradient"},
       {&CostFlags::weight_gradient, "weight-gradient time of a worker; needs --input-gradient"},
       {&CostFlags::latency, "delay of a message between two workers (default 0)"},
       {&CostFlags::attention,
        "attention's part of an op's time on a whole micro-batch, 0 to 1; it grows along the slices (default 0)"}}};
  times.reserve(described.size());  // options keep pointers to the elements
  for (std::size_t t = 0; t < described.size(); ++t) {
    const auto [time, description] = described[t];
    TimeFlag& flag = times.emplace_back(TimeFlag{kTimeColumns[t], time});
    std::string name = "--" + flag.column;
    std::ranges::replace(name, '_', '-');
    const bool lists = counts == FlagValues::Lists;
    const auto take = [this, &flag, name, lists](const std::string& text) {
      if (!lists) require_no_list(name, text);
      flag.values = parse_number_list(name, text, 0);
      this->*flag.time = flag.values.front();
    };
    flag.option = add_text(app, name, take, lists ? "X|LIST" : "X", description);
  }
  slice_lengths_option = add_text(
      app, "--slice-lengths", [this](const std::string& text) { slice_lengths = parse_slice_lengths(text); },
      "balanced|equal|N,N",
      "tokens of the slices: balanced, which take equal times; equal; or a list (default balanced)");
  add_path(app, "--costs", file,
           "JSON file with costs of every stage and op, links, all-reduces and memory (docs/schedule_format.md)");
  add_path(app, "--links", links,
           "JSON or CSV file with alpha and beta of the link between each pair of workers; replaces --latency and the "
           "links in --costs");
  sync_option =
      add_choice(app, "--sync", sync, "when a worker launches the gradient all-reduces of --costs (default eager-opt)");
  add_count(app, "--data-parallel", data_parallel, "data-parallel groups that all-reduce together (W; default 1)");
  app.add_flag("--blocking-sends", blocking_sends, "a sender waits until the message has arrived");
}

CostModel CostFlags::costs_of(const Schedule& schedule) const {
  CostModel costs = file.empty() ? given_times(schedule) : read_file(schedule);
  if (slice_lengths_option->count() > 0) set_bounds(schedule, costs);
  if (!links.empty()) add_links(costs);
  if (data_parallel < 1) throw ConfigError(fmt::format("--data-parallel: {} is not 1 or more", data_parallel));
  if (sync_option->count() > 0 && !costs.all_reduce)
    throw ConfigError("--sync needs all-reduces: say in --costs FILE what they cost (all_reduce)");
  if (data_parallel > 1 && !costs.all_reduce && !shared_cores) {
    throw ConfigError(
        "--data-parallel changes all-reduces and shared cores alone: say in --costs FILE what all-reduces cost, or "
        "leave it out");
  }
  if (costs.all_reduce) costs.all_reduce->data_parallel = data_parallel;
  costs.all_reduce_placement = sync;
  costs.blocking_sends = blocking_sends;
  return costs;
}

void CostFlags::warn_without_slices(bool any) const {
  const auto report = [&](bool is_given, const char* flag) {
    if (is_given && !any) messages().write(fmt::format("chimera: {} has no effect without --slices\n", flag));
  };
  report(is_given(&CostFlags::attention), "--attention");
  report(slice_lengths_option->count() > 0, "--slice-lengths");
}

bool CostFlags::is_given(double CostFlags::*time) const {
  return std::ranges::find(times, time, &TimeFlag::time)->option->count() > 0;
}

std::vector<const TimeFlag*> CostFlags::flags_with_lists() const {
  std::vector<const TimeFlag*> lists;
  for (const TimeFlag& flag : times) {
    if (flag.values.size() > 1) lists.push_back(&flag);
  }
  return lists;
}

std::vector<CostFlags> CostFlags::combinations() const {
  // Each list multiplies the combinations so far, which makes the first list vary slowest.
  std::vector<CostFlags> all = {*this};
  for (const TimeFlag* flag : flags_with_lists()) {
    if (all.size() * flag->values.size() > kMaxListed)
      throw ConfigError(fmt::format("the lists of times name more than {} combinations; list fewer", kMaxListed));
    std::vector<CostFlags> varied;
    for (const CostFlags& each : all) {
      for (const double value : flag->values) varied.emplace_back(each).*flag->time = value;
    }
    all = std::move(varied);
  }
  return all;
}

CostModel CostFlags::given_times(const Schedule& schedule) const {
  const bool split = is_given(&CostFlags::input_gradient);
  if (split != is_given(&CostFlags::weight_gradient)) {
    throw ConfigError("--input-gradient and --weight-gradient come together");
  }
  if (split && is_given(&CostFlags::backward)) {
    throw ConfigError("give --backward, or --input-gradient and --weight-gradient, not both");
  }
  // Without other times, a backward is half input gradients and half weight gradients, as in a linear layer.
  StageCosts share{
      .forward = forward, .backward = backward, .input_gradient = backward / 2, .weight_gradient = backward / 2};
  if (split) share = {forward, input_gradient + weight_gradient, input_gradient, weight_gradient};
  CostModel costs = CostModel::uniform(schedule, share, latency);
  if (attention > 1) throw ConfigError(fmt::format("--attention: {} is not 0 to 1", attention));
  costs.slices.attention = attention;
  return costs;
}

std::vector<double> parse_slice_lengths(const std::string& text) {
  if (text == "balanced") return {};
  if (text == "equal") return {1};
  if (text.find_first_of("0123456789") != 0)
    throw ConfigError(fmt::format("--slice-lengths: '{}' is not balanced, equal or a list such as 512,256,256", text));
  const std::vector<double> lengths = parse_number_list("--slice-lengths", text, 0);
  if (std::ranges::any_of(lengths, [](double length) { return length == 0; }))
    throw ConfigError(fmt::format("--slice-lengths: '{}' has a slice without tokens", text));
  return lengths;
}

void CostFlags::set_bounds(const Schedule& schedule, CostModel& costs) const {
  auto& bounds = costs.slices.bounds;
  bounds.clear();
  if (slice_lengths.empty()) return;
  // One length stands for equal slices of any number.
  std::vector<double> lengths = slice_lengths;
  if (lengths.size() == 1) lengths.assign(static_cast<std::size_t>(schedule.slices), 1);
  if (static_cast<std::int64_t>(lengths.size()) != schedule.slices)
    throw ConfigError(fmt::format("--slice-lengths: {} lengths for {} slices; give --slices {}", lengths.size(),
                                  schedule.slices, lengths.size()));
  double sum = 0;
  for (const double length : lengths) sum += length;
  // Bounds are shares of the sequence: 0, then the end of each slice, up to 1.
  double before = 0;
  for (const double length : lengths) {
    bounds.push_back(before / sum);
    before += length;
  }
  bounds.push_back(1);
}

CostModel CostFlags::read_file(const Schedule& schedule) const {
  for (const TimeFlag& flag : times) {
    if (flag.option->count() > 0)
      throw ConfigError(flag.option->get_name() + ": --costs gives it already; give one of the two");
  }
  return costs_from_json(read_again(file), file, schedule.stages);
}

void CostFlags::add_links(CostModel& costs) const {
  if (is_given(&CostFlags::latency)) throw ConfigError("--latency: --links gives it already; give one of the two");
  // A cost file may hold the bytes of messages, which betas of --links need.
  if (!costs.links) costs.links.emplace();
  costs.links->matrix = links_from_text(read_again(links), links);
  if (costs.links->matrix->needs_bytes() && costs.links->bytes.empty())
    throw ConfigError("--links: betas need the bytes of messages; say them in --costs FILE (links: bytes)");
}

void PairFlags::add_to(CLI::App& app) {
  add_choice(app, "--pairs", choice,
             "which pairs of ops may overlap: those of the schedule; each forward with the next backward of another "
             "micro-batch; or none (default own)")
      ->transform([](std::string word) { return word == "neighbours" ? "neighbors" : word; });  // earlier spelling
}

void PairFlags::add_time_to(CLI::App& app) {
  time_option =
      add_number(app, "--pair-time", time,
                 "time of an overlapped pair relative to the sum of its two ops; at least the longer op (default 1)");
}

Schedule PairFlags::apply_to(Schedule schedule) const {
  switch (choice) {
    case PairChoice::Own: return schedule;
    case PairChoice::Neighbors:
      if (schedule.slices > 1) {
        throw ConfigError("--pairs neighbors: " + schedule.name +
                          " has slices, which run one after the other; leave "
                          "out --pairs or --slices");
      }
      return pair_neighbors(std::move(schedule));
    case PairChoice::None: return without_pairs(std::move(schedule));
  }
  return schedule;
}

CostModel PairFlags::with_time(CostModel costs) const {
  if (time_option == nullptr || time_option->count() == 0) return costs;
  if (costs.pair) throw ConfigError("--pair-time: --costs gives it already; give one of the two");
  costs.pair = time;
  return costs;
}

void PairFlags::warn_without_pairs(bool any) const {
  if (any || time_option == nullptr || time_option->count() == 0) return;
  messages().write("chimera: --pair-time has no effect: no schedule has pairs; --pairs neighbors makes them\n");
}

void LimitFlags::add_to(CLI::App& app, const std::string& consequence) {
  app_ = &app;
  begin_group(app, heading::kLimits);
  const std::string end = consequence.empty() ? "" : "; " + consequence;
  add_number(app, "--max-in-flight", in_flight_,
             "maximum activations of a worker, in stage units: one full micro-batch on the whole share of a worker is "
             "one unit" +
                 end);
  add_number(app, "--memory", memory_.bytes,
             "maximum bytes of a worker; needs --activation-bytes and --weight-bytes" + end);
  add_number(app, "--activation-bytes", memory_.activation_bytes, "bytes of one stage unit of activations");
  add_number(app, "--weight-bytes", memory_.weight_bytes,
             "bytes of the weights of one worker's share, with gradients and optimizer state if they count; each "
             "replica and each stashed version counts again");
}

Limits LimitFlags::limits() const {
  Limits limits{.in_flight = in_flight()};
  require_effect(*app_, {"--activation-bytes", "--weight-bytes"}, app_->count("--memory") > 0, "--memory");
  if (app_->count("--memory") == 0) return limits;
  if (app_->count("--activation-bytes") == 0 || app_->count("--weight-bytes") == 0) {
    throw ConfigError("--memory, --activation-bytes and --weight-bytes come together");
  }
  limits.memory = memory_;
  return limits;
}

std::optional<double> LimitFlags::in_flight() const {
  return app_->count("--max-in-flight") > 0 ? std::optional(in_flight_) : std::nullopt;
}

std::optional<double> LimitFlags::memory_without_sizes() const {
  const bool has_bytes = app_->count("--activation-bytes") + app_->count("--weight-bytes") > 0;
  return app_->count("--memory") > 0 && !has_bytes ? std::optional(memory_.bytes) : std::nullopt;
}

std::string LimitFlags::text() const {
  std::string text;
  if (in_flight()) text += fmt::format("--max-in-flight {:g}", in_flight_);
  if (app_->count("--memory") > 0) text += fmt::format("{}--memory {:g}", text.empty() ? "" : ", ", memory_.bytes);
  return text;
}

MakeSchedule fastest(const ShapeFlags& shape, const PairFlags& pairs,
                     const std::function<double(const Schedule&)>& makespan) {
  return [&shape, &pairs, makespan](const Generator& generator, const PipelineShape& asked) {
    const std::vector<PipelineShape> shapes = shape.variants(generator, asked, VariedParameters::ByCosts);
    Schedule best = pairs.apply_to(generator.generate(shapes.front()));
    // Nothing to choose: `makespan` may be costly, and may fail for this schedule with a better message later.
    if (shapes.size() == 1) return best;
    double least = makespan(best);
    for (const PipelineShape& other : std::span(shapes).subspan(1)) {
      Schedule schedule = pairs.apply_to(generator.generate(other));
      const double time = makespan(schedule);
      if (time >= least) continue;
      least = time;
      best = std::move(schedule);
    }
    return best;
  };
}

}  // namespace chimera::apps

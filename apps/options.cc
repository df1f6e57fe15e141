#include "options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/cgroup.h"
#include "core/choices.h"
#include "core/console.h"
#include "core/error.h"
#include "core/files.h"
#include "help.h"
#include "simulate/costs_json.h"
#include "simulate/link_matrix.h"

namespace chimera::apps {
namespace {

/// Example: `2; 1 for dualpipe, hanayo`, with the most frequent default first.
std::string defaults_of(const ShapeAxis& axis) {
  std::vector<std::pair<std::string, std::vector<std::string>>> schedules_by_value;
  for (const Generator& generator : generators()) {
    const TakenAxis* taken = find_axis(generator, axis.axis);
    if (taken == nullptr) continue;
    const std::string value = axis.text(taken->usual);
    auto found = std::ranges::find(schedules_by_value, value, [](const auto& entry) { return entry.first; });
    if (found == schedules_by_value.end()) found = schedules_by_value.insert(found, {value, {}});
    found->second.push_back(generator.name);
  }
  std::ranges::stable_sort(schedules_by_value, std::greater<>{}, [](const auto& entry) { return entry.second.size(); });
  std::string text;
  for (const auto& [value, schedules] : schedules_by_value) {
    text += text.empty() ? value : fmt::format("; {} for {}", value, fmt::join(schedules, ", "));
  }
  return text;
}

std::string help_of(const ShapeAxis& axis) {
  return fmt::format("{}; for {} (default {})", axis.meaning, fmt::join(schedules_with(axis.axis), ", "),
                     defaults_of(axis));
}

}  // namespace

namespace {

/// Parses texts such as 4, 1e3 or 2.5e6.
std::optional<std::int64_t> whole_number(std::string_view text) {
  if (const auto value = parse_number<std::int64_t>(text)) return value;
  constexpr double kMostExact = std::int64_t{1} << 53;
  if (text.find_first_of("eE") == std::string_view::npos) return std::nullopt;
  const auto number = parse_number<double>(text);
  if (!number || !(std::abs(*number) <= kMostExact) || *number != std::floor(*number)) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

}  // namespace

std::int64_t parse_count(const std::string& flag, const std::string& text) {
  if (const auto value = whole_number(text)) return *value;
  throw ConfigError(fmt::format("{}: '{}' is not a whole number in range", flag, text));
}

CLI::Option* add_count(CLI::App& app, const std::string& flag, std::int64_t& value, const std::string& description) {
  return app
      .add_option_function<std::string>(
          flag, [&value, flag](const std::string& text) { value = parse_count(flag, text); }, description)
      ->type_name("N");
}

double parse_amount(const std::string& flag, const std::string& text, double least) {
  const auto number = parse_number<double>(text);
  if (!number || !std::isfinite(*number) || *number < least) {
    throw ConfigError(fmt::format("{}: '{}' is not a number of at least {}", flag, text, least));
  }
  if (*number > kMostNumber)
    throw ConfigError(fmt::format("{}: {} is too large; give at most {:g}", flag, text, kMostNumber));
  return *number;
}

CLI::Option* add_number(CLI::App& app, const std::string& flag, double& value, const std::string& description,
                        double least) {
  return app
      .add_option_function<std::string>(
          flag, [&value, flag, least](const std::string& text) { value = parse_amount(flag, text, least); },
          description)
      ->type_name("X");
}

CLI::Option* add_path(CLI::App& app, const std::string& flag, std::string& path, const std::string& description,
                      PathKind kind) {
  const bool is_folder = kind == PathKind::Folder;
  const auto take = [&path, flag, is_folder](const std::string& text) {
    if (text.empty()) throw ConfigError(flag + ": the name of a " + (is_folder ? "folder" : "file") + " is missing");
    path = text;
  };
  return app.add_option_function<std::string>(flag, take, description)->type_name(is_folder ? "DIR" : "FILE");
}

namespace {

constexpr const char* kOneOfData =
    "give one file or folder, a mixture such as 0.5:a 0.5:b, or quote a name with blanks";

}  // namespace

CLI::Option* add_data(CLI::App& app, const std::string& flag, std::string& data, const std::string& description) {
  const auto join = [&data, flag, given = false](const std::vector<std::string>& words) mutable {
    const std::string text = fmt::format("{}", fmt::join(words, " "));
    if (text.empty()) throw ConfigError(flag + ": the name of a file is missing");
    if (given) throw ConfigError(fmt::format("{0}: is given twice, {1} and {2}; {3}", flag, data, text, kOneOfData));
    if (words.size() > 1 && words.front().find(':') == std::string::npos) {
      throw ConfigError(fmt::format("{}: {} words without weights, {}; {}", flag, words.size(), text, kOneOfData));
    }
    data = text;
    given = true;
  };
  return app.add_option_function<std::vector<std::string>>(flag, join, description)
      ->type_name("DATA")
      ->trigger_on_parse();  // so that each occurrence is seen
}

namespace {

using SameWord = std::pair<std::string_view, std::string_view>;
constexpr std::array<SameWord, 6> kSameWords = {SameWord{"bf16", "bfloat16"},  SameWord{"fp32", "float32"},
                                                SameWord{"float", "float32"},  SameWord{"fp64", "float64"},
                                                SameWord{"double", "float64"}, SameWord{"gpu", "cuda"}};

/// Throws ConfigError if the word stands for no name.
std::string name_for(const std::string& flag, const std::string& word, const std::vector<std::string>& names) {
  const auto is_name = [&](std::string_view name) { return std::ranges::find(names, name) != names.end(); };
  if (is_name(word)) return word;
  const auto same = std::ranges::find(kSameWords, std::string_view(word), &SameWord::first);
  if (same != kSameWords.end() && is_name(same->second)) return std::string(same->second);
  throw ConfigError(unknown_name(flag, word, names));
}

}  // namespace

CLI::Option* add_word(CLI::App& app, const std::string& flag, std::vector<std::string> names,
                      std::function<void(const std::string&)> take, const std::string& description) {
  const std::string listed = fmt::format("{}", fmt::join(names, "|"));
  return app
      .add_option_function<std::string>(
          flag,
          [flag, names = std::move(names), take = std::move(take)](const std::string& word) {
            take(name_for(flag, word, names));
          },
          description)
      ->type_name(listed);
}

CLI::Option* add_format(CLI::App& app, Format& format, const std::vector<Format>& formats) {
  format = formats.front();
  std::vector<std::string> names;
  for (const Format one : formats) names.push_back(to_text(one));
  return add_word(
      app, "--format", names, [&format](const std::string& word) { format = parse_named<Format>("--format", word); },
      fmt::format("output format (default {})", names.front()));
}

CLI::Option* add_format_and_output(CLI::App& app, Format& format, const std::vector<Format>& formats,
                                   std::string& output) {
  CLI::Option* given = add_format(app, format, formats);
  CLI::Option* file =
      add_path(app, "--output", output, "output file instead of standard output; its ending sets the format");
  follow_ending(*file, *given, format, formats);
  guard_outputs(app, {file});
  return given;
}

void follow_ending(CLI::Option& file, const CLI::Option& given, Format& format, const std::vector<Format>& formats) {
  file.each([&given, &format, formats](const std::string& path) {
    const std::string ending = std::filesystem::path(path).extension().string();
    for (const Format one : formats) {
      if (given.count() == 0 && ending == fmt::format(".{}", to_text(one))) format = one;
    }
  });
}

namespace {

void require_no_list(const std::string& flag, const std::string& text) {
  if (text.find(',') == std::string::npos && text.find("..") == std::string::npos) return;
  throw ConfigError(fmt::format("{}: '{}' is a list; `chimera sweep` takes lists", flag, text));
}

}  // namespace

void ShapeFlags::add_to(CLI::App& app, Counts counts) {
  begin_group(app, heading::kSchedule);
  const bool lists = counts == Counts::Lists;
  const auto add = [&](const char* flag, std::int64_t& value, std::string& list, const std::string& description) {
    const auto take = [&value, &list, flag, lists](const std::string& text) {
      list = text;
      if (!lists) require_no_list(flag, text);
      if (!is_list(text)) value = parse_count(flag, text);
    };
    return app.add_option_function<std::string>(flag, take, description)->type_name(lists ? "N|LIST" : "N");
  };
  stages = add("--stages", shape.stages, stages_list, "number of workers of one pipeline (D)");
  micro_batches = add("--micro-batches", shape.micro_batches, micro_batches_list,
                      "micro-batches per step and data-parallel group, over all directions (N)");
  axes.reserve(shape_axes().size());  // options keep pointers to the elements
  for (const ShapeAxis& axis : shape_axes()) {
    axes.push_back({axis});
    AxisFlag& flag = axes.back();
    const auto take_number = [&flag, lists](const std::string& text) {
      const std::string name = flag.axis.flag();
      if (!lists) require_no_list(name, text);
      flag.values = is_list(text) ? parse_count_list(name, text) : std::vector{parse_count(name, text)};
    };
    const std::vector<std::string> names(axis.names.begin(), axis.names.end());
    const auto take_names = [&flag, lists, names](const std::string& text) {
      if (!lists) require_no_list(flag.axis.flag(), text);
      flag.values.clear();
      for (const std::string_view part : parts_of(text)) {
        const std::string name = name_for(flag.axis.flag(), std::string(part), names);
        flag.values.push_back(std::ranges::find(names, name) - names.begin());
      }
    };
    flag.option = axis.is_number() ? app.add_option_function<std::string>(axis.flag(), take_number, help_of(axis))
                                         ->type_name(lists ? "N|LIST" : "N")
                                   : app.add_option_function<std::string>(axis.flag(), take_names, help_of(axis))
                                         ->type_name(fmt::format("{}", fmt::join(names, "|")));
  }
}

std::vector<PipelineShape> ShapeFlags::listed() const {
  if (stages_list.empty()) throw ConfigError("--stages is missing; give D, or a list such as 4,8,16");
  if (micro_batches_list.empty()) throw ConfigError("--micro-batches is missing; give N, or a list such as D,2D,4D");
  std::vector<PipelineShape> shapes;
  const auto require_few = [](std::size_t count) {
    if (count > kMostListed)
      throw ConfigError(fmt::format("the lists name more than {} shapes; list fewer", kMostListed));
  };
  for (const std::int64_t d : parse_count_list("--stages", stages_list)) {
    if (d < 1) throw ConfigError(fmt::format("--stages must be at least 1, not {}", d));
    for (const std::int64_t n : parse_count_list("--micro-batches", micro_batches_list, d)) {
      shapes.push_back({.stages = d, .micro_batches = n});
      require_few(shapes.size());
    }
  }
  for (const AxisFlag& flag : axes) {
    if (!flag.given()) continue;
    require_few(shapes.size() * flag.values.size());
    std::vector<PipelineShape> varied;
    for (const PipelineShape& each : shapes) {
      for (const std::int64_t value : flag.values) flag.axis.set(varied.emplace_back(each), value);
    }
    shapes = std::move(varied);
  }
  return shapes;
}

std::optional<PipelineShape> ShapeFlags::applicable_shape(const Generator& generator, const PipelineShape& one) const {
  PipelineShape asked = default_shape(generator, one.stages, one.micro_batches);
  for (const AxisFlag& flag : axes) {
    if (!flag.given()) continue;
    if (find_axis(generator, flag.axis.axis) != nullptr) {
      flag.axis.set(asked, flag.axis.get(one));
    } else if (flag.axis.get(one) != flag.values.front()) {
      return std::nullopt;
    }
  }
  return asked;
}

bool ShapeFlags::given() const {
  return stages->count() + micro_batches->count() > 0 || std::ranges::any_of(axes, &AxisFlag::given);
}

PipelineShape ShapeFlags::shape_for(const Generator& generator, const std::vector<std::string>& beside) const {
  for (const AxisFlag& flag : axes) {
    if (!flag.given() || find_axis(generator, flag.axis.axis) != nullptr) continue;
    const auto takers = schedules_with(flag.axis.axis);
    if (std::ranges::any_of(takers, [&](const auto& name) { return std::ranges::count(beside, name) > 0; })) continue;
    std::vector<std::string> taken;
    for (const TakenAxis& own : generator.axes) taken.push_back(shape_axis(own.axis).flag());
    throw ConfigError(fmt::format("{} does not apply to {}{}", flag.axis.flag(), generator.name,
                                  taken.empty() ? "" : fmt::format(", which takes {}", fmt::join(taken, ", "))));
  }
  return shape_of(generator, shape.stages, shape.micro_batches);
}

PipelineShape ShapeFlags::as_given(const PipelineShape& usual) const {
  PipelineShape asked = usual;
  asked.stages = shape.stages;
  asked.micro_batches = shape.micro_batches;
  for (const AxisFlag& flag : axes) {
    if (flag.given()) flag.axis.set(asked, flag.values.front());
  }
  return asked;
}

std::vector<PipelineShape> ShapeFlags::variants(const Generator& generator, const PipelineShape& asked,
                                                Tried tried) const {
  std::vector<PipelineShape> shapes = {asked};
  for (const AxisFlag& flag : axes) {
    const TakenAxis* taken = find_axis(generator, flag.axis.axis);
    if (taken == nullptr || flag.given() || (tried == Tried::ByCosts && !taken->by_costs)) continue;
    std::vector<PipelineShape> varied;
    for (const PipelineShape& each : shapes) {
      for (const std::int64_t value : taken->planned(each)) flag.axis.set(varied.emplace_back(each), value);
    }
    shapes = std::move(varied);
  }
  return shapes;
}

PipelineShape ShapeFlags::shape_beside(const Schedule& schedule, const Generator& generator) const {
  return shape_of(generator, static_cast<std::int64_t>(schedule.workers.size()),
                  std::llround(static_cast<double>(schedule.micro_batches) * schedule.micro_batch_scale));
}

PipelineShape ShapeFlags::shape_of(const Generator& generator, std::int64_t depth, std::int64_t count) const {
  PipelineShape asked = default_shape(generator, depth, count);
  for (const AxisFlag& flag : axes) {
    if (flag.given() && find_axis(generator, flag.axis.axis) != nullptr) flag.axis.set(asked, flag.values.front());
  }
  return asked;
}

Schedule as_asked(const Generator& generator, const PipelineShape& asked) { return generator.generate(asked); }

Schedule ShapeFlags::generate(const std::string& name, const std::vector<std::string>& beside,
                              const MakeSchedule& make) const {
  const Generator& generator = find_generator(name);
  if (stages->count() == 0) throw ConfigError(name + ": --stages is missing; give D, the workers of one pipeline");
  if (micro_batches->count() == 0) {
    throw ConfigError(name + ": --micro-batches is missing; give N, the micro-batches of one step");
  }
  return make(generator, shape_for(generator, beside));
}

void CostFlags::add_to(CLI::App& app, Counts counts) {
  begin_group(app, heading::kCosts);
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
    const bool lists = counts == Counts::Lists;
    const auto take = [this, &flag, name, lists](const std::string& text) {
      if (!lists) require_no_list(name, text);
      flag.values = parse_number_list(name, text, 0);
      this->*flag.time = flag.values.front();
    };
    flag.option = app.add_option_function<std::string>(name, take, description)->type_name(lists ? "X|LIST" : "X");
  }
  slice_lengths_option =
      app.add_option_function<std::string>(
             "--slice-lengths", [this](const std::string& text) { slice_lengths = parse_slice_lengths(text); },
             "tokens of the slices: balanced, which take equal times; equal; or a list (default balanced)")
          ->type_name("balanced|equal|N,N");
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

void CostFlags::report_without_slices(bool any) const {
  const auto report = [&](bool is_given, const char* flag) {
    if (is_given && !any) messages().write(fmt::format("chimera: {} has no effect without --slices\n", flag));
  };
  report(given(&CostFlags::attention), "--attention");
  report(slice_lengths_option->count() > 0, "--slice-lengths");
}

bool CostFlags::given(double CostFlags::*time) const {
  return std::ranges::find(times, time, &TimeFlag::time)->option->count() > 0;
}

std::vector<const TimeFlag*> CostFlags::lists() const {
  std::vector<const TimeFlag*> lists;
  for (const TimeFlag& flag : times) {
    if (flag.values.size() > 1) lists.push_back(&flag);
  }
  return lists;
}

std::vector<CostFlags> CostFlags::listed() const {
  std::vector<CostFlags> all = {*this};
  for (const TimeFlag* flag : lists()) {
    if (all.size() * flag->values.size() > kMostListed)
      throw ConfigError(fmt::format("the lists of times name more than {} combinations; list fewer", kMostListed));
    std::vector<CostFlags> varied;
    for (const CostFlags& each : all) {
      for (const double value : flag->values) varied.emplace_back(each).*flag->time = value;
    }
    all = std::move(varied);
  }
  return all;
}

CostModel CostFlags::given_times(const Schedule& schedule) const {
  const bool split = given(&CostFlags::input_gradient);
  if (split != given(&CostFlags::weight_gradient)) {
    throw ConfigError("--input-gradient and --weight-gradient come together");
  }
  if (split && given(&CostFlags::backward)) {
    throw ConfigError("give --backward, or --input-gradient and --weight-gradient, not both");
  }
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
  std::vector<double> lengths = slice_lengths;
  if (lengths.size() == 1) lengths.assign(static_cast<std::size_t>(schedule.slices), 1);
  if (static_cast<std::int64_t>(lengths.size()) != schedule.slices)
    throw ConfigError(fmt::format("--slice-lengths: {} lengths for {} slices; give --slices {}", lengths.size(),
                                  schedule.slices, lengths.size()));
  double sum = 0;
  for (const double length : lengths) sum += length;
  double before = 0;
  for (const double length : lengths) {
    bounds.push_back(before / sum);
    before += length;
  }
  bounds.push_back(1);
}

namespace {

/// Keeps standard input, because costs are made for several schedules or orders.
std::string read_again(const std::string& path) {
  static std::string input;
  if (path != "-") return read_whole(path);
  if (input.empty()) input = read_whole(path);
  return input;
}

}  // namespace

CostModel CostFlags::read_file(const Schedule& schedule) const {
  for (const TimeFlag& flag : times) {
    if (flag.option->count() > 0)
      throw ConfigError(flag.option->get_name() + ": --costs gives it already; give one of the two");
  }
  return costs_from_json(read_again(file), file, schedule.stages);
}

void CostFlags::add_links(CostModel& costs) const {
  if (given(&CostFlags::latency)) throw ConfigError("--latency: --links gives it already; give one of the two");
  if (!costs.links) costs.links.emplace();
  costs.links->matrix = links_from_text(read_again(links), links);
  if (costs.links->matrix->needs_bytes() && costs.links->bytes.empty())
    throw ConfigError("--links: betas need the bytes of messages; say them in --costs FILE (links: bytes)");
}

namespace {

bool names_this(const std::string& path, const std::string& word) {
  std::error_code absent;
  return std::filesystem::exists(word, absent) && is_same_file(path, word);
}

/// Includes paths in `--data=FILE`, lists, mixtures and several words.
std::vector<std::string> names_in(const std::string& word) {
  std::vector<std::string> names = {word, ""};
  for (const char letter : word) {
    if (std::string_view(" =:,").find(letter) == std::string_view::npos) {
      names.back() += letter;
    } else {
      names.emplace_back();
    }
  }
  return names;
}

bool has_name_of_input(const std::string& path) {
  constexpr std::array kEndings = {"config.json",  "manifest.json", "tokenizer.json", "vocab.json",
                                   "_map.json",    "_tokens.json",  "metrics.jsonl",  ".index.json",
                                   ".safetensors", ".bin",          ".idx",           ".txt"};
  return std::ranges::any_of(kEndings, [&](const char* ending) { return path.ends_with(ending); });
}

void require_no_input(const CLI::Option& output, const std::string& path, const std::vector<std::string>& words) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  std::error_code absent;
  const bool may_be_read = std::filesystem::exists(path, absent) && has_name_of_input(path);
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format("{} {}: {}; give another one", output.get_name(), path, why));
  };
  for (const std::string& word : words) {
    for (const std::string& name : names_in(word)) {
      if (names_this(path, name)) refuse("another argument names this file");
      if (!may_be_read || parse_number<double>(name) || !names_this(folder, name)) continue;
      refuse(fmt::format("exists in the folder {}, which another argument names", name));
    }
  }
}

/// Several flags may share a file such as /dev/null.
bool is_device(const std::string& path) {
  std::error_code absent;
  return std::filesystem::exists(path, absent) && !std::filesystem::is_regular_file(path, absent);
}

/// Returns an empty path if the option is not given or names standard output.
std::string named_file(const CLI::Option& option) {
  const std::string path = option.count() == 0 ? "" : option.results().back();
  return path == "-" ? "" : path;
}

void require_only_output(const CLI::App& app, const CLI::Option& output, const std::vector<CLI::Option*>& outputs) {
  const std::string path = named_file(output);
  if (is_device(path)) return;
  for (const CLI::Option* other : app.get_options()) {
    if (other == &output || other->count() == 0) continue;
    if (std::ranges::find(outputs, other) == outputs.end()) {
      require_no_input(output, path, other->results());
    } else if (is_same_file(path, other->results().back())) {
      throw ConfigError(
          fmt::format("{} {}: {} names this file; give another one", output.get_name(), path, other->get_name()));
    }
  }
  require_no_input(output, path, app.remaining());
}

}  // namespace

void guard_outputs(CLI::App& app, const std::vector<CLI::Option*>& outputs, const CLI::Option* continuing) {
  const auto overwrites = std::make_shared<bool>(false);
  app.add_flag("--overwrite", *overwrites, "replace output files that exist");
  app.parse_complete_callback([&app, outputs, continuing, overwrites] {
    for (const CLI::Option* output : outputs) {
      const std::string path = named_file(*output);
      if (path.empty()) continue;
      require_only_output(app, *output, outputs);
      const bool is_continued = output == outputs.front() && continuing != nullptr && continuing->count() > 0;
      if (!is_continued) require_unused(output->get_name(), path, *overwrites);
    }
  });
}

void report_surplus_threads(const char* flag, std::int64_t threads, std::int64_t processes) {
  const int cores = available_cores();
  constexpr std::int64_t kMostThreads = 1024;  // more are refused
  if (threads <= 1 || threads > kMostThreads || threads * processes <= cores) return;
  messages().write(fmt::format("chimera: {} {}: {}{} threads share {}, and wait for each other\n", flag, threads,
                               processes > 1 ? fmt::format("{} times ", processes) : "", threads,
                               cores == 1 ? "1 core" : fmt::format("{} cores", cores)));
}

std::ifstream open_input(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    throw ConfigError(path + ": is a directory; give a file, or - for standard input");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError(fmt::format("{}: cannot be read ({})", path, std::generic_category().message(errno)));
  return file;
}

void write_output(const std::string& path, const std::string& text) {
  if (path.empty() || path == "-") {
    std::cout << text << std::flush;
    if (!std::cout) throw Error("standard output cannot be written");
    return;
  }
  write_whole(path, text);
}

std::vector<std::string_view> parts_of(std::string_view list) {
  std::vector<std::string_view> parts;
  for (auto comma = list.find(','); comma != std::string_view::npos; comma = list.find(',')) {
    parts.push_back(list.substr(0, comma));
    list.remove_prefix(comma + 1);
  }
  parts.push_back(list);
  return parts;
}

namespace {

class CountList {
 public:
  CountList(const std::string& flag, const std::string& text, std::int64_t depth)
      : flag_(flag), text_(text), depth_(depth) {}

  std::vector<std::int64_t> run() {
    for (const std::string_view part : parts_of(text_)) add(part);
    return std::move(values_);
  }

 private:
  struct Term {
    std::int64_t value = 0;
    bool of_depth = false;
  };

  [[noreturn]] void refuse() const {
    throw ConfigError(fmt::format("{}: '{}' is not a list of whole numbers; give one as 4,8,16 or 1..4{}", flag_, text_,
                                  depth_ == 0 ? "" : ", or in stages as D,2D or D..4D"));
  }

  void add(std::string_view part) {
    const std::size_t dots = part.find("..");
    const Term first = term(part.substr(0, dots));
    const Term last = dots == std::string_view::npos ? first : term(part.substr(dots + 2));
    const std::int64_t step = first.of_depth && last.of_depth ? depth_ : 1;
    if (last.value < first.value) refuse();
    for (std::int64_t value = first.value; value <= last.value; value += step) {
      if (values_.size() == kMostListed) {
        throw ConfigError(fmt::format("{}: '{}' lists more than {} numbers; list fewer", flag_, text_, kMostListed));
      }
      values_.push_back(value);
    }
  }

  [[nodiscard]] Term term(std::string_view word) const {
    Term term;
    term.of_depth = depth_ != 0 && word.ends_with('D');
    if (term.of_depth) word.remove_suffix(1);
    if (term.of_depth && word.empty()) return {depth_, true};
    const auto value = whole_number(word);
    if (!value || *value > kMostValue) refuse();
    term.value = term.of_depth ? *value * depth_ : *value;
    return term;
  }

  static constexpr std::int64_t kMostValue = 1'000'000'000;  // so that products of two stay in range

  const std::string& flag_;
  const std::string& text_;
  std::int64_t depth_;
  std::vector<std::int64_t> values_;
};

}  // namespace

bool is_list(const std::string& text) { return text.find_first_of(",.D") != std::string::npos; }

std::vector<std::int64_t> parse_count_list(const std::string& flag, const std::string& text, std::int64_t depth) {
  return CountList(flag, text, depth).run();
}

std::vector<double> parse_number_list(const std::string& flag, const std::string& text, double least) {
  std::vector<double> numbers;
  for (const std::string_view part : parts_of(text)) numbers.push_back(parse_amount(flag, std::string(part), least));
  if (numbers.size() > kMostListed) {
    throw ConfigError(fmt::format("{}: lists more than {} numbers; list fewer", flag, kMostListed));
  }
  return numbers;
}

void add_partition(CLI::App& app, PartitionChoice& partition) {
  app.add_option_function<std::string>(
         "--partition", [&partition](const std::string& text) { partition = parse_partition(text); },
         "how layers are distributed over stages: even; balanced, which minimizes the FLOPs of the slowest worker; or "
         "blocks per stage such as 8,9,9,6 (default even)")
      ->type_name("CUT");
}

}  // namespace chimera::apps

#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/choices.h"
#include "core/require_between.h"
#include "generate/registry.h"
#include "model_config/partition.h"
#include "schedule/schedule.h"
#include "simulate/simulate.h"

namespace chimera::apps {

/// The results are views into `list`.
[[nodiscard]] std::vector<std::string_view> parts_of(std::string_view list);

inline constexpr std::size_t kMostListed = 10'000;

/// Returns whether the text is a list, a range, or a multiple of D.
[[nodiscard]] bool is_list(const std::string& text);

/// Parses a list of numbers and ranges, such as `4,8,16`, `1..4` or `1..4,8`. If `depth` is not 0, D stands for it:
/// `D`, `2D`, `D..4D` (in steps of D). Throws ConfigError for other texts, more than kMostListed numbers, or a number
/// above 10^9.
[[nodiscard]] std::vector<std::int64_t> parse_count_list(const std::string& flag, const std::string& text,
                                                         std::int64_t depth = 0);

/// Parses numbers of at least `least`, such as `0,0.1,0.3`. Throws ConfigError for other texts and more than
/// kMostListed numbers.
[[nodiscard]] std::vector<double> parse_number_list(const std::string& flag, const std::string& text, double least);

void add_partition(CLI::App& app, PartitionChoice& partition);

/// Parses --slice-lengths: empty for `balanced`, one 1 for `equal`, else the tokens of each slice. Throws ConfigError
/// for other texts and for lengths of 0.
[[nodiscard]] std::vector<double> parse_slice_lengths(const std::string& text);

}  // namespace chimera::apps

namespace chimera {

namespace apps {

enum class Format : std::uint8_t { Text, Json, Csv, Svg, Html, Perfetto, Costs };

}  // namespace apps

template <>
inline constexpr auto kNames<apps::Format> = std::to_array<Named<apps::Format>>({{apps::Format::Text, "text"},
                                                                                 {apps::Format::Json, "json"},
                                                                                 {apps::Format::Csv, "csv"},
                                                                                 {apps::Format::Svg, "svg"},
                                                                                 {apps::Format::Html, "html"},
                                                                                 {apps::Format::Perfetto, "perfetto"},
                                                                                 {apps::Format::Costs, "costs"}});

namespace apps {

/// Parses texts such as 1000 or 1e3. Throws ConfigError for other texts.
[[nodiscard]] std::int64_t parse_count(const std::string& flag, const std::string& text);
CLI::Option* add_count(CLI::App& app, const std::string& flag, std::int64_t& value, const std::string& description);
/// Maximum of numeric flags; keeps sums and products finite.
inline constexpr double kMostNumber = 1e100;
/// Parses a number from `least` to kMostNumber. Throws ConfigError for other texts and numbers.
[[nodiscard]] double parse_amount(const std::string& flag, const std::string& text, double least = 0);

CLI::Option* add_number(CLI::App& app, const std::string& flag, double& value, const std::string& description,
                        double least = 0);
enum class PathKind : std::uint8_t { File, Folder };
/// The flag throws ConfigError if the path is empty.
CLI::Option* add_path(CLI::App& app, const std::string& flag, std::string& path, const std::string& description,
                      PathKind kind = PathKind::File);
/// Adds a flag for a path or a mixture (data/mixture.h), in one or several words. The flag throws ConfigError if it is
/// repeated, or has several words without weights.
CLI::Option* add_data(CLI::App& app, const std::string& flag, std::string& data, const std::string& description);
/// The flag calls `take` with the value, and throws ConfigError for words outside `names`. bf16, fp32, float, fp64,
/// double and gpu stand for the names with the same meaning.
CLI::Option* add_word(CLI::App& app, const std::string& flag, std::vector<std::string> names,
                      std::function<void(const std::string&)> take, const std::string& description);
template <NamedEnum Enum>
CLI::Option* add_choice(CLI::App& app, const std::string& flag, Enum& value, const std::string& description) {
  return add_word(
      app, flag, names_of<Enum>(), [&value, flag](const std::string& word) { value = parse_named<Enum>(flag, word); },
      description);
}
template <class Enum>
CLI::Option* add_choice(CLI::App& app, const std::string& flag, std::optional<Enum>& value,
                        const std::string& description) {
  return add_word(
      app, flag, names_of<Enum>(), [&value, flag](const std::string& word) { value = parse_named<Enum>(flag, word); },
      description);
}
/// The first choice is the default.
CLI::Option* add_format(CLI::App& app, Format& format, const std::vector<Format>& formats);
/// Adds --format, --output and --overwrite, as follow_ending() describes. Returns --format.
CLI::Option* add_format_and_output(CLI::App& app, Format& format, const std::vector<Format>& formats,
                                   std::string& output);
/// Sets the format by the ending of the output file, such as .json, unless --format (`given`) is there.
void follow_ending(CLI::Option& file, const CLI::Option& given, Format& format, const std::vector<Format>& formats);

/// Flag of a parameter that only some schedules have.
struct AxisFlag {
  const ShapeAxis& axis;
  CLI::Option* option = nullptr;
  std::vector<std::int64_t> values = {};  // one value, or several if lists are allowed

  [[nodiscard]] bool given() const { return option->count() > 0; }
};

enum class Counts : std::uint8_t { Single, Lists };

/// Parameters whose values are tried if the user gives none
enum class Tried : std::uint8_t {
  ByCosts,  ///< those that costs alone decide (TakenAxis::by_costs)
  All,
};

using MakeSchedule = std::function<Schedule(const Generator& generator, const PipelineShape& asked)>;
[[nodiscard]] Schedule as_asked(const Generator& generator, const PipelineShape& asked);

struct ShapeFlags {
  PipelineShape shape;  // only D and N are used
  CLI::Option* stages = nullptr;
  CLI::Option* micro_batches = nullptr;
  std::vector<AxisFlag> axes;
  std::string stages_list;  // text of --stages, if lists are allowed
  std::string micro_batches_list;

  void add_to(CLI::App& app, Counts counts = Counts::Single);
  [[nodiscard]] bool given() const;
  /// D varies slowest, then N. Throws ConfigError if --stages or --micro-batches is missing, or for more than
  /// kMostListed shapes.
  [[nodiscard]] std::vector<PipelineShape> listed() const;
  /// Returns the generator's shape for `one`, an element of listed(), without parameters that the generator lacks. To
  /// avoid duplicates, returns nothing unless these parameters have the first of their listed values.
  [[nodiscard]] std::optional<PipelineShape> applicable_shape(const Generator& generator,
                                                              const PipelineShape& one) const;
  /// Throws ConfigError if a flag applies neither to this generator nor to the schedules named in `beside`.
  [[nodiscard]] PipelineShape shape_for(const Generator& generator, const std::vector<std::string>& beside = {}) const;
  /// Returns the generator's shape with D and N of `schedule` and the flags that apply to the generator.
  [[nodiscard]] PipelineShape shape_beside(const Schedule& schedule, const Generator& generator) const;
  /// Returns `usual`, changed by all given flags, whether or not a schedule accepts them.
  [[nodiscard]] PipelineShape as_given(const PipelineShape& usual) const;
  /// Returns the shapes that differ from `asked` in parameters without a given flag: all combinations of their planned
  /// values (TakenAxis::planned).
  [[nodiscard]] std::vector<PipelineShape> variants(const Generator& generator, const PipelineShape& asked,
                                                    Tried tried) const;
  /// Throws ConfigError if D or N is missing, and as shape_for() does.
  [[nodiscard]] Schedule generate(const std::string& name, const std::vector<std::string>& beside = {},
                                  const MakeSchedule& make = as_asked) const;

 private:
  [[nodiscard]] PipelineShape shape_of(const Generator& generator, std::int64_t depth, std::int64_t count) const;
};

/// Names of the time flags of CostFlags, with _ for -.
inline constexpr std::array kTimeColumns = {"forward",         "backward", "input_gradient",
                                            "weight_gradient", "latency",  "attention"};

struct CostFlags;

struct TimeFlag {
  std::string column;  // one of kTimeColumns
  double CostFlags::*time;
  CLI::Option* option = nullptr;
  std::vector<double> values = {};  // all values, if lists are allowed
};

struct CostFlags {
  double forward = 1;
  double backward = 2;
  double input_gradient = 0;
  double weight_gradient = 0;
  double latency = 0;
  double attention = 0;               // as in SliceCosts
  std::vector<double> slice_lengths;  // tokens of each slice; one number: equal; empty: equal times
  std::string file;                   // cost file; empty: use the times above
  std::string links;                  // file with costs per pair of workers; empty: uniform
  AllReducePlacement sync = AllReducePlacement::EagerOpt;
  bool blocking_sends = false;
  std::int64_t data_parallel = 1;
  bool shared_cores = false;    // whether data-parallel groups share cores
  std::vector<TimeFlag> times;  // flags that --costs excludes
  CLI::Option* sync_option = nullptr;
  CLI::Option* slice_lengths_option = nullptr;

  void add_to(CLI::App& app, Counts counts = Counts::Single);
  [[nodiscard]] bool given(double CostFlags::*time) const;
  [[nodiscard]] std::vector<const TimeFlag*> lists() const;
  /// The first flag varies slowest. Throws ConfigError for more than kMostListed combinations.
  [[nodiscard]] std::vector<CostFlags> listed() const;
  /// Throws ConfigError if flags contradict each other, or if a file cannot be read or does not fit the schedule.
  [[nodiscard]] CostModel costs_of(const Schedule& schedule) const;
  /// `any`: whether any schedule has slices.
  void report_without_slices(bool any) const;

 private:
  [[nodiscard]] CostModel given_times(const Schedule& schedule) const;
  [[nodiscard]] CostModel read_file(const Schedule& schedule) const;
  void set_bounds(const Schedule& schedule, CostModel& costs) const;
  void add_links(CostModel& costs) const;
};

/// Throws ConfigError if the file cannot be opened.
[[nodiscard]] std::ifstream open_input(const std::string& path);
/// Reports on standard error if `processes` processes of this host with `threads` threads each, more than one, are more
/// than the cores that they may use.
void report_surplus_threads(const char* flag, std::int64_t threads, std::int64_t processes);

/// Adds --overwrite. When the command line is parsed, throws ConfigError if one of these outputs is a file that another
/// argument names, or a model, tokenizer, text or metrics in a folder that one names, or exists and is not empty,
/// unless --overwrite is given. If `continuing` is given on the command line, the command continues the first output,
/// which may exist. Call once per command.
void guard_outputs(CLI::App& app, const std::vector<CLI::Option*>& outputs, const CLI::Option* continuing = nullptr);

/// Writes as write_whole() does or, if `path` is empty or "-", to standard output. Throws Error if standard output
/// cannot be written.
void write_output(const std::string& path, const std::string& text);

}  // namespace apps

}  // namespace chimera

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
#include "generate/registry.h"
#include "model_config/partition.h"
#include "schedule/schedule.h"
#include "simulate/simulate.h"

// What a flag that takes several numbers says.

// --partition: how the model's layers are dealt out to stages.

// Flags that several subcommands share, and how they read and write files.

namespace chimera::apps {

/// What stands between the commas of a list; one part, perhaps empty, where there are none. Borrows from `list`.
[[nodiscard]] std::vector<std::string_view> parts_of(std::string_view list);

/// No flag lists more numbers.
inline constexpr std::size_t kMostListed = 10'000;

/// Whether the text lists numbers, or says one in stages, in place of giving one.
[[nodiscard]] bool is_list(const std::string& text);

/// `4,8,16`, `1..4` or a mixture, in the order given. Where `depth` is not 0, numbers may be multiples of it: `D`,
/// `2D`, and `D..4D` for all multiples from one to the other. Throws ConfigError, saying what the flag takes, for
/// anything else, for more than kMostListed numbers and for a multiple of D that does not fit an integer.
[[nodiscard]] std::vector<std::int64_t> parse_count_list(const std::string& flag, const std::string& text,
                                                         std::int64_t depth = 0);

/// Numbers of at least `least`, separated by commas, in the order given: `0,0.1,0.3`. Throws ConfigError, saying what
/// the flag takes, for anything else and for more than kMostListed of them.
[[nodiscard]] std::vector<double> parse_number_list(const std::string& flag, const std::string& text, double least);

/// The flag, with its help.
void add_partition(CLI::App& app, PartitionChoice& partition);

}  // namespace chimera::apps

namespace chimera {

namespace apps {

/// --format: what a report or picture is written as. Each subcommand has some of them.
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

/// The whole number that a flag was given. Throws ConfigError for anything else.
[[nodiscard]] std::int64_t parse_count(const std::string& flag, const std::string& text);
/// A flag that takes a whole number; anything else is an error that says so.
CLI::Option* add_count(CLI::App& app, const std::string& flag, std::int64_t& value, const std::string& description);
/// No number that a flag takes is larger, so that sums and products of them stay finite.
inline constexpr double kMostNumber = 1e100;
/// The number that a flag was given, from `least` to kMostNumber. Throws ConfigError for anything else.
[[nodiscard]] double parse_amount(const std::string& flag, const std::string& text, double least = 0);

/// A flag that takes a number from `least` to kMostNumber.
CLI::Option* add_number(CLI::App& app, const std::string& flag, double& value, const std::string& description,
                        double least = 0);
/// Throws ConfigError, with the range, where a flag's value is not in it.
void require_between(const char* flag, std::int64_t value, std::int64_t least, std::int64_t most);
/// What lies at a path that a flag takes.
enum class PathKind : std::uint8_t { File, Folder };
/// A flag that takes the path of a file, or of a folder; an empty one is an error.
CLI::Option* add_path(CLI::App& app, const std::string& flag, std::string& path, const std::string& description,
                      PathKind kind = PathKind::File);
/// A flag that takes data, in one word or several: a path, or a mixture of paths (data/mixture.h).
CLI::Option* add_data(CLI::App& app, const std::string& flag, std::string& data, const std::string& description);
/// A flag that takes one of `names`, of which `take` gets it; another one is an error that says the nearest.
CLI::Option* add_word(CLI::App& app, const std::string& flag, std::vector<std::string> names,
                      std::function<void(const std::string&)> take, const std::string& description);
/// A flag that takes a word of an enumeration.
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
/// --format, one of `formats`; the first is the default.
CLI::Option* add_format(CLI::App& app, Format& format, const std::vector<Format>& formats);

/// The flag of a parameter that only some schedules take.
struct AxisFlag {
  const ShapeAxis& axis;
  CLI::Option* option = nullptr;
  std::vector<std::int64_t> values = {};  // one, unless the flag takes lists

  [[nodiscard]] bool given() const { return option->count() > 0; }
};

/// Whether --stages, --micro-batches, the numbers of shape_axes() and times may be lists (count_list.h).
enum class Counts : std::uint8_t { Single, Lists };

/// Makes a generator's schedule of a shape that the flags ask for.
using MakeSchedule = std::function<Schedule(const Generator& generator, const PipelineShape& asked)>;
[[nodiscard]] Schedule as_asked(const Generator& generator, const PipelineShape& asked);

/// --stages, --micro-batches, and a flag for each of shape_axes().
struct ShapeFlags {
  PipelineShape shape;  // D and N; the others stand in `axes`
  CLI::Option* stages = nullptr;
  CLI::Option* micro_batches = nullptr;
  std::vector<AxisFlag> axes;
  std::string stages_list;         // as given, where lists are taken
  std::string micro_batches_list;  // likewise

  void add_to(CLI::App& app, Counts counts = Counts::Single);
  [[nodiscard]] bool given() const;
  /// Whether a flag has more than one value, or one that depends on another flag.
  [[nodiscard]] bool has_lists() const;
  /// Every shape that the lists name: D slowest, then N, then the others as shape_axes() has them. Throws ConfigError
  /// where --stages or --micro-batches is missing, or the shapes are more than kMostListed.
  [[nodiscard]] std::vector<PipelineShape> listed() const;
  /// The generator's shape by those of the flags that it takes, for one of listed(); none where another one, which
  /// differs in what the generator does not take, has the same.
  [[nodiscard]] std::optional<PipelineShape> taken_of(const Generator& generator, const PipelineShape& one) const;
  /// What the flags say; throws ConfigError where one of them applies neither to the schedule nor to those beside it.
  [[nodiscard]] PipelineShape shape_for(const Generator& generator, const std::vector<std::string>& beside = {}) const;
  /// The generator's shape by those of the flags that it takes, with D and N of a schedule.
  [[nodiscard]] PipelineShape shape_beside(const Schedule& schedule, const Generator& generator) const;
  /// What the flags say, whoever takes them; the parameters that none names are those of `usual`.
  [[nodiscard]] PipelineShape as_given(const PipelineShape& usual) const;
  /// The shape with every value that costs decide among (TakenAxis::by_costs) of the parameters that no flag names.
  [[nodiscard]] std::vector<PipelineShape> by_costs(const Generator& generator, const PipelineShape& asked) const;
  /// Makes the schedule; throws ConfigError where D or N is not given, or as shape_for.
  [[nodiscard]] Schedule generate(const std::string& name, const std::vector<std::string>& beside = {},
                                  const MakeSchedule& make = as_asked) const;

 private:
  [[nodiscard]] PipelineShape shape_of(const Generator& generator, std::int64_t depth, std::int64_t count) const;
};

/// The columns of tables that have CostFlags' times: the names of their flags, with _ for -.
inline constexpr std::array kTimeColumns = {"forward", "backward", "input_gradient", "weight_gradient", "latency"};

struct CostFlags;

/// The flag of one of CostFlags' times.
struct TimeFlag {
  std::string column;  // one of kTimeColumns
  double CostFlags::*time;
  CLI::Option* option = nullptr;
  std::vector<double> values = {};  // what a list names, where lists are taken
};

/// --forward, --backward or --input-gradient and --weight-gradient, --latency; or --costs. With either --links, --sync,
/// --blocking-sends and --data-parallel.
struct CostFlags {
  double forward = 1;
  double backward = 2;
  double input_gradient = 0;
  double weight_gradient = 0;
  double latency = 0;
  std::string file;   // empty: the times above
  std::string links;  // of pairs of workers, a file; empty: alike
  AllReducePlacement sync = AllReducePlacement::EagerOpt;
  bool blocking_sends = false;
  std::int64_t data_parallel = 1;
  bool shared_cores = false;    // whether --data-parallel has groups that share cores
  std::vector<TimeFlag> times;  // the flags that a file replaces
  CLI::Option* sync_option = nullptr;

  void add_to(CLI::App& app, Counts counts = Counts::Single);
  /// Whether the flag of a time was given.
  [[nodiscard]] bool given(double CostFlags::*time) const;
  /// The times whose flags list more than one value, by column, in the order of the flags.
  [[nodiscard]] std::vector<const TimeFlag*> lists() const;
  /// Every combination of listed times, the first flag's slowest; these very flags where there are no lists. Throws
  /// ConfigError where they are more than kMostListed.
  [[nodiscard]] std::vector<CostFlags> listed() const;
  /// What the flags say; throws ConfigError where they contradict each other or the file does not fit the schedule.
  [[nodiscard]] CostModel costs_of(const Schedule& schedule) const;

 private:
  [[nodiscard]] CostModel given_times(const Schedule& schedule) const;
  [[nodiscard]] CostModel read_file(const Schedule& schedule) const;
  void add_links(CostModel& costs) const;
};

/// A file, open for reading. Throws ConfigError where it cannot be.
[[nodiscard]] std::ifstream open_input(const std::string& path);
/// Writes to standard output where `path` is empty, else to the file as write_whole does.
void write_output(const std::string& path, const std::string& text);

}  // namespace apps

}  // namespace chimera

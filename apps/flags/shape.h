#pragma once

// The flags that choose the shape of a schedule: --stages (D), --micro-batches (N), and the parameters that only some
// schedules have, such as --pipelines. A ShapeAxis (generate/generator.h) describes one such parameter. A Generator,
// such as `1f1b`, makes a Schedule from a shape. It lists the parameters that it has (SupportedAxis), each with its
// default value and the values that a planner tries. Users can also give a file that contains a schedule. The command
// `sweep` accepts a list for each of these flags; other commands accept one value. Functions of ShapeFlags by use:
//
//   one schedule by name (check, schedule, search, simulate)  generate(), which calls shape_for()
//   options of a run (train)                                  shape_for()
//   schedules next to another one (--with)                    shape_next_to()
//   a placement without a generator (search --placement)      with_given_flags()
//   lists (sweep)                                             combinations() -> applicable_shape() -> variants()
//   best parameters for given costs (fastest() in costs.h)    variants()

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "generate/registry.h"
#include "schedule/schedule.h"

namespace chimera::apps {

/// Flag of a parameter that only some schedules have, and its values on the command line.
struct AxisFlag {
  const ShapeAxis& axis;
  CLI::Option* option = nullptr;
  std::vector<std::int64_t> values = {};  // one value, or several if lists are allowed

  [[nodiscard]] bool is_given() const { return option->count() > 0; }
};

/// Whether each flag takes one value or also a list
enum class FlagValues : std::uint8_t { Single, Lists };

/// Selects the parameters for which ShapeFlags::variants() tries several values. A parameter that a flag sets is never
/// tried.
enum class VariedParameters : std::uint8_t {
  ByCosts,  ///< parameters whose best value depends only on the costs of ops (SupportedAxis::by_costs)
  All,      ///< all parameters of the schedule
};

/// Function that makes a schedule of the shape `asked`.
using MakeSchedule = std::function<Schedule(const Generator& generator, const PipelineShape& asked)>;
/// The default MakeSchedule: generates the schedule with exactly the parameters of `asked`.
[[nodiscard]] Schedule generate_as_asked(const Generator& generator, const PipelineShape& asked);

/// The shape flags of a command and their parsed values.
struct ShapeFlags {
  PipelineShape shape;  // values of --stages and --micro-batches; the other fields are unused
  CLI::Option* stages = nullptr;
  CLI::Option* micro_batches = nullptr;
  std::vector<AxisFlag> axes;
  std::string stages_list;  // text of --stages, if lists are allowed
  std::string micro_batches_list;

  /// Adds the flags to a command. `counts` says whether they also accept lists. The object must stay where it is,
  /// because the flags write into it.
  void add_to(CLI::App& app, FlagValues counts = FlagValues::Single);
  /// Returns whether at least one of the flags is given.
  [[nodiscard]] bool is_given() const;
  /// Throws ConfigError if --stages or --micro-batches is missing. `what` starts the message.
  void require_counts(const std::string& what) const;
  /// Returns all combinations of the listed values; D varies slowest, then N. Throws ConfigError if --stages or
  /// --micro-batches is missing, or for more than 10,000 shapes (kMaxListed).
  [[nodiscard]] std::vector<PipelineShape> combinations() const;
  /// Converts `one`, an element of combinations(), to a shape of this generator, without the parameters that the
  /// generator lacks. Elements that differ only in such a parameter would all give the same shape. So only the element
  /// with the first value in the list of each such parameter is converted; for the others, the function returns
  /// nullopt.
  [[nodiscard]] std::optional<PipelineShape> applicable_shape(const Generator& generator,
                                                              const PipelineShape& one) const;
  /// Returns the shape of this generator with D, N and the given flags; other parameters get the generator's defaults.
  /// `other_schedules` has the names of other schedules that the same command draws. Throws ConfigError if a given flag
  /// applies neither to this generator nor to one of these schedules.
  [[nodiscard]] PipelineShape shape_for(const Generator& generator,
                                        const std::vector<std::string>& other_schedules = {}) const;
  /// Returns the shape of this generator with D and N of `schedule`. Given flags that do not apply to the generator are
  /// ignored; parameters without a flag get the generator's defaults.
  [[nodiscard]] PipelineShape shape_next_to(const Schedule& schedule, const Generator& generator) const;
  /// Returns a copy of `usual` with D, N and the values of all given flags, whether or not any schedule has these
  /// parameters.
  [[nodiscard]] PipelineShape with_given_flags(const PipelineShape& usual) const;
  /// Returns copies of `asked`, at least one, with all combinations of values for some parameters. A parameter varies
  /// if the generator has it, no flag sets it, and `tried` selects it; SupportedAxis::planned gives its values. Other
  /// parameters keep their values in `asked`.
  [[nodiscard]] std::vector<PipelineShape> variants(const Generator& generator, const PipelineShape& asked,
                                                    VariedParameters tried) const;
  /// Makes the schedule with this name. Throws ConfigError if D or N is missing, if the name is unknown, or if a given
  /// flag applies neither to this schedule nor to one of the schedules in `other_schedules`.
  [[nodiscard]] Schedule generate(const std::string& name, const std::vector<std::string>& other_schedules = {},
                                  const MakeSchedule& make = generate_as_asked) const;

 private:
  [[nodiscard]] PipelineShape shape_of(const Generator& generator, std::int64_t depth, std::int64_t count) const;
};

/// Returns whether `name` is a schedule file and not the name of a generator: it ends in .json or .csv, contains a `/`,
/// or is `-` (standard input).
[[nodiscard]] bool names_schedule_file(const std::string& name);

/// Throws ConfigError if a shape flag is given, because `what`, such as a schedule file, already has a shape. `what`
/// starts the message.
void require_no_shape(const ShapeFlags& shape, const std::string& what);

/// Reads a schedule file, or standard input for `-`, without validation. Prints a note on standard error if it ignores
/// a part of the file. Throws ConfigError if the file cannot be opened or parsed.
[[nodiscard]] Schedule load_schedule(const std::string& path);

/// Reads a schedule file as load_schedule() does, and validates it. Throws ScheduleError with the first violation.
[[nodiscard]] Schedule read_schedule(const std::string& path);

}  // namespace chimera::apps

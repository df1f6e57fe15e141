#pragma once

// The flags that choose the shape of a schedule: --stages (D), --micro-batches (N), and the parameters that only some
// schedules have, such as --pipelines. A ShapeAxis (generate/generator.h) describes one such parameter. A Generator
// makes a Schedule from a shape. Instead of a name and a shape, users can give a file that contains a schedule. The
// command `sweep` accepts a list for each of these flags; other commands accept one value.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "generate/registry.h"
#include "schedule/schedule.h"

namespace chimera::apps {

/// Flag of a parameter that only some schedules have.
struct AxisFlag {
  const ShapeAxis& axis;
  CLI::Option* option = nullptr;
  std::vector<std::int64_t> values = {};  // one value, or several if lists are allowed

  [[nodiscard]] bool is_given() const { return option->count() > 0; }
};

/// Whether each flag takes one value or also a list
enum class Counts : std::uint8_t { Single, Lists };

/// Parameters of which ShapeFlags::variants() tries several values if the user gives none
enum class Tried : std::uint8_t {
  ByCosts,  ///< parameters whose best value depends only on the costs of ops (TakenAxis::by_costs)
  All,      ///< all parameters of the schedule
};

/// Function that makes a schedule of the shape `asked`.
using MakeSchedule = std::function<Schedule(const Generator& generator, const PipelineShape& asked)>;
/// The usual MakeSchedule: calls Generator::generate().
[[nodiscard]] Schedule as_asked(const Generator& generator, const PipelineShape& asked);

/// The shape flags of a command and their parsed values.
struct ShapeFlags {
  PipelineShape shape;  // values of --stages and --micro-batches; the other fields are unused
  CLI::Option* stages = nullptr;
  CLI::Option* micro_batches = nullptr;
  std::vector<AxisFlag> axes;
  std::string stages_list;  // text of --stages, if lists are allowed
  std::string micro_batches_list;

  /// Adds the flags to a command. The object must stay where it is, because the flags write into it.
  void add_to(CLI::App& app, Counts counts = Counts::Single);
  /// Returns whether at least one of the flags is given.
  [[nodiscard]] bool is_given() const;
  /// Throws ConfigError if --stages or --micro-batches is missing. `what` starts the message.
  void require_counts(const std::string& what) const;
  /// Returns all combinations of the listed values; D varies slowest, then N. Throws ConfigError if --stages or
  /// --micro-batches is missing, or for more than 10,000 shapes (kMostListed).
  [[nodiscard]] std::vector<PipelineShape> listed() const;
  /// Converts `one`, an element of listed(), to a shape of this generator: parameters that the generator does not have
  /// get their defaults. Elements that differ only in such parameters would give the same shape several times. So the
  /// function returns nothing if one of them does not have the first of its listed values.
  [[nodiscard]] std::optional<PipelineShape> applicable_shape(const Generator& generator,
                                                              const PipelineShape& one) const;
  /// Returns the generator's shape with D, N and the given flags. `beside` has the names of other schedules that the
  /// same command draws. Throws ConfigError if a given flag applies neither to this generator nor to one of these
  /// schedules.
  [[nodiscard]] PipelineShape shape_for(const Generator& generator, const std::vector<std::string>& beside = {}) const;
  /// Returns the generator's shape with D and N of `schedule` and the flags that apply to the generator.
  [[nodiscard]] PipelineShape shape_beside(const Schedule& schedule, const Generator& generator) const;
  /// Returns `usual`, changed by all given flags, whether or not a schedule accepts them.
  [[nodiscard]] PipelineShape as_given(const PipelineShape& usual) const;
  /// Returns copies of `asked` for a planner to try. Parameters without a given flag take all combinations of their
  /// planned values (TakenAxis::planned); `tried` selects these parameters. The others keep their values.
  [[nodiscard]] std::vector<PipelineShape> variants(const Generator& generator, const PipelineShape& asked,
                                                    Tried tried) const;
  /// Makes the schedule with this name. Throws ConfigError if D or N is missing, if the name is unknown, or if a given
  /// flag applies neither to this schedule nor to one of the schedules in `beside`.
  [[nodiscard]] Schedule generate(const std::string& name, const std::vector<std::string>& beside = {},
                                  const MakeSchedule& make = as_asked) const;

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

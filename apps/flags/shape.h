#pragma once

// The flags that say which schedule is meant: --stages (D), --micro-batches (N), and the parameters that only some
// schedules have, such as --pipelines (ShapeAxis). A generator turns a shape into a Schedule; a file holds one instead.
// `sweep` takes lists of all of them.

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
  [[nodiscard]] bool is_given() const;
  /// Throws ConfigError if --stages or --micro-batches is missing. `what` starts the message.
  void require_counts(const std::string& what) const;
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

/// Such a name ends in .json or .csv, has a `/`, or is `-` for standard input.
[[nodiscard]] bool names_schedule_file(const std::string& name);

/// Throws ConfigError if a shape flag is given. `what` starts the message.
void require_no_shape(const ShapeFlags& shape, const std::string& what);

/// `-` reads standard input. Prints a note on standard error for content that it ignores. Does not validate. Throws
/// ConfigError if the file cannot be opened or parsed.
[[nodiscard]] Schedule load_schedule(const std::string& path);

/// Also validates. Throws ScheduleError with the first violation.
[[nodiscard]] Schedule read_schedule(const std::string& path);

}  // namespace chimera::apps

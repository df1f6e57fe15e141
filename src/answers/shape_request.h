#pragma once

// The part of a request that chooses the shape of a schedule: stages (D), micro-batches (N), and the parameters that
// only some schedules have, such as `pipelines`. A ShapeAxis (generate/generator.h) describes one such parameter. A
// Generator, such as `1f1b`, makes a Schedule from a shape. It lists the parameters that it has (SupportedAxis), each
// with its default value and the values that a planner tries. `sweep` accepts a list for each of these fields; other
// requests accept one value. Functions of ShapeRequest by use:
//
//   one schedule by name (check, schedule, search, simulate)  generate(), which calls shape_for()
//   options of a run (train)                                  shape_for()
//   schedules next to another one (--with)                    shape_next_to()
//   a placement without a generator (search --placement)      with_given_values()
//   lists (sweep)                                             listed_counts() -> listed_shapes() -> variants()
//   best parameters for given costs (fastest() in schedule_request.h)   variants()

#include "answers/door.h"
#include "generate/registry.h"
#include "schedule/schedule.h"

namespace chimera {

/// Values of a parameter that only some schedules have.
struct AxisValues {
  const ShapeAxis* axis;
  std::vector<std::int64_t> values = {};  // one value, or several if lists are allowed; empty: not given

  [[nodiscard]] bool is_given() const { return !values.empty(); }
};

/// Whether each field takes one value or also a list.
enum class FieldValues : std::uint8_t { Single, Lists };

/// Selects the parameters for which ShapeRequest::variants() tries several values. A parameter that is given is never
/// tried.
enum class VariedParameters : std::uint8_t {
  ByCosts,  ///< parameters whose best value depends only on the costs of ops (SupportedAxis::by_costs)
  All,      ///< all parameters of the schedule
};

/// Function that makes a schedule of the shape `asked`.
using MakeSchedule = std::function<Schedule(const Generator& generator, const PipelineShape& asked)>;

/// The given values.
struct ShapeRequest {
  PipelineShape shape;      // parsed stages and micro-batches, if each is one value; the other fields are unused
  std::string stages_list;  // stages as text, also for one value; empty: not given
  std::string micro_batches_list;
  std::vector<AxisValues> axes = mapped(shape_axes(), [](const ShapeAxis& axis) { return AxisValues{&axis}; });

  /// Visits the fields; `counts` says whether they accept lists.
  void visit(Door& door, FieldValues counts = FieldValues::Single);
  /// Returns whether at least one of the fields is given.
  [[nodiscard]] bool is_given() const;
  /// Returns the given values of a parameter.
  [[nodiscard]] const AxisValues& values_of(Axis axis) const;
  /// Throws ConfigError if stages or micro-batches are missing. `what` starts the message.
  void require_counts(const std::string& what) const;
  /// Returns shapes with all combinations of the listed D and N; D varies slowest. Throws ConfigError if stages or
  /// micro-batches are missing, or if the lists of all fields name more than 10,000 shapes (kMaxListed).
  [[nodiscard]] std::vector<PipelineShape> listed_counts() const;
  /// Returns shapes of this generator with D and N of `counts` and all combinations of the listed values of the
  /// parameters that the generator has.
  [[nodiscard]] std::vector<PipelineShape> listed_shapes(const Generator& generator, const PipelineShape& counts) const;
  /// Returns the shape of this generator with D, N and the given values; other parameters get the generator's defaults.
  /// `other_schedules` has the names of other schedules that the same request draws. Throws ConfigError if a given
  /// parameter applies neither to this generator nor to one of these schedules.
  [[nodiscard]] PipelineShape shape_for(const Generator& generator,
                                        const std::vector<std::string>& other_schedules = {}) const;
  /// Returns the shape of this generator with D and N of `schedule`. Given parameters that do not apply to the
  /// generator are ignored; those that are not given get the generator's defaults.
  [[nodiscard]] PipelineShape shape_next_to(const Schedule& schedule, const Generator& generator) const;
  /// Returns a copy of `usual` with D, N and all given values, whether or not any schedule has these parameters.
  [[nodiscard]] PipelineShape with_given_values(PipelineShape usual) const;
  /// Returns copies of `asked`, at least one, with all combinations of values for some parameters. A parameter varies
  /// if the generator has it, it is not given, and `tried` selects it; SupportedAxis::planned gives its values. Other
  /// parameters keep their values in `asked`.
  [[nodiscard]] std::vector<PipelineShape> variants(const Generator& generator, const PipelineShape& asked,
                                                    VariedParameters tried) const;
  /// Makes the schedule with this name. Throws ConfigError if D or N is missing, if the name is unknown, or if a given
  /// parameter applies neither to this schedule nor to one of the schedules in `other_schedules`.
  [[nodiscard]] Schedule generate(const std::string& name, const std::vector<std::string>& other_schedules = {},
                                  const MakeSchedule& make = generate_or_suggest) const;
  /// Throws ConfigError if a field is given, because `what`, such as a schedule file, already has a shape. `what`
  /// starts the message.
  void require_absent(const std::string& what) const;
};

}  // namespace chimera

#pragma once
// Schedules as text, as the paper prints them.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "generate/registry.h"
#include "schedule/schedule.h"
#include "simulate/simulate.h"
#include "support/paths.h"

namespace chimera::testing {

/// Each worker's ops in order, as the paper and its artifact print them: letter and micro-batch, `F0 F1 B0`.
inline std::vector<std::string> orders(const Schedule& schedule) {
  std::vector<std::string> rows;
  for (const auto& ops : schedule.workers) {
    std::string row;
    for (const Op& op : ops)
      row += (row.empty() ? "" : " ") + to_text(op, schedule.slices).substr(std::to_string(op.stage.value()).size());
    rows.push_back(row);
  }
  return rows;
}

/// Each worker's ops in order: `0F0 1F0 1B0`.
inline std::vector<std::string> ops(const Schedule& schedule) {
  std::vector<std::string> rows;
  for (const auto& ops : schedule.workers) {
    std::string row;
    for (const Op& op : ops) row += (row.empty() ? "" : " ") + to_text(op, schedule.slices);
    rows.push_back(row);
  }
  return rows;
}

inline StageCosts costs(double forward, double backward) {
  return {.forward = forward, .backward = backward, .input_gradient = backward / 2, .weight_gradient = backward / 2};
}

inline Timeline timed(const Schedule& schedule, double forward, double backward, double latency = 0) {
  return simulate(schedule, CostModel::uniform(schedule, costs(forward, backward), latency));
}

/// Makespan of gpipe and 1f1b in times of a worker's F and B for a micro-batch.
inline double slots_of_flow(const PipelineShape& shape) {
  return static_cast<double>(shape.micro_batches) +
         static_cast<double>(shape.stages - 1) / static_cast<double>(shape.slices);
}

/// Idle time of worker w between its own first and last op.
inline double inner_bubble(const Timeline& timeline, std::size_t w) {
  const WorkerTimeline& worker = timeline.workers[w];
  return worker.ops.back().end - worker.ops.front().start - worker.busy;
}

inline double largest_inner_bubble(const Timeline& timeline) {
  double largest = 0;
  for (std::size_t w = 0; w < timeline.workers.size(); ++w) largest = std::max(largest, inner_bubble(timeline, w));
  return largest;
}

/// Peak of in-flight stages of micro-batches on any worker.
inline std::int64_t most_in_flight(const Timeline& timeline) {
  std::int64_t most = 0;
  for (const WorkerTimeline& worker : timeline.workers) most = std::max(most, worker.peak_in_flight);
  return most;
}

/// Total times of a worker, with split backwards.
struct SplitCosts {
  double forward;
  double input_gradient;
  double weight_gradient;
};

inline Timeline timed(const Schedule& schedule, const SplitCosts& share, double latency = 0) {
  const StageCosts all{share.forward, share.input_gradient + share.weight_gradient, share.input_gradient,
                       share.weight_gradient};
  return simulate(schedule, CostModel::uniform(schedule, all, latency));
}

/// Expects `most` stages of micro-batches in flight on each worker, or all of its `chunks` stages.
inline void expect_in_flight(const std::string& name, const PipelineShape& shape, std::int64_t most,
                             std::int64_t chunks = 1) {
  for (const auto& worker : timed(find_generator(name).generate(shape), 1, 2).workers)
    EXPECT_EQ(worker.peak_in_flight, std::min(most, chunks * shape.micro_batches * shape.slices))
        << name << " D=" << shape.stages << " N=" << shape.micro_batches << " k=" << shape.slices;
}

/// Values of an axis that property tests try: all names; numbers of plans, and numbers up to one above the usual, at
/// most 3 or D: 2f to D, v to 3 or 4, w to 2.
inline std::set<std::int64_t> tried_values(const SupportedAxis& taken, const PipelineShape& shape) {
  const ShapeAxis& axis = shape_axis(taken.axis);
  std::set<std::int64_t> values;
  const auto names = static_cast<std::int64_t>(axis.names.size());
  for (std::int64_t value = axis.least; value < (names > 0 ? names : taken.usual + 2); ++value) values.insert(value);
  if (names > 0) return values;
  for (const std::int64_t value : taken.planned(shape)) values.insert(value);
  std::erase_if(values, [&](std::int64_t value) { return value > std::max<std::int64_t>(3, shape.stages); });
  return values;
}

/// Every shape with this D and N that combines the schedule's axes at their tried_values().
inline std::vector<PipelineShape> with_flags(const Generator& generator, const PipelineShape& shape) {
  std::vector<PipelineShape> shapes = {default_shape(generator, shape.stages, shape.micro_batches)};
  for (const SupportedAxis& taken : generator.axes) {
    std::vector<PipelineShape> varied;
    for (const PipelineShape& each : shapes) {
      for (const std::int64_t value : tried_values(taken, shape))
        shape_axis(taken.axis).set(varied.emplace_back(each), value);
    }
    shapes = varied;
  }
  std::erase_if(shapes, [&](const PipelineShape& each) { return generator.find_shape_error(each).has_value(); });
  return shapes;
}

/// Shapes for property tests of one generator: D to 12, N to 3 D + 1 and all its flags, if the schedule exists. At
/// least one shape; each generator's own test checks which.
inline std::vector<PipelineShape> small_shapes(const std::string& name, std::int64_t most_stages = 12) {
  const Generator& generator = find_generator(name);
  std::vector<PipelineShape> shapes;
  for (std::int64_t d = 1; d <= most_stages; ++d) {
    for (std::int64_t n = 1; n <= 3 * d + 1; ++n) {
      for (const PipelineShape& shape : with_flags(generator, {d, n})) shapes.push_back(shape);
    }
  }
  EXPECT_FALSE(shapes.empty()) << name;
  return shapes;
}

inline std::string describe(const std::string& name, const PipelineShape& shape) {
  std::string text = name + " D=" + std::to_string(shape.stages) + " N=" + std::to_string(shape.micro_batches);
  for (const ShapeAxis& axis : shape_axes())
    text += " " + std::string(axis.symbol.empty() ? axis.name : axis.symbol) + "=" + std::to_string(axis.get(shape));
  return text;
}

/// Calls visit(schedule) for the small_shapes() of every generator.
template <class Visit>
void for_every_schedule(std::int64_t most_stages, const Visit& visit) {
  for (const Generator& generator : generators()) {
    for (const PipelineShape& shape : small_shapes(generator.name, most_stages)) {
      SCOPED_TRACE(describe(generator.name, shape));
      visit(generator.generate(shape));
    }
  }
}

/// The rule of Chimera's artifact for worker w, independent of slots, in which `together` units are joined (forward
/// doubling: 2), with the paper's plain unit last if they do not divide K. With h = D/2, the worker starts with a ops
/// of its own direction, then alternates b = h - a ops; the own direction is down on the first half of the workers.
inline std::string chimera_rule(std::int64_t depth, std::int64_t units, std::int64_t worker, std::int64_t together) {
  const std::int64_t h = depth / 2;
  const bool own_down = worker < h;
  const std::int64_t a = own_down ? h - worker : worker - h + 1;
  const std::int64_t b = h - a;
  std::map<std::pair<char, bool>, std::int64_t> next;  // (letter, down) -> micro-batches done
  std::string row;
  const auto add = [&](char kind, bool own, std::int64_t times = 1) {
    const bool down = own == own_down;
    for (; times > 0; --times) {
      const std::int64_t k = next[{kind, down}]++;
      const std::int64_t id = (k / h) * depth + (down ? 0 : h) + k % h;
      row += (row.empty() ? "" : " ") + (kind + std::to_string(id));
    }
  };
  for (std::int64_t unit = 0; unit < units; unit += together) {
    const bool doubled = together == 2 && unit + 1 < units;
    const std::int64_t pair = doubled ? 2 : 1;
    for (std::int64_t i = 0; i < a; ++i) add('B', true, unit > 0 ? 1 : 0), add('F', true, pair);
    for (std::int64_t i = 0; i < b; ++i) add('F', false, pair), add('F', true, pair);
    for (std::int64_t i = 0; i < a; ++i) add('F', false, pair), add('B', false);
    for (std::int64_t i = 0; i < b + (doubled ? h : 0); ++i) add('B', true), add('B', false);
  }
  add('B', true, a);
  return row;
}

inline std::string golden(const std::string& file) {
  std::ifstream in(source_path("/tests/golden/") + file);
  EXPECT_TRUE(in) << "no golden file " << file;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace chimera::testing

#pragma once
// Panels of small schedules.

#include <string>

#include "render/panel.h"
#include "support/schedules.h"

namespace chimera::testing {

/// A schedule at F = 1, B = 2 with a handwritten part of its explanation that has one element of each kind.
inline Panel panel_of(const std::string& name, const PipelineShape& shape) {
  Panel panel;
  panel.title = name;
  panel.schedule = find_generator(name).generate(shape);
  const CostModel costs = CostModel::uniform(panel.schedule, testing::costs(1, 2));
  panel.timeline = simulate(panel.schedule, costs);
  const std::size_t workers = panel.schedule.workers.size();
  Explanation& explanation = panel.explanation;
  explanation.bubbles.resize(workers);
  explanation.bubbles[0] = {{2, 3, IdleCause::Dependency, Place{1, 1}}, {3, 3.5, IdleCause::Latency, Place{1, 1}}};
  explanation.bubbles[1] = {{0, 1, IdleCause::WarmUp, Place{0, 0}}, {15, 16, IdleCause::Imbalance}};
  explanation.messages = {{{0, 0}, {1, 0}, 1, 1.25}};
  explanation.all_reduces.resize(workers);
  explanation.all_reduces[1] = {{ParameterGroupId(1), 14, 15.5}};
  explanation.memory.resize(workers);
  explanation.memory[0] = {{0, 1}, {1, 2}, {8, 1}, {16, 0}};
  explanation.critical_path = {{0, 0}, {1, 0}};
  panel.totals = totals_of(panel.schedule, panel.timeline, explanation, costs);
  return panel;
}

inline std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

}  // namespace chimera::testing

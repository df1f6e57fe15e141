#pragma once
// Schedules in tests are text: what the paper prints.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "generate/registry.h"
#include "schedule/schedule.h"
#include "simulate/simulate.h"

namespace chimera::testing {

/// Each worker's ops in order, as the paper and its artifact print them: letter and micro-batch, `F0 F1 B0`.
inline std::vector<std::string> orders(const Schedule& schedule) {
  std::vector<std::string> rows;
  for (const auto& ops : schedule.workers) {
    std::string row;
    for (const Op& op : ops)
      row += (row.empty() ? "" : " ") + (letter(op.kind) + std::to_string(op.micro_batch.value()));
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

/// With unit times and forwards just in time: the slots of the paper's figures.
inline Timeline in_slots(const Schedule& schedule) {
  const CostModel unit = CostModel::uniform(schedule, StageCosts{});
  return forwards_just_in_time(schedule, unit, simulate(schedule, unit));
}

/// Every shape that a property is tried on, for one generator: D to 12, N to 3 D + 1, every legal number of pipelines.
inline std::vector<PipelineShape> small_shapes(const std::string& name, std::int64_t most_stages = 12) {
  std::vector<PipelineShape> shapes;
  const bool chimera = name == "chimera";
  for (std::int64_t d = chimera ? 2 : 1; d <= most_stages; d += chimera ? 2 : 1) {
    for (std::int64_t n = 1; n <= 3 * d + 1; ++n) {
      for (std::int64_t f = 1; f <= (chimera ? d / 2 : 1); ++f) {
        if (!chimera || (d / 2) % f == 0) shapes.push_back({d, n, 2 * f});
      }
    }
  }
  return shapes;
}

inline std::string describe(const std::string& name, const PipelineShape& shape) {
  return name + " D=" + std::to_string(shape.stages) + " N=" + std::to_string(shape.micro_batches) +
         " 2f=" + std::to_string(shape.pipelines);
}

inline std::string golden(const std::string& file) {
  std::ifstream in(std::string(CHIMERA_SOURCE_DIR "/tests/golden/") + file);
  EXPECT_TRUE(in) << "no golden file " << file;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace chimera::testing

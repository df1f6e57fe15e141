#pragma once
// Every schedule by name.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace chimera {

struct Generator {
  std::string name;
  std::function<Schedule(const PipelineShape&)> generate;
  std::string constraints;  // on D, N and the other shape flags
  std::string makespan;     // closed form for F <= B, no latency
  std::string activations;  // most micro-batches in flight on a worker
  std::string source;
  bool takes_pipelines = false;  // whether PipelineShape::pipelines means something to it
};

/// All of them, in the order of the lists that users see.
[[nodiscard]] std::span<const Generator> generators();

/// Their names.
[[nodiscard]] std::vector<std::string> schedule_names();

/// Throws ConfigError naming the nearest known one where `name` is unknown.
[[nodiscard]] const Generator& find_generator(const std::string& name);

}  // namespace chimera

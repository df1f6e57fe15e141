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
  std::string closed_form;  // of the makespan (or, where it says so, of the bubble), no latency, F <= B
  std::string activations;  // most micro-batches in flight on a worker
  std::string source;
  std::vector<std::string> flags = {};  // of the shape beyond --stages and --micro-batches: "--pipelines", ...
};

/// All of them, in the order of the lists that users see.
[[nodiscard]] std::span<const Generator> generators();

/// Whether PipelineShape's field of that flag means something to the schedule.
[[nodiscard]] bool takes(const Generator& generator, const std::string& flag);

/// Their names.
[[nodiscard]] std::vector<std::string> schedule_names();

/// Throws ConfigError naming the nearest known one where `name` is unknown.
[[nodiscard]] const Generator& find_generator(const std::string& name);

}  // namespace chimera

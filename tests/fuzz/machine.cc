// Fuzzes a machine profile.

#include "plan/layer_times.h"

#include <cmath>

#include "fuzz/fuzzer.h"

namespace chimera::testing {
namespace {

bool is_time(double seconds) { return std::isfinite(seconds) && seconds >= 0; }

/// Reads times of the profile's own models, also at sizes that it does not list.
void exercise_times(const MachineProfile& machine) {
  for (const LayerTimes& layer : machine.layers) {
    for (const std::int64_t size : {1, 3, 1000}) {
      const Workload workload{.micro_batch_size = size, .sequence = layer.model.positions};
      const LayerTime time = layer_time(machine, layer.model, layer.kind, workload);
      require(is_time(time.forward) && is_time(time.recompute), "forward and recomputation are times");
      require(is_time(time.input_gradient) && is_time(time.weight_gradient), "both halves of a backward are times");
    }
  }
}

void exercise_machine(std::string_view bytes) {
  const auto machine = read_or_refuse([&] { return machine_from_json(std::string(bytes), kSource); });
  if (!machine) return;
  require(machine_from_json(to_json(*machine), kSource) == *machine, "a profile reads back");
  exercise_times(*machine);
}

}  // namespace

const Fuzzer kMachine("machine", exercise_machine);

}  // namespace chimera::testing

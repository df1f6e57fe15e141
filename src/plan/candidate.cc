#include "plan/candidate.h"

#include <fmt/format.h>

namespace chimera {

std::string describe(const Candidate& candidate) {
  const PipelineShape& shape = candidate.shape;
  std::string text = candidate.schedule;
  const Generator& generator = find_generator(candidate.schedule);
  for (const SupportedAxis& taken : generator.axes) {
    const ShapeAxis& axis = shape_axis(taken.axis);
    if (axis.is_number()) {
      // Usual values are left out, so that the text names what is special.
      if (axis.get(shape) != taken.usual) text += fmt::format(" {} {}", axis.symbol, axis.text(shape));
    } else if (taken.planned(shape).size() > 1) {
      text += " " + axis.text(shape);
    }
  }
  const std::string tensor = candidate.tensor_parallel == 1 ? "" : fmt::format("T {} x ", candidate.tensor_parallel);
  text += fmt::format("  W {} x {}D {}, {} micro-batches of {}", candidate.data_parallel, tensor, shape.stages,
                      shape.micro_batches, candidate.micro_batch_size);
  if (candidate.partition.rule != PartitionRule::Even) text += ", stages of " + to_text(candidate.partition);
  if (candidate.replica_layout != ReplicaLayout::Near)
    text += ", replicas " + std::string(to_text(candidate.replica_layout));
  if (candidate.shard_optimizer) text += ", sharded optimizer";
  return text;
}

std::int64_t num_stages(const Candidate& candidate) {
  return candidate.shape.stages * find_generator(candidate.schedule).stages_per_worker(candidate.shape);
}

StageChoice offload_choice(const Candidate& candidate) {
  if (candidate.offload_blocks.rule == StageRule::Counted) return candidate.offload_blocks;
  return stage_choice(candidate.offload, num_stages(candidate));
}

StageChoice recompute_choice(const Candidate& candidate) {
  if (candidate.blocks.counts_blocks()) return candidate.blocks;
  return stage_choice(candidate.recompute, num_stages(candidate));
}

bool shares_cores(const PlanProblem& problem) {
  const MachineProfile& machine = problem.machine;
  if (machine.cores == 0) return false;
  return std::min(problem.workers, machine.workers_per_node) * machine.threads > machine.cores;
}

}  // namespace chimera

#include "engine/run_shape.h"

#include <algorithm>
#include <cmath>

#include "check/check_schedule.h"
#include "core/reject.h"
#include "generate/registry.h"

namespace chimera {
namespace {

Schedule unpipelined(std::int64_t micro_batches, std::int64_t groups, std::int64_t slices) {
  if (micro_batches < 1 || micro_batches > kMaxOps / 2 / groups)
    reject("--micro-batches must be 1 to {}, not {}", kMaxOps / 2 / groups, micro_batches);
  PipelineShape shape{1, micro_batches * groups};
  shape.slices = slices;
  // A pipeline of one stage runs each micro-batch forward and backward, one after the other. It has the micro-batches
  // of all groups, so that its result can be compared with that of a pipelined run on the same data.
  Schedule schedule = find_generator(kPlainSchedule).generate(shape);
  schedule.name = "none";
  return schedule;
}

Schedule make_schedule(const ScheduleChoice& choice, std::int64_t groups) {
  if (choice.given != nullptr) return *choice.given;
  PipelineShape shape = choice.shape;
  // The smallest number that fills a pipeline once.
  if (shape.micro_batches == 0) shape.micro_batches = shape.stages;
  if (choice.is_unpipelined()) return unpipelined(shape.micro_batches, groups, shape.slices);
  auto names = schedule_names();
  names.emplace_back("none");
  if (std::ranges::find(names, choice.name) == names.end())
    throw ConfigError(unknown_name("schedule", choice.name, names));
  return generate_or_suggest(find_generator(choice.name), shape);
}

}  // namespace

std::vector<StageId> RunShape::stages_of(WorkerId worker) const {
  std::vector<StageId> stages;
  const auto groups = stage_groups(schedule.placement);
  for (std::size_t s = 0; s < groups.size(); ++s) {
    // stage_groups() lists workers in ascending order.
    if (std::ranges::binary_search(groups[s], worker)) stages.emplace_back(static_cast<std::int64_t>(s));
  }
  return stages;
}

std::int64_t RunShape::samples_per_op() const {
  return std::llround(static_cast<double>(micro_batch_size) * schedule.micro_batch_scale);
}

RunShape run_shape(const RunRequest& request) {
  RunShape shape;
  shape.schedule = make_schedule(request.schedule, request.data_parallel);
  // Generated schedules are valid, but a user's file may not be.
  if (const auto violations = check(shape.schedule); !violations.empty())
    throw ScheduleError(violations.front().message);
  shape.ranks = {.workers = static_cast<std::int64_t>(shape.schedule.workers.size()),
                 .data_parallel = request.schedule.is_unpipelined() ? 1 : request.data_parallel,
                 .replicas = request.replica_layout};
  shape.micro_batch_size = request.micro_batch_size;
  shape.data_position = data_positions(shape.schedule);
  return shape;
}

void require_whole_micro_batches(const RunShape& shape, const std::string& what) {
  const double scale = shape.schedule.micro_batch_scale;
  // With backward halving (scale 1/2), each op has half a micro-batch, so the size must be even.
  const double size = static_cast<double>(shape.micro_batch_size) * scale;
  if (size == std::floor(size)) return;
  reject("{} {}: the schedule needs micro-batches {:g} times as large, of {:g} sequences; give a multiple of {:g}",
         what, shape.micro_batch_size, scale, size, 1 / scale);
}

std::vector<std::int64_t> data_positions(const Schedule& schedule) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(schedule.micro_batches), 0);
  // Micro-batches of a replica are consecutive in the data, so canonical blocks lie in one replica.
  std::int64_t next = 0;
  for (const auto& replica : micro_batches_of_replicas(schedule))
    for (const MicroBatchId id : replica) positions[id.index()] = next++;
  return positions;
}

double sum_in_data_order(const RunShape& shape, std::span<const double> losses,
                         std::span<const std::int64_t> micro_batch_at) {
  // Floating-point sums depend on their order, and schedules number micro-batches differently.
  std::vector<double> by_position(losses.size());
  auto loss = losses.begin();
  for (std::int64_t group = 0; group < shape.ranks.data_parallel; ++group) {
    for (std::int64_t m = 0; m < shape.schedule.micro_batches; ++m) {
      // losses has the order of (group, micro-batch), position() the order of the places.
      const auto place = static_cast<std::size_t>(shape.position(GroupId(group), MicroBatchId(m)));
      by_position[micro_batch_at.empty() ? place : static_cast<std::size_t>(micro_batch_at[place])] = *loss++;
    }
  }
  double total = 0;
  for (const double part : by_position) total += part;
  return total;
}

}  // namespace chimera

#include "search/list_scheduling.h"

#include <fmt/format.h>
#include <algorithm>
#include <limits>

#include "generate/list_orders.h"
#include "generate/registry.h"

namespace chimera {
namespace {

/// Returns whether the schedule's ops are those of the layout, possibly with other numbers of micro-batches.
bool fits(const SearchLayout& layout, const Schedule& schedule) {
  if (schedule.placement != layout.placement || schedule.stages != layout.stages) return false;
  if (schedule.updates || schedule.micro_batch_scale != 1 || schedule.slices != layout.slices) return false;
  // Only the numbers of micro-batches must agree: to_orders() renumbers them.
  const auto dealt = micro_batches_of_replicas(schedule);
  for (std::size_t r = 0; r < dealt.size(); ++r)
    if (dealt[r].size() != layout.micro_batches[r].size()) return false;
  return true;
}

/// Axes without numbers are named rules, such as the way to concatenate units. The layout already fixes the numbers.
bool is_rule(const SupportedAxis& taken) { return !shape_axis(taken.axis).is_number(); }

/// Returns the generator's name, with its rules in the shape if they are not the usual ones.
std::string name_of(const Generator& generator, const PipelineShape& shape) {
  std::string name = generator.name;
  for (const SupportedAxis& taken : generator.axes) {
    const ShapeAxis& axis = shape_axis(taken.axis);
    if (is_rule(taken) && axis.get(shape) != taken.usual) name += fmt::format(" ({})", axis.text(shape));
  }
  return name;
}

}  // namespace

std::vector<Schedule> generated_starts(const SearchLayout& layout, const PipelineShape& shape) {
  std::vector<Schedule> starts;
  for (const Generator& generator : generators()) {
    const auto values_of = [](const SupportedAxis& taken, const PipelineShape& one) {
      return is_rule(taken) ? taken.planned(one) : std::vector<std::int64_t>();
    };
    for (const PipelineShape& each : possible_shapes(generator, shape, values_of)) {
      Schedule schedule = generator.generate(each);
      if (!fits(layout, schedule)) continue;
      schedule.name = name_of(generator, each);
      starts.push_back(std::move(schedule));
    }
  }
  return starts;
}

ListRule random_rule(const Instance& instance, RandomSource& random) {
  ListRule rule;
  // Around the usual order of kinds: I (or B), then F, then W.
  rule.step = {1.5 * random.uniform(), 0, 1 + random.uniform()};
  rule.age = random.chance(0.5) ? 0.01 : 0.3 * random.uniform();
  rule.depth = 0.1 * random.uniform();
  rule.window = random.chance(0.2) ? 0 : 1.5 * random.uniform();
  rule.patience = 2 * random.uniform();
  rule.noise = random.chance(0.3) ? 0 : random.uniform();
  if (random.chance(0.5)) return rule;
  // Slices that keep a chain busy during the round trip to the last stage, plus or minus one.
  std::int32_t to_go = 0;
  rule.credits.resize(instance.replica.size());
  for (std::size_t chain = instance.replica.size(); chain-- > 0;) {
    const bool last = chain + 1 == instance.replica.size() || instance.replica[chain] != instance.replica[chain + 1];
    to_go = last ? 1 : to_go + 1;
    rule.credits[chain] = std::max(1, to_go + static_cast<std::int32_t>(random.below(3)) - 1) + instance.slices - 1;
  }
  return rule;
}

Orders orders_by_rule(const Instance& instance, const ListRule& rule, RandomSource& random) {
  ListPolicy policy{.unit = std::max(mean_duration(instance), std::numeric_limits<double>::min()),
                    .window = rule.window,
                    .patience = rule.model.empty() ? rule.patience : 0,
                    .credits = rule.credits};
  policy.rank_of = [&](QueueIndex index, std::int32_t k, double) -> AgedRank {
    const OpQueue& queue = instance.queues[static_cast<std::size_t>(index)];
    if (!rule.model.empty()) return {rule.model[static_cast<std::size_t>(queue.first + k)]};
    return {rule.step[static_cast<std::size_t>(index % kQueuesOfChain)] + rule.age * k / instance.slices -
            rule.depth * instance.stage[static_cast<std::size_t>(index / kQueuesOfChain)]};
  };
  if (rule.model.empty() && rule.noise > 0) policy.noise = [&] { return rule.noise * random.uniform(); };
  return list_orders(instance, policy).orders;
}

}  // namespace chimera

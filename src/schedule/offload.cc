#include "schedule/offload.h"

#include <map>
#include <tuple>
#include <utility>

namespace chimera {

std::vector<OffloadedForward> offloaded_forwards(const std::vector<Op>& ops, const std::set<StageId>& stages,
                                                 Pairs pairs) {
  // With fewer ops in between, the copy to the host would still run when the copy back must start, and the device would
  // hold the activations all the time.
  constexpr std::size_t kMinBetween = 2;
  std::vector<OffloadedForward> found;
  if (stages.empty()) return found;
  std::vector<std::size_t> begins;  // [op or pair]: position
  // The values are the forward's position and the number of its op or pair. Distances are counted in ops or pairs, as
  // both ops of a pair run at the same time.
  std::map<std::tuple<StageId, MicroBatchId, std::int16_t>, std::pair<std::size_t, std::size_t>> forwards;
  for (std::size_t begin = 0; begin < ops.size(); begin += num_concurrent(ops, begin, pairs)) {
    const std::size_t number = begins.size();
    begins.push_back(begin);
    for (std::size_t i = begin; i < begin + num_concurrent(ops, begin, pairs); ++i) {
      if (!stages.contains(ops[i].stage)) continue;
      const std::tuple key(ops[i].stage, ops[i].micro_batch, ops[i].slice);
      if (ops[i].kind == OpKind::Forward) forwards[key] = {i, number};
      if (!gives_input_gradient(ops[i].kind) || !forwards.contains(key)) continue;
      const auto [forward, made] = forwards.at(key);
      // The copy back starts one op before the backward, so that it overlaps with this op.
      if (number > made + kMinBetween) found.push_back({forward, i, begins[number - 1]});
    }
  }
  return found;
}

}  // namespace chimera

#include "train/loop/settlement.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace chimera {
namespace {

/// The rank with weights that has done most steps; of equals the first.
RankId furthest(std::span<const RankState> states) {
  const auto steps = [](const RankState& state) { return state.has_weights ? state.done : -1; };
  return RankId(std::ranges::max_element(states, {}, steps) - states.begin());
}

}  // namespace

Settlement settle(std::span<const RankState> states, const RankGroups& groups) {
  Settlement all{.done = 0, .teller = furthest(states), .givers = {}};
  all.done = states[all.teller.index()].done;
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    const RankState& state = states[rank];
    if (!state.has_weights || state.done == all.done) continue;
    if (state.done + 1 != all.done || state.voted_for != all.done) {
      throw Error(fmt::format("rank {} has done step {} and cannot do step {}, which rank {} has done", rank,
                              state.done, all.done, all.teller.value()));
    }
  }
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const auto giver =
        std::ranges::find_if(groups[group], [&](RankId rank) { return states[rank.index()].has_weights; });
    if (giver == groups[group].end()) throw Error(fmt::format("no rank is left that holds stage {}", group));
    all.givers.push_back(*giver);
  }
  return all;
}

}  // namespace chimera

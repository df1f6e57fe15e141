#include "transport/gloo/message_channels.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"

namespace chimera {

void MessageChannels::connect(int rank, const std::vector<RankPair>& pairs, const Connect& connect) {
  for (const auto& [low, high] : connecting_order(rank, pairs)) {
    const int other = rank == low ? high : low;
    groups_[{low, high}] = connect(fmt::format("{} to {}", low, high), other);
    groups_[{high, low}] = connect(fmt::format("{} to {}", high, low), other);
  }
}

const GlooGroup& MessageChannels::between(int from, int to) const {
  const auto found = groups_.find({from, to});
  if (found == groups_.end()) {
    throw TransportError(
        fmt::format("ranks {} and {} have no connection: no message between them was foreseen", from, to));
  }
  return found->second;
}

std::vector<GlooGroup> MessageChannels::take_groups() noexcept {
  std::vector<GlooGroup> taken;
  for (auto& [ranks, group] : std::exchange(groups_, {})) taken.push_back(std::move(group));
  return taken;
}

}  // namespace chimera

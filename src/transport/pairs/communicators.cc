#include "transport/pairs/communicators.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <exception>
#include <future>
#include <utility>

#include "core/error.h"

namespace chimera {
namespace {

using Group = Communicators::Group;

/// Of one member, by the names of all.
class Joining {
 public:
  using Make = std::function<Group(const NewCommunicator&)>;
  Joining(const CommunicatorPlan& plan, const BlockLimits& limits, const Make& make)
      : plan_(plan), limits_(limits), make_(make) {}

  Group everyone() const { return make_({"everyone", plan_.rank, plan_.world_size, limits_.everyone}); }

  Group group(std::size_t g) const {
    const auto& members = plan_.groups[g];
    const auto place = std::find(members.begin(), members.end(), RankId(plan_.rank));
    if (place == members.end() || members.size() == 1) return {};
    return make_({fmt::format("group{}", g), static_cast<int>(place - members.begin()),
                  static_cast<int>(members.size()), limits_.group});
  }

  Communicators::Pair pair(const RankPair& ranks) const {
    const auto [low, high] = ranks;
    const int member = plan_.rank == low ? 0 : 1;
    Group up = make_({fmt::format("pair{}-{}", low, high), member, 2, limits_.pair});
    Group down = make_({fmt::format("pair{}-{}", high, low), member, 2, limits_.pair});
    if (member == 1) std::swap(up, down);
    return {.out = std::move(up), .in = std::move(down)};
  }

 private:
  const CommunicatorPlan& plan_;
  const BlockLimits& limits_;
  const Make& make_;
};

/// How many communicators a rank has, on the rank that has most.
struct Most {
  int of_pairs = 0;
  int of_groups = 0;
};

Most most_of_a_rank(const CommunicatorPlan& plan) {
  Most most;
  for (int rank = 0; rank < plan.world_size; ++rank) {
    const auto pairs = std::ranges::count_if(
        plan.pairs, [&](const RankPair& pair) { return pair.first == rank || pair.second == rank; });
    const auto groups = std::ranges::count_if(plan.groups, [&](const std::vector<RankId>& members) {
      return members.size() > 1 && std::ranges::count(members, RankId(rank)) > 0;
    });
    most.of_pairs = std::max(most.of_pairs, 2 * static_cast<int>(pairs));  // one a direction
    most.of_groups = std::max(most.of_groups, static_cast<int>(groups));
  }
  return most;
}

}  // namespace

BlockLimits block_limits(const CommunicatorPlan& plan, int multiprocessors) {
  BlockLimits limits;
  const Most most = most_of_a_rank(plan);
  const int room = multiprocessors / 2 - limits.everyone;
  if (most.of_pairs + most.of_groups > room) {
    throw ConfigError(fmt::format(
        "--device cuda: a rank would have {} communicators, each with a kernel that may wait, more than half "
        "of the GPU's {} multiprocessors; use fewer stages a rank, or --transport threads",
        most.of_pairs + most.of_groups + 1, multiprocessors));
  }
  const auto left_for_a_group = [&](int of_a_pair) {
    const int left = std::max(room - most.of_pairs * of_a_pair, 0);
    if (most.of_groups == 0) return left > 0 ? BlockLimits().group : 0;
    return static_cast<int>(std::bit_floor(static_cast<unsigned>(left / most.of_groups)));
  };
  while (limits.pair > 1 && left_for_a_group(limits.pair) < limits.pair) limits.pair /= 2;
  limits.group = std::clamp(left_for_a_group(limits.pair), 1, limits.group);
  return limits;
}

Communicators make_communicators(const CommunicatorPlan& plan, const BlockLimits& limits, const Joining::Make& make) {
  Communicators to{.rank = plan.rank, .groups = plan.groups};
  to.process_groups.resize(plan.groups.size());
  if (plan.world_size == 1) return to;
  const Joining joining(plan, limits, make);
  to.everyone = joining.everyone();
  for (std::size_t g = 0; g < plan.groups.size(); ++g) to.process_groups[g] = joining.group(g);
  for (const RankPair& pair : plan.pairs) {
    if (plan.rank == pair.first) to.pairs[pair.second] = joining.pair(pair);
    if (plan.rank == pair.second) to.pairs[pair.first] = joining.pair(pair);
  }
  return to;
}

std::vector<Group> all_groups(const Communicators& of) {
  std::vector<Group> groups{of.everyone};
  groups.insert(groups.end(), of.process_groups.begin(), of.process_groups.end());
  for (const auto& [peer, pair] : of.pairs) {
    groups.push_back(of.rank < peer ? pair.out : pair.in);
    groups.push_back(of.rank < peer ? pair.in : pair.out);
  }
  std::erase_if(groups, [](const Group& group) { return !group; });
  return groups;
}

void abort_together(const std::vector<Group>& groups) {
  std::vector<std::future<void>> aborts;
  for (const Group& group : groups) aborts.push_back(std::async(std::launch::async, [&group] { group->abort(); }));
  for (auto& abort : aborts) {
    try {
      abort.get();
    } catch (const std::exception&) {  // the others end all the same
    }
  }
}

}  // namespace chimera

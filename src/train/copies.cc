#define XXH_STATIC_LINKING_ONLY
#define XXH_INLINE_ALL
#include "train/copies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"

namespace chimera {
namespace {

std::uint64_t hash_of(const ParameterGroup& group) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (const Parameter& parameter : group.parameters()) {
    const at::Tensor value = parameter.value.cpu();
    XXH3_64bits_update(&state, value.data_ptr(), value.nbytes());
  }
  return XXH3_64bits_digest(&state);
}

/// The ranks whose hash is not the most frequent one; of equally frequent ones the first is taken to be right.
std::vector<RankId> odd_ones(const StageCopies& copies, const std::vector<std::pair<double, double>>& hashes) {
  const auto right =
      std::ranges::max_element(hashes, {}, [&](const auto& hash) { return std::ranges::count(hashes, hash); });
  std::vector<RankId> odd;
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    if (hashes[i] != *right) odd.push_back(copies.ranks[i]);
  }
  return odd;
}

std::string numbers(const std::vector<RankId>& ranks) {
  std::vector<std::int64_t> values;
  for (const RankId rank : ranks) values.push_back(rank.value());
  return fmt::format("{}", fmt::join(values, ", "));
}

[[noreturn]] void blame(const StageCopies& copies, const std::vector<RankId>& odd, std::int64_t step, RankId rank,
                        Transport& transport) {
  if (rank != odd.front()) {
    std::array<double, 1> nothing{};
    try {
      transport.all_sum(nothing);  // the one to report does not come: no other rank ends before it
    } catch (const TransportError&) {
    }
    throw CopiesDifferElsewhereError(fmt::format("the copies of stage {} differ", copies.group.value()));
  }
  const bool majority = 2 * odd.size() < copies.ranks.size();
  const std::string which =
      majority ? fmt::format("that of rank {} from the others", numbers(odd)) : "and none is known to be right";
  throw CopiesDifferError(
      fmt::format("the copies of stage {} on ranks {} differ after step {}, {}: memory, a processor or a network "
                  "changed bits; test the machine, and train again",
                  copies.group.value(), numbers(copies.ranks), step, which));
}

}  // namespace

std::vector<StageCopies> stage_copies(const Job& job) {
  std::vector<StageCopies> all;
  const auto add = [&](ParameterGroupId group, std::vector<RankId> ranks) {
    if (ranks.size() > 1) all.push_back({group, std::move(ranks)});
  };
  const auto groups = job.worker_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const ParameterGroupId group(static_cast<std::int64_t>(g));
    if (!job.schedule.updates) {
      add(group, job.rank_groups()[g]);
      continue;
    }
    for (const WorkerId worker : groups[g]) {
      std::vector<RankId> ranks;
      for (std::int64_t w = 0; w < job.ranks.data_parallel; ++w) ranks.push_back(job.ranks.rank({GroupId(w), worker}));
      add(group, std::move(ranks));
    }
  }
  return all;
}

void require_equal_copies(const std::vector<StageCopies>& copies,
                          const std::map<ParameterGroupId, ParameterGroup*>& trained, RankId rank, std::int64_t step,
                          Transport& transport) {
  std::vector<double> halves;  // [copies][rank] 32 bits each: exact in a sum with zeros
  for (const StageCopies& stage : copies) {
    for (const RankId member : stage.ranks) {
      const std::uint64_t hash = member == rank ? hash_of(*trained.at(stage.group)) : 0;
      halves.push_back(static_cast<double>(hash >> 32U));
      halves.push_back(static_cast<double>(hash & 0xffffffffU));
    }
  }
  if (halves.empty()) return;
  transport.all_sum(halves);
  auto half = halves.begin();
  for (const StageCopies& stage : copies) {
    std::vector<std::pair<double, double>> hashes;
    for (std::size_t i = 0; i < stage.ranks.size(); ++i, half += 2) hashes.emplace_back(half[0], half[1]);
    if (const auto odd = odd_ones(stage, hashes); !odd.empty()) blame(stage, odd, step, rank, transport);
  }
}

}  // namespace chimera

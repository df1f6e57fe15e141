#include "engine/tensor_ranks.h"

#include <ATen/ATen.h>

namespace chimera {

RankGroups TensorRanks::in_lanes(const RankGroups& of_lane) const {
  RankGroups all;
  for (const auto& group : of_lane) {
    // The order group, then lane is what group() computes.
    for (std::int64_t lane = 0; lane < ranks; ++lane) {
      auto& copy = all.emplace_back();
      for (const RankId member : group) copy.push_back(rank(member, lane));
    }
  }
  return all;
}

RankGroups TensorRanks::groups(const RankGroups& of_lane) const {
  RankGroups all = in_lanes(of_lane);
  if (ranks == 1) return all;
  // The T ranks of each worker, which add and exchange parts inside ops.
  for (std::int64_t worker = 0; worker < pipelines; ++worker) {
    auto& shared = all.emplace_back();
    for (std::int64_t lane = 0; lane < ranks; ++lane) shared.push_back(rank(RankId(worker), lane));
  }
  return all;
}

std::vector<RankPair> TensorRanks::pairs(const std::vector<RankPair>& of_lane) const {
  std::vector<RankPair> all;
  const auto ends = static_cast<int>(ranks);
  for (const auto& [low, high] : of_lane)
    for (int lane = 0; lane < ends; ++lane) all.emplace_back(low * ends + lane, high * ends + lane);
  return all;
}

at::Tensor RankTensorGroup::sum_own_share(const at::Tensor& values) {
  if (!scatters_) return {};
  const TimeMark begin(values.device());
  const std::int64_t ranks = place().ranks;
  // [rank][sequence][token]: a reduce-scatter gives each rank consecutive elements.
  const at::Tensor shares = values.unflatten(1, {ranks, values.size(1) / ranks}).transpose(0, 1).contiguous();
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), values.numel() / ranks);
  // Not `values` themselves, which the sum would overwrite.
  const at::Tensor buffer = shares.is_alias_of(values) ? shares.clone() : shares;
  all_.start_sum(group_, {.gradients = buffer.view({-1}), .counts = counts})->wait();
  note(begin, values.device());
  return buffer[place().rank].clone();  // A view would keep all shares
}

std::vector<at::Tensor> RankTensorGroup::parts_of(const at::Tensor& values) {
  // Members on one host read each other's memory. Others gather copies.
  if (auto shared = all_.exchange_in_op(group_, values); !shared.empty()) return shared;
  const std::int64_t count = values.numel();
  const at::Tensor buffer = at::empty({place().ranks * count}, values.options());
  buffer.narrow(0, place().rank * count, count).copy_(values.detach().view({-1}));
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(place().ranks), count);
  std::vector<at::Tensor> parts = all_.start_all_gather(group_, buffer, counts)->wait().split(count);
  for (at::Tensor& part : parts) part = part.view(values.sizes());
  return parts;
}

}  // namespace chimera

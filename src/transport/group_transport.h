#pragma once
// One data-parallel group's view of a transport that connects the ranks of all groups.

#include "schedule/rank_layout.h"
#include "transport/transport.h"

namespace chimera {

/// Peers are workers of the own group; a stage's gradients are summed over all groups, and so is all_sum. Borrows the
/// transport of all ranks.
class GroupTransport final : public Transport {
 public:
  GroupTransport(Transport& ranks, const RankLayout& layout, GroupId group)
      : ranks_(ranks), layout_(layout), group_(group) {}

  std::unique_ptr<Pending> start_send(WorkerId to, at::Tensor tensor, const MessageTag& tag) override {
    return ranks_.start_send(layout_.rank({group_, to}), std::move(tensor), tag);
  }
  std::unique_ptr<Pending> post_receive(WorkerId from, const TensorSpec& spec, const MessageTag& tag) override {
    return ranks_.post_receive(layout_.rank({group_, from}), spec, tag);
  }
  std::unique_ptr<Pending> start_all_reduce(StageId stage, at::Tensor gradients) override {
    return ranks_.start_all_reduce(stage, std::move(gradients));
  }
  std::unique_ptr<Pending> start_ordered_all_reduce(StageId stage, at::Tensor gradients, std::vector<at::Tensor> parts,
                                                    const SumOrder& order) override {
    return ranks_.start_ordered_all_reduce(stage, std::move(gradients), std::move(parts), order);
  }
  std::unique_ptr<Pending> start_all_gather(StageId stage, at::Tensor buffer,
                                            const std::vector<std::int64_t>& counts) override {
    return ranks_.start_all_gather(stage, std::move(buffer), counts);
  }
  void all_sum(std::span<double> values) override { ranks_.all_sum(values); }

 private:
  Transport& ranks_;
  RankLayout layout_;
  GroupId group_;
};

}  // namespace chimera

#pragma once
// One data-parallel group's view of a transport that connects the ranks of all groups.

#include "schedule/rank_layout.h"
#include "transport/forwarding_transport.h"

namespace chimera {

/// Peers are workers of the own group; a stage's gradients are summed over all groups, and so is all_sum. Borrows the
/// transport of all ranks.
class GroupTransport final : public ForwardingTransport {
 public:
  GroupTransport(Transport& ranks, const RankLayout& layout, GroupId group)
      : ForwardingTransport(ranks), layout_(layout), group_(group) {}

  std::unique_ptr<Pending> start_send(WorkerId to, at::Tensor tensor, const MessageTag& tag) override {
    return ranks().start_send(layout_.rank({group_, to}), std::move(tensor), tag);
  }
  std::unique_ptr<Pending> post_receive(WorkerId from, const TensorSpec& spec, const MessageTag& tag) override {
    return ranks().post_receive(layout_.rank({group_, from}), spec, tag);
  }

 private:
  RankLayout layout_;
  GroupId group_;
};

}  // namespace chimera

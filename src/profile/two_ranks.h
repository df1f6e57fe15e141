#pragma once
// The view of two ranks among several: what they sum is theirs alone.

#include <ATen/ATen.h>

#include <utility>

#include "transport/transport.h"

namespace chimera {

/// Borrows a transport of all ranks, of which the members of `pair` alone use this.
class TwoRanks final : public Transport {
 public:
  /// `pair`: the transport's group of the two.
  TwoRanks(Transport& ranks, StageId pair) : ranks_(ranks), pair_(pair) {}

  std::unique_ptr<Pending> start_send(WorkerId to, at::Tensor tensor, const MessageTag& tag) override {
    return ranks_.start_send(to, std::move(tensor), tag);
  }
  std::unique_ptr<Pending> post_receive(WorkerId from, const TensorSpec& spec, const MessageTag& tag) override {
    return ranks_.post_receive(from, spec, tag);
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
  void all_sum(std::span<double> values) override {
    const auto count = static_cast<std::int64_t>(values.size());
    (void)ranks_.start_all_reduce(pair_, at::from_blob(values.data(), {count}, at::kDouble))->wait();
  }

 private:
  Transport& ranks_;
  StageId pair_;
};

}  // namespace chimera

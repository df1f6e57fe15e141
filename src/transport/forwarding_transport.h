#pragma once
// A transport that leaves everything to another one; what differs is for classes derived from it.

#include <utility>

#include "transport/transport.h"

namespace chimera {

/// Borrows the other transport.
class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(Transport& ranks) : ranks_(ranks) {}

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
  void all_sum(std::span<double> values) override { ranks_.all_sum(values); }

 protected:
  [[nodiscard]] Transport& ranks() const { return ranks_; }

 private:
  Transport& ranks_;
};

}  // namespace chimera

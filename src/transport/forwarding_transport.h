#pragma once

#include <utility>

#include "transport/transport.h"

// A transport that leaves everything to another one; what differs is for classes derived from it.

// Messages whose receivers find out whether a bit of them changed on the way.

namespace chimera {

/// Borrows the other transport, which may change between two calls.
class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(Transport& ranks) : ranks_(&ranks) {}

  std::unique_ptr<Pending> start_send(RankId to, at::Tensor tensor, const MessageTag& tag) override {
    return ranks_->start_send(to, std::move(tensor), tag);
  }
  std::unique_ptr<Pending> post_receive(RankId from, const TensorSpec& spec, const MessageTag& tag) override {
    return ranks_->post_receive(from, spec, tag);
  }
  std::unique_ptr<Pending> start_all_reduce(ParameterGroupId group, at::Tensor gradients) override {
    return ranks_->start_all_reduce(group, std::move(gradients));
  }
  std::unique_ptr<Pending> start_ordered_all_reduce(ParameterGroupId group, at::Tensor gradients,
                                                    std::vector<at::Tensor> parts, const SumOrder& order) override {
    return ranks_->start_ordered_all_reduce(group, std::move(gradients), std::move(parts), order);
  }
  std::unique_ptr<Pending> start_all_gather(ParameterGroupId group, at::Tensor buffer,
                                            const std::vector<std::int64_t>& counts) override {
    return ranks_->start_all_gather(group, std::move(buffer), counts);
  }
  void all_sum(std::span<double> values) override { ranks_->all_sum(values); }
  std::vector<double> sum_to_host(const at::Tensor& values, const std::function<void()>& before_wait) override {
    return ranks_->sum_to_host(values, before_wait);
  }

 protected:
  ForwardingTransport() = default;  // forward_to() comes before any other call
  void forward_to(Transport* ranks) { ranks_ = ranks; }
  [[nodiscard]] Transport& ranks() const { return *ranks_; }

 private:
  Transport* ranks_ = nullptr;
};

/// Gives every tensor that it sends a checksum, in the message's tag, and has every tensor that it receives compared
/// with it: a wait() throws what check_bits() throws. For tensors on the CPU, over transports that carry tags; all
/// ranks use it or none. Sums are left as they are: their results are equal on all members, or copies of a stage
/// differ.
class VerifiedMessages final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;

  std::unique_ptr<Pending> start_send(RankId to, at::Tensor tensor, const MessageTag& tag) override {
    MessageTag checked = tag;
    checked.checksum = checksum_of(tensor);
    return ForwardingTransport::start_send(to, std::move(tensor), checked);
  }
  std::unique_ptr<Pending> post_receive(RankId from, const TensorSpec& spec, const MessageTag& tag) override {
    TensorSpec checked = spec;
    checked.is_verified = true;
    return ForwardingTransport::post_receive(from, checked, tag);
  }
};

}  // namespace chimera

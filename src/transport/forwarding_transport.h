#pragma once

// Transports that wrap another one. ForwardingTransport forwards every call, and a subclass changes a few of them: to
// verify messages (VerifiedMessages, `--verify-messages`), to reconnect after the loss of a rank (train/recover), to
// leave out messages in a warm-up (runtime), or to use only some of the ranks (engine, profile).

#include <utility>

#include "transport/transport.h"

namespace chimera {

/// Transport that forwards every call to a borrowed transport, which a subclass may replace (forward_to()).
class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(Transport& ranks) : ranks_(&ranks) {}

  std::unique_ptr<Pending> start_send(RankId to, at::Tensor tensor, const MessageTag& tag) override {
    return ranks_->start_send(to, std::move(tensor), tag);
  }
  std::unique_ptr<Pending> post_receive(RankId from, const TensorSpec& spec, const MessageTag& tag) override {
    return ranks_->post_receive(from, spec, tag);
  }
  std::unique_ptr<Pending> start_sum(ParameterGroupId group, GradientSum sum) override {
    return ranks_->start_sum(group, std::move(sum));
  }
  void sum_in_op(ParameterGroupId group, at::Tensor values) override { ranks_->sum_in_op(group, std::move(values)); }
  std::vector<at::Tensor> exchange_in_op(ParameterGroupId group, const at::Tensor& values) override {
    return ranks_->exchange_in_op(group, values);
  }
  std::unique_ptr<Pending> start_all_gather(ParameterGroupId group, at::Tensor buffer,
                                            const std::vector<std::int64_t>& counts) override {
    return ranks_->start_all_gather(group, std::move(buffer), counts);
  }
  void connect_sums(ParameterGroupId group, const at::Tensor& gradients,
                    const std::vector<std::int64_t>& counts) override {
    ranks_->connect_sums(group, gradients, counts);
  }
  void note_longest_step(std::chrono::milliseconds longest) override { ranks_->note_longest_step(longest); }
  void require_peers() override { ranks_->require_peers(); }
  void confirm() override { ranks_->confirm(); }
  void all_sum(std::span<double> values) override { ranks_->all_sum(values); }
  std::vector<double> sum_to_host(const at::Tensor& values, const std::function<void()>& before_wait) override {
    return ranks_->sum_to_host(values, before_wait);
  }

 protected:
  ForwardingTransport() = default;  // call forward_to() before any other function
  void forward_to(Transport* ranks) { ranks_ = ranks; }
  [[nodiscard]] Transport& ranks() const { return *ranks_; }

 private:
  Transport* ranks_ = nullptr;
};

/// Adds a checksum to the tag of each message and verifies it at the receiver: wait() throws TransportError if the
/// tensor has changed on the way. Works for CPU tensors over transports that carry tags (all but NCCL's); all ranks
/// must use it. Gradient sums are not verified.
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

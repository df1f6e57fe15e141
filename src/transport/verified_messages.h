#pragma once
// Messages whose receivers find out whether a bit of them changed on the way.

#include <utility>

#include "transport/forwarding_transport.h"

namespace chimera {

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

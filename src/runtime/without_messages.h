#pragma once

// What Executor::warm_up() needs to run a program alone: a transport that exchanges no messages, and no fault points.

#include <ATen/ATen.h>

#include <memory>

#include "core/fault_point.h"
#include "transport/forwarding_transport.h"

namespace chimera {

/// Sends no messages, and returns zeros for received messages. Sums are unchanged.
class WithoutMessages final : public ForwardingTransport {
 public:
  WithoutMessages(Transport& ranks, at::Device device) : ForwardingTransport(ranks), device_(device) {}

  std::unique_ptr<Pending> start_send(RankId /*to*/, at::Tensor /*tensor*/, const MessageTag& /*tag*/) override {
    return std::make_unique<Completed>(at::Tensor());
  }
  std::unique_ptr<Pending> post_receive(RankId /*from*/, const TensorSpec& spec, const MessageTag& /*tag*/) override {
    return std::make_unique<Completed>(at::zeros(spec.sizes, at::device(device_).dtype(spec.dtype)));
  }

 private:
  at::Device device_;
};

/// Disables the fault points of this thread during its lifetime.
class WithoutFaults {
 public:
  WithoutFaults() { set_fault_rank(-1); }
  ~WithoutFaults() { set_fault_rank(rank_); }
  WithoutFaults(const WithoutFaults&) = delete;
  WithoutFaults& operator=(const WithoutFaults&) = delete;

 private:
  int rank_ = fault_rank();
};

}  // namespace chimera

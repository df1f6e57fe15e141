#pragma once
// The view of two ranks among several: what they sum is theirs alone.

#include <ATen/ATen.h>

#include "transport/forwarding_transport.h"

namespace chimera {

/// Borrows a transport of all ranks, of which the members of `pair` alone use this.
class TwoRanks final : public ForwardingTransport {
 public:
  /// `pair`: the transport's group of the two.
  TwoRanks(Transport& ranks, ParameterGroupId pair) : ForwardingTransport(ranks), pair_(pair) {}

  void all_sum(std::span<double> values) override {
    const auto count = static_cast<std::int64_t>(values.size());
    (void)start_all_reduce(pair_, at::from_blob(values.data(), {count}, at::kDouble))->wait();
  }

 private:
  ParameterGroupId pair_;
};

}  // namespace chimera

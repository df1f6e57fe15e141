#pragma once
// A transport for some ranks among several, whose all_sum() covers these alone.

#include <ATen/ATen.h>

#include "transport/forwarding_transport.h"

namespace chimera {

/// Borrows a transport of all ranks, of which the members of one of its groups alone use this.
class SubgroupTransport final : public ForwardingTransport {
 public:
  SubgroupTransport(Transport& ranks, ParameterGroupId members) : ForwardingTransport(ranks), members_(members) {}

  void all_sum(std::span<double> values) override {
    const auto count = static_cast<std::int64_t>(values.size());
    (void)start_all_reduce(members_, at::from_blob(values.data(), {count}, at::kDouble))->wait();
  }

 private:
  ParameterGroupId members_;
};

}  // namespace chimera

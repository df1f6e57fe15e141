#pragma once
// An operation that was completed when it was started.

#include <utility>

#include "transport/transport.h"

namespace chimera {

/// Its wait() returns `result` at once.
class Completed final : public Pending {
 public:
  explicit Completed(at::Tensor result) : result_(std::move(result)) {}
  at::Tensor wait() override { return result_; }

 private:
  at::Tensor result_;
};

}  // namespace chimera

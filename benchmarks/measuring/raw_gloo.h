#pragma once
// Gloo calls of a worker's program: the minimum cost of any transport over Gloo.

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "schedule/program.h"
#include "transport/transport.h"

namespace chimera::benchmarks {

/// Connections in addition to connect_gloo(). Reuses tensors, so that run() contains only calls of c10d and Gloo.
class RawGloo {
 public:
  /// All ranks construct it in the same order. `store_path` is as in connect_gloo().
  RawGloo(RankId rank, const Program& program, const RankGroups& groups, const std::string& store_path,
          const TensorSpec& message, std::int64_t gradients_of_stage);
  ~RawGloo();

  /// Does nothing for ops and the optimizer step.
  void run(const Instruction& instruction);

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace chimera::benchmarks

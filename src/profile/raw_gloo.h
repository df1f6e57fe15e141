#pragma once
// The Gloo calls of a worker's program and nothing else: what no transport over Gloo can do without.

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "schedule/program.h"
#include "transport/transport.h"

namespace chimera::benchmarks {

/// A second set of connections between ranks that have met already (connect_gloo), for one worker. Tensors are made
/// beforehand and used again, so that c10d's and Gloo's calls are all that run() does.
class RawGloo {
 public:
  /// All ranks call it in one order. `store_path`: as for connect_gloo.
  RawGloo(RankId rank, const Program& program, const RankGroups& groups, const std::string& store_path,
          const TensorSpec& message, std::int64_t gradients_of_stage);
  ~RawGloo();

  /// The call that the instruction needs; nothing for ops and the optimizer step.
  void run(const Instruction& instruction);

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace chimera::benchmarks

#pragma once
// What one rank writes of a checkpoint, and the copy of it that is written while training goes on.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/shard.h"
#include "engine/optimizer.h"
#include "model/parameter_group.h"
#include "train/setup/job.h"

namespace chimera {

/// The tensors that a rank writes. Each of the model is written once: the ranks that hold a stage share its parameters
/// by size, as a sharded optimizer does (engine/sharded_optimizer.h), so that each has the state of those it writes.
class CheckpointPart {
 public:
  /// `trained`: what the rank holds; `state`: what its optimizers keep. Their tensors are those of the run, and are
  /// read by copy().
  CheckpointPart(const Job& job, RankId rank, const std::map<ParameterGroupId, ParameterGroup*>& trained,
                 const std::vector<OptimizerTensor>& state);

  /// Copies all of it into memory of its own, which stays for the next copy.
  void copy();
  /// Writes what was copied into an unfinished checkpoint. `progress` is called now and then.
  [[nodiscard]] std::vector<FileRecord> write(Disk& disk, const std::string& unfinished,
                                              const std::function<void()>& progress) const;

 private:
  struct Piece {
    TensorEntry entry;
    at::Tensor source;  // not what it refers to now: weight versions lie in turn in other memory
    at::Tensor copy;    // on the CPU; undefined before the first copy
  };
  static void add(std::vector<Piece>& pieces, std::string name, const at::Tensor& source);

  int rank_;
  int ranks_;
  std::vector<Piece> weights_;
  std::vector<Piece> state_;
};

}  // namespace chimera

#include "train/recover/checkpoint_part.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "checkpoint/error.h"
#include "engine/sharded_optimizer.h"
#include "hugging_face/stored_names.h"
#include "model/element_types.h"
#include "runtime/non_finite.h"
#include "train/recover/job_checkpoints.h"

namespace chimera {
namespace {

/// Those of a group's parameters that the rank writes.
std::vector<Parameter> share_of(const ParameterGroup& group, const std::vector<RankId>& holders, RankId rank) {
  std::vector<std::int64_t> sizes;
  for (const Parameter& parameter : group.parameters()) sizes.push_back(parameter.value.numel());
  const std::vector<std::size_t> owners = owners_of(sizes, holders.size());
  const auto own = static_cast<std::size_t>(std::ranges::find(holders, rank) - holders.begin());
  std::vector<Parameter> share;
  for (std::size_t p = 0; p < owners.size(); ++p) {
    if (owners[p] == own) share.push_back(group.parameters()[p]);
  }
  return share;
}

}  // namespace

CheckpointPart::CheckpointPart(const Job& job, RankId rank, const std::map<ParameterGroupId, ParameterGroup*>& trained,
                               const std::vector<OptimizerTensor>& state)
    : rank_(static_cast<int>(rank.value())), ranks_(static_cast<int>(job.num_ranks())) {
  const RankGroups holders = job.rank_groups();
  std::set<std::string> written;
  for (const auto& [id, group] : trained) {
    for (const Parameter& parameter : share_of(*group, holders[id.index()], rank)) {
      written.insert(parameter.name);
      for (const std::string& name : exported_names(job.model, parameter.name)) add(weights_, name, parameter.value);
    }
  }
  for (const OptimizerTensor& tensor : state) {
    if (!written.contains(tensor.parameter)) continue;
    add(state_, state_name(job.model, tensor.parameter, tensor.kind), tensor.value);
  }
}

void CheckpointPart::add(std::vector<Piece>& pieces, std::string name, const at::Tensor& source) {
  TensorEntry entry{.name = std::move(name), .type = element_type(source.scalar_type()), .shape = source.sizes().vec()};
  pieces.push_back({std::move(entry), source, {}});
}

void CheckpointPart::copy() {
  const at::NoGradGuard no_grad;
  for (std::vector<Piece>* pieces : {&weights_, &state_}) {
    for (Piece& piece : *pieces) {
      const at::Tensor source = piece.source.detach();
      if (!piece.copy.defined()) piece.copy = at::empty_like(source, source.options().device(at::kCPU));
      piece.copy.copy_(source);
    }
  }
}

std::vector<FileRecord> CheckpointPart::write(Disk& disk, const std::string& unfinished,
                                              const std::function<void()>& progress) const {
  std::vector<FileRecord> files;
  for (const ShardKind kind : {ShardKind::Weights, ShardKind::OptimizerState}) {
    std::vector<ShardTensor> tensors;
    for (const Piece& piece : kind == ShardKind::Weights ? weights_ : state_) {
      if (!all_finite(piece.copy)) throw CheckpointError(fmt::format("{} is not finite", piece.entry.name));
      tensors.push_back(
          {piece.entry, {static_cast<const std::byte*>(piece.copy.const_data_ptr()), piece.copy.nbytes()}});
    }
    if (tensors.empty()) continue;
    files.push_back(write_shard(disk, unfinished, shard_name(kind, rank_, ranks_), tensors, progress));
  }
  return files;
}

}  // namespace chimera

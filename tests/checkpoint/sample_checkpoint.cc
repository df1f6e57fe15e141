#include "checkpoint/sample_checkpoint.h"

#include <fmt/format.h>

#include "checkpoint/commit.h"
#include "checkpoint/shard.h"

namespace chimera::testing {

std::vector<float> sample_elements(std::int64_t step) {
  std::vector<float> elements(64);
  for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<float>(step) + static_cast<float>(i) / 64;
  return elements;
}

void save_sample(Disk& disk, const std::string& folder, std::int64_t step, const Retention& retention, int ranks) {
  const std::string unfinished = open_unfinished(disk, folder, step);
  const std::vector<float> elements = sample_elements(step);
  const auto tensor = [&](const std::string& name) {
    return ShardTensor{{.name = name, .type = ElementType::F32, .shape = {8, 8}}, std::as_bytes(std::span(elements))};
  };
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string name = fmt::format("rank-{}.weight", rank);
    const auto write = [&](ShardKind kind, const std::vector<ShardTensor>& tensors) {
      return write_shard(disk, unfinished, shard_name(kind, rank, ranks), tensors);
    };
    mark_rank_written(
        disk, unfinished, rank,
        {write(ShardKind::Weights, {tensor(name)}),
         write(ShardKind::OptimizerState, {tensor(name + ".first_moment"), tensor(name + ".second_moment")})});
  }
  commit(disk, folder, step, ranks, {{{"model", {{"layers", 2}}}}, {{"config.json", "{}\n"}}});
  remove_expired(disk, folder, step, retention);
}

}  // namespace chimera::testing

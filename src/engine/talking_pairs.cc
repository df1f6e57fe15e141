#include "engine/talking_pairs.h"

#include <algorithm>

namespace chimera {

void add_talking_pairs(const RankLayout& ranks, const Program& program, std::set<RankPair>& pairs) {
  for (std::size_t w = 0; w < program.workers.size(); ++w) {
    for (const Instruction& instruction : program.workers[w]) {
      if (!is_transfer(instruction.kind)) continue;
      for (std::int64_t group = 0; group < ranks.data_parallel; ++group) {
        const auto rank_of = [&](WorkerId worker) {
          return static_cast<int>(ranks.rank({GroupId(group), worker}).value());
        };
        const auto [low, high] =
            std::minmax({rank_of(WorkerId(static_cast<std::int64_t>(w))), rank_of(instruction.peer)});
        pairs.insert({low, high});
      }
    }
  }
}

}  // namespace chimera

#define XXH_INLINE_ALL
#include "train/loop/parameters_hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdint>

#include "launch/local/rank.h"

namespace chimera {

std::string parameters_hash(const std::vector<std::string>& names, const std::vector<const ParameterGroup*>& own,
                            Transport& transport) {
  std::vector<double> halves(2 * names.size(), 0);  // 32 bits each: exact in a sum with zeros
  for (const ParameterGroup* group : own) {
    for (const Parameter& parameter : group->parameters()) {
      const at::Tensor value = parameter.value.cpu();
      const XXH64_hash_t hash = XXH3_64bits(value.data_ptr(), value.nbytes());
      const auto at = 2 * (std::lower_bound(names.begin(), names.end(), parameter.name) - names.begin());
      halves[static_cast<std::size_t>(at)] = static_cast<double>(hash >> 32U);
      halves[static_cast<std::size_t>(at) + 1] = static_cast<double>(hash & 0xffffffffU);
      note_more_progress();
    }
  }
  transport.all_sum(halves);
  std::vector<std::uint32_t> words;
  for (const double half : halves) words.push_back(static_cast<std::uint32_t>(half));
  return fmt::format("{:016x}", XXH3_64bits(words.data(), words.size() * sizeof(std::uint32_t)));
}

}  // namespace chimera

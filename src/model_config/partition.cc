#include "model_config/partition.h"

#include <fmt/ranges.h>

#include <cctype>

#include "core/mapped.h"
#include "core/reject.h"
#include "core/value_text.h"

namespace chimera {

std::vector<StageLayers> even_partition(std::int64_t layers, std::int64_t stages) {
  if (stages < 1 || stages > layers)
    reject("cannot cut {} layers into {} stages; each stage needs at least one layer", layers, stages);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(stages), layers / stages);
  std::for_each_n(counts.begin(), layers % stages, [](std::int64_t& count) { ++count; });
  return explicit_partition(counts, layers, stages);
}

std::vector<StageLayers> explicit_partition(const std::vector<std::int64_t>& counts, std::int64_t layers,
                                            std::int64_t stages) {
  const auto listed = [&] { return fmt::format("--partition {}", fmt::join(counts, ",")); };
  if (std::ssize(counts) != stages)
    reject("{}: layers for {} stages; the schedule cuts the model into {}", listed(), counts.size(), stages);
  std::vector<StageLayers> partition;
  std::int64_t first = 0;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    const std::int64_t count = counts[static_cast<std::size_t>(stage)];
    if (count < 1) reject("{}: {} layers on stage {}; each stage needs at least one", listed(), count, stage);
    // Compared before it is added, because a sum of the user's numbers could overflow.
    if (count > layers - first)
      reject("{}: up to stage {} more layers than the {} of the model", listed(), stage, layers);
    partition.push_back({first, first + count, stage == 0, stage == stages - 1});
    first += count;
  }
  if (first != layers) reject("{}: {} layers in all; the model has {}", listed(), first, layers);
  return partition;
}

std::optional<std::vector<std::int64_t>> parse_small_numbers(std::string_view list) {
  std::vector<std::int64_t> numbers;
  for (const std::string_view word : split_at_commas(list)) {
    const auto number = parse_number<std::int32_t>(word);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

PartitionChoice parse_partition(const std::string& text) {
  if (const auto rule = find_named<PartitionRule>(text)) return {*rule};
  if (const auto counts = parse_small_numbers(text)) return {PartitionRule::Listed, *counts};
  if (!text.empty() && std::isalpha(static_cast<unsigned char>(text.front())) != 0)
    throw ConfigError(unknown_name("--partition", text, names_of<PartitionRule>()));
  reject("--partition '{}' is neither auto, even, balanced nor the number of layers on each stage, as in 8,9,9,6",
         text);
}

std::string to_text(const PartitionChoice& choice) {
  if (choice.rule != PartitionRule::Listed) return to_text(choice.rule);
  return fmt::format("{}", fmt::join(choice.layers, ","));
}

std::string to_text(const std::vector<StageLayers>& partition) {
  return fmt::format("{}", fmt::join(mapped(partition, &StageLayers::blocks), ","));
}

}  // namespace chimera

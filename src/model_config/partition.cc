#include "model_config/partition.h"

#include <fmt/ranges.h>

#include <cctype>
#include <charconv>

#include "core/reject.h"

namespace chimera {
namespace {

[[noreturn]] void fail_to_parse(const std::string& text) {
  if (!text.empty() && std::isalpha(static_cast<unsigned char>(text.front())) != 0)
    throw ConfigError(unknown_name("--partition", text, names_of<PartitionRule>()));
  reject("--partition '{}' is neither auto, even, balanced nor the number of layers on each stage, as in 8,9,9,6",
         text);
}

}  // namespace

std::vector<StageLayers> even_partition(std::int64_t layers, std::int64_t stages) {
  if (stages < 1 || stages > layers) {
    reject("cannot cut {} layers into {} stages; each stage needs at least one layer", layers, stages);
  }
  std::vector<std::int64_t> counts(static_cast<std::size_t>(stages), layers / stages);
  std::for_each_n(counts.begin(), layers % stages, [](std::int64_t& count) { ++count; });
  return explicit_partition(counts, layers, stages);
}

std::vector<StageLayers> explicit_partition(const std::vector<std::int64_t>& counts, std::int64_t layers,
                                            std::int64_t stages) {
  const auto listed = [&] { return fmt::format("--partition {}", fmt::join(counts, ",")); };
  if (std::ssize(counts) != stages) {
    reject("{}: layers for {} stages; the schedule cuts the model into {}", listed(), counts.size(), stages);
  }
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

PartitionChoice parse_partition(const std::string& text) {
  if (const auto rule = find_named<PartitionRule>(text)) return {*rule};
  std::vector<std::int64_t> counts;
  const char* const end = text.data() + text.size();
  for (const char* next = text.data();; ++next) {
    // An empty number (",," or a comma at the end) is an error of from_chars().
    const auto [after, error] = std::from_chars(next, end, counts.emplace_back());
    if (error != std::errc() || (after != end && *after != ',')) fail_to_parse(text);
    if (after == end) return {PartitionRule::Listed, counts};
    next = after;
  }
}

std::string to_text(const PartitionChoice& choice) {
  if (choice.rule != PartitionRule::Listed) return to_text(choice.rule);
  return fmt::format("{}", fmt::join(choice.layers, ","));
}

std::string to_text(const std::vector<StageLayers>& partition) {
  std::string text;
  for (const StageLayers& stage : partition) text += fmt::format("{}{}", text.empty() ? "" : ",", stage.blocks());
  return text;
}

}  // namespace chimera

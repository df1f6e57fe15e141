#include "hugging_face/export_plan.h"

#include <algorithm>
#include <charconv>

#include "core/choices.h"
#include "core/reject.h"
#include "safetensors/weight_files.h"

namespace chimera {
namespace {

std::vector<std::vector<TensorEntry>> dealt_out(std::vector<TensorEntry> tensors, std::uint64_t shard_bytes) {
  std::vector<std::vector<TensorEntry>> shards(1);
  std::uint64_t bytes = 0;  // in the last shard
  for (TensorEntry& tensor : tensors) {
    const std::uint64_t more = bytes_of(tensor.type, tensor.shape);
    // A tensor above the limit gets a file of its own.
    if (!shards.back().empty() && bytes + more > shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += more;
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

}  // namespace

ExportPlan plan_export(std::vector<TensorEntry> tensors, std::uint64_t shard_bytes) {
  ExportPlan plan;
  auto shards = dealt_out(std::move(tensors), shard_bytes);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    // Wider elements first, so that each tensor is aligned to its elements.
    std::ranges::stable_sort(shards[i], std::greater<>(),
                             [](const TensorEntry& tensor) { return bits_of(tensor.type); });
    // The names of save_pretrained(), which readers know.
    const std::string name =
        shards.size() == 1 ? kWeightsName : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    plan.files.push_back({name, lay_out(std::move(shards[i]), {{"format", "pt"}})});
  }
  if (plan.files.size() > 1) {
    std::vector<std::pair<std::string, std::vector<TensorEntry>>> files;
    for (const ExportFile& file : plan.files) files.emplace_back(file.name, file.layout.tensors);
    plan.index = weight_index(files);
  }
  return plan;
}

std::uint64_t parse_bytes(const std::string& flag, const std::string& text) {
  constexpr std::array<Named<std::uint64_t>, 7> kUnits = {{{1, ""},
                                                           {1'000, "KB"},
                                                           {1'000'000, "MB"},
                                                           {1'000'000'000, "GB"},
                                                           {std::uint64_t{1} << 10, "KiB"},
                                                           {std::uint64_t{1} << 20, "MiB"},
                                                           {std::uint64_t{1} << 30, "GiB"}}};
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  // The number ends where from_chars() stops; the rest is the unit.
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const auto known = std::ranges::find(kUnits, unit, &Named<std::uint64_t>::name);
  std::uint64_t bytes = 0;
  const bool fits = error == std::errc() && known != kUnits.end() && number > 0 &&
                    !__builtin_mul_overflow(number, known->value, &bytes);
  if (!fits) reject("{} '{}': must be a size such as 5GB, 300MB, 1GiB or 1000", flag, text);
  return bytes;
}

}  // namespace chimera

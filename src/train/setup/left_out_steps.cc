#include "train/setup/left_out_steps.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <system_error>

#include "checkpoint/disk.h"
#include "checkpoint/manifest.h"
#include "core/json.h"
#include "core/mapped.h"
#include "core/reject.h"

namespace chimera {
namespace {

constexpr const char* kRanges = "left_out";

std::string path_in(const std::string& folder) { return folder + "/" + kLeftOutName; }

LeftOutSteps range_of(const nlohmann::ordered_json& pair) {
  const LeftOutSteps range{pair.at(0).get<std::int64_t>(), pair.at(1).get<std::int64_t>()};
  // at() above throws for fewer than two numbers.
  if (pair.size() != 2 || range.first < 1 || range.last < range.first)
    throw CheckpointError(fmt::format("{} is not a range of steps", json_text(pair)));
  return range;
}

}  // namespace

std::vector<LeftOutSteps> read_left_out(const std::string& folder) {
  const std::string path = path_in(folder);
  std::ifstream file(path, std::ios::binary);
  // No spike yet.
  if (!file) return {};
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto refuse = [&](const char* why) -> ConfigError {
    return ConfigError(
        fmt::format("{}: {}; it lists the steps that --spike leaves out; remove it to run all steps", path, why));
  };
  try {
    return mapped(remove_seal(path, text).at(kRanges), range_of);
  } catch (const CheckpointError& error) {
    throw refuse(error.what());
  } catch (const nlohmann::json::exception&) {
    throw refuse("has no list of ranges");
  }
}

void write_left_out(const std::string& folder, const std::vector<LeftOutSteps>& ranges) {
  // The seal is a hash of the content: a truncated file must not silently train on the steps of a spike.
  const auto pairs = mapped(ranges, [](const LeftOutSteps& range) { return std::pair(range.first, range.last); });
  replace_file(real_disk(), folder, kLeftOutName, add_seal(nlohmann::ordered_json{{kRanges, pairs}}));
}

void forget_left_out(const std::string& folder) {
  std::error_code error;
  std::filesystem::remove(path_in(folder), error);
  // No error if the file does not exist: remove() then returns false.
  if (error) reject("{}: cannot be removed ({})", path_in(folder), error.message());
}

bool leaves_out(const std::vector<LeftOutSteps>& ranges, std::int64_t step) {
  return std::ranges::any_of(ranges, [&](const LeftOutSteps& range) { return range.contains(step); });
}

}  // namespace chimera

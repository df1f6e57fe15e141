#include "train/setup/left_out_steps.h"

#include <algorithm>
#include <system_error>

#include "checkpoint/disk.h"
#include "checkpoint/manifest.h"
#include "core/files.h"
#include "core/reject.h"

namespace chimera {
namespace {

constexpr const char* kRanges = "left_out";

std::string path_in(const std::string& folder) { return folder + "/" + kLeftOutName; }

}  // namespace

std::vector<LeftOutSteps> read_left_out(const std::string& folder) {
  const std::string path = path_in(folder);
  if (!path_exists(path)) return {};  // No spike yet
  try {
    return remove_seal(path, read_whole(path)).at(kRanges).get<std::vector<LeftOutSteps>>();
  } catch (const CheckpointError& error) {
    reject("{}: {}; it lists the steps that --spike leaves out; remove it to run all steps", path, error.what());
  }
}

void write_left_out(const std::string& folder, const std::vector<LeftOutSteps>& ranges) {
  // The seal is a hash of the content: a truncated file must not silently train on the steps of a spike.
  replace_file(real_disk(), folder, kLeftOutName, add_seal(nlohmann::ordered_json{{kRanges, ranges}}));
}

void forget_left_out(const std::string& folder) {
  std::error_code error;
  std::filesystem::remove(path_in(folder), error);
  // No error if the file does not exist: remove() then returns false.
  if (error) reject("{}: cannot be removed ({})", path_in(folder), error.message());
}

bool leaves_out(const std::vector<LeftOutSteps>& ranges, std::int64_t step) {
  return std::ranges::any_of(ranges,
                             [&](const LeftOutSteps& range) { return range.first <= step && step <= range.second; });
}

}  // namespace chimera

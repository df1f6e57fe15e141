#include "checkpoint/find.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/error.h"
#include "checkpoint/verify.h"
#include "core/error.h"

namespace chimera {

Checkpoint open_checkpoint(const std::string& path, int threads, const std::function<void()>& progress) {
  Checkpoint checkpoint{path, read_manifest(path)};
  if (threads == 0) return checkpoint;
  const std::vector<FileFault> faults = verify_files(path, checkpoint.manifest, threads, progress);
  if (faults.empty()) return checkpoint;
  throw CheckpointError(fmt::format("{}/{}: {}", path, faults.front().file, faults.front().what));
}

Newest newest_checkpoint(const std::string& folder, int threads, const std::function<void()>& progress) {
  Newest newest;
  std::vector<std::int64_t> newest_first = listed_steps(folder);
  std::ranges::reverse(newest_first);
  for (const std::int64_t step : newest_first) {
    try {
      newest.checkpoint = open_checkpoint(checkpoint_path(folder, step), threads, progress);
      if (newest.checkpoint->manifest.step == step) return newest;
      newest.refused.push_back(
          fmt::format("{}: is a checkpoint of step {}", newest.checkpoint->path, newest.checkpoint->manifest.step));
      newest.checkpoint.reset();
    } catch (const CheckpointError& error) {
      newest.refused.emplace_back(error.what());
    }
  }
  return newest;
}

Newest find_checkpoint(const std::string& path, int threads, const std::function<void()>& progress) {
  std::error_code none;
  if (std::filesystem::exists(path + "/" + kManifestName, none)) return {open_checkpoint(path, threads, progress), {}};
  Newest newest = newest_checkpoint(path, threads, progress);
  if (newest.checkpoint) return newest;
  if (newest.refused.empty()) throw CheckpointError(fmt::format("{}: has no checkpoints", path));
  throw CheckpointError(fmt::format("{}: has no good checkpoint; {}", path, newest.refused.front()));
}

std::string resolved_model_folder(const std::string& path, int threads) {
  std::error_code none;
  const bool is_checkpoint = std::filesystem::exists(path + "/" + kManifestName, none);
  if (!is_checkpoint && listed_steps(path).empty()) return path;
  try {
    return find_checkpoint(path, threads).checkpoint->path;
  } catch (const CheckpointError& error) {
    throw ConfigError(error.what());
  }
}

}  // namespace chimera

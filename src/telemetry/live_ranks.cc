#include "telemetry/live_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "core/error.h"
#include "telemetry/run_history.h"

namespace chimera {
namespace {

namespace fs = std::filesystem;

/// The page among the open files of a process; none where it has none, or it cannot be opened.
std::optional<ProgressPage> page_of(const fs::path& files) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(files, error)) {
    const std::string target = fs::read_symlink(entry.path(), error).string();
    if (!target.starts_with(std::string("/memfd:") + kProgressName)) continue;
    FileDescriptor page(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    if (page.get() < 0) continue;
    try {
      return ProgressPage::seen(std::move(page));
    } catch (const Error&) {
      continue;  // of another version of the program
    }
  }
  return std::nullopt;
}

/// Whether the process has the file open to write to it.
bool writes_to(const fs::path& files, const fs::path& file) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(files, error)) {
    if (fs::read_symlink(entry.path(), error) != file) continue;
    if ((fs::symlink_status(entry.path(), error).permissions() & fs::perms::owner_write) != fs::perms::none)
      return true;
  }
  return false;
}

}  // namespace

std::optional<LiveRun> LiveRun::find(const std::string& metrics) {
  std::error_code error;
  const fs::path file = fs::canonical(metrics, error);
  if (error) return std::nullopt;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const fs::path files = entry.path() / "fd";
    if (writes_to(files, file)) return LiveRun(static_cast<pid_t>(std::stol(name)), page_of(files));
  }
  return std::nullopt;
}

std::vector<LiveRank> LiveRun::watch(std::chrono::milliseconds time) const {
  if (!page_) return {};
  const auto ranks = static_cast<std::size_t>(page_->ranks());
  std::vector<LiveRank> seen(ranks);
  std::int64_t looks = 0;
  const auto end = std::chrono::steady_clock::now() + time;
  do {
    for (std::size_t r = 0; r < ranks; ++r) {
      const RankProgress progress = page_->last(static_cast<int>(r));
      const bool in_steps = progress.phase == RankProgress::Phase::Steps;
      seen[r].step = in_steps ? progress.step : 0;
      seen[r].doing = in_steps ? to_text(progress.instruction) : to_text(progress);
      if (waits_for_others(progress)) seen[r].waiting += 1;
    }
    ++looks;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (std::chrono::steady_clock::now() < end);
  for (LiveRank& rank : seen) rank.waiting /= static_cast<double>(looks);
  return seen;
}

std::vector<std::size_t> stragglers(const std::vector<LiveRank>& ranks) {
  constexpr double kMuchWaiting = 0.2;
  std::vector<double> waiting;
  for (const LiveRank& rank : ranks) waiting.push_back(rank.waiting);
  const double usual = median_of(std::move(waiting));
  std::vector<std::size_t> found;
  if (usual < kMuchWaiting) return found;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].waiting < usual / 2) found.push_back(r);
  }
  return found;
}

}  // namespace chimera

#include "checkpoint/checkpoint_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "core/parse_number.h"

namespace chimera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kUnfinished = ".tmp";
constexpr std::size_t kLeastDigits = 8;
constexpr std::size_t kMostDigits = 12;

/// Names of the folders in a folder.
std::vector<std::string> folders_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unreadable;
    if (fs::is_directory(entry->symlink_status(unreadable))) names.push_back(entry->path().filename().string());
  }
  return names;
}

}  // namespace

std::string checkpoint_name(std::int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

std::optional<std::int64_t> step_of_name(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = std::string_view(name).substr(kPrefix.size());
  if (digits.size() < kLeastDigits || digits.size() > kMostDigits) return std::nullopt;
  const auto step = parse_number<std::int64_t>(digits);
  return step && *step >= 0 && checkpoint_name(*step) == name ? step : std::nullopt;
}

std::string checkpoint_path(const std::string& folder, std::int64_t step) {
  return folder + "/" + checkpoint_name(step);
}

std::string unfinished_path(const std::string& folder, std::int64_t step) {
  return checkpoint_path(folder, step) + std::string(kUnfinished);
}

std::vector<std::int64_t> listed_steps(const std::string& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : folders_in(folder)) {
    if (const auto step = step_of_name(name)) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

std::vector<std::int64_t> superfluous(const std::vector<std::int64_t>& steps, const Retention& retention) {
  const auto kept = std::min(steps.size(), static_cast<std::size_t>(retention.last));
  std::vector<std::int64_t> old(steps.begin(), steps.end() - static_cast<std::ptrdiff_t>(kept));
  std::erase_if(old, [&](std::int64_t step) { return retention.every > 0 && step % retention.every == 0; });
  return old;
}

void remove_superfluous(Disk& disk, const std::string& folder, std::int64_t newest, const Retention& retention) {
  std::vector<std::int64_t> steps = listed_steps(folder);
  std::erase_if(steps, [&](std::int64_t step) { return step > newest; });
  for (const std::int64_t step : superfluous(steps, retention)) {
    disk.rename(checkpoint_path(folder, step), unfinished_path(folder, step));
    remove_with_files(disk, unfinished_path(folder, step));
  }
}

void remove_leftovers(Disk& disk, const std::string& folder) {
  for (const std::string& name : folders_in(folder)) {
    if (!name.ends_with(kUnfinished)) continue;
    if (!step_of_name(name.substr(0, name.size() - kUnfinished.size()))) continue;
    remove_with_files(disk, folder + "/" + name);
  }
}

}  // namespace chimera

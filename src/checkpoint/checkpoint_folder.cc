#include "checkpoint/checkpoint_folder.h"

#include <fmt/format.h>
#include <algorithm>
#include <system_error>
#include <utility>

#include "checkpoint/verify.h"
#include "core/choices.h"
#include "core/console.h"
#include "core/files.h"

// Only names decide which folders are checkpoints: step-00000100 is complete, because commit() gives this name last,
// and step-00000100.tmp is not. So a search lists names, takes the newest, and opens it; if it is damaged, the next
// older one. Another process may add and remove checkpoints meanwhile. Therefore errors of listing are ignored where a
// file may just have gone, and readers of a model try again (use_model_folder()).

namespace chimera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kUnfinished = ".tmp";
constexpr std::size_t kMinDigits = 8;
constexpr std::size_t kMaxDigits = 12;

/// Returns no entries if the folder does not exist. Throws CheckpointError if it cannot be read.
std::vector<fs::path> entries_in(const std::string& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    entries.push_back(entry->path());
  // Other errors mean that the folder is absent, or goes away while it is read: then it has no checkpoints.
  if (error == std::errc::permission_denied)
    throw CheckpointError(fmt::format("{}: cannot be read ({})", folder, error.message()));
  return entries;
}

bool is_link(const fs::path& path) {
  std::error_code unreadable;
  return fs::is_symlink(path, unreadable);
}

/// Returns the steps of the folder's checkpoints, ascending. A link belongs to the user, so it is read but not removed.
std::vector<std::int64_t> steps_in(const std::string& folder, bool with_links) {
  std::vector<std::int64_t> steps;
  for (const fs::path& entry : entries_in(folder)) {
    const auto step = step_of_name(entry.filename().string());
    if (step && is_folder(entry) && (with_links || !is_link(entry))) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

/// Adds a line for each such name after step `after` that is no folder.
void note_passed_over(const std::string& folder, std::int64_t after, std::vector<std::string>& lines) {
  for (const fs::path& entry : entries_in(folder)) {
    const auto step = step_of_name(entry.filename().string());
    if (step && *step > after && !is_folder(entry))
      lines.push_back(entry.string() + ": is not the folder of a checkpoint");
  }
}

/// Returns the checkpoint or folder that the user means with one of its files, `latest` or `manifest.json`.
std::string folder_of(const std::string& path) {
  const fs::path file(path);
  const fs::path parent = file.has_parent_path() ? file.parent_path() : fs::path(".");
  if (file.filename() == kManifestName && !is_folder(path)) return folder_of(parent.string());
  if (file.filename() != kLatestName || !is_file(path)) return path;
  // The file has the name of a checkpoint, and a line end.
  const std::string name = read_small_file(path);
  return (parent / name.substr(0, name.find('\n'))).string();
}

}  // namespace

std::string checkpoint_name(std::int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

// Only the spelling of checkpoint_name() counts, so that each step has one name.
std::optional<std::int64_t> step_of_name(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = std::string_view(name).substr(kPrefix.size());
  if (digits.size() < kMinDigits || digits.size() > kMaxDigits) return std::nullopt;
  const auto step = parse_number<std::int64_t>(digits);
  return step && *step >= 0 && checkpoint_name(*step) == name ? step : std::nullopt;
}

std::string checkpoint_path(const std::string& folder, std::int64_t step) {
  return folder + "/" + checkpoint_name(step);
}

std::string unfinished_path(const std::string& folder, std::int64_t step) {
  return checkpoint_path(folder, step) + std::string(kUnfinished);
}

std::vector<std::int64_t> list_steps(const std::string& folder) { return steps_in(folder, /*with_links=*/true); }

std::vector<std::int64_t> find_expired_steps(const std::vector<std::int64_t>& steps, const Retention& retention) {
  const auto kept = std::min(steps.size(), static_cast<std::size_t>(retention.last));
  std::vector<std::int64_t> old(steps.begin(), steps.end() - static_cast<std::ptrdiff_t>(kept));
  if (retention.every == 0) return old;
  // Example: with last = 1 and every = 100, the steps 120, 210 and 250 of 50, 120, 180, 210 and 250 stay.
  std::int64_t multiple = 0;  // The first checkpoint at or after each multiple stays, because a save may start late
  std::erase_if(
      old, [&](std::int64_t step) { return step / retention.every > std::exchange(multiple, step / retention.every); });
  return old;
}

void remove_expired(Disk& disk, const std::string& folder, std::int64_t newest, const Retention& retention) {
  std::vector<std::int64_t> steps = steps_in(folder, /*with_links=*/false);
  // Checkpoints of later steps are of an earlier attempt, which the user may still want.
  std::erase_if(steps, [&](std::int64_t step) { return step > newest; });
  for (const std::int64_t step : find_expired_steps(steps, retention)) {
    // A reader must never see a checkpoint with some of its files; the new name marks it as unfinished.
    disk.rename(checkpoint_path(folder, step), unfinished_path(folder, step));
    remove_with_files(disk, unfinished_path(folder, step));
  }
}

// Only names that a run gives are removed: a user may keep other files with this ending in the folder.
void remove_unfinished(Disk& disk, const std::string& folder) {
  for (const fs::path& entry : entries_in(folder)) {
    if (!is_folder(entry) || is_link(entry) || entry.extension() != kUnfinished) continue;
    if (step_of_name(entry.stem().string())) remove_with_files(disk, entry.string());
  }
}

Checkpoint open_checkpoint(const std::string& path, int threads, const std::function<void()>& progress) {
  Checkpoint checkpoint{.path = path, .manifest = read_manifest(path)};
  if (threads == 0) return checkpoint;
  const std::vector<FileFault> faults = verify_files(path, checkpoint.manifest, threads, progress);
  if (faults.empty()) return checkpoint;
  throw CheckpointError(fmt::format("{}/{}: {}", path, faults.front().file, faults.front().what));
}

// A damaged checkpoint must not end a run that could continue from an older one, so faults are collected, not thrown.
NewestCheckpoint newest_checkpoint(const std::string& folder, int threads, const std::function<void()>& progress) {
  NewestCheckpoint newest;
  std::vector<std::int64_t> newest_first = list_steps(folder);
  std::ranges::reverse(newest_first);
  for (const std::int64_t step : newest_first) {
    try {
      newest.checkpoint = open_checkpoint(checkpoint_path(folder, step), threads, progress);
      if (newest.checkpoint->manifest.step == step) {  // else a renamed folder, which would be resumed at a wrong step
        note_passed_over(folder, step, newest.rejected);
        return newest;
      }
      newest.rejected.push_back(
          fmt::format("{}: is a checkpoint of step {}", newest.checkpoint->path, newest.checkpoint->manifest.step));
      newest.checkpoint.reset();
    } catch (const CheckpointError& error) {
      newest.rejected.emplace_back(error.what());
    }
  }
  note_passed_over(folder, -1, newest.rejected);
  return newest;
}

void report_rejected(const NewestCheckpoint& newest) {
  for (const std::string& why : newest.rejected) print_message("refused " + why);
  if (newest.rejected.empty() || !newest.checkpoint) return;
  print_message(fmt::format("uses {} instead", newest.checkpoint->path));
}

NewestCheckpoint find_checkpoint(const std::string& given, int threads, const std::function<void()>& progress) {
  const std::string path = folder_of(given);
  if (path_exists(path + "/" + kManifestName))
    return {.checkpoint = open_checkpoint(path, threads, progress), .rejected = {}};
  NewestCheckpoint newest = newest_checkpoint(path, threads, progress);
  if (newest.checkpoint) return newest;
  if (newest.rejected.empty()) throw CheckpointError(fmt::format("{}: has no checkpoints", path));
  throw CheckpointError(fmt::format("{}: has no good checkpoint; {}", path, newest.rejected.front()));
}

std::string resolve_model_folder(const std::string& given, int threads) {
  const std::string path = folder_of(given);
  const bool is_checkpoint = path_exists(path + "/" + kManifestName);
  try {
    for (;;) {
      const std::vector<std::int64_t> steps = list_steps(path);
      if (!is_checkpoint && steps.empty()) return path;
      try {
        const NewestCheckpoint newest = find_checkpoint(path, threads);
        report_rejected(newest);
        return newest.checkpoint->path;
      } catch (const CheckpointError&) {
        // Else a running job has replaced all checkpoints of the list.
        if (list_steps(path) == steps) throw;
      }
    }
  } catch (const CheckpointError& error) {
    throw ConfigError(error.what());
  }
}

void use_model_folder(const std::string& path, int threads, const std::function<void(const std::string&)>& use) {
  for (;;) {
    const std::string folder = resolve_model_folder(path, threads);
    try {
      return use(folder);
    } catch (const Error&) {
      // Otherwise the folder is a checkpoint that resolve_model_folder() has found and a running job has replaced
      // since.
      if (folder == path || path_exists(folder)) throw;
      print_message(fmt::format("{} was removed meanwhile; looks for a newer one", folder));
    }
  }
}

}  // namespace chimera

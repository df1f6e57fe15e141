#include "checkpoint/commit.h"

#include <fmt/format.h>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/shard.h"
#include "core/fault_point.h"
#include "core/files.h"
#include "safetensors/safetensors_file.h"
#include "safetensors/weight_files.h"

// Ranks tell the committing rank what they have written by files in the folder (rank-00001.json), which all hosts share
// in any case. These records are sealed like a manifest, so that half a record is noticed.

namespace chimera {
namespace {

namespace fs = std::filesystem;

std::string part_path(const std::string& unfinished, int rank) {
  return fmt::format("{}/rank-{:05}.json", unfinished, rank);
}

std::string parent_of(const std::string& folder) {
  const fs::path parent = fs::path(folder).parent_path();
  return parent.empty() ? "." : parent.string();
}

/// Returns the files of all ranks, and removes the records of their parts.
std::vector<FileEntry> take_parts(Disk& disk, const std::string& unfinished, int ranks) {
  std::vector<FileEntry> files;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string path = part_path(unfinished, rank);
    for (FileEntry& file : parse_files(path, remove_seal(path, read_small_file(path))))
      files.push_back(std::move(file));
  }
  // Only once all could be read: a failure before leaves all records in place.
  for (int rank = 0; rank < ranks; ++rank) disk.remove_file(part_path(unfinished, rank));
  return files;
}

FileEntry add_text(Disk& disk, const std::string& unfinished, const std::string& name, const std::string& text) {
  write_file(disk, unfinished + "/" + name, text);
  BlockHasher hasher;
  hasher.add(std::as_bytes(std::span(text)));
  return {.name = name, .bytes = text.size(), .blocks = hasher.finish()};
}

/// Returns the weight index for other readers.
std::string index_of(const std::string& unfinished, const std::vector<FileEntry>& files) {
  std::vector<std::pair<std::string, std::vector<TensorEntry>>> weights;
  for (const FileEntry& file : files) {
    // With one rank the file is model.safetensors, which needs no index.
    if (!file.name.starts_with("model-")) continue;
    // Reads back only headers, of files that other ranks may have written.
    const SafetensorsFile opened(unfinished + "/" + file.name);
    weights.emplace_back(file.name, opened.tensors().all());
  }
  return weights.empty() ? "" : weight_index(weights);
}

void move_to_its_place(Disk& disk, const std::string& folder, std::int64_t step) {
  const std::string unfinished = unfinished_path(folder, step);
  const std::string place = checkpoint_path(folder, step);
  // A rejected checkpoint, or the same step again.
  const bool is_replacement = path_exists(place);
  if (is_replacement && !is_folder(place))
    throw CheckpointError(place + ": is a file; remove it, or give another folder");
  // The swap keeps a complete checkpoint under this name at any time; where the kernel has no swap, a crash in between
  // loses only this step.
  if (!is_replacement || !disk.exchange(unfinished, place)) {
    if (is_replacement) remove_with_files(disk, place);
    disk.rename(unfinished, place);
  }
  disk.sync_folder(folder);
  if (is_replacement) abandon(disk, folder, step);
}

}  // namespace

void make_run_folder(Disk& disk, const std::string& folder) {
  // The name of a new folder is in its parent, so the parent is what must reach the disk.
  if (disk.make_folder(folder)) disk.sync_folder(parent_of(folder));
}

std::string open_unfinished(Disk& disk, const std::string& folder, std::int64_t step) {
  make_run_folder(disk, folder);
  std::string path = unfinished_path(folder, step);
  disk.make_folder(path);
  return path;
}

void mark_rank_written(Disk& disk, const std::string& unfinished, int rank, const std::vector<FileEntry>& files) {
  write_file(disk, part_path(unfinished, rank), add_seal({{"files", files_json(files)}}));
}

// The order makes a crash harmless at any point: files first, then the manifest that declares them complete, then the
// name that readers look for, and last the hint in `latest`. Each step is on the disk before the next begins.
void commit(Disk& disk, const std::string& folder, std::int64_t step, int ranks, const CheckpointContent& content) {
  const std::string unfinished = unfinished_path(folder, step);
  Manifest manifest{.step = step, .run = content.run, .files = take_parts(disk, unfinished, ranks)};
  for (const auto& [name, text] : content.files) manifest.files.push_back(add_text(disk, unfinished, name, text));
  if (const std::string index = index_of(unfinished, manifest.files); !index.empty())
    manifest.files.push_back(add_text(disk, unfinished, kIndexName, index));
  fault_point("before-manifest");
  write_file(disk, unfinished + "/" + kManifestName, to_text(manifest));
  disk.sync_folder(unfinished);
  fault_point("before-rename");
  move_to_its_place(disk, folder, step);
  fault_point("after-rename");
  replace_file(disk, folder, kLatestName, checkpoint_name(step) + "\n");
}

void abandon(Disk& disk, const std::string& folder, std::int64_t step) {
  try {
    remove_with_files(disk, unfinished_path(folder, step));
  } catch (const std::exception&) {
    // The next run removes it.
  }
}

}  // namespace chimera

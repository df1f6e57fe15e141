#include "checkpoint/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "core/error.h"
#include "core/files.h"
#include "safetensors/regular_file.h"

namespace chimera {
namespace {

/// A file and the first of its faults, by position: threads find faults in any order, and the report must not depend on
/// it.
struct Examined {
  const FileEntry* record = nullptr;
  std::unique_ptr<RegularFile> file;  // null if the file is unreadable or has another size
  std::uint64_t first_block = 0;      // counted over all files
  std::mutex mutex{};
  std::uint64_t faulty_block = UINT64_MAX;
  std::string fault{};

  void blame(std::uint64_t block, std::string what) {
    const std::lock_guard lock(mutex);
    if (block >= faulty_block) return;
    faulty_block = block;
    fault = std::move(what);
  }
};

void open(const std::string& checkpoint, Examined& examined) {
  const std::string path = checkpoint + "/" + examined.record->name;
  try {
    auto file = std::make_unique<RegularFile>(path);
    if (file->bytes() != examined.record->bytes)
      return examined.blame(0, fmt::format("has {} bytes, not {}", file->bytes(), examined.record->bytes));
    examined.file = std::move(file);
  } catch (const ConfigError&) {
    examined.blame(0, path_exists(path) ? "cannot be read" : "is missing");
  }
}

void check_everything(Examined& examined, std::uint64_t block, std::vector<std::byte>& buffer) {
  if (!examined.file) return;
  const std::uint64_t begin = block * kHashBlockBytes;
  const auto bytes = std::min(kHashBlockBytes, examined.record->bytes - begin);
  const auto part = std::span(buffer).first(bytes);
  try {
    examined.file->read(begin, part);
  } catch (const ConfigError&) {
    return examined.blame(block, fmt::format("cannot be read at byte {}", begin));
  }
  if (hash128(part) == examined.record->blocks[block]) return;
  examined.blame(block, fmt::format("differs from its hash in the {} bytes from {} on", bytes, begin));
}

}  // namespace

std::vector<FileFault> verify_files(const std::string& checkpoint, const Manifest& manifest, int threads,
                                    const std::function<void()>& progress) {
  std::vector<Examined> files(manifest.files.size());
  std::uint64_t blocks = 0;
  std::uint64_t largest = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    files[i].record = &manifest.files[i];
    files[i].first_block = blocks;
    blocks += manifest.files[i].blocks.size();
    // No buffer is larger than a block, and a small checkpoint needs less.
    largest = std::max(largest, std::min(kHashBlockBytes, manifest.files[i].bytes));
    open(checkpoint, files[i]);
  }
  std::atomic<std::uint64_t> next = 0;  // over the blocks of all files, so that threads share a single large file
  const auto work = [&] {
    std::vector<std::byte> buffer(largest);
    for (std::uint64_t block = next++; block < blocks; block = next++) {
      // The last file that begins at or before the block. An empty file has no blocks; its number is that of the next
      // file, which comes after it.
      const auto file = std::ranges::upper_bound(files, block, {}, &Examined::first_block) - 1;
      check_everything(*file, block - file->first_block, buffer);
      if (progress) progress();
    }
  };
  {
    std::vector<std::jthread> others;
    // A thread without a block would only allocate its buffer.
    const auto useful = std::min<std::uint64_t>(static_cast<std::uint64_t>(std::max(threads, 1)), blocks);
    for (std::uint64_t i = 1; i < useful; ++i) others.emplace_back(work);
    work();
  }
  std::vector<FileFault> faults;
  for (const Examined& file : files) {
    if (!file.fault.empty()) faults.push_back({.file = file.record->name, .what = file.fault});
  }
  return faults;
}

}  // namespace chimera

#include "checkpoint/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "core/error.h"
#include "core/files.h"
#include "safetensors/regular_file.h"

namespace chimera {
namespace {

/// A file and its faults. Threads find faults in any order, so each block has a place of its own.
struct Examined {
  const FileEntry& record;
  std::uint64_t first_block = 0;      // counted over all files
  std::unique_ptr<RegularFile> file;  // null if the file is unreadable or has another size
  std::vector<std::string> faults;    // of the file as a whole, then of each block; empty: none
};

Examined open(const std::string& checkpoint, const FileEntry& record, std::uint64_t first_block) {
  Examined examined{record, first_block, nullptr, std::vector<std::string>(1 + record.blocks.size())};
  const std::string path = checkpoint + "/" + record.name;
  try {
    auto file = std::make_unique<RegularFile>(path);
    if (file->bytes() == record.bytes)
      examined.file = std::move(file);
    else
      examined.faults[0] = fmt::format("has {} bytes, not {}", file->bytes(), record.bytes);
  } catch (const ConfigError&) {
    examined.faults[0] = path_exists(path) ? "cannot be read" : "is missing";
  }
  return examined;
}

/// Returns the fault of a block, or an empty text.
std::string fault_of(const Examined& examined, std::uint64_t block, std::vector<std::byte>& buffer) {
  if (!examined.file) return "";
  const std::uint64_t begin = block * kHashBlockBytes;
  const auto bytes = std::min(kHashBlockBytes, examined.record.bytes - begin);
  const auto part = std::span(buffer).first(bytes);
  try {
    examined.file->read(begin, part);
  } catch (const ConfigError&) {
    return fmt::format("cannot be read at byte {}", begin);
  }
  if (hash128(part) == examined.record.blocks[block]) return "";
  return fmt::format("differs from its hash in the {} bytes from {} on", bytes, begin);
}

}  // namespace

std::vector<FileFault> verify_files(const std::string& checkpoint, const Manifest& manifest, int threads,
                                    const std::function<void()>& progress) {
  std::vector<Examined> files;
  std::uint64_t blocks = 0;
  for (const FileEntry& record : manifest.files) {
    files.push_back(open(checkpoint, record, blocks));
    blocks += record.blocks.size();
  }
  std::atomic<std::uint64_t> next = 0;  // over the blocks of all files, so that threads share a single large file
  const auto work = [&] {
    std::vector<std::byte> buffer(kHashBlockBytes);
    for (std::uint64_t block = next++; block < blocks; block = next++) {
      // The last file that begins at or before the block. An empty file has no blocks; its number is that of the next
      // file, which comes after it.
      const auto file = std::ranges::upper_bound(files, block, {}, &Examined::first_block) - 1;
      const std::uint64_t own = block - file->first_block;
      file->faults[1 + own] = fault_of(*file, own, buffer);
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
    const auto first = std::ranges::find_if(file.faults, [](const std::string& fault) { return !fault.empty(); });
    if (first != file.faults.end()) faults.push_back({.file = file.record.name, .what = *first});
  }
  return faults;
}

}  // namespace chimera

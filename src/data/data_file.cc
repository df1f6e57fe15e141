#define XXH_STATIC_LINKING_ONLY
#define XXH_INLINE_ALL
#include "data/data_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <fmt/format.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "core/cgroup.h"
#include "core/error.h"
#include "core/files.h"
#include "core/signals.h"

namespace chimera {
namespace {

[[noreturn]] void refuse_data(const std::string& path, const std::string& reason) {
  throw ConfigError(
      fmt::format("cannot read the corpus {}: {}; expected a UTF-8 text file or a token file", path, reason));
}

/// A pipe, a device or standard input: training reads samples in any order, and again in each epoch.
[[noreturn]] void refuse_stream(const std::string& path, const std::string& reason) {
  throw ConfigError(
      fmt::format("cannot read the corpus {}: {}; write the text to a file, or make tokens of it: COMMAND | chimera "
                  "tokenize - --tokenizer TOKENIZER --output PREFIX",
                  path, reason));
}

FileDescriptor open_regular(const std::string& path) {
  // Non-blocking, because opening a pipe would wait for its writer.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0 && path == "-") refuse_stream(path, "it is standard input");
  if (file.get() < 0) refuse_data(path, system_message(errno));
  struct stat status {};
  check_system(::fstat(file.get(), &status), "examine " + path);
  if (S_ISDIR(status.st_mode)) refuse_data(path, "it is a directory");
  if (!S_ISREG(status.st_mode)) refuse_stream(path, "it is not a regular file");
  if (status.st_size == 0) refuse_data(path, "it is empty");
  return file;
}

constexpr std::size_t kHexDigits = 16;

std::string kept_in(const HashCache& cache, const DataFile::State& state) {
  return fmt::format("{}/{:x}-{:x}-{:x}-{:x}-{:x}", cache.folder, state.device, state.inode, state.size, state.modified,
                     state.changed);
}

std::optional<std::uint64_t> kept_hash(const std::string& path) {
  std::string text(kHexDigits + 1, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.gcount() != static_cast<std::streamsize>(kHexDigits)) return std::nullopt;
  std::uint64_t hash = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + kHexDigits, hash, 16);
  if (error != std::errc() || end != text.data() + kHexDigits) return std::nullopt;
  return hash;
}

void keep_hash(const HashCache& cache, const std::string& path, std::uint64_t hash) {
  std::error_code ignored;
  std::filesystem::create_directories(cache.folder, ignored);
  try {
    write_whole(path, fmt::format("{:016x}", hash));
  } catch (const Error&) {
    // The next run hashes the file again.
  }
}

using Block = std::vector<std::byte>;

Block read_block(const DataFile& file, std::int64_t offset, std::int64_t most) {
  Block block(static_cast<std::size_t>(std::min(file.size() - offset, most)));
  file.read(offset, block);
  return block;
}

/// Hashing is several times faster than reading, also of a sparse file: other threads read the blocks, and this one
/// hashes them in their order, so that the hash is that of the whole file.
std::uint64_t read_and_hash(const DataFile& file, const std::function<void(std::int64_t bytes)>& progress) {
  constexpr std::int64_t kBlock = 16 << 20;
  constexpr int kMostReaders = 16;
  const SignalBlocker no_signals;  // in the readers
  std::deque<std::future<Block>> ahead;
  std::int64_t next = 0;
  const auto read_next = [&] {
    if (next >= file.size()) return;
    const bool is_only = file.size() <= kBlock;
    ahead.push_back(std::async(is_only ? std::launch::deferred : std::launch::async | std::launch::deferred,
                               [&file, offset = next] { return read_block(file, offset, kBlock); }));
    next += kBlock;
  };
  for (int i = 0; i < std::min(available_cores(), kMostReaders); ++i) read_next();
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (std::int64_t hashed = 0; !ahead.empty();) {
    const Block block = ahead.front().get();
    ahead.pop_front();
    read_next();
    XXH3_64bits_update(&state, block.data(), block.size());
    progress(hashed += static_cast<std::int64_t>(block.size()));
  }
  return XXH3_64bits_digest(&state);
}

}  // namespace

DataFile file_in_memory(std::span<const std::byte> bytes, const std::string& name) {
  // A file without a name has the same interface as one on disk, and its memory can be swapped out.
  FileDescriptor file(check_system(::memfd_create("chimera-tokens", MFD_CLOEXEC), "make a file in memory"));
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw Error("cannot keep the tokens of " + name + " in memory: " + system_message(errno));
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {std::move(file), name};
}

DataFile::DataFile(const std::string& path) : DataFile(open_regular(path), path) {}

DataFile::DataFile(FileDescriptor file, std::string name) : file_(std::move(file)), path_(std::move(name)) {
  size_ = state().size;
}

void DataFile::read(std::int64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(file_.get(), bytes.data(), bytes.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(fmt::format("cannot read {} at byte {}: {}", path_, offset, system_message(errno)));
    if (got == 0) {
      throw Error(
          fmt::format("{} has shrunk: it had {} bytes when the run started and ends at byte {} now; do not change data "
                      "while a run reads them",
                      path_, size_, state().size));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
}

DataFile::State DataFile::state() const {
  constexpr std::int64_t kSecond = 1'000'000'000;
  struct stat status {};
  check_system(::fstat(file_.get(), &status), "examine " + path_);
  const auto nanoseconds = [](const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; };
  return {.device = static_cast<std::int64_t>(status.st_dev),
          .inode = static_cast<std::int64_t>(status.st_ino),
          .size = status.st_size,
          .modified = nanoseconds(status.st_mtim),
          .changed = nanoseconds(status.st_ctim),
          .links = static_cast<std::int64_t>(status.st_nlink)};
}

HashCache default_hash_cache() {
  const char* caches = std::getenv("XDG_CACHE_HOME");
  if (caches != nullptr && *caches == '/') return {fmt::format("{}/chimera/hashes", caches)};
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return {fmt::format("{}/.cache/chimera/hashes", home)};
  return {};
}

std::uint64_t content_hash(const DataFile& file, const HashCache& cache,
                           const std::function<void(std::int64_t bytes)>& progress) {
  if (cache.folder.empty() || file.size() < cache.least_bytes) return read_and_hash(file, progress);
  const DataFile::State before = file.state();
  if (before.links == 0) return read_and_hash(file, progress);  // an in-memory file is never opened again
  const std::string path = kept_in(cache, before);
  if (const auto hash = kept_hash(path)) return *hash;
  const std::uint64_t hash = read_and_hash(file, progress);
  // A file that changed while it was read has a mixed content, whose hash fits no version of it.
  if (before == file.state()) keep_hash(cache, path, hash);
  return hash;
}

}  // namespace chimera

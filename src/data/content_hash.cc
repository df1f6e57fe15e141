#define XXH_STATIC_LINKING_ONLY
#define XXH_INLINE_ALL
#include "data/content_hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <vector>

#include "core/error.h"
#include "core/output_file.h"

namespace chimera {
namespace {

constexpr std::size_t kHexDigits = 16;

/// The file that keeps the hash of a file in that state.
std::string kept_in(const HashCache& cache, const DataFile::State& state) {
  return fmt::format("{}/{:x}-{:x}-{:x}-{:x}", cache.folder, state.device, state.inode, state.size, state.modified);
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
    // Then the next run reads the file again.
  }
}

std::uint64_t read_and_hash(const DataFile& file, const std::function<void()>& progress) {
  constexpr std::int64_t kBlock = 16 << 20;
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  std::vector<std::byte> block(static_cast<std::size_t>(std::min(file.size(), kBlock)));
  for (std::int64_t read = 0; read < file.size(); read += kBlock) {
    const auto part = std::span(block).first(static_cast<std::size_t>(std::min(file.size() - read, kBlock)));
    file.read(read, part);
    XXH3_64bits_update(&state, part.data(), part.size());
    progress();
  }
  return XXH3_64bits_digest(&state);
}

}  // namespace

HashCache default_hash_cache() {
  const char* caches = std::getenv("XDG_CACHE_HOME");
  if (caches != nullptr && *caches == '/') return {fmt::format("{}/chimera/hashes", caches)};
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return {fmt::format("{}/.cache/chimera/hashes", home)};
  return {};
}

std::uint64_t content_hash(const DataFile& file, const HashCache& cache, const std::function<void()>& progress) {
  if (cache.folder.empty() || file.size() < cache.least_bytes) return read_and_hash(file, progress);
  const DataFile::State before = file.state();
  if (before.links == 0) return read_and_hash(file, progress);  // nobody will open it again
  const std::string path = kept_in(cache, before);
  if (const auto hash = kept_hash(path)) return *hash;
  const std::uint64_t hash = read_and_hash(file, progress);
  if (before == file.state()) keep_hash(cache, path, hash);
  return hash;
}

}  // namespace chimera

#include "core/output_file.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "core/error.h"

namespace chimera {
namespace {

[[noreturn]] void fail(const std::string& path, int cause) {
  throw ConfigError(path + ": cannot be written (" + std::generic_category().message(cause) + ")");
}

bool is_replaced(const std::string& path) {
  std::error_code none;
  return !std::filesystem::exists(path, none) || std::filesystem::is_regular_file(path, none);
}

std::string unfinished(const std::string& path) { return path + ".unfinished"; }

}  // namespace

void write_whole(const std::string& path, const std::string& text) {
  const bool replaces = is_replaced(path);
  const std::string written = replaces ? unfinished(path) : path;
  std::ofstream file(written, std::ios::binary);
  file << text << std::flush;
  file.close();
  if (!file || (replaces && std::rename(written.c_str(), path.c_str()) != 0)) {
    const int cause = errno;
    if (replaces) std::remove(written.c_str());
    fail(path, cause);
  }
}

void require_writable_whole(const std::string& path) {
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) fail(path, EISDIR);
  const bool replaces = is_replaced(path);
  const std::string written = replaces ? unfinished(path) : path;
  const bool opens = std::ofstream(written, std::ios::app).is_open();
  const int cause = errno;
  if (replaces) std::remove(written.c_str());
  if (!opens) fail(path, cause);
}

}  // namespace chimera

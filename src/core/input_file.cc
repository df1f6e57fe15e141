#include "core/input_file.h"

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <system_error>

#include "core/error.h"

namespace chimera {
namespace {

std::string read_all(std::istream& in, const std::string& name, std::size_t most) {
  std::string text;
  std::array<char, 1 << 16> block;
  while (in.read(block.data(), block.size()) || in.gcount() > 0) {
    text.append(block.data(), static_cast<std::size_t>(in.gcount()));
    if (text.size() > most) {
      throw ConfigError(name + ": is longer than " + std::to_string(most) + " bytes; give a file of at most as many");
    }
  }
  return text;
}

}  // namespace

std::string read_whole(const std::string& path, std::size_t most) {
  if (path == "-") return read_all(std::cin, "standard input", most);
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    throw ConfigError(path + ": is a directory; give a file, or - for standard input");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError(path + ": cannot be read (" + std::generic_category().message(errno) + ")");
  return read_all(file, path, most);
}

}  // namespace chimera

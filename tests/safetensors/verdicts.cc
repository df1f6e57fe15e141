// Prints for each given file if it is valid safetensors: `ok` and its tensors, or `refused` and the reason.
// SafetensorsOracleTest runs it.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <vector>

#include "core/error.h"
#include "safetensors/safetensors_file.h"

namespace {

using namespace chimera;

std::string verdict(const char* path) {
  try {
    const SafetensorsFile file(path);
    std::string line = "ok";
    for (const TensorEntry& tensor : file.tensors().all()) {
      std::vector<unsigned char> bytes(tensor.bytes);
      file.read(tensor, 0, std::as_writable_bytes(std::span(bytes)));
      line += fmt::format("\t{}\t{}\t{}\t{:02x}", tensor.name, to_text(tensor.type), fmt::join(tensor.shape, ","),
                          fmt::join(bytes, ""));
    }
    return line;
  } catch (const ConfigError& error) {
    return std::string("refused\t") + error.what();
  }
}

}  // namespace

int main() {
  for (std::string path; std::getline(std::cin, path);) std::cout << verdict(path.c_str()) << '\n';
}

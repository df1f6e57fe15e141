// Fuzzes the manifest of a checkpoint, unchanged and with a valid seal.

#include "checkpoint/manifest.h"

#include <optional>

#include "fuzz/fuzzer.h"

namespace chimera::testing {
namespace {

std::optional<Manifest> read_manifest_or_refuse(const std::string& text) {
  return read_or_refuse([&] {
    try {
      return parse_manifest(kSource, text);
    } catch (const CheckpointError& refusal) {
      throw ConfigError(refusal.what());
    }
  });
}

void exercise_manifest(std::string_view bytes) {
  static_cast<void>(read_manifest_or_refuse(std::string(bytes)));
  const auto manifest = read_manifest_or_refuse(add_seal(std::string(bytes)));
  if (!manifest) return;
  for (const FileEntry& file : manifest->files) {
    require(
        file.name.find('/') == std::string::npos && file.name.find('\0') == std::string::npos && file.name[0] != '.',
        "no file lies outside of the folder");
    require(file.blocks.size() == blocks_of(file.bytes), "every block has a hash");
  }
  const Manifest again = parse_manifest(kSource, to_text(*manifest));
  require(again.step == manifest->step && again.files == manifest->files, "what was read can be written and read");
}

}  // namespace

const Fuzzer kManifest("manifest", exercise_manifest);

}  // namespace chimera::testing

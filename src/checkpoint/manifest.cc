#include "checkpoint/manifest.h"

#include <fmt/format.h>
#include <set>
#include <utility>

#include "core/json.h"
#include "core/mapped.h"
#include "core/printable.h"
#include "safetensors/regular_file.h"

// A manifest is JSON whose last member is a hash of all bytes before it. add_seal() therefore takes the closing brace
// off, hashes, and adds the member as text; remove_seal() compares the same bytes before it parses any, so the parser
// sees only what this program has written, unless somebody has made a new hash.

namespace chimera {
namespace {

constexpr std::string_view kBeforeSeal = ",\n  \"xxh3_128\": \"";
constexpr std::string_view kAfterSeal = "\"\n}\n";
constexpr std::size_t kSealBytes = kBeforeSeal.size() + kHashDigits + kAfterSeal.size();
// A description of a run is at most a few objects deep.
constexpr int kMaxDepth = 16;

/// Returns the last lines of a manifest, which seal `text`, everything before them.
std::string seal_of(std::string_view text) {
  return std::string(kBeforeSeal) + hash128(std::as_bytes(std::span(text))) + std::string(kAfterSeal);
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw CheckpointError(fmt::format("{}: {}", path, why));
}

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "chimera checkpoint";
constexpr std::size_t kLongestName = 255;

/// Returns the member, which must be of the type that `is_right`, a function such as Json::is_string(), tests.
const Json& member(const std::string& path, const Json& object, const char* name, bool (Json::*is_right)() const,
                   const char* type) {
  const auto found = object.find(name);
  if (found == object.end()) refuse(path, fmt::format("{} is missing", name));
  if (!((*found).*is_right)()) refuse(path, fmt::format("{} is no {}", name, type));
  return *found;
}

std::uint64_t number(const std::string& path, const Json& object, const char* name) {
  return member(path, object, name, &Json::is_number_unsigned, "count").get<std::uint64_t>();
}

/// A name with a slash or dots could name a file outside of the checkpoint, which a reader would open.
std::string plain_name(const std::string& path, const Json& file) {
  std::string name = member(path, file, "name", &Json::is_string, "string").get<std::string>();
  const bool is_plain = !name.empty() && name.size() <= kLongestName && name[0] != '.' && name != kManifestName &&
                        name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
  if (!is_plain) refuse(path, fmt::format("name '{}' is not a plain file name", printable(name)));
  return name;
}

FileEntry parse_file(const std::string& path, const Json& file) {
  if (!file.is_object()) refuse(path, "files has an entry that is not an object");
  FileEntry record{.name = plain_name(path, file), .bytes = number(path, file, "bytes"), .blocks = {}};
  const Json& blocks = member(path, file, "blocks", &Json::is_array, "list");
  // verify.cc relies on it: hash i is that of block i, and the size says how many there are.
  if (blocks.size() != blocks_of(record.bytes)) {
    refuse(path, fmt::format("{} has {} bytes and needs {} hashes", printable(record.name), record.bytes,
                             blocks_of(record.bytes)));
  }
  for (const Json& block : blocks) {
    // Other texts of this length need no check: they differ from the hash of every block.
    if (!block.is_string() || block.get_ref<const std::string&>().size() != kHashDigits)
      refuse(path, printable(record.name) + " has a hash that is not 32 hexadecimal digits");
    record.blocks.push_back(block.get<std::string>());
  }
  return record;
}

}  // namespace

std::string add_seal(const nlohmann::ordered_json& object) {
  constexpr int kIndent = 2;
  std::string text = json_text(object, kIndent);
  // The seal begins with the comma after the last member, see kBeforeSeal.
  text.resize(text.size() - std::string_view("\n}").size());
  return add_seal(std::move(text));
}

std::string add_seal(std::string open_object) { return open_object + seal_of(open_object); }

nlohmann::ordered_json remove_seal(const std::string& path, const std::string& text) {
  if (text.size() < kSealBytes) refuse(path, "is cut off");
  const std::string_view body = std::string_view(text).substr(0, text.size() - kSealBytes);
  if (text.substr(body.size()) != seal_of(body)) refuse(path, "differs from the hash at its end");
  // The parser recurses, so a deep text could exhaust the stack.
  const auto require_shallow = [&](int depth, nlohmann::ordered_json::parse_event_t, nlohmann::ordered_json&) {
    if (depth > kMaxDepth) refuse(path, fmt::format("is nested more than {} deep", kMaxDepth));
    return true;
  };
  try {
    nlohmann::ordered_json object = nlohmann::ordered_json::parse(std::string(body) + "\n}", require_shallow);
    if (!object.is_object()) refuse(path, "is not a JSON object");
    return object;
  } catch (const nlohmann::json::exception& error) {
    refuse(path, fmt::format("is not a JSON object ({})", printable(error.what(), kParserMessage)));
  }
}

nlohmann::ordered_json files_json(const std::vector<FileEntry>& files) {
  return mapped(files, [](const FileEntry& file) {
    return Json{{"name", file.name}, {"bytes", file.bytes}, {"blocks", file.blocks}};
  });
}

std::vector<FileEntry> parse_files(const std::string& path, const nlohmann::ordered_json& object) {
  std::vector<FileEntry> records;
  std::set<std::string> names;
  for (const Json& file : member(path, object, "files", &Json::is_array, "list")) {
    records.push_back(parse_file(path, file));
    if (!names.insert(records.back().name).second) refuse(path, printable(records.back().name) + " is given twice");
  }
  return records;
}

std::string to_text(const Manifest& manifest) {
  return add_seal({{"format", kFormat},
                   {"version", kCheckpointVersion},
                   {"step", manifest.step},
                   {"run", manifest.run},
                   {"files", files_json(manifest.files)}});
}

// The seal comes first: what is sealed was written by this program, so faults after it are those of another version.
Manifest parse_manifest(const std::string& path, const std::string& text) {
  const Json object = remove_seal(path, text);
  if (object.value("format", Json()) != kFormat) refuse(path, "format does not name a checkpoint");
  const Json version = object.value("version", Json());
  if (version != kCheckpointVersion) {
    refuse(path,
           fmt::format("version is {}, and this program reads {}", printable(json_text(version)), kCheckpointVersion));
  }
  Manifest manifest;
  const std::uint64_t step = number(path, object, "step");
  constexpr std::uint64_t kMaxSteps = 1'000'000'000'000;
  if (step > kMaxSteps) refuse(path, "step is too large");
  manifest.step = static_cast<std::int64_t>(step);
  manifest.run = member(path, object, "run", &Json::is_object, "object");
  manifest.files = parse_files(path, object);
  return manifest;
}

std::string read_small_file(const std::string& path) {
  try {
    const RegularFile file(path);
    if (file.bytes() > kMaxManifestBytes)
      refuse(path, fmt::format("has {} bytes; a manifest has at most {}", file.bytes(), kMaxManifestBytes));
    std::string text(file.bytes(), '\0');
    file.read(0, std::as_writable_bytes(std::span(text)));
    return text;
  } catch (const ConfigError& error) {
    throw CheckpointError(error.what());
  }
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = folder + "/" + kManifestName;
  return parse_manifest(path, read_small_file(path));
}

}  // namespace chimera

#include "data/resume_file.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/input_file.h"
#include "core/output_file.h"
#include "tokenizer/tokenizer.h"

namespace chimera {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Name, size and time of a file; a file that is written anew has another time.
json stamp(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {path};
  return {path, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

}  // namespace

std::string resume_key(const Inputs& inputs, const std::string& tokenizer, const std::string& options) {
  json key;
  for (const std::string& path : inputs.paths) key["inputs"].push_back(stamp(path));
  key["field"] = {inputs.field, inputs.all_jsonl};
  key["tokenizer"] = {tokenizer};
  for (const TokenizerFile& file : tokenizer_files(tokenizer)) key["tokenizer"].push_back(stamp(file.path));
  key["options"] = options;
  return key.dump(-1, ' ', false, json::error_handler_t::replace);
}

void write_resume(const std::string& path, const std::string& key, const TokenizeState& state) {
  const json file = {
      {"key", key},
      {"place", {state.place.file, state.place.offset, state.place.line, state.place.in_document ? 1 : 0}},
      {"written", {state.written.tokens, state.written.documents, state.written.open_document}},
      {"skipped", state.skipped},
      {"bytes", state.bytes}};
  write_whole(path, file.dump() + "\n");
}

std::optional<TokenizeState> read_resume(const std::string& path, const std::string& key) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  try {
    const json file = json::parse(read_whole(path));
    if (file.at("key") != key) return std::nullopt;
    const auto place = file.at("place").get<std::array<std::int64_t, 4>>();
    const auto written = file.at("written").get<std::array<std::int64_t, 3>>();
    return TokenizeState{.place = {place[0], place[1], place[2], place[3] != 0},
                         .written = {written[0], written[1], written[2]},
                         .skipped = file.at("skipped").get<std::int64_t>(),
                         .bytes = file.at("bytes").get<std::int64_t>()};
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace chimera

#include "hugging_face/generation_config.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/files.h"
#include "core/json.h"
#include "core/reject.h"
#include "hugging_face/config_json.h"

namespace chimera {
namespace {

using nlohmann::json;

/// Fields of one file. A field that is missing or null has its default.
class Fields {
 public:
  Fields(const std::string& text, std::string source) : json_(try_json(text)), source_(std::move(source)) {
    if (!json_.is_object()) throw ConfigError(source_ + ": is not a JSON object");
  }

  // A copy, because a missing field gives a temporary null.
  [[nodiscard]] json value(const char* name) const { return json_.value(name, json()); }

  /// A list of tokens, which may be a single number.
  [[nodiscard]] std::vector<std::int64_t> tokens(const char* name) const {
    const json found = value(name);
    if (found.is_null()) return {};
    return found.is_array() ? list(found, name) : list(json::array({found}), name);
  }
  [[nodiscard]] std::vector<std::vector<std::int64_t>> sequences(const char* name) const {
    std::vector<std::vector<std::int64_t>> found;
    for (const json& sequence : value(name)) {
      if (!sequence.is_array() || sequence.empty()) fail(name, "must be a list of lists of tokens");
      found.push_back(list(sequence, name));
    }
    return found;
  }
  [[nodiscard]] std::int64_t count(const char* name) const {
    const json found = value(name);
    if (found.is_null()) return 0;
    if (!is_token(found)) fail(name, "must be a whole number, at least 0");
    return found;
  }
  [[nodiscard]] double penalty(const char* name) const {
    const json found = value(name);
    if (found.is_null()) return 1;
    if (!found.is_number() || !(found > 0)) fail(name, "must be a number above 0");
    return found;
  }

 private:
  static bool is_token(const json& found) {
    return found.is_number_integer() && found >= 0 && found <= std::numeric_limits<std::int32_t>::max();
  }
  [[noreturn]] void fail(const char* name, const char* what) const { reject("{}: {} {}", source_, name, what); }
  [[nodiscard]] std::vector<std::int64_t> list(const json& found, const char* name) const {
    if (!std::ranges::all_of(found, is_token)) fail(name, "must be the number of a token, a list of them or null");
    return found;
  }

  json json_;
  std::string source_;
};

/// Fields of transformers that would change a greedy or sampled text, with the values that change nothing. The flags
/// of `chimera generate` replace temperature, top_k and top_p.
std::vector<std::string> ignored_fields(const Fields& fields) {
  constexpr std::array<const char*, 10> kUnsupported = {
      "sequence_bias",       "forced_bos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty",
      "stop_strings",        "num_beams",           "guidance_scale",      "penalty_alpha",
      "watermarking_config", "constraints"};
  std::vector<std::string> ignored;
  for (const char* name : kUnsupported) {
    const json value = fields.value(name);
    // 1 is the neutral value of num_beams and guidance_scale, and the others have none but null.
    if (!value.is_null() && value != 1) ignored.emplace_back(name);
  }
  if (fields.penalty("encoder_repetition_penalty") != 1) ignored.emplace_back("encoder_repetition_penalty");
  if (fields.count("encoder_no_repeat_ngram_size") > 0) ignored.emplace_back("encoder_no_repeat_ngram_size");
  return ignored;
}

}  // namespace

GenerationConfig read_generation_config(const ModelFolder& folder) {
  const std::filesystem::path path = std::filesystem::path(folder.path()) / kGenerationConfigName;
  if (!path_exists(path)) {
    // Old folders have their end token in config.json.
    const Fields model(folder.config_json(), (path.parent_path() / kConfigName).string());
    return {.end_tokens = model.tokens("eos_token_id"), .rules = {}, .ignored = {}};
  }
  const Fields fields(read_whole(path.string(), kMaxConfigBytes), path.string());
  return {.end_tokens = fields.tokens("eos_token_id"),
          .rules = {.repetition_penalty = fields.penalty("repetition_penalty"),
                    .no_repeat_ngram_size = fields.count("no_repeat_ngram_size"),
                    .bad_words_ids = fields.sequences("bad_words_ids"),
                    .min_length = fields.count("min_length"),
                    .min_new_tokens = fields.count("min_new_tokens"),
                    .suppress_tokens = fields.tokens("suppress_tokens"),
                    .begin_suppress_tokens = fields.tokens("begin_suppress_tokens")},
          .ignored = ignored_fields(fields)};
}

}  // namespace chimera

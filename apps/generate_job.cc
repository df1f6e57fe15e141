#include "generate_job.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/cores.h"
#include "core/error.h"
#include "engine/stored_values.h"
#include "hugging_face/generation_config.h"
#include "inference/spread_model.h"
#include "model/tied_weight.h"
#include "tokenizer/unicode.h"
#include "train/setup/data_tokenizer.h"
#include "train/setup/precision.h"
#include "transport/gloo/gloo_transport.h"
#include "transport/threads/rank_threads.h"

namespace chimera::apps {
namespace {

constexpr std::int64_t kUsualTokens = 100;
constexpr std::int64_t kMostStages = 1024;
constexpr std::int64_t kMostThreads = 1024;
constexpr std::int64_t kByteVocabulary = 256;

/// The file or folder of the tokenizer, "bytes", or nothing.
std::string tokenizer_path(const GenerateOptions& options, const ModelConfig& model) {
  if (!options.tokenizer.empty()) return options.tokenizer;
  if (std::string own = tokenizer_of_folder(options.from); !own.empty()) return own;
  return model.vocabulary == kByteVocabulary ? kBytes : "";
}

TokenIds listed_tokens(const std::string& words) {
  TokenIds ids;
  const char* const end = words.data() + words.size();
  for (const char* at = words.data();; ++at) {
    TokenId id = -1;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc{} || id < 0 || (next != end && *next != ',')) {
      throw ConfigError(fmt::format("--prompt-ids: '{}' is no list of tokens such as 1,2,3", words));
    }
    ids.push_back(id);
    if (next == end) return ids;
    at = next;
  }
}

TokenIds encoded(const std::string& text, const GenerateJob& job) {
  if (job.tokenizer == nullptr) {
    throw ConfigError(
        fmt::format("--prompt: {} has no tokenizer, and a vocabulary of {} is not that of bytes; give --tokenizer, or "
                    "numbers of tokens with --prompt-ids",
                    job.options.from, job.folder->model().vocabulary));
  }
  if (const auto place = find_invalid_utf8(text)) {
    throw ConfigError(fmt::format("--prompt: byte {} is not valid UTF-8", *place));
  }
  return job.tokenizer->with_special(encode(*job.tokenizer, text)).ids;
}

void add_prompt(GenerateJob& job, const GivenPrompt& given) {
  const std::int64_t number = std::ssize(job.prompts);
  const std::string what = job.options.prompts.size() == 1 ? "the prompt" : fmt::format("prompt {}", number + 1);
  const ModelConfig& model = job.folder->model();
  TokenIds ids = given.is_tokens ? listed_tokens(given.words) : encoded(given.words, job);
  const std::int64_t room = most_new_tokens(model, std::ssize(ids), what);
  require_in_vocabulary(ids, model, what);
  const std::int64_t tokens = job.options.tokens.value_or(std::min(kUsualTokens, room));
  if (tokens > room) {
    throw ConfigError(fmt::format("--tokens {}: {} has {} tokens and model {} room for {} more; give at most {}",
                                  tokens, what, ids.size(), model.name, room, room));
  }
  job.prompts.push_back({std::move(ids), number});
  job.tokens.push_back(tokens);
}

void require_sense(const GenerateOptions& options) {
  require_valid(options.continuation.sampling);
  require_between("--tokens", options.tokens.value_or(0), 0, std::numeric_limits<std::int32_t>::max());
  require_between("--stages", options.stages, 1, kMostStages);
  require_between("--threads", options.threads, 0, kMostThreads);
  if (options.prompts.empty()) throw ConfigError("a prompt is missing; give --prompt or --prompt-ids");
  for (const std::string& stop : options.continuation.stops) {
    if (stop.empty()) throw ConfigError("--stop: the text is empty; give at least one character");
  }
}

/// What is said of the prompts, as it is said or at the end.
class Writer {
 public:
  explicit Writer(const GenerateJob& job) : job_(job) {}

  void begin(const Prompt& prompt) {
    if (is_json() || job_.prompts.size() == 1) return;
    write(fmt::format("{}prompt {}:\n", prompt.number == 0 ? "" : "\n", prompt.number + 1));
  }
  void add(TokenId id, std::string_view text) {
    if (is_json()) return;
    if (job_.tokenizer != nullptr) return write(text);
    write(fmt::format("{}{}", std::exchange(any_, true) ? "," : "", id));
  }
  void end(const Continuation& continuation) {
    if (!is_json()) write("\n");
    any_ = false;
    nlohmann::ordered_json entry = {{"ids", continuation.ids}, {"text", nullptr}};
    if (job_.tokenizer != nullptr) entry["text"] = continuation.text;
    json_["prompts"].push_back(std::move(entry));
  }
  void finish() const {
    if (is_json()) write(json_.dump() + "\n");
  }

 private:
  [[nodiscard]] bool is_json() const { return job_.options.format == Format::Json; }
  static void write(std::string_view text) {
    if (!(std::cout << text << std::flush)) throw Error("standard output cannot be written");
  }

  const GenerateJob& job_;
  bool any_ = false;  // whether a token of the prompt has been written
  nlohmann::ordered_json json_ = {{"prompts", nlohmann::ordered_json::array()}};
};

/// The stage of a rank, which has the rank's number.
struct OwnStage {
  std::unique_ptr<TiedWeight> tied;
  std::unique_ptr<Stage> stage;

  OwnStage(const GenerateJob& job, RankId rank) {
    const ModelConfig& model = job.folder->model();
    const at::ScalarType dtype = scalar_type(job.options.dtype);
    const StageLayers& layers = job.partition[rank.index()];
    const TiedUses uses{layers.embedding, layers.head};
    const FirstValue value = stored_values(job.folder);
    if (model.tied && uses.any()) tied = make_tied_weight(model, uses, dtype, value);
    stage = make_stage(model, layers, dtype, value, tied ? tied->leaves() : TiedLeaves{});
  }
};

StageRanks one_stage_a_rank(const GenerateJob& job, RankId self) {
  StageRanks ranks{.holders = {}, .self = self};
  for (std::size_t s = 0; s < job.partition.size(); ++s) ranks.holders.emplace_back(static_cast<std::int64_t>(s));
  return ranks;
}

void use_threads(const GenerateJob& job) {
  const auto ranks = static_cast<int>(job.partition.size());
  const auto asked = static_cast<int>(job.options.threads);
  at::set_num_interop_threads(1);
  at::set_num_threads(asked > 0 ? asked : std::max(available_cores() / ranks, 1));
}

void continue_all(const GenerateJob& job, RankId rank, Transport& transport) {
  use_threads(job);
  const OwnStage own(job, rank);
  SpreadModel model({{StageId(rank.value()), own.stage.get()}}, one_stage_a_rank(job, rank), transport,
                    job.folder->model().hidden, scalar_type(job.options.dtype));
  Writer writer(job);
  const bool speaks = rank == RankId(0);
  ContinuationOptions options = job.options.continuation;
  for (const Prompt& prompt : job.prompts) {
    options.tokens = job.tokens[static_cast<std::size_t>(prompt.number)];
    if (speaks) writer.begin(prompt);
    const Continuation continuation =
        continue_prompt(model, prompt, options, job.tokenizer.get(), [&](TokenId id, std::string_view text) {
          if (speaks) writer.add(id, text);
        });
    if (speaks) writer.end(continuation);
  }
  if (speaks) writer.finish();
}

void continue_on(const GenerateJob& job, const std::optional<RankEnvironment>& rank) {
  if (!rank) {
    return run_rank_threads(1, {}, [&](RankId self, Transport& transport) { continue_all(job, self, transport); });
  }
  const auto transport =
      connect_gloo({.rank = rank->rank, .world_size = rank->world_size, .meeting = rank->meeting, .groups = {}});
  continue_all(job, RankId(rank->rank), *transport);
}

}  // namespace

GenerateJob prepare_generate(const GenerateOptions& options) {
  require_sense(options);
  GenerateJob job;
  job.options = options;
  job.folder = std::make_shared<const ModelFolder>(options.from);
  const ModelConfig& model = job.folder->model();
  require_continuable(model);
  job.partition = even_partition(model.layers, options.stages);
  if (const std::string path = tokenizer_path(options, model); !path.empty()) job.tokenizer = open_tokenizer(path);
  if (job.tokenizer == nullptr && !options.continuation.stops.empty()) {
    throw ConfigError(fmt::format("--stop: {} has no tokenizer to make text with; give --tokenizer", options.from));
  }
  job.options.continuation.end_tokens = end_tokens(*job.folder);
  for (const GivenPrompt& given : options.prompts) add_prompt(job, given);
  return job;
}

int run_generate(const GenerateJob& job, const std::optional<RankEnvironment>& rank) {
  try {
    continue_on(job, rank);
    return static_cast<int>(ExitCode::Success);
  } catch (const PeerLostError& error) {
    report_failure("", error.what(), /*own_cause=*/false);
    return static_cast<int>(ExitCode::PeerLost);
  } catch (const c10::Error& error) {
    throw Error(error.what_without_backtrace());
  }
}

}  // namespace chimera::apps

// `chimera generate`. Everything that can be wrong is found before the first token: flags, folder, tokenizer and all
// prompts (prepare_generate()). Then every rank runs continue_all() with its own layers, and rank 0 prints the result.

#include <fmt/ranges.h>
#include <unistd.h>
#include <algorithm>
#include <iostream>
#include <limits>
#include <utility>

#include "commands.h"
#include "core/console.h"
#include "core/counted.h"
#include "core/json.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "engine/stored_values.h"
#include "flags/outputs.h"
#include "flags/values.h"
#include "help.h"
#include "hugging_face/model_folder.h"
#include "inference/continuation.h"
#include "model_config/partition.h"
#include "run_on_model.h"
#include "tokenizer/tokenizer_folder.h"
#include "tokenizer/unicode.h"
#include "train/setup/data_tokenizer.h"
#include "train/setup/device.h"

namespace chimera::apps {
namespace {

struct GivenPrompt {
  std::string words;  ///< text, or token ids separated by commas
  bool is_tokens = false;
};

struct GenerateOptions {
  std::string from;       // Hugging Face folder
  std::string tokenizer;  // empty: tokenizer of the folder; for a byte model, bytes
  std::vector<GivenPrompt> prompts;
  std::optional<std::int64_t> tokens;  // new tokens per prompt; default: 100, or the remaining positions
  ContinuationOptions continuation;
  DataType dtype = DataType::Float32;
  std::int64_t stages = 1;
  std::int64_t threads = 0;  // intra-op threads per rank; 0: cores / ranks, at least 1
  Format format = Format::Text;
};

struct GenerateJob {
  GenerateOptions options;
  std::shared_ptr<const ModelFolder> folder;
  std::vector<StageLayers> partition;    // [stage]: its layers; stages and ranks have the same numbers
  std::unique_ptr<Tokenizer> tokenizer;  // null: only ids are known
  std::vector<Prompt> prompts;
  std::vector<std::int64_t> tokens;  // [prompt]: maximum of new tokens
  std::vector<std::string> ignored;  // GenerationConfig::ignored
};

constexpr std::int64_t kUsualTokens = 100;
constexpr std::int64_t kMaxStages = 1024;
constexpr std::int64_t kByteVocabulary = 256;

std::string tokenizer_path(const GenerateOptions& options, const ModelConfig& model) {
  if (!options.tokenizer.empty()) return options.tokenizer;
  if (std::string own = tokenizer_of_folder(options.from); !own.empty()) return own;
  // A model of 256 tokens can only be a model of bytes. Any other vocabulary needs its tokenizer.
  return model.vocabulary == kByteVocabulary ? kBytesName : "";
}

TokenIds listed_tokens(const std::string& words) {
  return mapped(split_at_commas(words), [&](std::string_view word) {
    const auto id = parse_number<TokenId>(word);
    if (!id || *id < 0) reject("--prompt-ids: '{}' is not a list of tokens such as 1,2,3", words);
    return *id;
  });
}

TokenIds encoded(const std::string& text, const GenerateJob& job) {
  if (job.tokenizer == nullptr) {
    reject(
        "--prompt: {} has no tokenizer, and a vocabulary of {} is not a byte vocabulary; give --tokenizer, or token "
        "ids with --prompt-ids",
        job.options.from, job.folder->model().vocabulary);
  }
  if (const auto place = find_invalid_utf8(text)) reject("--prompt: byte {} is not valid UTF-8", *place);
  return job.tokenizer->with_special(encode(*job.tokenizer, text));
}

void add_prompt(GenerateJob& job, const GivenPrompt& given) {
  const std::int64_t number = std::ssize(job.prompts);
  const std::string what = job.options.prompts.size() == 1 ? "the prompt" : fmt::format("prompt {}", number + 1);
  const ModelConfig& model = job.folder->model();
  TokenIds ids = given.is_tokens ? listed_tokens(given.words) : encoded(given.words, job);
  // All prompts are checked before the first token is computed.
  const std::int64_t room = most_new_tokens(model, std::ssize(ids), what);
  require_in_vocabulary(ids, model, what);
  const std::int64_t tokens = job.options.tokens.value_or(std::min(kUsualTokens, room));
  if (tokens > room) {
    reject("--tokens {}: {} has {} tokens and model {} room for {} more; give at most {}", tokens, what, ids.size(),
           model.name, room, room);
  }
  job.prompts.push_back({std::move(ids), number});
  job.tokens.push_back(tokens);
}

void check_flags(const GenerateOptions& options) {
  require_valid(options.continuation.sampling);
  require_between("--tokens", options.tokens.value_or(0), 0, std::numeric_limits<std::int32_t>::max());
  require_between("--stages", options.stages, 1, kMaxStages);
  require_between("--threads", options.threads, 0, kMaxThreads);
  if (options.prompts.empty()) reject("a prompt is missing; give --prompt or --prompt-ids");
  for (const std::string& stop : options.continuation.stops)
    if (stop.empty()) reject("--stop: the text is empty; give at least one character");
}

/// Writes a part of the output immediately.
void write_now(std::string_view text) { write_output("", std::string(text)); }

void print_head(const GenerateJob& job, const Prompt& prompt) {
  if (job.prompts.size() > 1)
    write_now(fmt::format("{}prompt {}:\n", prompt.number == 0 ? "" : "\n", prompt.number + 1));
  // A person reads the continuation after its prompt. Another program has the prompt already.
  const GivenPrompt& given = job.options.prompts[static_cast<std::size_t>(prompt.number)];
  if (!given.is_tokens && ::isatty(STDOUT_FILENO) == 1) write_now(given.words);
}

void print_end(const GenerateJob& job, const Continuation& continuation) {
  write_now("\n");
  const bool is_blank = continuation.text.find_first_not_of(" \t\r\n\v\f") == std::string::npos;
  if (job.tokenizer == nullptr || !is_blank || continuation.ids.empty()) return;
  print_message("the model continues with {} of blanks only; see --prompt and --temperature, or train it longer",
                counted(continuation.ids.size(), "token"));
}

StageRanks one_stage_a_rank(const GenerateJob& job, RankId self) {
  StageRanks ranks{.holders = {}, .self = self};
  for (std::size_t s = 0; s < job.partition.size(); ++s) ranks.holders.emplace_back(static_cast<std::int64_t>(s));
  return ranks;
}

void continue_all(const GenerateJob& job, RankId rank, Transport& transport) {
  // Each process loads the layers of its stage only, so that a model may exceed the memory of one process.
  const StandaloneStage own(job.folder->model(), job.partition[rank.index()], scalar_type(job.options.dtype),
                            values_from_folder(job.folder));
  DistributedModel model({{StageId(rank.value()), own.stage.get()}}, one_stage_a_rank(job, rank), transport,
                         job.folder->model().hidden, scalar_type(job.options.dtype));
  // The rank of the last stage chooses each token and sends it to all. Rank 0 prints it.
  const bool speaks = rank == RankId(0);
  if (speaks && !job.ignored.empty()) {
    print_message("{} of {} {} ignored, so transformers may continue differently", fmt::join(job.ignored, ", "),
                  kGenerationConfigName, job.ignored.size() == 1 ? "is" : "are");
  }
  // Text is printed as it comes, JSON at the end.
  const bool prints_text = speaks && job.options.format == Format::Text;
  nlohmann::ordered_json answers = nlohmann::ordered_json::array();
  ContinuationOptions options = job.options.continuation;
  for (const Prompt& prompt : job.prompts) {
    options.tokens = job.tokens[static_cast<std::size_t>(prompt.number)];
    if (prints_text) print_head(job, prompt);
    const char* separator = "";
    const auto on_token = [&](TokenId id, std::string_view text) {
      if (!prints_text) return;
      // Text comes in pieces of whole characters; continue_prompt() keeps the bytes of an unfinished one.
      if (job.tokenizer != nullptr) return write_now(text);
      write_now(fmt::format("{}{}", std::exchange(separator, ","), id));
    };
    const Continuation continuation = continue_prompt(model, prompt, options, job.tokenizer.get(), on_token);
    if (prints_text) print_end(job, continuation);
    nlohmann::ordered_json& answer = answers.emplace_back();
    answer = {{"ids", continuation.ids}, {"text", nullptr}};
    if (job.tokenizer != nullptr) answer["text"] = continuation.text;
  }
  if (speaks && !prints_text) write_now(json_report({{"prompts", answers}}));
}

/// Throws ConfigError if weights, tokenizer and prompts do not fit together.
GenerateJob prepare_generate(const GenerateOptions& options) {
  GenerateJob job;
  job.options = options;
  job.folder = std::make_shared<const ModelFolder>(options.from);
  const ModelConfig& model = job.folder->model();
  require_continuable(model);
  job.partition = even_partition(model.layers, options.stages);
  if (const std::string path = tokenizer_path(options, model); !path.empty()) job.tokenizer = open_tokenizer(path);
  if (job.tokenizer == nullptr && !options.continuation.stops.empty())
    reject("--stop: {} has no tokenizer to make text with; give --tokenizer", options.from);
  GenerationConfig config = read_generation_config(*job.folder);
  job.options.continuation.end_tokens = std::move(config.end_tokens);
  job.options.continuation.rules = std::move(config.rules);
  job.ignored = std::move(config.ignored);
  for (const GivenPrompt& given : options.prompts) add_prompt(job, given);
  return job;
}

void add_prompts(CLI::App& command, GenerateOptions& options) {
  const auto add = [&](const char* flag, bool is_tokens, const char* type, const char* description) {
    add_text(
        command, flag,
        [&options, is_tokens](const std::string& words) {
          options.prompts.push_back({words, is_tokens});
        },
        type, description)
        // CLI11 would else collect all values of a flag first, and lose the order of --prompt and --prompt-ids.
        ->trigger_on_parse();  // once per flag, in the order of the command line
  };
  add("--prompt", false, "TEXT", "text to continue; repeatable");
  add("--prompt-ids", true, "N,N", "text to continue, as token ids; repeatable");
}

void add_flags(CLI::App& command, GenerateOptions& o) {
  SamplingOptions& sampling = o.continuation.sampling;
  begin_group(command, heading::kModel);
  add_path(command, "--from", o.from,
           "Hugging Face folder of a GPT-2 or Llama model, a checkpoint, or a folder of checkpoints (the newest valid "
           "one is used)",
           PathKind::Folder)
      ->required();
  add_path(command, "--tokenizer", o.tokenizer,
           "tokenizer.json, vocab.json, or a folder with one of them (default: the tokenizer of --from or of its run; "
           "`bytes` if the vocabulary has 256 tokens)");
  begin_group(command, heading::kText);
  add_prompts(command, o);
  add_count(command, "--tokens", o.tokens,
            "maximum number of new tokens per prompt (default 100, or as many as the model has positions for)");
  add_text(
      command, "--stop", [&o](const std::string& text) { o.continuation.stops.push_back(text); }, "TEXT",
      "stop before this text, independent of token boundaries; repeatable")
      ->trigger_on_parse();
  begin_group(command, heading::kSampling);
  add_number(command, "--temperature", sampling.temperature,
             "divisor of the scores before a token is drawn; 0: take the most likely token (default 0)");
  add_count(command, "--top-k", sampling.top_k,
            "draw from the K most likely tokens and from ties with the last of them; 0: from all (default 0)");
  add_number(command, "--top-p", sampling.top_p,
             "draw from the smallest set of most likely tokens with this total probability (default 1)");
  add_count(command, "--seed", sampling.seed, "random seed (default 1)");
  begin_group(command, heading::kRunning);
  add_choice(command, "--dtype", o.dtype, "type of computation (default float32)");
  add_count(command, "--stages", o.stages,
            "number of processes that share the layers; each reads only its own (D; default 1)");
  add_count(command, "--threads", o.threads, "intra-op threads of a process (default: cores / D, at least 1)");
  add_format(command, o.format, {Format::Text, Format::Json});
}

int run(GenerateOptions options, const Invocation& invocation) {
  check_flags(options);
  const ModelRunOptions ranks{.from = options.from, .ranks = options.stages, .threads = options.threads};
  return run_on_model(ranks, invocation, [&options](const std::string& folder) -> RankFunction {
    options.from = folder;
    const auto job = std::make_shared<const GenerateJob>(prepare_generate(options));
    return [job](RankId rank, Transport& transport) { continue_all(*job, rank, transport); };
  });
}

}  // namespace

void add_generate(CLI::App& program, const Invocation& invocation, int& exit_code) {
  auto* command = program.add_subcommand(kGenerate.name, kGenerate.description);
  command->footer(
      "Examples:\n"
      "  chimera generate --from path/to/gpt2 --prompt 'In the beginning' --tokens 50\n"
      "  chimera generate --from path/to/llama --prompt 'Once upon' --temperature 0.8 --top-p 0.9 --seed 7\n"
      "  chimera generate --from path/to/tuned --prompt 'Q: why?' --prompt 'Q: who?' --stop 'Q:'\n"
      "  chimera generate --from run --prompt 'Once upon'   # the newest checkpoint of a run\n"
      "  chimera generate --from path/to/model --prompt-ids 15496,995 --format json\n"
      "  chimera generate --from path/to/llama --prompt 'Once upon' --stages 4   # its layers on four processes\n"
      "\nOutput is printed as it is generated. A continuation ends at eos_token_id, at a --stop text, or after "
      "--tokens tokens.\n"
      "\nExit codes: 1 a rank failed, or scores are not finite; 2 wrong usage, or prompts do not fit the model.\n"
      "\nMore: docs/inference.md");
  auto options = std::make_shared<GenerateOptions>();
  add_flags(*command, *options);
  command->callback([command, options, &invocation, &exit_code] {
    for (const char* flag : {"--top-k", "--top-p", "--seed"}) {
      if (command->count(flag) == 0 || options->continuation.sampling.temperature > 0) continue;
      reject("{} is for sampling; give --temperature above 0 too", flag);
    }
    exit_code = run(*options, invocation);
  });
}

}  // namespace chimera::apps

#pragma once
// What `chimera generate` is asked for, and how it is done on one rank or on several.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/choices.h"
#include "hugging_face/model_folder.h"
#include "inference/continuation.h"
#include "launch/local/rank.h"
#include "model_config/partition.h"
#include "options.h"
#include "tokenizer/tokenizer.h"

namespace chimera::apps {

/// A prompt as the command line has it.
struct GivenPrompt {
  std::string words;       ///< text, or numbers of tokens separated by commas
  bool is_tokens = false;  ///< which of both
};

struct GenerateOptions {
  std::string from;       // a Hugging Face folder
  std::string tokenizer;  // empty: that of the folder or, of a byte model, bytes
  std::vector<GivenPrompt> prompts;
  std::optional<std::int64_t> tokens;  // new ones of each prompt; none: 100, or what the positions have room for
  ContinuationOptions continuation;
  DataType dtype = DataType::Float32;
  std::int64_t stages = 1;
  std::int64_t threads = 0;  // intra-op, of a rank; 0: cores / ranks, at least 1
  Format format = Format::Text;
};

/// All of it looked at, before anything is started.
struct GenerateJob {
  GenerateOptions options;
  std::shared_ptr<const ModelFolder> folder;
  std::vector<StageLayers> partition;    // [stage], which rank that holds
  std::unique_ptr<Tokenizer> tokenizer;  // null: ids are all there is
  std::vector<Prompt> prompts;
  std::vector<std::int64_t> tokens;  // [prompt]: new ones, at most
};

/// Reads the headers of the folder's weights, its tokenizer and the prompts. Throws ConfigError, one line, for what
/// does not fit.
[[nodiscard]] GenerateJob prepare_generate(const GenerateOptions& options);

/// Continues all prompts in this process, or as the rank that a launcher has started. What the model says goes to
/// standard output. Throws Error; a rank that only lost another one tells the launcher. Returns the exit code.
[[nodiscard]] int run_generate(const GenerateJob& job, const std::optional<RankEnvironment>& rank);

}  // namespace chimera::apps

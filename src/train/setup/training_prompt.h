#pragma once
// What a model says now and then as it trains: --sample-every and --prompt.

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "engine/run_shape.h"
#include "inference/continuation.h"
#include "model/stage.h"
#include "tokenizer/tokenizer.h"
#include "transport/transport.h"

namespace chimera {

struct Job;

/// New tokens of each sample, or as many as the model has positions for.
inline constexpr std::int64_t kSampleTokens = 64;

/// A prompt that the model in training continues greedily.
struct TrainingPrompt {
  std::shared_ptr<const Tokenizer> tokenizer;
  Prompt prompt;
  ContinuationOptions options;
};

/// The prompt of a job whose data are open; none where it does not ask for samples. Throws ConfigError, one line, where
/// the model is not causal, or the prompt has no tokens, or some that do not fit the model.
[[nodiscard]] std::shared_ptr<const TrainingPrompt> training_prompt(const Job& job);

/// What the model says now. All ranks call it between steps, and all get the text; the stages of replica 0 in group 0
/// make it. `stages`: those of this rank. `on_token` is called after each token.
[[nodiscard]] std::string say(const Job& job, const std::map<StageId, Stage*>& stages, RankId rank,
                              Transport& transport, const std::function<void()>& on_token);

}  // namespace chimera

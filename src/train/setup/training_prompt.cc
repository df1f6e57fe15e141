#include "train/setup/training_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/error.h"
#include "tokenizer/unicode.h"
#include "train/setup/device.h"
#include "train/setup/job.h"
#include "train/setup/precision.h"

namespace chimera {
namespace {

/// Where the stages of replica 0 in group 0 lie.
StageRanks first_copy(const RunShape& shape, RankId self) {
  StageRanks ranks{.holders = {}, .self = self};
  for (std::int64_t s = 0; s < shape.schedule.stages; ++s) {
    const WorkerId worker = shape.schedule.placement.worker(ReplicaId(0), StageId(s));
    ranks.holders.push_back(shape.ranks.rank({GroupId(0), worker}));
  }
  return ranks;
}

}  // namespace

std::shared_ptr<const TrainingPrompt> training_prompt(const Job& job) {
  const TrainOptions& options = job.options;
  if (options.sample_every == 0 && options.prompt.empty()) return nullptr;
  if (options.sample_every == 0) throw ConfigError("--prompt is for --sample-every");
  require_continuable(job.model);
  if (options.prompt.empty()) throw ConfigError("--sample-every needs a text to go on with; give --prompt");
  if (const auto place = find_invalid_utf8(options.prompt)) {
    throw ConfigError(fmt::format("--prompt: byte {} is not valid UTF-8", *place));
  }
  if (job.tokenizer.empty()) {
    throw ConfigError("--prompt: the data are tokens, and nothing says of which text; give their --tokenizer");
  }
  auto result = std::make_shared<TrainingPrompt>();
  result->tokenizer = open_tokenizer(job.tokenizer);
  result->prompt.ids = result->tokenizer->with_special(encode(*result->tokenizer, options.prompt)).ids;
  require_in_vocabulary(result->prompt.ids, job.model, "--prompt");
  result->options.tokens =
      std::min(kSampleTokens, most_new_tokens(job.model, std::ssize(result->prompt.ids), "--prompt"));
  return result;
}

std::string say(const Job& job, const std::map<StageId, Stage*>& stages, RankId rank, Transport& transport,
                const std::function<void()>& on_token) {
  SpreadModel model(stages, first_copy(job, rank), transport, job.model.hidden, scalar_type(job.options.dtype),
                    device_of(job.options, rank));
  const TrainingPrompt& prompt = *job.prompt;
  return continue_prompt(model, prompt.prompt, prompt.options, prompt.tokenizer.get(),
                         [&](TokenId, std::string_view) { on_token(); })
      .text;
}

}  // namespace chimera

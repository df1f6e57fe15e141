#include "inference/continuation.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/random.h"
#include "inference/continued_text.h"

namespace chimera {

void require_continuable(const ModelConfig& model) {
  if (is_causal(model.family)) return;
  throw ConfigError(
      fmt::format("model {} is a BERT: each of its tokens sees those behind it, so it cannot continue a text; give a "
                  "GPT-2 or Llama model",
                  model.name));
}

std::int64_t most_new_tokens(const ModelConfig& model, std::int64_t prompt_tokens, const std::string& what) {
  if (prompt_tokens == 0) throw ConfigError(what + " has no tokens; give at least one");
  if (prompt_tokens > model.positions) {
    throw ConfigError(fmt::format("{} has {} tokens, model {} {} positions; give a shorter one", what, prompt_tokens,
                                  model.name, model.positions));
  }
  require_no_sliding(model, prompt_tokens);
  return std::min(model.positions, model.sliding_window.value_or(model.positions)) - prompt_tokens + 1;
}

void require_in_vocabulary(const TokenIds& ids, const ModelConfig& model, const std::string& what) {
  for (const TokenId id : ids) {
    if (id < model.vocabulary) continue;
    throw ConfigError(fmt::format("{}: token {} lies outside the vocabulary of {} of model {}", what, id,
                                  model.vocabulary, model.name));
  }
}

Continuation continue_prompt(SpreadModel& model, const Prompt& prompt, const ContinuationOptions& options,
                             const Tokenizer* tokenizer, const OnToken& on_token) {
  const CounterRandom random(static_cast<std::uint64_t>(options.sampling.seed),
                             fmt::format("tokens.{}", prompt.number));
  std::optional<ContinuedText> text;
  if (tokenizer != nullptr) text.emplace(*tokenizer, options.stops);
  Continuation continuation;
  TokenIds unread = prompt.ids;
  model.begin(std::ssize(prompt.ids) + options.tokens);
  for (bool ends = options.tokens == 0; !ends;) {
    const auto place = static_cast<std::uint64_t>(continuation.ids.size());
    const TokenId id = model.next(unread, [&](const at::Tensor& logits) {
      return choose_token(logits, options.sampling, random.uniform(place));
    });
    unread = {id};
    continuation.ids.push_back(id);
    std::string added = text ? text->push(id) : "";
    ends = std::ssize(continuation.ids) == options.tokens || std::ranges::count(options.end_tokens, id) > 0 ||
           (text && text->stopped());
    if (ends && text) added += text->finish();
    continuation.text += added;
    if (on_token) on_token(id, added);
  }
  return continuation;
}

}  // namespace chimera

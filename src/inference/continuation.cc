#include "inference/continuation.h"

#include <ATen/ATen.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "core/random.h"
#include "core/reject.h"

// A token is chosen in three steps: with_rules() changes the scores as transformers' processors do,
// token_probabilities() turns them into probabilities (temperature, then top-k, then top-p), and choose_token() inverts
// their cumulative sum at a random number. The number depends only on seed, prompt and place, so every rank count and
// every order of prompts gives the same text.

namespace chimera {
namespace {

/// Length of the longest end of `text` that may begin `stop`.
std::size_t begun(const std::string& text, const std::string& stop) {
  for (std::size_t bytes = std::min(text.size(), stop.size() - 1); bytes > 0; --bytes)
    if (text.ends_with(std::string_view(stop).substr(0, bytes))) return bytes;
  return 0;
}

constexpr double kNever = -std::numeric_limits<double>::infinity();

at::Tensor rounded(const at::Tensor& logits) {
  at::Tensor scores = logits.detach().to(at::kCPU, at::kFloat);
  if (std::isfinite(scores.max().item<float>())) return scores;  // max() is NaN if any score is
  throw Error("the model's scores of the next token are not finite; its weights may be damaged");
}

/// Forbids each token that would repeat `size` consecutive tokens.
template <class Forbid>
void forbid_repeats(const Forbid& forbid, const TokenIds& ids, std::size_t size) {
  // With size 3 and ids ... a b c ... a b, the last two tokens a b have been followed by c before, so c is forbidden.
  if (ids.size() < size) return;
  const auto last = ids.end() - static_cast<std::ptrdiff_t>(size - 1);
  for (auto next = ids.begin() + static_cast<std::ptrdiff_t>(size - 1); next != ids.end(); ++next)
    if (std::equal(last, ids.end(), next - static_cast<std::ptrdiff_t>(size - 1))) forbid(*next);
}

/// Forbids the last token of each bad word whose other tokens end `ids`. As in transformers, words that are an end
/// token have no effect.
template <class Forbid>
void forbid_words(const Forbid& forbid, const ScoreRules& rules, const TokenIds& ids,
                  const std::vector<std::int64_t>& end_tokens) {
  for (const std::vector<std::int64_t>& word : rules.bad_words_ids) {
    if (word.size() == 1 && std::ranges::count(end_tokens, word[0]) > 0) continue;
    if (word.size() > ids.size() + 1) continue;
    const auto begin = ids.end() - static_cast<std::ptrdiff_t>(word.size() - 1);
    if (std::equal(begin, ids.end(), word.begin())) forbid(word.back());
  }
}

void keep_top_k(at::Tensor& scores, std::int64_t count) {
  if (count == 0 || count >= scores.numel()) return;
  // Equal scores stay together, so the result does not depend on how topk() breaks ties.
  const at::Tensor least = std::get<0>(scores.topk(count)).min();
  scores.masked_fill_(scores < least, kNever);
}

/// Drops the least likely tokens, with at most 1 - share of the probability.
void keep_top_p(at::Tensor& scores, double share) {
  if (share >= 1) return;
  const auto [ascending, order] = scores.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  // Summed from the least likely token up, where small numbers keep their digits.
  at::Tensor goes = ascending.softmax(0).cumsum(0) <= 1 - share;
  // The likeliest token stays, even if it alone has more than the share.
  goes[-1] = false;
  scores.masked_fill_(at::empty_like(goes).scatter_(0, order, goes), kNever);
}

/// Changes the scores `logits` [V] by `rules`, in the order of transformers. `ids` are the prompt's `prompt_tokens` and
/// the new tokens so far; `end_tokens` are those that the minimum lengths forbid. Returns [V]. Throws Error if the
/// highest score is not finite.
at::Tensor with_rules(const at::Tensor& logits, const ScoreRules& rules, const TokenIds& ids, std::size_t prompt_tokens,
                      const std::vector<std::int64_t>& end_tokens) {
  const at::Tensor scores = rounded(logits).clone();
  float* const values = scores.data_ptr<float>();
  const auto forbid = [&](std::int64_t token) {
    if (token < scores.numel()) values[token] = static_cast<float>(kNever);
  };
  const auto penalty = static_cast<float>(rules.repetition_penalty);
  for (const TokenId id : penalty == 1 ? std::set<TokenId>() : std::set<TokenId>(ids.begin(), ids.end())) {
    // A penalty above 1 makes the token less likely whatever the sign of its score.
    values[id] = values[id] < 0 ? values[id] * penalty : values[id] / penalty;
  }
  if (rules.no_repeat_ngram_size > 0) forbid_repeats(forbid, ids, static_cast<std::size_t>(rules.no_repeat_ngram_size));
  forbid_words(forbid, rules, ids, end_tokens);
  const auto tokens = std::ssize(ids);
  const auto new_tokens = tokens - static_cast<std::int64_t>(prompt_tokens);
  if (tokens < rules.min_length || new_tokens < rules.min_new_tokens) std::ranges::for_each(end_tokens, forbid);
  std::ranges::for_each(rules.suppress_tokens, forbid);
  if (new_tokens == 0) std::ranges::for_each(rules.begin_suppress_tokens, forbid);
  return scores;
}

}  // namespace

DistributedModel::DistributedModel(const std::map<StageId, Stage*>& stages, StageRanks ranks, Transport& transport,
                                   std::int64_t hidden, at::ScalarType dtype, at::Device device)
    : ranks_(std::move(ranks)), transport_(transport), hidden_(hidden), dtype_(dtype), device_(device) {
  for (const auto& [id, stage] : stages) {
    // A bidirectional schedule has several replicas of the model; inference uses the stages of one.
    if (holds(id.index())) stages_.emplace(id.index(), &dynamic_cast<const TransformerStage&>(*stage));
  }
}

void DistributedModel::begin(std::int64_t tokens) {
  length_ = 0;
  for (const auto& [index, stage] : stages_) key_value_caches_[index] = std::make_shared<KeyValueCache>(tokens);
}

TokenId DistributedModel::next(std::span<const TokenId> tokens, const Choose& choose) {
  const at::NoGradGuard no_graph;
  const at::Tensor logits = read(tokens);
  // The other ranks add zero: a sum distributes the token without a rank that broadcasts.
  std::array<double, 1> token = {logits.defined() ? static_cast<double>(choose(logits)) : 0.0};
  transport_.all_sum(token);
  return static_cast<TokenId>(token[0]);
}

at::Tensor DistributedModel::read(std::span<const TokenId> tokens) {
  ++reads_;
  const std::size_t last = ranks_.holders.size() - 1;
  at::Tensor hidden;
  for (std::size_t stage = 0; stage <= last; ++stage) {
    if (!holds(stage)) continue;
    if (stage > 0 && !holds(stage - 1)) {
      // A batch of one sequence.
      const TensorSpec spec{{1, std::ssize(tokens), hidden_}, dtype_};
      hidden = transport_.post_receive(ranks_.holders[stage - 1], spec, tag(stage - 1))->wait();
    }
    hidden = run(stage, hidden, tokens);
    if (stage < last && !holds(stage + 1))
      transport_.start_send(ranks_.holders[stage + 1], hidden.contiguous(), tag(stage))->wait();
  }
  length_ += std::ssize(tokens);
  // Only the last token's scores are computed: the head is the largest product.
  if (!holds(last)) return {};
  const at::Tensor logits = stages_.at(last)->logits(hidden.narrow(1, std::ssize(tokens) - 1, 1)).flatten();
  return ranks_.is_copy ? at::Tensor() : logits;
}

at::Tensor DistributedModel::run(std::size_t stage, const at::Tensor& input, std::span<const TokenId> tokens) {
  MicroBatch batch{.key_value_cache = key_value_caches_.at(stage), .first_token = length_};
  if (stage == 0) {
    const std::vector<std::int64_t> ids(tokens.begin(), tokens.end());
    batch.tokens = at::tensor(ids, at::kLong).unsqueeze(0).to(device_);
  }
  return stages_.at(stage)->hidden_states(input, batch);
}

MessageTag DistributedModel::tag(std::size_t stage) const {
  const auto number = static_cast<std::int64_t>(stage);
  return {.step = reads_, .op = {OpKind::Forward, ReplicaId(0), StageId(number), MicroBatchId(0)}};
}

std::string ContinuedText::push(TokenId id) { return take(decoder_.push(id), false); }

std::string ContinuedText::finish() { return take(decoder_.finish(), true); }

std::string ContinuedText::take(const std::string& added, bool all) {
  if (stopped_) return {};
  std::string text = std::exchange(held_, {}) + added;
  std::size_t end = text.size();
  for (const std::string& stop : stops_) end = std::min(end, text.find(stop));
  stopped_ = end < text.size();
  if (!stopped_ && !all) {
    // The end of the text may be the beginning of a stop text, so it is held back until the next token decides.
    std::size_t bytes = 0;
    for (const std::string& stop : stops_) bytes = std::max(bytes, begun(text, stop));
    held_ = text.substr(end - bytes);
    end -= bytes;
  }
  return text.substr(0, end);
}

void require_valid(const SamplingOptions& options) {
  if (!(options.temperature >= 0 && std::isfinite(options.temperature)))
    reject("--temperature must be at least 0, not {:g}", options.temperature);
  if (options.top_k < 0) reject("--top-k must be at least 0 (all), not {}", options.top_k);
  if (!(options.top_p > 0 && options.top_p <= 1))
    reject("--top-p must be above 0 and at most 1, not {:g}", options.top_p);
  if (options.seed < 0) reject("--seed must be at least 0, not {}", options.seed);
}

at::Tensor token_probabilities(const at::Tensor& logits, const SamplingOptions& options) {
  at::Tensor scores = rounded(logits).to(at::kDouble);
  scores = (scores - scores.max()) / options.temperature;  // prevents overflow at low temperatures
  keep_top_k(scores, options.top_k);
  keep_top_p(scores, options.top_p);
  return scores.softmax(0);
}

std::int64_t choose_token(const at::Tensor& logits, const SamplingOptions& options, double uniform) {
  if (options.temperature == 0) return rounded(logits).argmax().item<std::int64_t>();
  // The first token whose cumulative probability exceeds the number; tokens of probability 0 are never the first.
  const at::Tensor sums = token_probabilities(logits, options).cumsum(0);
  const double total = sums[-1].item<double>();
  // Below the total, so that rounding never chooses a token behind the last.
  const at::Tensor point = at::scalar_tensor(std::min(uniform * total, std::nextafter(total, 0.0)), at::kDouble);
  return at::searchsorted(sums, point, /*out_int32=*/false, /*right=*/true).item<std::int64_t>();
}

void require_continuable(const ModelConfig& model) {
  if (is_causal(model.family)) return;
  reject(
      "model {} is a BERT: each of its tokens depends on later tokens, so it cannot continue a text; give a GPT-2 or "
      "Llama model",
      model.name);
}

std::int64_t most_new_tokens(const ModelConfig& model, std::int64_t prompt_tokens, const std::string& what) {
  if (prompt_tokens == 0) throw ConfigError(what + " has no tokens; give at least one");
  if (prompt_tokens > model.positions) {
    reject("{} has {} tokens, model {} {} positions; give a shorter one", what, prompt_tokens, model.name,
           model.positions);
  }
  require_within_window(model, prompt_tokens);
  return std::min(model.positions, model.sliding_window.value_or(model.positions)) - prompt_tokens + 1;
}

void require_in_vocabulary(const TokenIds& ids, const ModelConfig& model, const std::string& what) {
  for (const TokenId id : ids) {
    if (id < model.vocabulary) continue;
    reject("{}: token {} lies outside the vocabulary of {} of model {}", what, id, model.vocabulary, model.name);
  }
}

Continuation continue_prompt(DistributedModel& model, const Prompt& prompt, const ContinuationOptions& options,
                             const Tokenizer* tokenizer, const OnToken& on_token) {
  const CounterRandom random(static_cast<std::uint64_t>(options.sampling.seed),
                             fmt::format("tokens.{}", prompt.number));
  std::optional<ContinuedText> text;
  if (tokenizer != nullptr) text.emplace(*tokenizer, options.stops);
  Continuation continuation;
  TokenIds ids = prompt.ids;
  TokenIds unread = prompt.ids;
  model.begin(std::ssize(prompt.ids) + options.tokens);
  for (bool ends = options.tokens == 0; !ends;) {
    const auto place = static_cast<std::uint64_t>(continuation.ids.size());
    const TokenId id = model.next(unread, [&](const at::Tensor& logits) {
      const at::Tensor scores = with_rules(logits, options.rules, ids, prompt.ids.size(), options.end_tokens);
      return choose_token(scores, options.sampling, random.uniform(place));
    });
    ids.push_back(id);
    // The cache has the keys and values of all earlier tokens, so the model reads only the new one.
    unread = {id};
    continuation.ids.push_back(id);
    std::string added = text ? text->push(id) : "";
    ends = std::ssize(continuation.ids) == options.tokens || std::ranges::count(options.end_tokens, id) > 0 ||
           (text && text->has_stopped());
    if (ends && text) added += text->finish();
    continuation.text += added;
    if (on_token) on_token(id, added);
  }
  return continuation;
}

}  // namespace chimera

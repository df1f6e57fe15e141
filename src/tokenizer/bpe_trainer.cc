#include "tokenizer/bpe_trainer.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/json.h"
#include "core/reject.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/unicode.h"

// A plain trainer would count all pairs after each merge. This one keeps the counts (`counts_`), and for each pair the
// words that contain it, so that a merge changes only these words and their neighbors' counts. The heap may hold a pair
// with an old, larger count, so a pair is corrected when it comes to the top.

namespace chimera {
namespace {

using Pair = std::pair<std::int64_t, std::int64_t>;
using WordNumbers = std::vector<std::uint32_t>;  // distinct words

struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    return static_cast<std::size_t>(pair.first * 0x1000003 + pair.second) * 0x9E3779B97F4A7C15U;
  }
};

/// A pair, its total count when pushed, and words that contain it.
struct Candidate {
  Pair pair;
  std::int64_t count = 0;
  WordNumbers places;
};

/// Puts the most frequent pair on top of the heap; of equally frequent ones, the pair with the smallest ids.
bool comes_later(const Candidate& a, const Candidate& b) {
  return a.count != b.count ? a.count < b.count : a.pair > b.pair;
}

class BpeLearner {
 public:
  BpeLearner(const WordCounts& words, const BpeTraining& training) : training_(training) {
    for (const std::string& token : training.special_tokens) add_token(token);
    trained_.special_tokens = trained_.tokens.size();
    add_alphabet();
    if (training.vocabulary < static_cast<std::int64_t>(trained_.tokens.size()))
      reject("--vocabulary {}: {} special tokens and 256 bytes take {}; give at least as many", training.vocabulary,
             trained_.special_tokens, trained_.tokens.size());
    for (const auto& [word, count] : words.counts()) take_word(word, count);
  }

  TrainedBpe learn() {
    count_pairs();
    while (static_cast<std::int64_t>(trained_.tokens.size()) < training_.vocabulary && !heap_.empty()) {
      Candidate top = pop();
      // An outdated count is too high, so a pair whose count is current is the most frequent of all.
      if (const std::int64_t count = counts_[top.pair]; count != top.count) {  // outdated: push again
        top.count = count;
        push(std::move(top));
        continue;
      }
      if (top.count < std::max<std::int64_t>(1, training_.min_frequency)) break;
      merge(top);
    }
    keep_last_of_each();
    return std::move(trained_);
  }

 private:
  // A distinct word of the text, as the ids of its tokens so far.
  struct Word {
    std::vector<std::int64_t> tokens;
    std::int64_t count = 0;
  };

  std::int64_t add_token(const std::string& token) {
    const auto [entry, is_new] = ids_.emplace(token, static_cast<std::int64_t>(trained_.tokens.size()));
    if (is_new) trained_.tokens.push_back(token);
    return entry->second;
  }

  void add_alphabet() {
    // Ids of bytes ascend by their letters, as tokenizers sorts its alphabet.
    std::map<char32_t, std::size_t> by_letter;
    for (std::size_t byte = 0; byte < 256; ++byte) by_letter.emplace(kByteLetters[byte], byte);
    for (const auto& [letter, byte] : by_letter) {
      std::string token;
      append_utf8(token, letter);
      byte_ids_[byte] = add_token(token);
    }
  }

  void take_word(std::string_view word, std::int64_t count) {
    Word& taken = words_.emplace_back();
    taken.count = count;
    for (const char byte : word) taken.tokens.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
  }

  void count_pairs() {
    for (std::size_t w = 0; w < words_.size(); ++w) {
      const auto& tokens = words_[w].tokens;
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
        counts_[{tokens[i], tokens[i + 1]}] += words_[w].count;
        note({tokens[i], tokens[i + 1]}, w);
      }
    }
    push_noted();
  }

  void note(const Pair& pair, std::size_t word) {
    WordNumbers& places = noted_[pair];
    // Words come in ascending order, so a repeated word is the last one.
    if (places.empty() || places.back() != word) places.push_back(static_cast<std::uint32_t>(word));
  }

  // A merge may make the same pair in many words; they become one candidate, with all these words.
  void push_noted() {
    for (auto& [pair, places] : noted_)
      if (const std::int64_t count = counts_[pair]; count > 0) push({pair, count, std::move(places)});
    noted_.clear();
  }

  void push(Candidate candidate) {
    heap_.push_back(std::move(candidate));
    std::push_heap(heap_.begin(), heap_.end(), comes_later);
  }
  Candidate pop() {
    std::pop_heap(heap_.begin(), heap_.end(), comes_later);
    Candidate top = std::move(heap_.back());
    heap_.pop_back();
    return top;
  }

  /// Two pairs may form the same token. The merged pair's count is not reduced, as in tokenizers.
  void merge(const Candidate& top) {
    const auto [left, right] = top.pair;
    const std::int64_t id =
        add_token(trained_.tokens[static_cast<std::size_t>(left)] + trained_.tokens[static_cast<std::size_t>(right)]);
    trained_.merges.push_back(top.pair);
    for (const std::uint32_t word : top.places) merge_in(word, top.pair, id);
    push_noted();
  }

  /// Replaces the pair in one word, from left to right, and updates the counts of its neighbors.
  void merge_in(std::size_t w, const Pair& pair, std::int64_t id) {
    Word& word = words_[w];
    std::vector<std::int64_t>& tokens = word.tokens;
    const auto replace_pair = [&](const Pair& gone, const Pair& come) {
      counts_[gone] -= word.count;
      counts_[come] += word.count;
      note(come, w);
    };
    // Example: the pair (a, b) in a b c becomes ab c. The count of (b, c) falls, and that of (ab, c) rises.
    std::size_t kept = 0;  // tokens[0 .. kept) are final
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i + 1 == tokens.size() || Pair{tokens[i], tokens[i + 1]} != pair) {
        tokens[kept++] = tokens[i];
        continue;
      }
      // The left neighbor may itself be a new token, so it is taken from the final part; the right one is still the old
      // one.
      if (kept > 0) replace_pair({tokens[kept - 1], pair.first}, {tokens[kept - 1], id});
      if (i + 2 < tokens.size()) replace_pair({pair.second, tokens[i + 2]}, {id, tokens[i + 2]});
      tokens[kept++] = id;
      ++i;
    }
    tokens.resize(kept);
  }

  /// A pair that was merged twice has the later rank.
  void keep_last_of_each() {
    std::set<Pair> seen;
    std::vector<Pair> kept;
    for (auto merge = trained_.merges.rbegin(); merge != trained_.merges.rend(); ++merge)
      if (seen.insert(*merge).second) kept.push_back(*merge);
    trained_.merges.assign(kept.rbegin(), kept.rend());
  }

  const BpeTraining& training_;
  TrainedBpe trained_;
  TextMap<std::int64_t> ids_;
  std::int64_t byte_ids_[256] = {};
  std::vector<Word> words_;
  std::unordered_map<Pair, std::int64_t, PairHash> counts_;
  std::unordered_map<Pair, WordNumbers, PairHash> noted_;
  std::vector<Candidate> heap_;
};

}  // namespace

void WordCounts::add(std::string_view text) {
  while (!text.empty()) {
    // The trainer of tokenizers reads files line by line, with the line ends, so words end where lines do.
    const std::string_view line = text.substr(0, std::min(text.find('\n'), text.size() - 1) + 1);
    for (std::size_t start = 0; start < line.size();) {
      const std::size_t end = word_end(WordPattern::Gpt2, line, start);
      const std::string_view word = line.substr(start, end - start);
      if (const auto found = counts_.find(word); found != counts_.end())
        ++found->second;
      else
        counts_.emplace(word, 1);
      start = end;
    }
    text.remove_prefix(line.size());
  }
}

TrainedBpe train_bpe(const WordCounts& words, const BpeTraining& training) {
  return BpeLearner(words, training).learn();
}

std::string to_tokenizer_json(const TrainedBpe& trained) {
  using Json = nlohmann::ordered_json;
  Json added = Json::array();
  for (std::size_t id = trained.first_special; id < trained.first_special + trained.special_tokens; ++id)
    added.push_back({{"id", id},
                     {"content", trained.tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  std::string vocabulary;  // text, because insertion into nlohmann's ordered object is linear
  for (std::size_t id = 0; id < trained.tokens.size(); ++id)
    vocabulary += fmt::format("{}      {}: {}", id == 0 ? "" : ",\n", json_text(Json(trained.tokens[id])), id);
  std::string merges;
  for (const auto& [left, right] : trained.merges)
    merges += fmt::format("{}      [{}, {}]", merges.empty() ? "" : ",\n",
                          json_text(Json(trained.tokens[static_cast<std::size_t>(left)])),
                          json_text(Json(trained.tokens[static_cast<std::size_t>(right)])));
  constexpr const char* kByteLevel =
      R"({{"type": "ByteLevel", "add_prefix_space": {}, "trim_offsets": true, "use_regex": true}})";
  return fmt::format(
      "{{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": {},\n"
      "  \"normalizer\": null,\n  \"pre_tokenizer\": {},\n  \"post_processor\": null,\n  \"decoder\": {},\n"
      "  \"model\": {{\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
      "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n"
      "    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n    \"vocab\": {{\n{}\n    }},\n"
      "    \"merges\": [\n{}\n    ]\n  }}\n}}\n",
      json_text(added), fmt::format(kByteLevel, false), fmt::format(kByteLevel, true), vocabulary, merges);
}

}  // namespace chimera

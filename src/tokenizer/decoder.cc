#include "tokenizer/decoder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <charconv>
#include <utility>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/unicode.h"

namespace chimera {
namespace {

using Tokens = std::vector<std::string>;

/// Returns the byte of a token such as <0x0A>.
std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  if (error != std::errc{} || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(value);
}

/// The order matters, as in tokenizers: an earlier change may make the text of a later one.
void clean_up(std::string& token) {
  constexpr std::pair<std::string_view, std::string_view> kChanges[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kChanges) token = replace_all(token, from, to);
}

struct StepRun {
  Tokens& tokens;

  // All tokens at once: a character may be spread over several tokens.
  void operator()(const ByteLevelDecoding&) const {
    std::string bytes;
    // A token that is no text of letters, such as an added token, stays as it is.
    for (const std::string& token : tokens) bytes += bytes_of_letters(token).value_or(token);
    tokens = {with_replacements(bytes)};
  }
  // Example: the tokens play, ##ing and ! become "play", "ing" and " !", and with `cleanup` the last becomes "!".
  void operator()(const WordPieceDecoding& step) const {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0 && token.starts_with(step.prefix))
        token.erase(0, step.prefix.size());
      else if (i > 0)
        token.insert(0, " ");
      if (step.cleanup) clean_up(token);
    }
  }
  void operator()(const ReplaceStep& step) const {
    for (std::string& token : tokens) token = replace_all(token, step.from, step.to);
  }
  void operator()(const ByteFallbackDecoding&) const {
    Tokens out;
    std::string run;
    const auto put_run = [&] {
      if (run.empty()) return;
      // As tokenizers does: the bytes between two other tokens are valid together, or each of them is invalid.
      if (find_invalid_utf8(run))
        out.insert(out.end(), run.size(), "\uFFFD");
      else
        out.push_back(run);
      run.clear();
    };
    for (std::string& token : tokens) {
      if (const auto byte = byte_of(token)) {
        run += *byte;
        continue;
      }
      put_run();
      out.push_back(std::move(token));
    }
    put_run();
    tokens = std::move(out);
  }
  void operator()(const FuseDecoding&) const { tokens = {fmt::format("{}", fmt::join(tokens, ""))}; }
  void operator()(const StripDecoding& step) const {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (std::size_t i = 0; i < step.start && rest.starts_with(step.content); ++i)
        rest.remove_prefix(step.content.size());
      for (std::size_t i = 0; i < step.stop && rest.ends_with(step.content); ++i)
        rest.remove_suffix(step.content.size());
      token = std::string(rest);
    }
  }
  void operator()(const BlankSignDecoding& step) const {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = replace_all(tokens[i], step.sign, i == 0 && step.drop_first ? "" : " ");
  }
};

}  // namespace

std::string decode(const Decoder& decoder, std::vector<std::string> tokens) {
  for (const DecodingStep& step : decoder) std::visit(StepRun{tokens}, step);
  return fmt::format("{}", fmt::join(tokens, decoder.empty() ? " " : ""));
}

bool is_open(const Decoder& decoder, std::string_view last_token) {
  // Byte-level BPE needs no such rule: an incomplete character decodes to U+FFFD, and StreamDecoder::take() waits then.
  const auto joins_bytes = [](const DecodingStep& step) { return std::holds_alternative<ByteFallbackDecoding>(step); };
  return std::ranges::any_of(decoder, joins_bytes) && byte_of(last_token).has_value();
}

}  // namespace chimera

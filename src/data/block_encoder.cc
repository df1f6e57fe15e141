#include "data/block_encoder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "tokenizer/unicode.h"

namespace chimera {
namespace {

template <class Number>
void append_as(std::string& bytes, const TokenIds& ids) {
  std::vector<Number> numbers(ids.begin(), ids.end());
  bytes.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number));
}

void append_decimal(std::string& text, TokenId id) {
  char digits[16];
  const auto [end, error] = std::to_chars(std::begin(digits), std::end(digits), id);
  text.append(digits, end);
}

/// The text of a field. `fail` gets what is wrong.
template <class Fail>
std::string_view text_of(simdjson::dom::element line, const std::string& field, Fail fail) {
  simdjson::dom::object object;
  if (line.get(object) != simdjson::SUCCESS) fail("expected a JSON object");
  std::optional<simdjson::dom::element> found;
  std::vector<std::string> names;
  for (const auto& [name, value] : object) {
    if (name == field && found) fail(fmt::format("the field '{}' stands here twice; leave one of them out", field));
    if (name == field) found = value;
    if (names.size() < 8) names.push_back(printable(name));
  }
  if (!found) {
    fail(fmt::format("the field '{}' is missing; found: {}; give --field", field, fmt::join(names, ", ")));
  }
  std::string_view text;
  if (found->get(text) != simdjson::SUCCESS) fail(fmt::format("the field '{}' is no text", field));
  return text;
}

}  // namespace

struct BlockEncoder::Json {
  simdjson::dom::parser parser;
};

BlockEncoder::BlockEncoder(const Tokenizer& tokenizer, const std::vector<std::string>& paths, EncodingOptions options)
    : tokenizer_(tokenizer),
      paths_(paths),
      options_(std::move(options)),
      encoder_(tokenizer.make_encoder()),
      json_(std::make_unique<Json>()) {}

BlockEncoder::~BlockEncoder() = default;

std::string BlockEncoder::name(const InputBlock& block) const {
  const std::string& path = paths_[static_cast<std::size_t>(block.begin.file)];
  return path == "-" ? "standard input" : path;
}

EncodedBlock BlockEncoder::encode(InputBlock& block) {
  done_ = {.input_bytes = static_cast<std::int64_t>(block.size), .begin = block.begin, .end = block.end};
  if (block.jsonl) {
    encode_lines(block);
  } else {
    encode_text(block);
  }
  return std::move(done_);
}

void BlockEncoder::encode_text(const InputBlock& block) {
  ids_.clear();
  std::string replaced;
  std::string_view text = block.text();
  if (const auto place = find_invalid_utf8(text)) {
    if (options_.invalid == InvalidText::Refuse) {
      throw ConfigError(fmt::format("{}: byte {} is not valid UTF-8; give --invalid replace to read it as U+FFFD",
                                    name(block), block.begin.offset + static_cast<std::int64_t>(*place)));
    }
    replaced = with_replacements(text);
    text = replaced;
  }
  encoder_->encode(text, ids_, !block.begins_document);
  put(block.begins_document, block.ends_document, name(block));
}

void BlockEncoder::encode_lines(InputBlock& block) {
  std::int64_t line = block.begin.line;
  for (std::size_t start = 0; start < block.size; ++line) {
    const std::size_t end = std::min(block.bytes.find('\n', start), block.size);
    const std::string_view text = std::string_view(block.bytes).substr(start, end - start);
    if (text.find_first_not_of(" \t\r") != text.npos) encode_line(block, start, end - start, line);
    start = end + 1;
  }
}

void BlockEncoder::encode_line(InputBlock& block, std::size_t start, std::size_t size, std::int64_t line) {
  const auto place = [&] { return fmt::format("{}: line {}", name(block), line); };
  const auto fail = [&](const std::string& what) { throw ConfigError(fmt::format("{}: {}", place(), what)); };
  simdjson::dom::element element;
  // The block goes on behind the line: nothing needs to be copied.
  auto error = json_->parser.parse(block.bytes.data() + start, size, false).get(element);
  if (error == simdjson::UTF8_ERROR && options_.invalid == InvalidText::Replace) {
    error = json_->parser.parse(with_replacements(std::string_view(block.bytes).substr(start, size))).get(element);
  }
  if (error == simdjson::UTF8_ERROR) fail("is not valid UTF-8; give --invalid replace to read it as U+FFFD");
  if (error != simdjson::SUCCESS) fail(fmt::format("JSON: {}", simdjson::error_message(error)));
  ids_.clear();
  encoder_->encode(text_of(element, options_.field, fail), ids_);
  put(true, true, place());
}

void BlockEncoder::put(bool begins, bool ends, const std::string& place) {
  if (begins && ends && ids_.empty()) {
    if (options_.empty == EmptyDocument::Refuse) {
      throw ConfigError(fmt::format("{}: the document is empty; give --empty skip to leave it out, or keep", place));
    }
    if (options_.empty == EmptyDocument::Skip) {
      ++done_.skipped;
      return;
    }
  }
  if (options_.separator && options_.separator_first && begins) ids_.insert(ids_.begin(), *options_.separator);
  if (options_.separator && !options_.separator_first && ends) ids_.push_back(*options_.separator);
  done_.ids += static_cast<std::int64_t>(ids_.size());
  if (!options_.type) {
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      if (i > 0 || !begins) done_.tokens += ' ';
      append_decimal(done_.tokens, ids_[i]);
    }
    if (ends) done_.tokens += '\n';
  } else {
    put_ids();
  }
  if (ends) done_.ends.push_back(done_.tokens.size());
}

void BlockEncoder::put_ids() {
  switch (*options_.type) {
    case TokenType::U8:
    case TokenType::I8: return append_as<std::uint8_t>(done_.tokens, ids_);
    case TokenType::U16:
    case TokenType::I16: return append_as<std::uint16_t>(done_.tokens, ids_);
    case TokenType::U32:
    case TokenType::I32: return append_as<std::uint32_t>(done_.tokens, ids_);
    case TokenType::I64: return append_as<std::uint64_t>(done_.tokens, ids_);
  }
}

}  // namespace chimera

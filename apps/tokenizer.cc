
#include <memory>
#include <set>

#include "commands.h"
#include "core/content.h"
#include "core/files.h"
#include "core/reject.h"
#include "flags/outputs.h"
#include "flags/values.h"
#include "help.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/unicode.h"

namespace chimera::apps {
namespace {

constexpr std::int64_t kLargestVocabulary = 1 << 22;
constexpr std::size_t kMaxText = std::size_t{16} << 30;  // bytes per file

struct TrainTokenizerOptions {
  std::vector<std::string> files;
  BpeTraining training;
  std::string output;
};

std::string name_of_input(const std::string& path) { return path == "-" ? "standard input" : path; }

void check(const TrainTokenizerOptions& options) {
  require_between("--vocabulary", options.training.vocabulary, 1, kLargestVocabulary);
  require_between("--min-frequency", options.training.min_frequency, 0, std::int64_t{1} << 40);
  std::set<std::string> seen;
  for (const std::string& token : options.training.special_tokens) {
    if (token.empty()) reject("--special: a token of no characters; give a text");
    if (find_invalid_utf8(token)) reject("--special: a token is not valid UTF-8");
    if (!seen.insert(token).second) reject("--special: '{}' is given twice", token);
  }
}

std::string train_tokenizer(const TrainTokenizerOptions& options) {
  check(options);
  WordCounts words;
  for (const std::string& path : options.files) {
    const std::string text = read_whole(path, kMaxText);
    // A JSONL or compressed file would give a tokenizer of quotes and escapes, without an error.
    require_text_content(path, text, "give its text: jq -r .text FILE | chimera tokenizer train -");
    if (const auto place = find_invalid_utf8(text))
      reject("{}: byte {} is not valid UTF-8", name_of_input(path), *place);
    words.add(text);
  }
  // A tokenizer of bytes alone is `bytes`, so an empty text is an error of the user.
  if (words.counts().empty()) reject("the files have no text to learn from");
  const TrainedBpe trained = train_bpe(words, options.training);
  // Not an error: a small text has few pairs, and its tokenizer works all the same.
  if (static_cast<std::int64_t>(trained.tokens.size()) < options.training.vocabulary)
    std::cerr << fmt::format("chimera: the text has no more pairs to merge: {} tokens instead of {}\n",
                             trained.tokens.size(), options.training.vocabulary);
  return to_tokenizer_json(trained);
}

}  // namespace

void add_tokenizer(CLI::App& program, const Invocation&, int&) {
  auto* command = program.add_subcommand("tokenizer", "Train a tokenizer on text");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n"
      "  chimera tokenizer train --vocabulary 8192 book.txt --output tokenizer.json\n"
      "  chimera tokenize book.txt --tokenizer tokenizer.json --output book\n"
      "\nMore: docs/tokenizers.md");
  auto* train = command->add_subcommand("train", "Train a byte-level BPE tokenizer and write its tokenizer.json");
  train->footer(
      "Examples:\n"
      "  chimera tokenizer train --vocabulary 8192 book.txt more.txt --output tokenizer.json\n"
      "  zcat text.gz | chimera tokenizer train --vocabulary 32000 --min-frequency 2 - --output tokenizer.json\n"
      "\nThe result equals that of BpeTrainer in the Python package tokenizers with ByteLevel.alphabet() as initial "
      "alphabet.\n"
      "\nMore: docs/tokenizers.md");
  auto options = std::make_shared<TrainTokenizerOptions>();
  train->add_option("FILE", options->files, "UTF-8 text; - reads standard input")->required();
  begin_group(*train, "Vocabulary");
  add_count(*train, "--vocabulary", options->training.vocabulary,
            "vocabulary size, including 256 bytes and the special tokens (default 8192)");
  train->add_option("--special", options->training.special_tokens, "special token; repeatable (default <|endoftext|>)")
      ->type_name("TOKEN")
      ->allow_extra_args(false);
  add_count(*train, "--min-frequency", options->training.min_frequency,
            "minimum frequency of a merged pair (default 0)");
  begin_group(*train, heading::kOutput);
  add_output_checks(*train, {add_path(*train, "--output", options->output,
                                      "write tokenizer.json to this file (default: standard output)")});
  train->callback([options] { write_output(options->output, train_tokenizer(*options)); });
}

}  // namespace chimera::apps

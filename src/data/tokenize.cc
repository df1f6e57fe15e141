#include "data/tokenize.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/fault_point.h"
#include "data/ordered_workers.h"
#include "data/resume_file.h"

namespace chimera {
namespace {

constexpr const char* kText = "-";
constexpr const char* kNone = "none";

/// The token that ends a document, or begins it.
std::optional<TokenId> separator_of(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  if (options.end_of_document == kNone) return std::nullopt;
  if (options.end_of_document.empty()) {
    return options.output == kText ? std::nullopt : tokenizer.end_of_document();
  }
  const auto id = tokenizer.find_token(options.end_of_document);
  if (!id) {
    throw ConfigError(fmt::format("--end-of-document: '{}' is no token of {}; give one, or none",
                                  options.end_of_document, options.tokenizer));
  }
  return id;
}

/// Where tokens go, and where they come from if an earlier run was broken.
class Output {
 public:
  Output(const TokenizeOptions& options, const Tokenizer& tokenizer) : options_(options) {
    if (options.output == kText) return;
    key_ = resume_key(options.inputs, options.tokenizer,
                      fmt::format("{} {} {} {}", to_text(options.format), options.end_of_document,
                                  to_text(options.invalid), to_text(options.empty)));
    saves_ = !has_stream(options.inputs);
    if (saves_) go_on(tokenizer.vocabulary_size());
    if (writer_) return;
    writer_.emplace(options.output, options.format, tokenizer.vocabulary_size());
    std::remove(resume_path().c_str());  // what an earlier run noted does not belong to what this one writes
  }

  [[nodiscard]] const TokenizeState& state() const { return state_; }
  [[nodiscard]] std::optional<TokenType> type() const {
    return writer_ ? std::optional(writer_->type()) : std::nullopt;
  }
  [[nodiscard]] std::string resume_path() const { return options_.output + ".resume"; }

  void take(const EncodedBlock& block) {
    if (writer_) {
      write(block);
    } else {
      print(block);
    }
    state_.place = block.end;
    state_.skipped += block.skipped;
    state_.bytes += block.input_bytes;
    unsaved_ += block.input_bytes;
    if (saves_ && unsaved_ >= options_.save_every) save();
  }

  std::vector<std::string> finish() {
    if (!writer_) return {};
    if (state_.written.documents == 0) throw ConfigError("the input has no document with a token; nothing is written");
    writer_->finish();
    std::remove(resume_path().c_str());
    if (options_.format == TokenFileFormat::Megatron) return {writer_->tokens_path(), writer_->index_path()};
    return {writer_->tokens_path()};
  }

  /// After a failure: what no call could go on from is deleted.
  void give_up() {
    if (writer_ && !has_saved_) writer_->discard();
  }

 private:
  /// Where an earlier run of the same key was broken, and what it wrote is still there.
  void go_on(std::int64_t vocabulary) {
    const auto earlier = read_resume(resume_path(), key_);
    if (!earlier || !TokenWriter::has(options_.output, options_.format, vocabulary, earlier->written)) return;
    writer_.emplace(options_.output, options_.format, vocabulary, earlier->written);
    state_ = *earlier;
    has_saved_ = true;
  }

  void write(const EncodedBlock& block) {
    std::size_t done = 0;
    const std::string_view tokens = block.tokens;
    for (const std::size_t end : block.ends) {
      writer_->write(tokens.substr(done, end - done));
      writer_->end_document();
      done = end;
    }
    writer_->write(tokens.substr(done));
    state_.written = writer_->written();
  }

  void print(const EncodedBlock& block) {
    const bool is_first_of_line = state_.written.open_document == 0;
    const std::size_t blank = is_first_of_line && block.tokens.starts_with(' ') ? 1 : 0;
    options_.print(block.tokens.substr(blank));
    state_.written.tokens += block.ids;
    state_.written.documents += static_cast<std::int64_t>(block.ends.size());
    state_.written.open_document = block.ends.empty() ? state_.written.open_document + block.ids : 0;
  }

  void save() {
    writer_->save();
    write_resume(resume_path(), key_, state_);
    has_saved_ = true;
    unsaved_ = 0;
    fault_point("tokenized");
  }

  const TokenizeOptions& options_;
  std::string key_;
  TokenizeState state_;
  std::optional<TokenWriter> writer_;
  bool saves_ = false;
  bool has_saved_ = false;
  std::int64_t unsaved_ = 0;  // bytes of input
};

/// A worker's own work.
std::function<EncodedBlock(InputBlock&)> work_of(const Tokenizer& tokenizer, const TokenizeOptions& options,
                                                 const EncodingOptions& encoding) {
  auto encoder = std::make_shared<BlockEncoder>(tokenizer, options.inputs.paths, encoding);
  return [encoder](InputBlock& block) { return encoder->encode(block); };
}

}  // namespace

TokenizeReport tokenize(const TokenizeOptions& options, const std::function<void(const TokenizeReport&)>& progress) {
  TokenizeReport report{.total_bytes = total_bytes(options.inputs)};
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(options.tokenizer);
  EncodingOptions encoding{.field = options.inputs.field,
                           .separator = separator_of(options, *tokenizer),
                           .separator_first = options.format == TokenFileFormat::Llmc,
                           .invalid = options.invalid,
                           .empty = options.empty};
  const bool has_index = options.output != kText && options.format == TokenFileFormat::Megatron;
  if (options.empty == EmptyDocument::Keep && has_index && !encoding.separator) {
    throw ConfigError("--empty keep: Megatron's format has no documents without tokens; give --end-of-document");
  }
  Output output(options, *tokenizer);
  encoding.type = output.type();
  report.resumed = output.state().bytes;
  const auto start = std::chrono::steady_clock::now();
  const auto note = [&] {
    const TokenizeState& state = output.state();
    report.documents = state.written.documents;
    report.tokens = state.written.tokens;
    report.skipped = state.skipped;
    report.bytes = state.bytes - report.resumed;
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  try {
    InputReader reader(options.inputs, *tokenizer, output.state().place, options.block_bytes);
    OrderedWorkers<InputBlock, EncodedBlock> workers(options.workers,
                                                     [&] { return work_of(*tokenizer, options, encoding); });
    const auto most = static_cast<std::size_t>(2 * options.workers + 2);
    const auto take = [&] {
      output.take(workers.take());
      note();
      progress(report);
    };
    for (InputBlock block; reader.next(block);) {
      workers.submit(std::move(block));
      if (workers.in_flight() >= most) take();
    }
    while (workers.in_flight() > 0) take();
    report.files = output.finish();
  } catch (...) {
    output.give_up();
    throw;
  }
  note();
  return report;
}

}  // namespace chimera

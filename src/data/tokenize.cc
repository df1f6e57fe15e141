#include "data/tokenize.h"

#include <simdjson.h>
#include <sys/stat.h>

#include <fmt/ranges.h>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "core/fault_point.h"
#include "core/files.h"
#include "core/json.h"
#include "core/printable.h"
#include "core/reject.h"
#include "core/signals.h"
#include "data/text_inputs.h"
#include "data/token_writer.h"
#include "tokenizer/tokenizer_folder.h"
#include "tokenizer/unicode.h"

// tokenize() reads blocks, hands them to OrderedWorkers, and gives the results to Output in the order of the input.
// Each worker has a BlockEncoder, which finds the texts in a block (JsonLine for JSONL), encodes them, and stores the
// ids as the output file will have them, so that the writing thread only appends bytes. Output saves the positions of
// input and output together; a later call continues from them.

namespace chimera {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(InputPosition, file, offset, line, in_document)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(OutputPosition, tokens, documents, open_document)

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Returns the first escape \uD800 .. \uDFFF from `from` on that is not part of a pair.
std::optional<std::size_t> find_half_character(std::string_view json, std::size_t from) {
  constexpr std::size_t kEscape = 6;  // bytes of \uD800
  // 'h': first half of a pair, 'l': second
  const auto half_at = [&](std::size_t at) {
    const std::string_view escape = json.substr(std::min(at, json.size()), kEscape);
    if (escape.size() < kEscape || !escape.starts_with("\\u") || (escape[2] != 'd' && escape[2] != 'D')) return ' ';
    return escape[3] == '8' || escape[3] == '9' || std::string_view("abAB").find(escape[3]) != escape.npos ? 'h'
           : std::string_view("cdefCDEF").find(escape[3]) != escape.npos                                   ? 'l'
                                                                                                           : ' ';
  };
  for (std::size_t at = json.find('\\', from); at != json.npos; at = json.find('\\', at)) {
    const char half = half_at(at);
    // A high half followed by a low half is one character.
    if (half == 'h' && half_at(at + kEscape) == 'l')
      at += 2 * kEscape;
    else if (half != ' ')
      return at;
    else
      at += 2;  // the escaped character may be a backslash
  }
  return std::nullopt;
}

/// Replaces what --invalid replace covers: bytes that are not UTF-8, and halves of characters.
std::string with_valid_characters(std::string_view json) {
  std::string line = with_replacements(json);
  for (auto at = find_half_character(line, 0); at; at = find_half_character(line, *at)) line.replace(*at, 6, "\\ufffd");
  return line;
}

const char* cause_of(simdjson::error_code error) {
  switch (error) {
    case simdjson::UTF8_ERROR: return "is not valid UTF-8; give --invalid replace to read it as U+FFFD";
    case simdjson::UNCLOSED_STRING: return "a string does not end";
    case simdjson::UNESCAPED_CHARS: return "a string has a control character; write it as an escape, such as \\t";
    case simdjson::STRING_ERROR:
      return "a string has an invalid escape, or half of a character; give --invalid replace to read the half as "
             "U+FFFD";
    case simdjson::INCOMPLETE_ARRAY_OR_OBJECT:
      return "the line does not end with its object; make lines of longer objects: jq -c . FILE";
    case simdjson::TAPE_ERROR: return "expected a name, a colon, a comma or the end of the object";
    case simdjson::TRAILING_CONTENT: return "something follows the object; expected one object per line";
    case simdjson::DEPTH_ERROR: return "objects and arrays are nested too deeply";
    default: return simdjson::error_message(error);
  }
}

/// Reads the text of a field. Other fields may have any content.
class JsonLine {
 public:
  /// `json` must be followed by readable padding. `place` names the line for messages.
  JsonLine(simdjson::ondemand::parser& parser, std::string_view json, const std::string& place) : place_(place) {
    // simdjson reads up to 64 bytes behind the text; InputBlock has zeros there.
    check(parser.iterate(json.data(), json.size(), json.size() + simdjson::SIMDJSON_PADDING).get(document_));
  }

  /// The parser keeps the text until its next line.
  std::string_view text_of(const std::string& field) {
    simdjson::ondemand::object object;
    const auto error = document_.get_object().get(object);
    if (error == simdjson::INCORRECT_TYPE) fail("expected a JSON object");
    check(error);
    // Reads the line to its end even after the field was found: malformed lines and repeated fields are errors.
    std::optional<std::string_view> found;
    std::vector<std::string> names;
    for (auto each : object) {
      simdjson::ondemand::field member;
      check(std::move(each).get(member));
      std::string_view name;
      if (member.unescaped_key().get(name) != simdjson::SUCCESS) name = "?";
      if (names.size() < 8) names.push_back(printable(name));
      if (name != field) continue;
      if (found) fail(fmt::format("the field '{}' is given twice; leave one of them out", field));
      found = text_of(member.value(), field);
    }
    if (const char* rest = nullptr; document_.current_location().get(rest) == simdjson::SUCCESS)
      check(simdjson::TRAILING_CONTENT);
    if (!found) fail(fmt::format("the field '{}' is missing; found: {}; give --field", field, fmt::join(names, ", ")));
    return *found;
  }

 private:
  std::string_view text_of(simdjson::ondemand::value& value, const std::string& field) {
    std::string_view text;
    const auto error = value.get_string().get(text);
    if (error == simdjson::INCORRECT_TYPE) fail(fmt::format("the field '{}' is not a string", field));
    check(error);
    return text;
  }

  void check(simdjson::error_code error) const {
    if (error != simdjson::SUCCESS) fail(cause_of(error));
  }

  [[noreturn]] void fail(const std::string& reason) const { reject("{}: {}", place_, reason); }

  const std::string& place_;
  simdjson::ondemand::document document_;
};

/// The last document may continue in the next block.
struct EncodedBlock {
  std::string tokens = {};             // as stored in the file
  std::vector<std::size_t> ends = {};  // offsets in `tokens` of the documents that end here
  std::int64_t ids = 0;
  std::int64_t skipped = 0;  // empty documents
  std::int64_t input_bytes = 0;
  InputPosition end;
};

/// Encodes blocks on one thread. Throws ConfigError, naming file and line or byte, for malformed input.
class BlockEncoder {
 public:
  /// `options` must outlive the encoder. `type` is the type of stored tokens; nothing: as text, a line "12 7 9\n" per
  /// document. `separator` is the token between documents.
  BlockEncoder(const Tokenizer& tokenizer, const TokenizeOptions& options, std::optional<TokenType> type,
               std::optional<TokenId> separator)
      : options_(options), type_(type), separator_(separator), encoder_(tokenizer.make_encoder()) {}

  EncodedBlock encode(InputBlock& block) {
    done_ = {.input_bytes = static_cast<std::int64_t>(block.size), .end = block.end};
    if (block.jsonl)
      encode_lines(block);
    else
      encode_text(block);
    return std::move(done_);
  }

 private:
  [[nodiscard]] std::string name(const InputBlock& block) const {
    const std::string& path = options_.inputs.paths[static_cast<std::size_t>(block.begin.file)];
    return path == "-" ? "standard input" : path;
  }

  void encode_text(const InputBlock& block) {
    ids_.clear();
    std::string replaced;
    std::string_view text = block.text();
    if (const auto place = find_invalid_utf8(text)) {
      if (options_.invalid == InvalidText::Refuse)
        reject("{}: byte {} is not valid UTF-8; give --invalid replace to read it as U+FFFD", name(block),
               block.begin.offset + static_cast<std::int64_t>(*place));
      replaced = with_replacements(text);
      text = replaced;
    }
    // The last argument says that the text continues one that began before: some tokenizers put a blank before the
    // first word.
    encoder_->encode(text, ids_, !block.begins_document());
    put(block.begins_document(), block.ends_document(), name(block));
  }

  void encode_lines(InputBlock& block) {
    std::int64_t line = block.begin.line;
    for (std::size_t start = 0; start < block.size; ++line) {
      const std::size_t end = std::min(block.bytes.find('\n', start), block.size);
      const std::string_view text = std::string_view(block.bytes).substr(start, end - start);
      if (text.find_first_not_of(" \t\r") != text.npos) encode_line(block, start, end - start, line);
      start = end + 1;
    }
  }

  void encode_line(InputBlock& block, std::size_t start, std::size_t size, std::int64_t line) {
    const std::string place = fmt::format("{}: line {}", name(block), line);
    const bool has_mark = block.begin.offset == 0 && start == 0 && block.text().starts_with(kByteOrderMark);
    // Some editors put it at the beginning of a file; simdjson would refuse it.
    const std::size_t mark = has_mark ? kByteOrderMark.size() : 0;
    // Needs no copy: the block continues behind the line.
    std::string_view json = std::string_view(block.bytes).substr(start + mark, size - mark);
    std::string replaced;
    if (options_.invalid == InvalidText::Replace) {
      replaced = with_valid_characters(json);
      // The copy is not in the block, so it needs readable bytes behind it too.
      replaced.reserve(replaced.size() + simdjson::SIMDJSON_PADDING);
      json = replaced;
    }
    JsonLine reader(parser_, json, place);
    ids_.clear();
    encoder_->encode(reader.text_of(options_.inputs.field), ids_);
    put(true, true, place);
  }

  void put(bool begins, bool ends, const std::string& place) {
    if (begins && ends && ids_.empty()) {
      if (options_.empty == EmptyDocument::Refuse)
        reject("{}: the document is empty; give --empty skip to leave it out, or keep", place);
      if (options_.empty == EmptyDocument::Skip) {
        ++done_.skipped;
        return;
      }
    }
    // llm.c's documents begin with the separator, those of the other formats end with it.
    const bool is_first = options_.format == TokenFileFormat::Llmc;
    if (separator_ && is_first && begins) ids_.insert(ids_.begin(), *separator_);
    if (separator_ && !is_first && ends) ids_.push_back(*separator_);
    done_.ids += static_cast<std::int64_t>(ids_.size());
    if (!type_) {
      for (std::size_t i = 0; i < ids_.size(); ++i) {
        if (i > 0 || !begins) done_.tokens += ' ';
        done_.tokens += fmt::format_int(ids_[i]).str();
      }
      if (ends) done_.tokens += '\n';
    } else {
      with_stored_type(*type_, [this]<class Stored>(Stored) {
        // The writer's bytes are made here, on the worker's thread.
        const std::vector<Stored> stored(ids_.begin(), ids_.end());
        done_.tokens.append(reinterpret_cast<const char*>(stored.data()), stored.size() * sizeof(Stored));
      });
    }
    if (ends) done_.ends.push_back(done_.tokens.size());
  }

  const TokenizeOptions& options_;
  std::optional<TokenType> type_;
  std::optional<TokenId> separator_;
  std::unique_ptr<Encoder> encoder_;
  simdjson::ondemand::parser parser_;
  TokenIds ids_;
  EncodedBlock done_;
};

/// Encodes blocks on worker threads, and returns the results in the order of the blocks.
class OrderedWorkers {
 public:
  /// Starts fewer workers if threads are scarce; throws std::system_error if there are none.
  OrderedWorkers(int workers, const std::function<BlockEncoder()>& make_encoder) {
    const SignalBlocker none;  // signals are for the main thread
    try {
      for (int i = 0; i < workers; ++i)
        threads_.emplace_back([this, encoder = make_encoder()]() mutable { run(encoder); });
    } catch (const std::system_error&) {
      // A limit on processes leaves the threads that were started.
      if (threads_.empty()) throw;
    }
  }
  OrderedWorkers& operator=(OrderedWorkers&&) = delete;
  ~OrderedWorkers() {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    has_task_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void submit(InputBlock block) {
    // A packaged task carries an exception to take(), where the main thread rethrows it.
    Task task([block = std::move(block)](BlockEncoder& encoder) mutable { return encoder.encode(block); });
    results_.push_back(task.get_future());
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(task));
    }
    has_task_.notify_one();
  }

  [[nodiscard]] std::size_t in_flight() const { return results_.size(); }

  /// Returns the oldest block's result, or rethrows its exception.
  EncodedBlock take() {
    std::future<EncodedBlock> result = std::move(results_.front());
    results_.pop_front();
    return result.get();
  }

 private:
  using Task = std::packaged_task<EncodedBlock(BlockEncoder&)>;

  void run(BlockEncoder& encoder) {
    std::unique_lock lock(mutex_);
    while (true) {
      has_task_.wait(lock, [this] { return stops_ || !waiting_.empty(); });
      if (stops_) return;
      Task task = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      // Without the lock: this is the work.
      task(encoder);
      task = {};  // frees the block before it waits for the next
      lock.lock();
    }
  }

  std::mutex mutex_;  // guards the members below
  std::condition_variable has_task_;
  bool stops_ = false;
  std::deque<Task> waiting_;                       // not started yet
  std::deque<std::future<EncodedBlock>> results_;  // not taken yet, in order; caller's thread only
  std::vector<std::thread> threads_;
};

namespace fs = std::filesystem;
using nlohmann::json;

/// Programs can set the modification time, but not ctime.
std::string stamp(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return path;
  return fmt::format("{} {} {} {} {}.{} {}.{}", path, status.st_dev, status.st_ino, status.st_size,
                     status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec, status.st_ctim.tv_nsec);
}

struct TokenizeState {
  InputPosition place;
  OutputPosition written;
  std::int64_t skipped = 0;
  std::int64_t bytes = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TokenizeState, place, written, skipped, bytes)

/// Returns names, sizes and times of inputs and tokenizer files, and the options.
std::string resume_key(const Inputs& inputs, const std::string& tokenizer, const std::string& options) {
  json key;
  for (const std::string& path : inputs.paths) key["inputs"].push_back(stamp(path));
  key["field"] = {inputs.field, inputs.all_jsonl};
  key["tokenizer"] = {tokenizer};
  for (const TokenizerFile& file : tokenizer_files(tokenizer)) key["tokenizer"].push_back(stamp(file.path));
  key["options"] = options;
  return json_text(key);
}

/// Progress file: {"key": resume_key(), "state": TokenizeState}.
void write_resume(const std::string& path, const std::string& key, const TokenizeState& state) {
  write_whole(path, json_text(json{{"key", key}, {"state", state}}) + "\n");
}

/// Returns nothing if the file is missing, malformed, or has another key.
std::optional<TokenizeState> read_resume(const std::string& path, const std::string& key) {
  if (!is_file(path)) return std::nullopt;
  try {
    const json file = read_json(read_whole(path));
    if (file.at("key") != key) return std::nullopt;
    return file.at("state").get<TokenizeState>();
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

constexpr const char* kText = "-";
constexpr const char* kNone = "none";

std::optional<TokenId> separator_of(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  if (options.end_of_document == kNone) return std::nullopt;
  if (options.end_of_document.empty()) return options.output == kText ? std::nullopt : tokenizer.end_of_document();
  const auto id = tokenizer.find_token(options.end_of_document);
  if (!id)
    reject("--end-of-document: '{}' is not a token of {}; give one of its tokens, or none", options.end_of_document,
           options.tokenizer);
  return id;
}

class Output {
 public:
  Output(const TokenizeOptions& options, const Tokenizer& tokenizer) : options_(options) {
    if (options.output == kText) return;
    key_ = resume_key(options.inputs, options.tokenizer,
                      fmt::format("{} {} {} {}", to_text(options.format), options.end_of_document,
                                  to_text(options.invalid), to_text(options.empty)));
    // A pipe cannot be read again from an offset. Then no progress is saved, and an interrupted call begins anew.
    saves_ = !has_stream(options.inputs);
    for (const std::string& path : TokenWriter::paths(options.output, options.format)) {
      require_no_input(path);
      require_no_input(TokenWriter::unfinished(path));
      require_unused("--output", path, options_.overwrite);
    }
    require_no_input(resume_path());
    require_own_progress();
    if (saves_) resume(tokenizer.vocabulary_size());
    if (writer_) return;
    writer_.emplace(options.output, options.format, tokenizer.vocabulary_size());
    // Behind the lock of the writer, so that the progress of a running call is never deleted.
    std::remove(resume_path().c_str());  // progress file of another run
  }

  [[nodiscard]] const TokenizeState& state() const { return state_; }
  [[nodiscard]] std::optional<TokenType> type() const {
    return writer_ ? std::optional(writer_->type()) : std::nullopt;
  }
  [[nodiscard]] std::string resume_path() const { return options_.output + ".resume"; }

  void take(const EncodedBlock& block) {
    if (writer_)
      write(block);
    else
      print(block);
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
    return TokenWriter::paths(options_.output, options_.format);
  }

  /// Deletes files that no later call can continue.
  void discard() {
    if (writer_ && !has_saved_) writer_->discard();
  }

 private:
  void require_no_input(const std::string& path) const {
    for (const std::string& input : options_.inputs.paths) {
      if (!is_same_file(path, input)) continue;
      reject("--output {}: would replace the input {}; give another name", options_.output, input);
    }
    for (const TokenizerFile& file : tokenizer_files(options_.tokenizer)) {
      if (!is_same_file(path, file.path)) continue;
      reject("--output {}: would replace {} of the tokenizer; give another name", options_.output, file.path);
    }
  }

  void require_own_progress() const {
    const std::string path = resume_path();
    if (options_.overwrite || !is_file(path)) return;
    // Whatever else has this name is the user's and must not be replaced.
    const json file = try_json(read_whole(path));
    if (file.is_object() && file.contains("key") && file.contains("state")) return;
    reject("--output {}: would replace {}, which is no progress of this command; give another name, or --overwrite",
           options_.output, path);
  }

  void resume(std::int64_t vocabulary) {
    const auto earlier = read_resume(resume_path(), key_);
    // Progress of other inputs or options is ignored and later replaced.
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
    state_.written = writer_->position();
  }

  void print(const EncodedBlock& block) {
    const bool is_first_of_line = state_.written.open_document == 0;
    // A block cannot know whether ids before it were printed on this line, so it begins with a blank if its document
    // began earlier.
    const std::size_t blank = is_first_of_line && block.tokens.starts_with(' ') ? 1 : 0;
    options_.print(block.tokens.substr(blank));
    state_.written.tokens += block.ids;
    state_.written.documents += static_cast<std::int64_t>(block.ends.size());
    state_.written.open_document = block.ends.empty() ? state_.written.open_document + block.ids : 0;
  }

  void save() {
    // First the tokens, then the file that names their position.
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

}  // namespace

TokenizeProgress tokenize(const TokenizeOptions& options,
                          const std::function<void(const TokenizeProgress&)>& progress) {
  TokenizeProgress report{.total_bytes = total_bytes(options.inputs)};
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(options.tokenizer);
  const std::optional<TokenId> separator = separator_of(options, *tokenizer);
  const bool has_index = options.output != kText && options.format == TokenFileFormat::Megatron;
  if (options.empty == EmptyDocument::Keep && has_index && !separator)
    throw ConfigError("--empty keep: Megatron's format has no documents without tokens; give --end-of-document");
  Output output(options, *tokenizer);
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
    OrderedWorkers workers(options.workers,
                           [&] { return BlockEncoder(*tokenizer, options, output.type(), separator); });
    // Blocks in flight: enough that no worker waits, few enough that memory stays small.
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
    output.discard();
    throw;
  }
  note();
  return report;
}

}  // namespace chimera

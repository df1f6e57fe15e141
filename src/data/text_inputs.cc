#include "data/text_inputs.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "core/content.h"
#include "core/reject.h"

namespace chimera {
namespace {

constexpr std::size_t kPadding = 64;  // zeros that JSON parsers may read
constexpr std::size_t kLongestLine = std::size_t{1} << 30;

[[noreturn]] void cannot_read(const std::string& path, int cause) {
  reject("{}: cannot be read ({})", path, system_message(cause));
}

std::string name_of(const std::string& path) { return path == "-" ? "standard input" : path; }

/// Uses stat, because opening and closing a pipe would break its writer.
struct stat status_of(const std::string& path) {
  struct stat status {};
  if ((path == "-" ? ::fstat(STDIN_FILENO, &status) : ::stat(path.c_str(), &status)) != 0)
    cannot_read(name_of(path), errno);
  if (S_ISDIR(status.st_mode)) throw ConfigError(path + ": is a directory; give files, or - for standard input");
  // All inputs are checked before hours of work on the first ones.
  if (path != "-" && ::access(path.c_str(), R_OK) != 0) cannot_read(path, errno);
  return status;
}

FileDescriptor open_input(const std::string& path) {
  FileDescriptor file(path == "-" ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) cannot_read(name_of(path), errno);
  return file;
}

}  // namespace

bool is_jsonl(const Inputs& inputs, const std::string& path) {
  std::string lower = path;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return inputs.all_jsonl || lower.ends_with(".jsonl") || lower.ends_with(".ndjson");
}

std::int64_t total_bytes(const Inputs& inputs) {
  std::int64_t bytes = 0;
  for (const std::string& path : inputs.paths) bytes += status_of(path).st_size;
  return has_stream(inputs) ? 0 : bytes;
}

bool has_stream(const Inputs& inputs) {
  return std::ranges::any_of(inputs.paths, [](const std::string& path) {
    // standard input may be a partly read file
    return path == "-" || !S_ISREG(status_of(path).st_mode);
  });
}

InputReader::InputReader(Inputs inputs, const Tokenizer& tokenizer, InputPosition place, std::size_t block_bytes)
    : inputs_(std::move(inputs)), tokenizer_(tokenizer), place_(place), block_bytes_(block_bytes) {}

void InputReader::open() {
  file_ = open_input(path());
  if (place_.offset > 0 && ::lseek(file_.get(), place_.offset, SEEK_SET) < 0) cannot_read(name_of(path()), errno);
  is_open_ = true;
  at_end_ = false;
  if (place_.offset > 0) return;
  // The head stays in ahead_ and becomes part of the first block.
  fill(std::min(block_bytes_, kContentHead));
  require_text_content(path(), ahead_, is_jsonl(inputs_, path()) ? "" : "give --field text to read it");
}

void InputReader::fill(std::size_t bytes) {
  while (!at_end_ && ahead_.size() < bytes) {
    const std::size_t before = ahead_.size();
    ahead_.resize(bytes);
    const ssize_t got = ::read(file_.get(), ahead_.data() + before, bytes - before);
    // A pipe may return fewer bytes than were asked for.
    ahead_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) cannot_read(name_of(path()), errno);
    at_end_ = got == 0;
  }
}

std::size_t InputReader::end_of_lines() {
  for (std::size_t wanted = block_bytes_;; wanted *= 2) {
    fill(wanted);
    if (at_end_) return ahead_.size();
    // A block must end with a whole line; a longer line doubles the block.
    if (const std::size_t end = ahead_.rfind('\n'); end != std::string::npos) return end + 1;
    if (wanted > kLongestLine)
      reject("{}: line {}: is longer than {} bytes; expected a JSON object a line", name_of(path()), place_.line,
             kLongestLine);
  }
}

std::size_t InputReader::end_of_part() {
  std::size_t searched = 1;
  for (std::size_t wanted = block_bytes_;; wanted *= 2) {
    fill(wanted);
    if (at_end_) return ahead_.size();
    if (const std::size_t cut = tokenizer_.find_cut(ahead_, searched); cut > 0) return cut;
    // A cut in the last characters may depend on the text that follows.
    constexpr std::size_t kUndecided = 16;
    searched = std::max<std::size_t>(ahead_.size(), kUndecided + 1) - kUndecided;
  }
}

bool InputReader::next(InputBlock& block) {
  while (place_.file < static_cast<std::int64_t>(inputs_.paths.size())) {
    if (!is_open_) open();
    const bool jsonl = is_jsonl(inputs_, path());
    const std::size_t end = jsonl ? end_of_lines() : end_of_part();
    // At the end of a file, the last block takes all that is left. at_end_ is known only after a read returned 0, so a
    // text may end with an empty block.
    const bool ends_file = at_end_ && end == ahead_.size();
    block.jsonl = jsonl;
    block.begin = place_;
    block.bytes.assign(ahead_, 0, end);
    block.size = end;
    ahead_.erase(0, end);
    if (jsonl) place_.line += std::count(block.bytes.begin(), block.bytes.end(), '\n');
    block.bytes.append(kPadding, '\0');
    place_.offset += static_cast<std::int64_t>(end);
    place_.in_document = !jsonl && !ends_file;
    if (ends_file) {
      // Offset, line and document begin anew.
      place_ = {.file = place_.file + 1};
      is_open_ = false;
    }
    block.end = place_;
    // An empty block of a text still ends its document; of JSONL it means nothing.
    if (jsonl && block.size == 0) continue;
    return true;
  }
  return false;
}

}  // namespace chimera

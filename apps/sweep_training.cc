// `sweep --train` trains each row of the table in a process of its own, and writes the table after each. The table is
// also the memory of an interrupted sweep: rows in it are not trained again. So it must be certain that a row there is
// of this sweep: the columns, the row's inputs, and a hash of data and flags have to agree.

#include "sweep_training.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "answers/sweep_answer.h"
#include "core/console.h"
#include "core/crc32c.h"
#include "core/files.h"
#include "core/reject.h"
#include "flags/shape.h"
#include "flags/values.h"
#include "program.h"
#include "telemetry/run_history.h"

namespace chimera::apps {
namespace {

using Cells = std::vector<std::string>;

/// A row in the table without what was measured.
std::string key_of(const SweepRow& row) {
  std::string key;
  for (const SweepCell& cell : row.inputs()) key += cell.text + ",";
  return key;
}

std::string head_of(const SweepRow& row) {
  std::string head;
  for (const SweepCell& cell : row.cells) head += cell.column + ",";
  for (const char* column : kMeasuredColumns)
    head += std::string(column) + (column == kMeasuredColumns.back() ? "" : ",");
  return head;
}

/// Returns the measured cells by key. Throws ConfigError if the file has other columns.
std::map<std::string, Cells> read_measured(const std::string& path, const SweepRow& like) {
  std::map<std::string, Cells> found;
  if (path.empty() || path == "-" || !std::filesystem::exists(path) || std::filesystem::is_empty(path)) return found;
  const std::string text = read_whole(path);
  std::istringstream lines(text.substr(0, text.rfind('\n') + 1));  // The last line may be cut
  std::string line;
  std::getline(lines, line);
  if (line != head_of(like)) reject("--output {}: exists and is not a table of this sweep; give another file", path);
  const std::size_t keys = like.inputs().size();
  while (std::getline(lines, line)) {
    const auto parts = split_at_commas(line);
    const Cells cells(parts.begin(), parts.end());
    // A line that was cut is trained again.
    if (cells.size() != like.cells.size() + kMeasuredColumns.size()) continue;
    std::string key;
    for (std::size_t c = 0; c < keys; ++c) key += cells[c] + ",";
    found[key] = {cells.end() - static_cast<std::ptrdiff_t>(kMeasuredColumns.size()), cells.end()};
  }
  return found;
}

/// A loss may be `nan`, and a table from a file may hold anything.
SweepCell measured_cell(const char* column, const std::string& text) {
  SweepCell cell{column, text};
  cell.number = parse_number<double>(text).value_or(cell.number);
  return cell;
}

/// Returns sizes and hashes of a file, or of the files in a folder; empty if `path` is neither. Of a large file, only
/// the beginning is hashed.
std::string content_of(const std::string& path) {
  if (is_file(path)) {
    constexpr std::streamsize kHashedBytes = 16 << 20;
    std::string head(kHashedBytes, '\0');
    std::ifstream file(path, std::ios::binary);
    file.read(head.data(), kHashedBytes);
    head.resize(static_cast<std::size_t>(file.gcount()));
    return fmt::format(" {} {:08x}", std::filesystem::file_size(path), crc32c(head));
  }
  std::set<std::string> files;  // A folder lists its files in any order
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(path, none))
    if (is_file(entry.path())) files.insert(content_of(entry.path().string()));
  return fmt::format("{}", fmt::join(files, ""));
}

/// Rows of another model, text, schedule or length must not be taken for those of this sweep.
std::string run_of(const SweepTraining& training, const SweepRow& row) {
  // Files of other flags may be outputs, which differ after each row.
  const std::set<std::string> inputs = {"--config", "--data",     "--from",      "--model",
                                        "--recipe", "--schedule", "--tokenizer", "--validation"};
  std::istringstream data(training.data);  // A mixture is `0.7:a 0.3:b`
  std::vector<std::string> words = {"--schedule", row.schedule(), "--data", training.data};
  words.insert(words.end(), std::istream_iterator<std::string>(data), {});
  words.insert(words.end(), training.flags.begin(), training.flags.end());
  std::string text, flag;
  for (const std::string& word : words) {
    text += " " + word;
    if (word.starts_with("--")) flag = word.substr(0, word.find('='));
    const std::string name = word.substr(word.find_first_of("=:") + 1);
    if (inputs.contains(flag)) text += content_of(name) + content_of(name + ".bin");
  }
  return fmt::format("{:08x}", crc32c(text));
}

Cells train_row(const SweepRow& row, const SweepTraining& training) {
  // The metrics are read and then removed.
  const TemporaryFolder folder;
  const std::string metrics = folder.file("metrics.jsonl");
  std::vector<std::string> words = {"train", "--data", training.data, "--metrics", metrics};
  const bool is_file = names_schedule_file(row.schedule());
  for (const SweepCell& cell : row.inputs()) {
    if (cell.text.empty()) continue;
    if (is_file && cell.column != "schedule") continue;  // the file has a shape
    // A column has the name of the flag that it came from: micro_batches is --micro-batches.
    std::string flag = "--" + cell.column;
    std::ranges::replace(flag, '_', '-');
    words.insert(words.end(), {flag, cell.text});
  }
  // Last, because later flags override earlier ones.
  words.insert(words.end(), training.flags.begin(), training.flags.end());
  // The command as typed, so that a user can repeat one row.
  std::cerr << "$ " << shell_command(words) << "\n" << std::flush;
  const CommandResult result = run_this_program(words);
  if (result.exit_code != 0)
    throw Error(fmt::format("`{}` ended with {}; the rows before it are kept", shell_command(words), result.exit_code));
  const RunResults figures = summarize_run(read_run(metrics));
  return {fmt::format("{:.10g}", figures.tokens_per_second), fmt::format("{:.10g}", figures.step_seconds),
          fmt::format("{:.0f}", figures.peak_memory_bytes), fmt::format("{:.10g}", figures.final_loss),
          run_of(training, row)};
}

}  // namespace

std::vector<SweepRow> train_rows(std::vector<SweepRow> rows, const SweepTraining& training) {
  const std::string& path = training.output;
  const auto before = read_measured(path, rows.front());
  for (const auto& [key, cells] : before) {
    // A row of another sweep would be lost when the file is replaced.
    const auto row = std::ranges::find(rows, key, key_of);
    if (row == rows.end()) reject("--output {}: has the row {}... of another sweep; give another file", path, key);
    if (cells.back() == run_of(training, *row)) continue;
    reject("--output {}: its rows are of other data or flags of `train`; give another file", path);
  }
  const auto content = [&] { return std::filesystem::exists(path) ? read_whole(path) : ""; };
  const bool is_file =
      !path.empty() && path != "-" && (!std::filesystem::exists(path) || std::filesystem::is_regular_file(path));
  std::string own = is_file ? content() : "";
  std::vector<SweepRow> done;
  for (SweepRow& row : rows) {
    const auto known = before.find(key_of(row));
    const Cells cells = known != before.end() ? known->second : train_row(row, training);
    for (std::size_t c = 0; c < kMeasuredColumns.size(); ++c)
      row.cells.push_back(measured_cell(kMeasuredColumns[c], cells[c]));
    done.push_back(std::move(row));
    if (!is_file || known != before.end()) continue;
    // Rows of two sweeps in one file would be mixed. The file is replaced as a whole, so a change since the last row
    // comes from another process.
    if (content() != own)
      throw Error(fmt::format("--output {}: another sweep writes this file, too; give another file", path));
    own = to_csv(done);
    write_whole(path, own);
  }
  return done;
}

}  // namespace chimera::apps

#include "simulate/link_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "core/choices.h"
#include "core/error.h"

namespace chimera {
namespace {

using Rows = std::vector<std::vector<double>>;

constexpr std::int64_t kMostWorkers = 4096;  // the file has one row for each pair

Rows read_rows(const JsonValue& value, std::optional<std::size_t> workers) {
  const std::vector<JsonValue> rows = value.list();
  if (workers && rows.size() != *workers) value.fail(fmt::format("{} rows, but alphas has {}", rows.size(), *workers));
  Rows result;
  for (const JsonValue& row : rows) {
    std::vector<double>& numbers = result.emplace_back();
    for (const JsonValue& entry : row.list(static_cast<std::int64_t>(rows.size()), "worker"))
      numbers.push_back(entry.number());
  }
  return result;
}

struct Pair {
  std::int64_t from = 0;
  std::int64_t to = 0;
  double alpha = 0;
  double beta = 0;
};

class CsvLinks {
 public:
  CsvLinks(const std::string& text, const std::string& source) : lines_(text), source_(source) {}

  LinkMatrix run() {
    std::string line;
    if (!next(line) || (line != "from,to,alpha,beta" && line != "from,to,alpha"))
      fail("expected the line 'from,to,alpha,beta' or 'from,to,alpha', or a JSON object");
    columns_ = line == "from,to,alpha" ? 3 : 4;
    while (next(line)) {
      if (!line.empty()) add(read_pair(line));
    }
    return matrix();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw ConfigError(fmt::format("{}: line {}: {}", source_, line_, what));
  }

  bool next(std::string& line) {
    ++line_;
    if (!std::getline(lines_, line)) return false;
    if (line.ends_with('\r')) line.pop_back();
    return true;
  }

  Pair read_pair(const std::string& line) const {
    std::vector<std::string> cells;
    std::stringstream rest(line);
    for (std::string cell; std::getline(rest, cell, ',');) cells.push_back(cell);
    if (cells.size() != columns_) fail(fmt::format("{} cells; expected {}", cells.size(), columns_));
    Pair pair{worker(cells[0]), worker(cells[1]), seconds(cells[2]), columns_ == 4 ? seconds(cells[3]) : 0};
    if (pair.from == pair.to) fail(fmt::format("worker {} has no link to itself", pair.from));
    return pair;
  }

  std::int64_t worker(const std::string& cell) const {
    const auto number = parse_number<std::int64_t>(cell);
    if (!number || *number < 0 || *number >= kMostWorkers)
      fail(fmt::format("'{}' is not a worker; expected 0 to {}", cell, kMostWorkers - 1));
    return *number;
  }

  double seconds(const std::string& cell) const {
    const auto number = parse_number<double>(cell);
    if (!number || !(*number >= 0 && *number <= JsonValue::kMost))
      fail(fmt::format("'{}' is not a finite number of 0 or more", cell));
    return *number;
  }

  void add(const Pair& pair) {
    if (!pairs_.emplace(std::pair{pair.from, pair.to}, pair).second)
      throw ConfigError(fmt::format("{}: two lines for the link from worker {} to {}", source_, pair.from, pair.to));
    workers_ = std::max({workers_, pair.from + 1, pair.to + 1});
  }

  /// Runs before the matrix is allocated, which one line of a file could make huge.
  void require_all_pairs() const {
    auto next = pairs_.begin();
    for (std::int64_t from = 0; from < workers_; ++from) {
      for (std::int64_t to = 0; to < workers_; ++to) {
        if (from == to) continue;
        if (next == pairs_.end() || next->first != std::pair{from, to})
          throw ConfigError(fmt::format("{}: no line for the link from worker {} to {}", source_, from, to));
        ++next;
      }
    }
  }

  [[nodiscard]] LinkMatrix matrix() const {
    require_all_pairs();
    const auto count = static_cast<std::size_t>(workers_);
    const Rows nothing(count, std::vector<double>(count));
    LinkMatrix links{nothing, columns_ == 4 ? nothing : Rows{}};
    for (const auto& [workers, pair] : pairs_) {
      const auto from = static_cast<std::size_t>(pair.from);
      const auto to = static_cast<std::size_t>(pair.to);
      links.alphas[from][to] = pair.alpha;
      if (columns_ == 4) links.betas[from][to] = pair.beta;
    }
    return links;
  }

  std::istringstream lines_;
  const std::string& source_;
  std::int64_t line_ = 0;
  std::size_t columns_ = 0;
  std::map<std::pair<std::int64_t, std::int64_t>, Pair> pairs_;  // by (from, to)
  std::int64_t workers_ = 0;
};

}  // namespace

LinkMatrix read_link_matrix(const JsonValue& value) {
  LinkMatrix links{read_rows(value.field("alphas"), std::nullopt)};
  if (value.has("betas")) links.betas = read_rows(value.field("betas"), links.alphas.size());
  return links;
}

LinkMatrix links_from_text(const std::string& text, const std::string& source) {
  if (text.starts_with("\xEF\xBB\xBF")) return links_from_text(text.substr(3), source);  // byte order mark
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || text[first] != '{') return CsvLinks(text, source).run();
  const nlohmann::json json = parse_json(text, source);
  const JsonValue root(json, source);
  root.expect_object({"alphas", "betas"});
  return read_link_matrix(root);
}

}  // namespace chimera

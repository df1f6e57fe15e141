// Reads and writes a CostModel field by field. JsonValue refuses negative and infinite numbers, with the place in the
// file. Lengths of lists that the number of stages decides are checked here, the others by CostTable, which has the
// schedule. Times have the unit that the user chose, so nothing is converted.

#include "simulate/costs_json.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "core/choices.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/mapped.h"
#include "core/reject.h"

namespace chimera {
namespace {

StageCosts read_stage(const JsonValue& value) {
  value.expect_object({"forward", "backward", "input_gradient", "weight_gradient"});
  StageCosts costs;
  costs.forward = value.number("forward");
  // A file has B, or I and W, or all three. What is missing follows: B is I + W, and I and W are each half of B.
  const bool split = value.has("input_gradient") || value.has("weight_gradient");
  if (!split && !value.has("backward"))
    value.fail("field 'backward' is missing, or 'input_gradient' and 'weight_gradient'");
  if (split) {
    costs.input_gradient = value.number("input_gradient");
    costs.weight_gradient = value.number("weight_gradient");
  }
  costs.backward = value.has("backward") ? value.number("backward") : costs.input_gradient + costs.weight_gradient;
  // A whole backward is split evenly, the usual case of matrix products.
  if (!split) costs.input_gradient = costs.weight_gradient = costs.backward / 2;
  return costs;
}

/// Their count depends on the schedule.
std::vector<double> read_factors(const JsonValue& value) {
  std::vector<double> factors;
  for (const JsonValue& entry : value.list()) {
    factors.push_back(entry.number());
    if (factors.back() == 0) entry.fail("expected a factor above 0; 1 is usual, 2 takes twice as long");
  }
  if (factors.empty()) value.fail("expected a list of factors");
  return factors;
}

using Rows = std::vector<std::vector<double>>;

constexpr std::int64_t kMaxWorkers = 4096;  // the file has one row for each pair

Rows read_rows(const JsonValue& value, std::optional<std::size_t> workers) {
  const std::vector<JsonValue> rows = value.list();
  if (workers && rows.size() != *workers) value.fail(fmt::format("{} rows, but alphas has {}", rows.size(), *workers));
  // The matrix is square.
  return mapped(rows, [&](const JsonValue& row) {
    return mapped(row.list(std::ssize(rows), "worker"), [](const JsonValue& entry) { return entry.number(); });
  });
}

// Tools that measure links print such tables. A header line names the columns, so that a file with other columns is
// refused instead of misread.
/// Lines `from,to,alpha,beta` or `from,to,alpha`, one for each ordered pair of workers.
class CsvLinks {
 public:
  CsvLinks(const std::string& text, const std::string& source) : lines_(text), source_(source) {}

  LinkMatrix run() {
    std::string line;
    if (!next(line) || (line != "from,to,alpha,beta" && line != "from,to,alpha"))
      fail("expected the line 'from,to,alpha,beta' or 'from,to,alpha', or a JSON object");
    columns_ = line == "from,to,alpha" ? 3 : 4;
    while (next(line)) {
      if (!line.empty()) add(line);
    }
    return matrix();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { reject("{}: line {}: {}", source_, line_, what); }

  bool next(std::string& line) {
    ++line_;
    if (!std::getline(lines_, line)) return false;
    if (line.ends_with('\r')) line.pop_back();
    return true;
  }

  std::int64_t worker(const std::string& cell) const {
    const auto number = parse_number<std::int64_t>(cell);
    if (!number || *number < 0 || *number >= kMaxWorkers)
      fail(fmt::format("'{}' is not a worker; expected 0 to {}", cell, kMaxWorkers - 1));
    return *number;
  }

  double seconds(const std::string& cell) const {
    const auto number = parse_number<double>(cell);
    // The limit is that of numbers in JSON: sums and products of costs stay finite.
    if (!number || !(*number >= 0 && *number <= JsonValue::kMax))
      fail(fmt::format("'{}' is not a finite number of 0 or more", cell));
    return *number;
  }

  void add(const std::string& line) {
    std::vector<std::string> cells;
    std::stringstream rest(line);
    for (std::string cell; std::getline(rest, cell, ',');) cells.push_back(cell);
    if (cells.size() != columns_) fail(fmt::format("{} cells; expected {}", cells.size(), columns_));
    const std::pair ends{worker(cells[0]), worker(cells[1])};
    const auto& [from, to] = ends;
    const std::pair times{seconds(cells[2]), columns_ == 4 ? seconds(cells[3]) : 0};
    if (from == to) fail(fmt::format("worker {} has no link to itself", from));
    if (!links_.emplace(ends, times).second)
      reject("{}: two lines for the link from worker {} to {}", source_, from, to);
    workers_ = std::max({workers_, from + 1, to + 1});
  }

  /// Runs before the matrix is allocated, which one line of a file could make huge.
  void require_all_pairs() const {
    for (std::int64_t from = 0; from < workers_; ++from) {
      for (std::int64_t to = 0; to < workers_; ++to) {
        if (from == to || links_.contains({from, to})) continue;
        reject("{}: no line for the link from worker {} to {}", source_, from, to);
      }
    }
  }

  [[nodiscard]] LinkMatrix matrix() const {
    require_all_pairs();
    const auto count = static_cast<std::size_t>(workers_);
    const Rows nothing(count, std::vector<double>(count));
    LinkMatrix matrix{nothing, columns_ == 4 ? nothing : Rows{}};
    // The diagonal keeps its zeros: there is no link from a worker to itself.
    for (const auto& [ends, times] : links_) {
      const auto from = static_cast<std::size_t>(ends.first);
      const auto to = static_cast<std::size_t>(ends.second);
      matrix.alphas[from][to] = times.first;
      if (columns_ == 4) matrix.betas[from][to] = times.second;
    }
    return matrix;
  }

  std::istringstream lines_;
  const std::string& source_;
  std::int64_t line_ = 0;
  std::size_t columns_ = 0;
  std::map<std::pair<std::int64_t, std::int64_t>, std::pair<double, double>> links_;  // (from, to): alpha and beta
  std::int64_t workers_ = 0;
};

LinkMatrix read_link_matrix(const JsonValue& value) {
  LinkMatrix links{read_rows(value.field("alphas"), std::nullopt)};
  if (value.has("betas")) links.betas = read_rows(value.field("betas"), links.alphas.size());
  return links;
}

constexpr const char* kBoundary = "boundary between stages";

/// Links have one of three forms: a matrix of pairs, measured seconds, or alpha, beta and bytes.
LinkCosts read_links(const JsonValue& value, std::int64_t stages) {
  LinkCosts costs;
  // Copies are computation of workers, and go with every form of links.
  if (value.has("copies")) costs.copies = value.field("copies").numbers(stages - 1, kBoundary);
  if (value.has("alphas")) {
    value.expect_object({"alphas", "betas", "bytes", "copies"});
    costs.matrix = read_link_matrix(value);
    if (costs.matrix->needs_bytes()) costs.bytes = value.field("bytes").numbers(stages - 1, kBoundary);
    return costs;
  }
  costs.alpha = value.number("alpha");
  if (value.has("bursts")) costs.bursts = value.field("bursts").numbers(stages - 1, kBoundary);
  if (value.has("seconds")) {
    value.expect_object({"alpha", "seconds", "copies", "bursts"});
    costs.seconds = value.field("seconds").numbers(stages - 1, kBoundary);
  } else {
    // With the names that choose another form, so that the message about a wrong name can propose them.
    value.expect_object({"alpha", "beta", "bytes", "seconds", "alphas", "copies", "bursts"});
    costs.beta = value.number("beta");
    costs.bytes = value.field("bytes").numbers(stages - 1, kBoundary);
  }
  return costs;
}

AllReduceCosts read_all_reduce(const JsonValue& value, std::int64_t stages) {
  AllReduceCosts costs;
  if (value.has("seconds")) {
    value.expect_object({"seconds", "tied"});
    costs.seconds = value.field("seconds").numbers(stages, "stage");
  } else {
    value.expect_object({"alpha", "beta", "bytes", "seconds", "tied", "reduce_scatter"});
    if (value.has("reduce_scatter")) costs.reduce_scatter = value.truth("reduce_scatter");
    costs.alpha = value.number("alpha");
    costs.beta = value.number("beta");
    costs.bytes = value.field("bytes").numbers(stages, "stage");
  }
  // In the file, the matrix has a field of its own, so that the lists have one entry for each stage.
  costs.tied = value.has("tied");
  if (costs.tied) (costs.seconds.empty() ? costs.bytes : costs.seconds).push_back(value.number("tied"));
  return costs;
}

OffloadCosts read_offload(const JsonValue& value, std::int64_t stages) {
  value.expect_object({"beta", "bytes"});
  return {value.number("beta"), value.field("bytes").numbers(stages, "stage")};
}

StageMemory read_memory(const JsonValue& value) {
  value.expect_object({"weights", "gradients", "optimizer", "activations", "boundary", "deferred", "keys_and_values"});
  StageMemory memory{value.number("weights"), value.number("gradients"), value.number("optimizer"),
                     value.number("activations"), value.number("boundary")};
  if (value.has("deferred")) memory.deferred = value.number("deferred");
  if (value.has("keys_and_values")) memory.keys_and_values = value.number("keys_and_values");
  return memory;
}

MessageBuffers read_buffers(const JsonValue& value) {
  value.expect_object({"receives_ahead", "sends_behind"});
  return {value.count("receives_ahead"), value.count("sends_behind")};
}

using OrderedJson = nlohmann::ordered_json;

OrderedJson stages_json(const std::vector<StageCosts>& stages) {
  return mapped(stages, [](const StageCosts& stage) {
    return OrderedJson{{"forward", stage.forward},
                       {"backward", stage.backward},
                       {"input_gradient", stage.input_gradient},
                       {"weight_gradient", stage.weight_gradient}};
  });
}

OrderedJson all_reduce_json(const AllReduceCosts& costs) {
  const bool is_measured = !costs.seconds.empty();
  std::vector<double> of_stages = is_measured ? costs.seconds : costs.bytes;
  std::optional<double> matrix;
  if (costs.tied) matrix = of_stages.back();
  if (costs.tied) of_stages.pop_back();
  OrderedJson json;
  if (is_measured) {
    json = {{"seconds", of_stages}};
  } else {
    json = {{"alpha", costs.alpha}, {"beta", costs.beta}, {"bytes", of_stages}};
    if (costs.reduce_scatter) json["reduce_scatter"] = true;
  }
  if (matrix) json["tied"] = *matrix;
  return json;
}

OrderedJson links_json(const LinkCosts& costs) {
  OrderedJson json;
  if (costs.matrix) {
    json["alphas"] = costs.matrix->alphas;
    if (costs.matrix->needs_bytes()) json.update({{"betas", costs.matrix->betas}, {"bytes", costs.bytes}});
  } else if (costs.seconds.empty()) {
    json = {{"alpha", costs.alpha}, {"beta", costs.beta}, {"bytes", costs.bytes}};
  } else {
    json = {{"alpha", costs.alpha}, {"seconds", costs.seconds}};
  }
  if (!costs.copies.empty()) json["copies"] = costs.copies;
  if (!costs.bursts.empty()) json["bursts"] = costs.bursts;
  return json;
}

OrderedJson memory_json(const std::vector<StageMemory>& stages) {
  return mapped(stages, [](const StageMemory& stage) {
    OrderedJson json = {{"weights", stage.weights},
                        {"gradients", stage.gradients},
                        {"optimizer", stage.optimizer},
                        {"activations", stage.activations},
                        {"boundary", stage.boundary}};
    if (stage.deferred) json["deferred"] = *stage.deferred;
    if (stage.keys_and_values != 0) json["keys_and_values"] = stage.keys_and_values;
    return json;
  });
}

}  // namespace

std::string costs_to_json(const CostModel& costs) {
  OrderedJson json = {{"latency", costs.latency}, {"stages", stages_json(costs.stages)}};
  if (costs.pair) json["pair"] = *costs.pair;
  // What is not set is left out, and gets its default when the file is read.
  if (costs.slices.attention != 0) json["attention"] = costs.slices.attention;
  if (!costs.slices.bounds.empty()) json["slice_bounds"] = costs.slices.bounds;
  if (!costs.workers.empty()) json["workers"] = costs.workers;
  if (!costs.micro_batches.empty()) json["micro_batches"] = costs.micro_batches;
  if (costs.links) json["links"] = links_json(*costs.links);
  if (costs.all_reduce) json["all_reduce"] = all_reduce_json(*costs.all_reduce);
  if (!costs.optimizer.empty()) json["optimizer"] = costs.optimizer;
  if (costs.steps_overlap) json["steps_overlap"] = true;
  if (!costs.recompute.empty()) json["recompute"] = costs.recompute;
  if (costs.offload) json["offload"] = {{"beta", costs.offload->beta}, {"bytes", costs.offload->bytes}};
  if (!costs.memory.empty()) json["memory"] = memory_json(costs.memory);
  if (costs.buffers.receives_ahead > 0 || costs.buffers.sends_behind > 0) {
    json["buffers"] = {{"receives_ahead", costs.buffers.receives_ahead}, {"sends_behind", costs.buffers.sends_behind}};
  }
  return json_report(json);
}

CostModel costs_from_json(const std::string& text, const std::string& source, std::int64_t stages) {
  const nlohmann::json json = parse_json(text, source);
  const JsonValue root(json, source);
  root.expect_object({"latency", "stages", "pair", "attention", "slice_bounds", "workers", "micro_batches", "links",
                      "all_reduce", "optimizer", "steps_overlap", "recompute", "offload", "memory", "buffers"});
  CostModel costs;
  costs.latency = root.number("latency");
  costs.stages = mapped(root.field("stages").list(stages, "stage"), read_stage);
  if (root.has("pair")) costs.pair = root.number("pair");
  if (root.has("attention")) costs.slices.attention = root.number("attention");
  if (root.has("slice_bounds")) {
    // The number of slices is a property of the schedule, which is not known here.
    const JsonValue bounds = root.field("slice_bounds");
    costs.slices.bounds = bounds.numbers(std::ssize(bounds.json()), "bound of a slice");
  }
  for (const auto& [name, factors] : {std::pair("workers", &costs.workers), {"micro_batches", &costs.micro_batches}}) {
    if (root.has(name)) *factors = read_factors(root.field(name));
  }
  if (root.has("links")) costs.links = read_links(root.field("links"), stages);
  if (root.has("all_reduce")) costs.all_reduce = read_all_reduce(root.field("all_reduce"), stages);
  if (root.has("optimizer")) costs.optimizer = root.field("optimizer").numbers(stages, "stage");
  if (root.has("steps_overlap")) costs.steps_overlap = root.truth("steps_overlap");
  if (root.has("recompute")) costs.recompute = root.field("recompute").numbers(stages, "stage");
  if (root.has("offload")) costs.offload = read_offload(root.field("offload"), stages);
  if (root.has("memory")) costs.memory = mapped(root.field("memory").list(stages, "stage"), read_memory);
  if (root.has("buffers")) costs.buffers = read_buffers(root.field("buffers"));
  return costs;
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

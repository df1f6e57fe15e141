// Describes the fields of a CostModel once, to read and to write it. JsonValue refuses negative and infinite numbers,
// with the place in the file. Lengths of lists that the number of stages decides are checked here, the others by
// CostTable, which has the schedule. Times have the unit that the user chose, so nothing is converted.

#include "simulate/costs_json.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/choices.h"
#include "core/json.h"
#include "core/json_fields.h"
#include "core/json_value.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "core/value_text.h"

namespace chimera {
namespace {

void visit_stage(JsonFields& json, StageCosts& costs) {
  json.field("forward", costs.forward);
  // A file has B, or I and W, or all three. What is missing follows: B is I + W, and I and W are each half of B.
  const bool has_whole = json.has("backward", true);
  const bool has_input = json.has("input_gradient", true);
  const bool has_parts = json.has("weight_gradient", true) || has_input;
  json.require_all(has_whole || has_parts, "field 'backward' is missing, or 'input_gradient' and 'weight_gradient'");
  if (has_whole) json.field("backward", costs.backward);
  if (has_parts) {
    json.field("input_gradient", costs.input_gradient);
    json.field("weight_gradient", costs.weight_gradient);
  }
  if (!has_whole) costs.backward = costs.input_gradient + costs.weight_gradient;
  // A whole backward is split evenly, the usual case of matrix products.
  if (!has_parts) costs.input_gradient = costs.weight_gradient = costs.backward / 2;
}

double number_of(const JsonValue& value) { return value.number(); }

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

constexpr std::size_t kMaxWorkers = 4096;  // the file has one row for each pair

Rows read_rows(const JsonValue& value, std::optional<std::size_t> workers) {
  const std::vector<JsonValue> rows = value.list();
  if (workers && rows.size() != *workers) value.fail(fmt::format("{} rows, but alphas has {}", rows.size(), *workers));
  // The matrix is square.
  return mapped(rows, [&](const JsonValue& row) { return mapped(row.list(std::ssize(rows), "worker"), number_of); });
}

// Tools that measure links print such tables. A header line names the columns, so that a file with other columns is
// refused instead of misread.
/// A line of a table of links; its functions parse cells.
struct CsvLine {
  const std::string& source;
  std::size_t number = 0;

  [[noreturn]] void fail(const std::string& what) const { reject("{}: line {}: {}", source, number, what); }
  [[nodiscard]] std::size_t worker(std::string_view cell) const {
    const auto parsed = parse_number<std::size_t>(cell);
    if (!parsed || *parsed >= kMaxWorkers)
      fail(fmt::format("'{}' is not a worker; expected 0 to {}", cell, kMaxWorkers - 1));
    return *parsed;
  }
  [[nodiscard]] double seconds(std::string_view cell) const {
    const auto parsed = parse_number<double>(cell);
    // The limit is that of numbers in JSON: sums and products of costs stay finite.
    if (!parsed || !(*parsed >= 0 && *parsed <= JsonValue::kMax))
      fail(fmt::format("'{}' is not a finite number of 0 or more", cell));
    return *parsed;
  }
};

/// Reads lines `from,to,alpha,beta` or `from,to,alpha`, one for each ordered pair of workers.
LinkMatrix read_csv_links(const std::string& text, const std::string& source) {
  std::map<std::pair<std::size_t, std::size_t>, std::pair<double, double>> links;  // (from, to): alpha and beta
  std::size_t columns = 0;
  std::size_t workers = 0;
  CsvLine place{source};
  for (std::string_view line : split_at('\n', text)) {
    ++place.number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (columns == 0) {
      if (line != "from,to,alpha,beta" && line != "from,to,alpha")
        place.fail("expected the line 'from,to,alpha,beta' or 'from,to,alpha', or a JSON object");
      columns = line == "from,to,alpha" ? 3 : 4;
      continue;
    }
    if (line.empty()) continue;
    const auto cells = split_at_commas(line);
    if (cells.size() != columns) place.fail(fmt::format("{} cells; expected {}", cells.size(), columns));
    const std::size_t from = place.worker(cells[0]);
    const std::size_t to = place.worker(cells[1]);
    const std::pair times{place.seconds(cells[2]), columns == 4 ? place.seconds(cells[3]) : 0};
    if (from == to) place.fail(fmt::format("worker {} has no link to itself", from));
    if (!links.emplace(std::pair(from, to), times).second)
      reject("{}: two lines for the link from worker {} to {}", source, from, to);
    workers = std::max({workers, from + 1, to + 1});
  }
  // Before the matrix is allocated, which one line of a file could make huge.
  for (std::size_t from = 0; from < workers; ++from) {
    for (std::size_t to = 0; to < workers; ++to)
      if (from != to && !links.contains({from, to}))
        reject("{}: no line for the link from worker {} to {}", source, from, to);
  }
  // The diagonal keeps its zeros: there is no link from a worker to itself.
  const Rows nothing(workers, std::vector<double>(workers));
  LinkMatrix matrix{nothing, columns == 4 ? nothing : Rows{}};
  for (const auto& [ends, times] : links) {
    matrix.alphas[ends.first][ends.second] = times.first;
    if (columns == 4) matrix.betas[ends.first][ends.second] = times.second;
  }
  return matrix;
}

void visit_link_matrix(JsonFields& json, LinkMatrix& links) {
  json.field("alphas", links.alphas, [](const JsonValue& rows) { return read_rows(rows, std::nullopt); });
  if (!json.has("betas", links.needs_bytes())) return;
  json.field("betas", links.betas, [&](const JsonValue& rows) { return read_rows(rows, links.alphas.size()); });
}

/// Links have one of three forms: a matrix of pairs, measured seconds, or alpha, beta and bytes.
void visit_links(JsonFields& json, LinkCosts& costs, std::int64_t boundaries) {
  const auto of_boundaries = [&](const char* name, std::vector<double>& values) {
    json.numbers(name, values, boundaries, "boundary between stages");
  };
  if (json.has("alphas", costs.matrix.has_value())) {
    if (json.reads()) costs.matrix.emplace();
    visit_link_matrix(json, *costs.matrix);
    if (costs.matrix->needs_bytes()) of_boundaries("bytes", costs.bytes);
  } else {
    json.field("alpha", costs.alpha);
    if (json.has("seconds", !costs.seconds.empty())) {
      of_boundaries("seconds", costs.seconds);
    } else {
      json.field("beta", costs.beta);
      of_boundaries("bytes", costs.bytes);
    }
  }
  // Copies are computation of workers, and go with every form of links.
  if (json.has("copies", !costs.copies.empty())) of_boundaries("copies", costs.copies);
  if (!costs.matrix && json.has("bursts", !costs.bursts.empty())) of_boundaries("bursts", costs.bursts);
}

void visit_all_reduce(JsonFields& json, AllReduceCosts& costs, std::int64_t stages) {
  const bool is_measured = json.has("seconds", !costs.seconds.empty());
  std::vector<double>& values = is_measured ? costs.seconds : costs.bytes;
  // In the file, the tied matrix has a field of its own, so that the lists have one entry for each stage.
  std::optional<double> matrix;
  if (costs.tied) {
    matrix = values.back();
    values.pop_back();
  }
  if (!is_measured) {
    json.field("alpha", costs.alpha);
    json.field("beta", costs.beta);
  }
  json.numbers(is_measured ? "seconds" : "bytes", values, stages, "stage");
  if (!is_measured) json.field_unless_zero("reduce_scatter", costs.reduce_scatter);
  json.field("tied", matrix);
  costs.tied = matrix.has_value();
  if (matrix) values.push_back(*matrix);
}

void visit_memory(JsonFields& json, StageMemory& memory) {
  json.field("weights", memory.weights);
  json.field("gradients", memory.gradients);
  json.field("optimizer", memory.optimizer);
  json.field("activations", memory.activations);
  json.field("boundary", memory.boundary);
  json.field("deferred", memory.deferred);
  json.field_unless_zero("keys_and_values", memory.keys_and_values);
}

void visit_buffers(JsonFields& json, MessageBuffers& buffers) {
  json.field("receives_ahead", buffers.receives_ahead);
  json.field("sends_behind", buffers.sends_behind);
}

/// Fields that are not set are left out, and get their defaults when the file is read.
void visit_costs(JsonFields& json, CostModel& costs, std::int64_t stages) {
  const auto of_stages = [&](const char* name, std::vector<double>& values) {
    if (json.has(name, !values.empty())) json.numbers(name, values, stages, "stage");
  };
  json.field("latency", costs.latency);
  json.list("stages", costs.stages, visit_stage, stages, "stage");
  json.field("pair", costs.pair);
  json.field_unless_zero("attention", costs.slices.attention);
  // The number of slices is a property of the schedule, which is not known here.
  if (auto& bounds = costs.slices.bounds; json.has("slice_bounds", !bounds.empty()))
    json.field("slice_bounds", bounds, [](const JsonValue& list) { return mapped(list.list(), number_of); });
  if (json.has("workers", !costs.workers.empty())) json.field("workers", costs.workers, read_factors);
  if (json.has("micro_batches", !costs.micro_batches.empty()))
    json.field("micro_batches", costs.micro_batches, read_factors);
  json.object("links", costs.links, [&](JsonFields& of, LinkCosts& links) { visit_links(of, links, stages - 1); });
  json.object("all_reduce", costs.all_reduce,
              [&](JsonFields& of, AllReduceCosts& sums) { visit_all_reduce(of, sums, stages); });
  of_stages("optimizer", costs.optimizer);
  json.field_unless_zero("steps_overlap", costs.steps_overlap);
  of_stages("recompute", costs.recompute);
  json.object("offload", costs.offload, [&](JsonFields& of, OffloadCosts& offload) {
    of.field("beta", offload.beta);
    of.numbers("bytes", offload.bytes, stages, "stage");
  });
  if (json.has("memory", !costs.memory.empty())) json.list("memory", costs.memory, visit_memory, stages, "stage");
  const bool has_buffers = costs.buffers.receives_ahead > 0 || costs.buffers.sends_behind > 0;
  if (json.has("buffers", has_buffers)) json.object("buffers", costs.buffers, visit_buffers);
}

}  // namespace

std::string costs_to_json(CostModel costs) {
  return json_report(JsonFields::written(
      costs, [](JsonFields& json, CostModel& from) { visit_costs(json, from, std::ssize(from.stages)); }));
}

CostModel costs_from_json(const std::string& text, const std::string& source, std::int64_t stages) {
  const nlohmann::json json = parse_json(text, source);
  CostModel costs;
  JsonFields::read(JsonValue(json, source), costs,
                   [&](JsonFields& fields, CostModel& into) { visit_costs(fields, into, stages); });
  return costs;
}

LinkMatrix links_from_text(const std::string& text, const std::string& source) {
  if (text.starts_with("\xEF\xBB\xBF")) return links_from_text(text.substr(3), source);  // byte order mark
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || text[first] != '{') return read_csv_links(text, source);
  const nlohmann::json json = parse_json(text, source);
  LinkMatrix links;
  JsonFields::read(JsonValue(json, source), links, visit_link_matrix);
  return links;
}

}  // namespace chimera

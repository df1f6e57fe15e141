#include "model_config/matrices.h"

#include <algorithm>
#include <numeric>

#include "core/mapped.h"
#include "core/value_text.h"
#include "model_config/parameters.h"

namespace chimera {
namespace {

bool is_number(std::string_view word) {
  return !word.empty() && word.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_in_block(const std::vector<std::string_view>& names) {
  for (std::size_t i = 0; i + 1 < names.size(); ++i) {
    const std::string_view word = names[i];
    // `h.5.` (GPT-2), `layer.5.` (BERT), `layers.5.` (Llama).
    if ((word == "h" || word == "layer" || word == "layers") && is_number(names[i + 1])) return true;
  }
  return false;
}

}  // namespace

std::vector<LogicalMatrix> logical_matrices(std::string_view name, const std::vector<std::int64_t>& shape) {
  const auto names = split_at('.', name);
  if (shape.size() != 2 || !is_in_block(names)) return {};
  const auto has = [&](std::string_view word) { return std::ranges::find(names, word) != names.end(); };
  // GPT-2's names; all its matrices in blocks are stored as in x out.
  const bool is_transposed = has("c_attn") || has("c_proj") || has("c_fc");
  const std::int64_t in = shape[is_transposed ? 0 : 1];
  const std::int64_t parts = has("c_attn") ? 3 : 1;
  const std::int64_t out = shape[is_transposed ? 1 : 0] / parts;
  std::vector<LogicalMatrix> matrices;
  for (std::int64_t part = 0; part < parts; ++part) matrices.push_back({out, in, part * out, is_transposed});
  return matrices;
}

std::vector<LogicalMatrix> logical_matrices(const ModelConfig& config, const StageLayers& stage) {
  std::vector<LogicalMatrix> of_block;
  for (const ParameterSpec& spec : block_parameters(config, 0)) {
    const auto matrices = logical_matrices(spec.name, spec.shape);
    of_block.insert(of_block.end(), matrices.begin(), matrices.end());
  }
  std::vector<LogicalMatrix> all;
  for (std::int64_t layer = stage.first_layer; layer < stage.end_layer; ++layer)
    all.insert(all.end(), of_block.begin(), of_block.end());
  return all;
}

std::int64_t elements_of(const std::vector<LogicalMatrix>& matrices) {
  std::int64_t count = 0;
  for (const LogicalMatrix& matrix : matrices) count += matrix.count();
  return count;
}

double iteration_flops(std::int64_t rows, std::int64_t columns) {
  const auto m = static_cast<double>(std::min(rows, columns));
  const auto n = static_cast<double>(std::max(rows, columns));
  return 5 * (4 * m * m * n + 2 * m * m * m);
}

std::vector<std::size_t> share_out(const std::vector<double>& costs, std::size_t members) {
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  // The longest task first, to the rank with the least work: at most 4/3 of the best division (Graham, 1969). Ties go
  // to the first in order, so that every rank computes the same division without communication.
  std::vector<double> loads(members, 0);
  std::vector<std::size_t> member_of(costs.size());
  for (const std::size_t i : order) {
    const auto least = std::ranges::min_element(loads);
    *least += costs[i];
    member_of[i] = static_cast<std::size_t>(least - loads.begin());
  }
  return member_of;
}

double busiest_iterations(const std::vector<LogicalMatrix>& matrices, std::size_t members) {
  const auto costs = mapped<double>(matrices, [](const auto& one) { return iteration_flops(one.out, one.in); });
  const std::vector<std::size_t> member_of = share_out(costs, members);
  std::vector<double> loads(members, 0);
  for (std::size_t i = 0; i < costs.size(); ++i) loads[member_of[i]] += costs[i];
  return std::ranges::max(loads);
}

}  // namespace chimera

#include "runtime/gradient_norms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace chimera {

std::vector<double> GradientNorms::take(std::int64_t step, bool has_gradients) {
  if (auto updates = updates_.extract(step)) return std::move(updates.mapped());
  std::vector<double> values(count(), 0);
  for (const auto& [id, group] : groups_) {
    if (has_gradients) add(id, share_of(id), values);
  }
  return values;
}

double GradientNorms::note_update(ParameterGroupId id, std::int64_t step) {
  std::vector<double> own(count(), 0);
  const double norm = std::sqrt(add(id, {}, own));
  if (answers_for(id)) {
    std::vector<double>& sums = updates_.try_emplace(step, own.size(), 0.0).first->second;
    for (std::size_t i = 0; i < own.size(); ++i) sums[i] += own[i] / static_cast<double>(shape_.updates);
  }
  return norm;
}

std::string GradientNorms::describe(std::size_t square) const {
  return shape_.parameters.empty() ? fmt::format("the gradient of stage {}", square)
                                   : "the gradient of " + shape_.parameters[square];
}

bool GradientNorms::answers_for(std::size_t square) const {
  return std::ranges::any_of(groups_, [&](const auto& held) {
    const auto& [id, group] = held;
    if (!answers_for(id)) return false;
    if (shape_.parameters.empty()) return id.index() == square;
    return std::ranges::find(group->parameters(), shape_.parameters[square], &Parameter::name) !=
           group->parameters().end();
  });
}

bool GradientNorms::answers_for(ParameterGroupId id) const {
  return shape_.group == GroupId(0) && shape_.groups[id.index()].front() == worker_;
}

/// All copies of a group have the same gradients, and each rank that holds one counts a part of them.
SquaresShare GradientNorms::share_of(ParameterGroupId id) const {
  const auto& group = shape_.groups[id.index()];
  const auto place = std::ranges::find(group, worker_) - group.begin();
  const auto size = static_cast<std::int64_t>(group.size());
  return {shape_.group.value() * size + place, shape_.ranks.data_parallel * size};
}

/// Returns their sum.
double GradientNorms::add(ParameterGroupId id, const SquaresShare& share, std::vector<double>& values) const {
  const auto& names = shape_.parameters;
  const std::int64_t elements = groups_.at(id)->gradients().numel();
  std::int64_t first = 0;
  double sum = 0;
  for (const Parameter& parameter : groups_.at(id)->parameters()) {
    const std::int64_t count = parameter.value.numel();
    const bool own = share.has(std::exchange(first, first + count), count, elements);
    if (!own) continue;
    const double squares = sum_of_squares(parameter.value.grad());
    const auto name = std::lower_bound(names.begin(), names.end(), parameter.name);
    values[names.empty() ? id.index() : static_cast<std::size_t>(name - names.begin())] += squares;
    sum += squares;
  }
  return sum;
}

}  // namespace chimera

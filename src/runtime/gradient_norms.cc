#include "runtime/gradient_norms.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "runtime/memory_meter.h"

namespace chimera {
namespace {

/// Uses independent lanes, so that compilers vectorize the loop.
template <class Number>
double sum_in_lanes(const Number* elements, std::int64_t count) {
  constexpr std::int64_t kLanes = 16;
  std::array<double, kLanes> sums{};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(elements[i + lane]);
      sums[static_cast<std::size_t>(lane)] += value * value;
    }
  }
  for (std::int64_t lane = 0; i < count; ++i, ++lane) {
    const auto value = static_cast<double>(elements[i]);
    sums[static_cast<std::size_t>(lane)] += value * value;
  }
  double sum = 0;
  for (const double lane : sums) sum += lane;
  return sum;
}

std::vector<at::Tensor> gradients_of(const std::vector<Parameter>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const Parameter& parameter : parameters) gradients.push_back(parameter.value.grad());
  return gradients;
}

/// Returns the sum of squares of each gradient. Waits only once for a device.
std::vector<double> squares_of(const std::vector<Parameter>& parameters) {
  std::vector<double> squares;
  if (parameters.empty()) return squares;
  if (!parameters.front().value.is_cpu()) {
    const at::Tensor sums = sums_of_squares(gradients_of(parameters)).cpu();
    return {sums.const_data_ptr<double>(), sums.const_data_ptr<double>() + sums.numel()};
  }
  for (const Parameter& parameter : parameters) squares.push_back(sum_of_squares(parameter.value.grad()));
  return squares;
}

}  // namespace

double sum_of_squares(const at::Tensor& tensor) {
  if (tensor.is_cpu() && tensor.is_contiguous()) {
    if (tensor.scalar_type() == at::kFloat) return sum_in_lanes(tensor.const_data_ptr<float>(), tensor.numel());
    if (tensor.scalar_type() == at::kDouble) return sum_in_lanes(tensor.const_data_ptr<double>(), tensor.numel());
  }
  const double norm = at::linalg_vector_norm(tensor, 2, {}, false, at::kDouble).item<double>();
  return norm * norm;
}

at::Tensor sums_of_squares(const std::vector<at::Tensor>& tensors) {
  return at::stack(at::_foreach_norm(tensors, 2, at::kDouble)).square_();
}

std::vector<double> GradientNorms::take(std::int64_t step, bool has_gradients) {
  if (auto updates = updates_.extract(step)) return std::move(updates.mapped());
  std::vector<double> values(count(), 0);
  for (const auto& [id, group] : groups_) {
    if (has_gradients) add(id, share_of(id), values);
  }
  return values;
}

void GradientNorms::take(std::int64_t step, bool has_gradients, at::Tensor values) {
  if (updates_.contains(step) || !has_gradients) {
    const std::vector<double> noted = take(step, has_gradients);
    values.add_(on_device(noted, values.device()));
    return;
  }
  for (const auto& [id, group] : groups_) add(id, share_of(id), values);
}

double GradientNorms::note_update(ParameterGroupId id, std::int64_t step) {
  std::vector<double> own(count(), 0);
  const double norm = std::sqrt(add(id, {}, own));
  if (reports_on(id)) {
    std::vector<double>& sums = updates_.try_emplace(step, own.size(), 0.0).first->second;
    for (std::size_t i = 0; i < own.size(); ++i) sums[i] += own[i] / static_cast<double>(shape_.updates);
  }
  return norm;
}

std::string GradientNorms::describe(std::size_t square) const {
  return shape_.parameters.empty() ? fmt::format("the gradient of stage {}", square)
                                   : "the gradient of " + shape_.parameters[square];
}

bool GradientNorms::reports_on(std::size_t square) const {
  return std::ranges::any_of(groups_, [&](const auto& held) {
    const auto& [id, group] = held;
    if (!reports_on(id)) return false;
    if (shape_.parameters.empty()) return id.index() == square;
    return std::ranges::find(group->parameters(), shape_.parameters[square], &Parameter::name) !=
           group->parameters().end();
  });
}

bool GradientNorms::reports_on(ParameterGroupId id) const {
  return shape_.group == GroupId(0) && shape_.groups[id.index()].front() == worker_;
}

GradientNorms::SquaresShare GradientNorms::share_of(ParameterGroupId id) const {
  const std::vector<RankId> ranks = shape_.ranks.ranks_of({shape_.groups[id.index()]}).front();
  const auto place = std::ranges::find(ranks, shape_.rank(worker_)) - ranks.begin();
  return {static_cast<std::size_t>(place), ranks.size()};
}

std::vector<Parameter> GradientNorms::counted(ParameterGroupId id, const SquaresShare& share) const {
  const std::vector<Parameter>& parameters = groups_.at(id)->parameters();
  const std::vector<std::size_t> owners = owners_of(*groups_.at(id), share.members);
  std::vector<Parameter> own;
  for (std::size_t p = 0; p < owners.size(); ++p) {
    if (owners[p] == share.member) own.push_back(parameters[p]);
  }
  return own;
}

std::size_t GradientNorms::number_of(ParameterGroupId id, const Parameter& parameter) const {
  const auto& names = shape_.parameters;
  if (names.empty()) return id.index();
  return static_cast<std::size_t>(std::lower_bound(names.begin(), names.end(), parameter.name) - names.begin());
}

/// Returns the sum of the squares.
double GradientNorms::add(ParameterGroupId id, const SquaresShare& share, std::vector<double>& values) const {
  const std::vector<Parameter> parameters = counted(id, share);
  const std::vector<double> squares = squares_of(parameters);
  double sum = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    values[number_of(id, parameters[i])] += squares[i];
    sum += squares[i];
  }
  return sum;
}

void GradientNorms::add(ParameterGroupId id, const SquaresShare& share, at::Tensor values) {
  const std::vector<Parameter> parameters = counted(id, share);
  if (parameters.empty()) return;
  const at::Tensor squares = sums_of_squares(gradients_of(parameters));
  if (shape_.parameters.empty()) {
    values.narrow(0, id.value(), 1).add_(squares.sum());
    return;
  }
  at::Tensor& numbers = numbers_[id];
  if (!numbers.defined()) {  // once a run
    numbers = at::empty({squares.size(0)}, at::kLong);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      numbers.data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(number_of(id, parameters[i]));
    }
    numbers = numbers.to(values.device());
  }
  values.index_copy_(0, numbers, squares);  // each parameter is counted once
}

}  // namespace chimera

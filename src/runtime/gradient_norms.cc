#include "runtime/gradient_norms.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/mapped.h"

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
  // The lanes are added in order, so the result depends on the number of elements alone.
  double sum = 0;
  for (const double lane : sums) sum += lane;
  return sum;
}

std::vector<at::Tensor> gradients_of(const std::vector<Parameter>& parameters) {
  return mapped<at::Tensor>(parameters, [](const Parameter& parameter) { return parameter.value.grad(); });
}

/// Adds in order on the CPU, where ATen's order depends on the number of elements.
at::Tensor total_of(const at::Tensor& squares) {
  if (!squares.is_cpu()) return squares.sum();
  const double* first = squares.const_data_ptr<double>();
  return at::scalar_tensor(std::accumulate(first, first + squares.numel(), 0.0), at::kDouble);
}

}  // namespace

double sum_of_squares(const at::Tensor& tensor) {
  if (tensor.is_cpu() && tensor.is_contiguous()) {
    if (tensor.scalar_type() == at::kFloat) return sum_in_lanes(tensor.const_data_ptr<float>(), tensor.numel());
    if (tensor.scalar_type() == at::kDouble) return sum_in_lanes(tensor.const_data_ptr<double>(), tensor.numel());
  }
  // Other types and strides are rare: float32 and float64 are the types of weights (weight_type()).
  const double norm = at::linalg_vector_norm(tensor, 2, {}, false, at::kDouble).item<double>();
  return norm * norm;
}

at::Tensor sums_of_squares(const std::vector<at::Tensor>& tensors) {
  if (!tensors.front().is_cpu()) return at::stack(at::_foreach_norm(tensors, 2, at::kDouble)).square_();
  return at::tensor(mapped<double>(tensors, sum_of_squares), at::kDouble);
}

at::Tensor on_device(std::span<const double> numbers, at::Device device) {
  // From page-locked memory the copy is asynchronous. CUDA's caching host allocator keeps the memory until the copy has
  // ended, although `host` is released at once.
  const auto options = at::TensorOptions().dtype(at::kDouble).pinned_memory(!device.is_cpu());
  const at::Tensor host = at::empty({static_cast<std::int64_t>(numbers.size())}, options);
  std::ranges::copy(numbers, host.data_ptr<double>());
  return host.to(device, /*non_blocking=*/true);
}

void GradientNorms::take(std::int64_t step, bool has_gradients, at::Tensor values) {
  // Asynchronous schedules have added the norms of each update; synchronous ones have all gradients now.
  if (const auto updates = updates_.extract(step)) {
    values.add_(updates.mapped());
  } else if (has_gradients) {
    for (const auto& [id, group] : groups_) {
      // The members of a group divide its parameters, so no gradient is counted twice. All groups have equal gradients
      // after the sum, so the ranks of all groups share the work.
      const std::vector<RankId> ranks = shape_.ranks.ranks_of({shape_.groups[id.index()]}).front();
      const auto member = std::ranges::find(ranks, shape_.rank(worker_)) - ranks.begin();
      add(id, ranks.size(), static_cast<std::size_t>(member), values);
    }
  }
}

double GradientNorms::note_update(ParameterGroupId id, std::int64_t step) {
  const at::Tensor own = at::zeros({static_cast<std::int64_t>(count())}, at::kDouble);
  // The norm of the whole group, which the update needs now. One of its holders adds it to the numbers of the step.
  add(id, 1, 0, own);
  const at::Tensor square = total_of(own);
  if (shape_.sum_over_parts) shape_.sum_over_parts(square);
  if (reports_on(id)) {
    at::Tensor& sums = updates_.try_emplace(step, at::zeros_like(own)).first->second;
    // The mean over the updates of the step, of which each adds its part.
    sums.add_(own.div_(shape_.updates));
  }
  return std::sqrt(square.item<double>());
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

void GradientNorms::add(ParameterGroupId id, std::size_t members, std::size_t member, at::Tensor values) {
  std::vector<Parameter> parameters = owned_parameters(*groups_.at(id), members, member);
  if (!shape_.counts_whole) std::erase_if(parameters, [](const Parameter& p) { return p.whole_elements == 0; });
  if (parameters.empty()) return;
  const at::Tensor squares = sums_of_squares(gradients_of(parameters));
  if (shape_.parameters.empty()) {
    values.select(0, id.value()).add_(total_of(squares));
    return;
  }
  at::Tensor& numbers = numbers_[{id, members}];
  if (!numbers.defined()) {  // Once a run
    numbers = at::empty({squares.size(0)}, at::kLong);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      // Names are sorted.
      const auto found = std::ranges::lower_bound(shape_.parameters, parameters[i].name);
      numbers.data_ptr<std::int64_t>()[i] = found - shape_.parameters.begin();
    }
    numbers = numbers.to(values.device());
  }
  values.index_copy_(0, numbers, squares);  // Each parameter is counted once
}

}  // namespace chimera

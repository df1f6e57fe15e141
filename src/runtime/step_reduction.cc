#include "runtime/step_reduction.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/fault_point.h"
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

constexpr std::vector<double> StepSums::*kFields[] = {&StepSums::squares,
                                                      &StepSums::losses,
                                                      &StepSums::peak_memory,
                                                      &StepSums::used_memory,
                                                      &StepSums::allocation_retries,
                                                      &StepSums::shared,
                                                      &StepSums::votes,
                                                      &StepSums::recordings};

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

void StepReduction::take_squares(std::int64_t step, bool has_gradients, at::Tensor values) {
  // Asynchronous schedules have added the norms of each update; synchronous ones have all gradients now.
  if (const auto updates = updates_.extract(step)) {
    values.add_(updates.mapped());
  } else if (has_gradients) {
    for (const auto& [id, group] : worker_.groups) {
      // The members of a group divide its parameters, so no gradient is counted twice. All groups have equal gradients
      // after the sum, so the ranks of all groups share the work.
      const std::vector<RankId> ranks = worker_.shape.ranks.ranks_of({worker_.shape.groups[id.index()]}).front();
      const auto member = std::ranges::find(ranks, worker_.shape.rank(worker_.worker)) - ranks.begin();
      add_squares(id, ranks.size(), static_cast<std::size_t>(member), values);
    }
  }
}

double StepReduction::note_update(ParameterGroupId id, std::int64_t step) {
  const at::Tensor own = at::zeros({static_cast<std::int64_t>(num_squares())}, at::kDouble);
  // The norm of the whole group, which the update needs now. One of its holders adds it to the numbers of the step.
  add_squares(id, 1, 0, own);
  const at::Tensor square = total_of(own);
  if (worker_.shape.sum_over_parts) worker_.shape.sum_over_parts(square);
  if (reports_on(id)) {
    at::Tensor& sums = updates_.try_emplace(step, at::zeros_like(own)).first->second;
    // The mean over the updates of the step, of which each adds its part.
    sums.add_(own.div_(worker_.shape.updates));
  }
  return std::sqrt(square.item<double>());
}

std::string StepReduction::describe(std::size_t square) const {
  return worker_.shape.parameters.empty() ? fmt::format("the gradient of stage {}", square)
                                          : "the gradient of " + worker_.shape.parameters[square];
}

bool StepReduction::reports_on(std::size_t square) const {
  return std::ranges::any_of(worker_.groups, [&](const auto& held) {
    const auto& [id, group] = held;
    if (!reports_on(id)) return false;
    if (worker_.shape.parameters.empty()) return id.index() == square;
    return std::ranges::find(group->parameters(), worker_.shape.parameters[square], &Parameter::name) !=
           group->parameters().end();
  });
}

bool StepReduction::reports_on(ParameterGroupId id) const {
  return worker_.shape.group == GroupId(0) && worker_.shape.groups[id.index()].front() == worker_.worker;
}

void StepReduction::add_squares(ParameterGroupId id, std::size_t members, std::size_t member, at::Tensor values) {
  std::vector<Parameter> parameters = owned_parameters(*worker_.groups.at(id), members, member);
  if (!worker_.shape.counts_whole) std::erase_if(parameters, [](const Parameter& p) { return p.whole_elements == 0; });
  if (parameters.empty()) return;
  const at::Tensor squares = sums_of_squares(gradients_of(parameters));
  if (worker_.shape.parameters.empty()) {
    values.select(0, id.value()).add_(total_of(squares));
    return;
  }
  at::Tensor& numbers = numbers_[{id, members}];
  if (!numbers.defined()) {  // Once a run
    numbers = at::empty({squares.size(0)}, at::kLong);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      // Names are sorted.
      const auto found = std::ranges::lower_bound(worker_.shape.parameters, parameters[i].name);
      numbers.data_ptr<std::int64_t>()[i] = found - worker_.shape.parameters.begin();
    }
    numbers = numbers.to(values.device());
  }
  values.index_copy_(0, numbers, squares);  // Each parameter is counted once
}

std::vector<double> StepSums::pack() const {
  std::vector<double> numbers;
  for (const auto field : kFields) numbers.insert(numbers.end(), (this->*field).begin(), (this->*field).end());
  return numbers;
}

void StepSums::unpack(std::span<const double> numbers) {
  for (const auto field : kFields) {
    std::ranges::copy(numbers.first((this->*field).size()), (this->*field).begin());
    numbers = numbers.subspan((this->*field).size());
  }
}

at::Tensor StepSums::squares_in(const at::Tensor& packed) const { return packed.narrow(0, 0, std::ssize(squares)); }

at::Tensor StepSums::loss_in(const at::Tensor& packed, std::size_t loss) const {
  return packed.narrow(0, static_cast<std::int64_t>(squares.size() + loss), 1);
}

bool StepSums::are_finite() const {
  return std::ranges::all_of(pack(), [](double value) { return std::isfinite(value); });
}

StepSums StepReduction::own_numbers(const StepHooks& hooks) const {
  const RankLayout& ranks = worker_.shape.ranks;
  const auto num_ranks = static_cast<std::size_t>(ranks.data_parallel * ranks.workers);
  const auto micro_batches = static_cast<std::size_t>(ranks.data_parallel * worker_.shape.micro_batches);
  // Each worker fills its own element, so that the sum over all workers is a gather, from which each takes the maximum.
  const std::size_t own =
      worker_.shape.group.index() * static_cast<std::size_t>(ranks.workers) + worker_.worker.index();
  StepSums sums{.squares = std::vector<double>(num_squares(), 0),
                .losses = std::vector<double>(micro_batches, 0),
                .peak_memory = std::vector<double>(num_ranks, 0),
                .used_memory = std::vector<double>(num_ranks, 0),
                .allocation_retries = std::vector<double>(num_ranks, 0),
                .shared = {hooks.shared.begin(), hooks.shared.end()}};
  if (hooks.votes != nullptr) sums.votes = hooks.votes->pack();
  // Other ranks of the same worker (tensor parallelism) report for it.
  if (!worker_.shape.counts_whole) return sums;
  sums.peak_memory[own] = hooks.observation.peak_memory();
  if (hooks.observation.used_memory) sums.used_memory[own] = hooks.observation.used_memory();
  if (hooks.observation.allocation_retries) sums.allocation_retries[own] = hooks.observation.allocation_retries();
  return sums;
}

/// On a device, losses and norms are still being computed. They are copied into the packed numbers there, so that the
/// sum is the only wait of the host.
StepSums StepReduction::sum(std::int64_t step, bool trains, StepLosses& losses, std::vector<double> recordings,
                            const StepHooks& hooks) {
  StepSums sums = own_numbers(hooks);
  sums.recordings = std::move(recordings);
  const at::Tensor all = on_device(sums.pack(), worker_.device());
  const std::int64_t micro_batches = worker_.shape.micro_batches;
  for (std::int64_t m = 0; m < micro_batches; ++m) {
    const auto loss = losses.extract(MicroBatchId(step * micro_batches + m));
    // extract() has removed the loss on every rank, counted or not.
    if (loss && worker_.shape.counts_whole) {
      const std::int64_t number = worker_.shape.group.value() * micro_batches + m;
      sums.loss_in(all, static_cast<std::size_t>(number)).copy_(loss.mapped());
    }
  }
  if (trains) fault_point("vote");
  take_squares(step, trains, sums.squares_in(all));  // Updates may come from an earlier piece
  sums.unpack(worker_.transport.sum_to_host(all, hooks.observation.before_wait));
  return sums;
}

NonFiniteResult StepReduction::find_non_finite(std::span<const double> squares, const std::vector<Op>& suspects) const {
  const ProgramShape& shape = worker_.shape;
  const auto order = spread_order(shape.ranks.data_parallel, shape.micro_batches, shape.stages());
  const auto suspect_at = [&](const GroupOp& place) {
    if (place.group != shape.group) return suspects.end();
    return std::ranges::find_if(suspects, [&](const Op& op) {
      // Later steps of a program continue the numbers of micro-batches, and the order is of one step.
      return op.stage == place.op.stage &&
             op.micro_batch.value() % shape.micro_batches == place.op.micro_batch.value() &&
             (op.kind == OpKind::Forward) == (place.op.kind == OpKind::Forward);
    });
  };
  auto found = mapped<double>(order, [&](const GroupOp& place) { return suspect_at(place) != suspects.end(); });
  worker_.transport.all_sum(found);
  // All ranks see the same marks, so all find the same first op without another message.
  const auto first =
      static_cast<std::size_t>(std::ranges::find_if(found, [](double ranks) { return ranks > 0; }) - found.begin());
  if (first < found.size()) {
    const auto& [group, op] = order[first];
    NonFiniteResult result{.what = describe_result(op, shape.stages())};
    if (shape.ranks.data_parallel > 1) result.what += fmt::format(" of data-parallel group {}", group.value());
    const auto own = suspect_at(order[first]);
    result.is_own = own != suspects.end();
    if (result.is_own) result.op = *own;
    return result;
  }
  // No op had a bad result, so the value arose in a weight gradient, whose norm names its parameter.
  const auto finite = [](double square) { return std::isfinite(square); };
  const auto square = static_cast<std::size_t>(std::ranges::find_if_not(squares, finite) - squares.begin());
  if (square < squares.size()) return {.what = describe(square), .is_own = reports_on(square)};
  return {.what = "the gradient norm", .is_own = worker_.worker == WorkerId(0) && shape.group == GroupId(0)};
}

}  // namespace chimera

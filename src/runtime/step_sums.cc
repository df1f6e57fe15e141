#include "runtime/step_sums.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace chimera {

std::vector<double> StepSums::pack() const {
  std::vector<double> numbers = squares;
  numbers.insert(numbers.end(), losses.begin(), losses.end());
  numbers.insert(numbers.end(), peak_memory.begin(), peak_memory.end());
  numbers.insert(numbers.end(), used_memory.begin(), used_memory.end());
  if (votes) std::ranges::copy(votes->pack(), std::back_inserter(numbers));
  if (recordings) numbers.push_back(*recordings);
  return numbers;
}

void StepSums::unpack(std::span<const double> numbers) {
  for (std::vector<double>* field : {&squares, &losses, &peak_memory, &used_memory}) {
    std::ranges::copy(numbers.first(field->size()), field->begin());
    numbers = numbers.subspan(field->size());
  }
  if (votes) {
    votes = SaveVotes::unpack(numbers.first<SaveVotes::kNumbers>());
    numbers = numbers.subspan(SaveVotes::kNumbers);
  }
  if (recordings) recordings = numbers.front();
}

at::Tensor StepSums::squares_in(const at::Tensor& packed) const { return packed.narrow(0, 0, std::ssize(squares)); }

at::Tensor StepSums::loss_in(const at::Tensor& packed, std::size_t loss) const {
  return packed.narrow(0, static_cast<std::int64_t>(squares.size() + loss), 1);
}

bool StepSums::are_finite() const {
  const auto is_finite = [](double value) { return std::isfinite(value); };
  return std::ranges::all_of(squares, is_finite) && std::ranges::all_of(losses, is_finite) &&
         std::ranges::all_of(peak_memory, is_finite) && std::ranges::all_of(used_memory, is_finite);
}

}  // namespace chimera

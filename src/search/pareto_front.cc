#include "search/pareto_front.h"

#include <algorithm>
#include <utility>

namespace chimera {
namespace {

bool covers(double makespan_a, double peak_a, double makespan_b, double peak_b) {
  return makespan_a <= makespan_b * (1 + kRounding) && peak_a <= peak_b + kRounding;
}

}  // namespace

bool ParetoFront::admits(double makespan, double peak) const {
  return std::none_of(finds_.begin(), finds_.end(),
                      [&](const Find& find) { return covers(find.makespan, find.peak, makespan, peak); });
}

void ParetoFront::add(Find find) {
  std::erase_if(finds_,
                [&](const Find& other) { return covers(find.makespan, find.peak, other.makespan, other.peak); });
  const auto place =
      std::find_if(finds_.begin(), finds_.end(), [&](const Find& other) { return other.makespan > find.makespan; });
  finds_.insert(place, std::move(find));
}

}  // namespace chimera

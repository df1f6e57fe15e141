#include "launch/local/recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace chimera {

Recovery::Recovery(int ranks, RankGroups copies, int most)
    : copies_(std::move(copies)),
      restarts_(most, {.again = "recovered", .flag = "--max-recoveries"}),
      places_(static_cast<std::size_t>(ranks), Place::Elsewhere),
      has_weights_(static_cast<std::size_t>(ranks), true) {}

/// Why weights are lost with the ranks that have none; empty: all are left.
std::string Recovery::missing_copy() const {
  for (std::size_t group = 0; group < copies_.size(); ++group) {
    const bool is_left = std::ranges::any_of(copies_[group], [&](RankId rank) { return has_weights_[rank.index()]; });
    if (!is_left) return fmt::format("not recovered: no rank is left that holds stage {}", group);
  }
  return "";
}

Recovery::Answer Recovery::lose(const std::vector<int>& ranks, std::int64_t step) {
  bool is_another = state_ != State::Leaving;
  for (const int rank : ranks) {
    const auto index = static_cast<std::size_t>(rank);
    is_another = is_another || !has_weights_[index];
    has_weights_[index] = false;
  }
  if (std::string why = missing_copy(); !why.empty()) return {.why_not = std::move(why)};
  if (is_another) {
    const Restarts::Advice advice = restarts_.after_failure(step);
    if (!advice.again) return {.why_not = advice.why_not};
  }
  if (state_ == State::Leaving) {
    for (const int rank : ranks) places_[static_cast<std::size_t>(rank)] = Place::Elsewhere;
    return {};
  }
  ++epoch_;
  std::ranges::fill(places_, Place::Elsewhere);
  state_ = State::Leaving;
  return {.why_not = "", .begins_epoch = true};
}

void Recovery::note(const RecoveryNote& note) {
  const bool is_known = note.rank >= 0 && note.rank < static_cast<int>(places_.size());
  if (!is_known || note.epoch != epoch_ || state_ == State::Undisturbed) return;
  const bool has_resumed = note.kind == RecoveryNote::Kind::Resumed;
  if (has_resumed && state_ != State::Joining) return;
  places_[static_cast<std::size_t>(note.rank)] = has_resumed ? Place::Resumed : Place::Left;
  if (has_resumed) resumed_after_ = note.step;
}

bool Recovery::all_are_at(Place place) const {
  return std::ranges::all_of(places_, [&](Place each) { return each == place; });
}

void Recovery::finish() {
  state_ = State::Undisturbed;
  std::fill(has_weights_.begin(), has_weights_.end(), true);
}

}  // namespace chimera

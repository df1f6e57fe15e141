#pragma once

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "check/violation.h"

namespace chimera {

/// Violations as they are found. Of each kind the first kMostListed are kept and the others counted: a file of a few
/// bytes can claim a hundred million missing ops.
class Findings {
 public:
  static constexpr std::size_t kMostListed = 20'000;

  /// `message` makes the text; it is called only for a violation that is kept.
  template <class Message>
  void add(ViolationKind kind, std::vector<Place> places, const Message& message) {
    if (++counts_[static_cast<std::size_t>(kind)] > kMostListed) return;
    listed_.push_back({kind, message(), std::move(places)});
  }

  /// A violation by one op; its message names the place, then says `format` of `parts`.
  template <class... Parts>
  void add_at(const Schedule& schedule, ViolationKind kind, Place place, fmt::format_string<Parts...> format,
              Parts... parts) {
    add(kind, {place}, [&] {
      return fmt::format("worker {}, op {} ({}): {}", place.worker, place.position,
                         to_text(schedule.workers[place.worker][place.position]),
                         fmt::vformat(format, fmt::make_format_args(parts...)));
    });
  }

  /// Adds a line that speaks for many, beyond the bound.
  void add_summary(ViolationKind kind, std::string message) { listed_.push_back({kind, std::move(message), {}}); }

  [[nodiscard]] bool empty() const { return listed_.empty(); }

  /// All of them, and a line for each kind of which there are more.
  [[nodiscard]] std::vector<Violation> take() {
    for (std::size_t kind = 0; kind < counts_.size(); ++kind) {
      if (counts_[kind] <= kMostListed) continue;
      const auto named = static_cast<ViolationKind>(kind);
      listed_.push_back({named, fmt::format("{} more of kind {}", counts_[kind] - kMostListed, to_text(named)), {}});
    }
    return std::move(listed_);
  }

 private:
  std::vector<Violation> listed_;
  std::array<std::size_t, static_cast<std::size_t>(ViolationKind::Deadlock) + 1> counts_{};
};

}  // namespace chimera

#pragma once
// The schedules that the program itself chooses where nobody names one.

#include <array>

namespace chimera {

/// What trains where the user names no schedule.
inline constexpr const char* kDefaultSchedule = "chimera";

/// The paper's own, for which its rule of choice is made.
inline constexpr const char* kPaperSchedule = "chimera";

/// The plainest schedule: one stage on each worker, any D and N.
inline constexpr const char* kPlainSchedule = "1f1b";

/// One of each kind: all forwards first, one forward and one backward, two directions, backward in two.
inline constexpr std::array kRepresentativeSchedules = {"gpipe", "1f1b", "chimera", "zb-h1"};

}  // namespace chimera

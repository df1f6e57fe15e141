#pragma once
// What must hold for any text whatever that is offered as a schedule: the body of the fuzzers, and of the test that
// replays what they found.

#include <string_view>

namespace chimera::testing {

/// Reads the text as JSON, or as CSV. It is refused by a ConfigError of one line, or read; then it survives both forms
/// unchanged, check() answers, and what check() accepts is lowered to programs that cannot get stuck and simulated to
/// a makespan no shorter than its lower bound. Throws std::logic_error where one of these does not hold.
void exercise_json(std::string_view text);
void exercise_csv(std::string_view text);

}  // namespace chimera::testing

#pragma once
// Properties that must hold for any input of a reader. Each reader has a file here that registers a Fuzzer and is built
// as a libFuzzer program. A test replays the inputs that these programs found with any compiler.

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace chimera::testing {

/// Passes the bytes to the reader. Throws std::logic_error if a property does not hold. Any other exception or
/// sanitizer finding is also a defect.
using Exercise = void (*)(std::string_view bytes);

struct Fuzzer {
  /// Registers the fuzzer. Its corpus is tests/fuzz/corpus/NAME.
  Fuzzer(std::string fuzzer_name, Exercise fuzzer_exercise);
  std::string name;
  Exercise exercise = nullptr;
};

/// All fuzzers of this program, ordered by name.
[[nodiscard]] std::vector<Fuzzer> all_fuzzers();

/// Throws std::logic_error(what) unless `holds`.
void require(bool holds, const char* what);

/// Name that readers give to the bytes in messages.
inline constexpr const char* kSource = "text";
/// Throws std::logic_error unless the message is one short line that begins with kSource.
void require_good_refusal(const ConfigError& refusal);

/// Returns the result of `read`, or nothing if it refuses its input with a good message.
template <std::invocable Read>
auto read_or_refuse(Read read) -> std::optional<decltype(read())> {
  try {
    return read();
  } catch (const ConfigError& refusal) {
    require_good_refusal(refusal);
    return std::nullopt;
  }
}

}  // namespace chimera::testing

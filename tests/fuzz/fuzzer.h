#pragma once
// What must hold for any bytes whatever that a reader is offered. Each reader has a file here that registers such a
// Fuzzer, and becomes a program of libFuzzer; a test replays with any compiler what those programs found.

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace chimera::testing {

/// Offers the bytes to the reader. Throws std::logic_error where something does not hold; whatever else is thrown, or
/// found by a sanitizer, is a defect too.
using Exercise = void (*)(std::string_view bytes);

struct Fuzzer {
  /// Registers itself. Inputs worth keeping lie in tests/fuzz/corpus/NAME.
  Fuzzer(std::string fuzzer_name, Exercise fuzzer_exercise);
  std::string name;
  Exercise exercise = nullptr;
};

/// All that this program holds, in the order of their names.
[[nodiscard]] std::vector<Fuzzer> all_fuzzers();

/// Throws std::logic_error(what) unless it holds.
void require(bool holds, const char* what);

/// What readers call the bytes of a fuzzer.
inline constexpr const char* kSource = "text";
/// Throws std::logic_error unless a refusal is one short line that begins with kSource.
void require_good_refusal(const ConfigError& refusal);

/// What `read` reads, or nothing where it refuses as readers should.
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

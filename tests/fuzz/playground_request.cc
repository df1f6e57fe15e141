// Fuzzes a request to the playground.

#include <cctype>
#include <nlohmann/json.hpp>

#include "answers/playground.h"
#include "core/json.h"
#include "fuzz/fuzzer.h"

namespace chimera::testing {
namespace {

/// Whether it contains a number of three or more digits or with an exponent.
bool has_large_number(std::string_view bytes) {
  std::size_t digits = 0;
  for (const char each : bytes) {
    if (std::isdigit(static_cast<unsigned char>(each)) != 0) {
      if (++digits == 3) return true;
    } else {
      if (digits > 0 && (each == 'e' || each == 'E')) return true;
      digits = 0;
    }
  }
  return false;
}

/// Whether the answer takes only milliseconds.
bool is_quick(std::string_view bytes) {
  const auto has = [&](std::string_view word) { return bytes.find(word) != std::string_view::npos; };
  return !has("search") && !has("plan") && !has("\\u") && !has_large_number(bytes);
}

void exercise_request(std::string_view bytes) {
  if (!is_quick(bytes)) return;
  const std::string answer = playground::answer(bytes);
  require(nlohmann::json::accept(answer), "an answer is JSON");
  const nlohmann::json json = read_json(answer);
  require(json.is_object(), "an answer is an object");
  if (!json.contains("error")) {
    require(playground::answer(bytes) == answer, "the same request gets the same answer");
    return;
  }
  const auto why = json.at("error").get<std::string>();
  require(!why.empty() && why.find('\n') == std::string::npos, "a refusal is one line");
}

}  // namespace

const Fuzzer kPlaygroundRequest("playground_request", exercise_request);

}  // namespace chimera::testing

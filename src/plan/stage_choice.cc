#include "plan/stage_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <vector>

#include "core/error.h"

namespace chimera {
namespace {

[[noreturn]] void fail_to_parse(const char* flag, const std::vector<std::string>& names, const std::string& text) {
  if (!text.empty() && std::isalpha(static_cast<unsigned char>(text.front())) != 0)
    throw ConfigError(unknown_name(flag, text, names));
  throw ConfigError(fmt::format("{} {}: expected {}, or stages such as 0,1", flag, text, fmt::join(names, ", ")));
}

StageChoice parse_stages(const char* flag, const std::vector<std::string>& names, const std::string& text) {
  if (std::ranges::count(names, text) > 0) return {*find_named<StageRule>(text)};
  StageChoice choice{StageRule::Listed};
  const char* const end = text.data() + text.size();
  for (const char* next = text.data();; ++next) {
    std::int32_t stage = 0;
    const auto [after, error] = std::from_chars(next, end, stage);
    if (error != std::errc() || (after != end && *after != ',') || stage < 0) fail_to_parse(flag, names, text);
    choice.stages.emplace(stage);
    if (after == end) return choice;
    next = after;
  }
}

}  // namespace

StageChoice parse_recompute(const std::string& text) {
  return parse_stages("--recompute", names_of<StageRule>(), text);
}

StageChoice parse_offload(const std::string& text) { return parse_stages("--offload", {"none", "full", "auto"}, text); }

std::string to_text(const StageChoice& choice) {
  if (choice.rule != StageRule::Listed) return to_text(choice.rule);
  std::string text;
  for (const StageId stage : choice.stages) text += fmt::format("{}{}", text.empty() ? "" : ",", stage.value());
  return text;
}

StageChoice stage_choice(const std::set<StageId>& stages, std::int64_t num_stages) {
  if (stages.empty()) return {StageRule::None};
  if (static_cast<std::int64_t>(stages.size()) == num_stages) return {StageRule::Full};
  return {StageRule::Listed, stages};
}

}  // namespace chimera

#include "plan/recompute_choice.h"

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

RecomputeChoice parse_stages(const char* flag, const std::vector<std::string>& names, const std::string& text) {
  if (std::ranges::count(names, text) > 0) return {*find_named<RecomputeRule>(text)};
  RecomputeChoice choice{RecomputeRule::Listed};
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

RecomputeChoice parse_recompute(const std::string& text) {
  return parse_stages("--recompute", names_of<RecomputeRule>(), text);
}

RecomputeChoice parse_offload(const std::string& text) {
  return parse_stages("--offload", {"none", "full", "auto"}, text);
}

std::string to_text(const RecomputeChoice& choice) {
  if (choice.rule != RecomputeRule::Listed) return to_text(choice.rule);
  std::string text;
  for (const StageId stage : choice.stages) text += fmt::format("{}{}", text.empty() ? "" : ",", stage.value());
  return text;
}

RecomputeChoice recompute_choice(const std::set<StageId>& stages, std::int64_t num_stages) {
  if (stages.empty()) return {RecomputeRule::None};
  if (static_cast<std::int64_t>(stages.size()) == num_stages) return {RecomputeRule::Full};
  return {RecomputeRule::Listed, stages};
}

}  // namespace chimera

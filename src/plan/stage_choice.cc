#include "plan/stage_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "core/error.h"
#include "core/reject.h"

namespace chimera {
namespace {

[[noreturn]] void fail_to_parse(const StageFlag& flag, const std::string& text) {
  if (!text.empty() && std::isalpha(static_cast<unsigned char>(text.front())) != 0)
    throw ConfigError(unknown_name(flag.name, text, flag.rules));
  reject("{} {}: expected {}, or stages such as 0,1", flag.name, text, fmt::join(flag.rules, ", "));
}

}  // namespace

StageChoice parse_stages(const StageFlag& flag, const std::string& text) {
  if (std::ranges::count(flag.rules, text) > 0) return {.rule = *find_named<StageRule>(text)};
  StageChoice choice{.rule = StageRule::Listed};
  const char* const end = text.data() + text.size();
  for (const char* next = text.data();; ++next) {
    std::int32_t stage = 0;
    const auto [after, error] = std::from_chars(next, end, stage);
    // Also rejects an empty number, as in "0,,1" and "0,".
    if (error != std::errc() || (after != end && *after != ',') || stage < 0) fail_to_parse(flag, text);
    choice.stages.emplace(stage);
    if (after == end) return choice;
    next = after;
  }
}

std::string to_text(const StageChoice& choice) {
  if (choice.rule != StageRule::Listed) return to_text(choice.rule);
  std::string text;
  for (const StageId stage : choice.stages) text += fmt::format("{}{}", text.empty() ? "" : ",", stage.value());
  return text;
}

StageChoice stage_choice(const std::set<StageId>& stages, std::int64_t num_stages) {
  if (stages.empty()) return {.rule = StageRule::None};
  if (static_cast<std::int64_t>(stages.size()) == num_stages) return {.rule = StageRule::Full};
  return {.rule = StageRule::Listed, .stages = stages};
}

std::set<StageId> all_stages(std::int64_t count) {
  std::set<StageId> stages;
  for (std::int64_t s = 0; s < count; ++s) stages.emplace(s);
  return stages;
}

std::set<StageId> resolve_stages(const StageChoice& choice, const StageFlag& flag, std::int64_t num_stages,
                                 const std::function<std::set<StageId>()>& automatic) {
  const bool exists = choice.rule == StageRule::Listed ? choice.stages.rbegin()->value() < num_stages
                                                       : std::ranges::count(flag.rules, to_text(choice.rule)) > 0;
  if (!exists) {
    reject("{} {}: expected {}, or stages of 0 to {} such as 0,1", flag.name, to_text(choice),
           fmt::join(flag.rules, ", "), num_stages - 1);
  }
  switch (choice.rule) {
    case StageRule::None:
    case StageRule::Attention: return {};
    case StageRule::Full: return all_stages(num_stages);
    case StageRule::Auto: return automatic();
    case StageRule::Listed: return choice.stages;
  }
  return {};
}

}  // namespace chimera

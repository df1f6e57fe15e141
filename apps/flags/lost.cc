#include "flags/lost.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "flags/values.h"
#include "search/extra_copies.h"

namespace chimera::apps {
namespace {

std::string summary_of(const BalancedDetours& found, double healthy, std::int64_t workers, std::size_t lost) {
  const Detours& detours = found.detours;
  const auto all = static_cast<double>(workers);
  std::string text = fmt::format(
      "at equal op times: makespan {:.6g}, {:.2f} times the healthy {:.6g} (workers / survivors: {:.2f}); the busiest "
      "survivor needs {:.6g}; {:.6g} stage units in flight\n",
      detours.makespan, detours.makespan / healthy, healthy, all / (all - static_cast<double>(lost)), detours.bound,
      detours.peak_in_flight);
  for (const ExtraCopy& copy : found.copies) {
    text += fmt::format("extra copy: stage {} on worker {}\n", copy.stage.value(), copy.worker.value());
  }
  return text;
}

}  // namespace

void LostFlags::add_to(CLI::App& app) {
  without_option = add_text(
      app, "--without", [this](const std::string& text) { without = parse_count_list("--without", text); },
      "WORKER,...", "lost workers, whose ops others run; worker w of group g is g D + w");
  add_count(app, "--extra-copies", extra_copies, "with --without: further copies of stages, to balance (default 0)");
}

Schedule LostFlags::apply_to(const Schedule& healthy, std::int64_t groups, std::string& summary) const {
  if (!is_given()) {
    if (extra_copies > 0) throw ConfigError("--extra-copies needs --without");
    return healthy;
  }
  DetourTask task{.healthy = healthy, .groups = groups, .lost = {}};
  try {
    const double makespan = make_detours(task).makespan;
    for (const std::int64_t worker : without) task.lost.emplace_back(worker);
    BalancedDetours found = balance_detours(std::move(task), extra_copies);
    summary = summary_of(found, makespan, groups * std::ssize(healthy.workers), without.size());
    return std::move(found.detours.schedule);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("--without {}: {}", fmt::join(without, ","), error.what()));
  }
}

}  // namespace chimera::apps

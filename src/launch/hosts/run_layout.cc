#include "launch/hosts/run_layout.h"

#include <algorithm>

#include "core/json.h"

namespace chimera {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunLayout, workers, data_parallel, tensor_parallel, micro_batches, mini_batch)

nlohmann::ordered_json layout_json(const RunLayout& layout) {
  return {{"data_parallel", layout.data_parallel},
          {"tensor_parallel", layout.tensor_parallel},
          {"workers", layout.workers},
          {"micro_batches", layout.micro_batches},
          {"mini_batch", layout.mini_batch}};
}

std::optional<RunLayout> parse_layout(const std::string& dry_run) {
  try {
    const auto layout = read_json(dry_run).get<RunLayout>();
    const bool is_one = std::min({layout.workers, layout.data_parallel, layout.tensor_parallel, layout.micro_batches,
                                  layout.mini_batch}) >= 1;
    return is_one ? std::optional(layout) : std::nullopt;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

// The product of micro-batches and groups stays, and with it the samples of a step: then losses and checkpoints
// continue as before. Fewer groups cost nothing but speed, fewer workers also more memory per worker, so fewer groups
// come first.
std::vector<RunLayout> smaller_layouts(const RunLayout& now, std::int64_t ranks) {
  const std::int64_t in_step = now.micro_batches * now.data_parallel;
  std::vector<RunLayout> layouts;
  const auto add = [&](std::int64_t workers, std::int64_t most_groups) {
    for (std::int64_t groups = std::min({most_groups, ranks / workers / now.tensor_parallel, in_step}); groups >= 1;
         --groups)
      if (in_step % groups == 0)
        layouts.push_back({.workers = workers,
                           .data_parallel = groups,
                           .tensor_parallel = now.tensor_parallel,
                           .micro_batches = in_step / groups,
                           .mini_batch = now.mini_batch});
  };
  add(now.workers, now.data_parallel - 1);
  for (std::int64_t workers = now.workers - 1; workers >= 1; --workers) add(workers, ranks);
  return layouts;
}

std::vector<std::string> layout_flags(const RunLayout& layout) {
  return {"--stages",        std::to_string(layout.workers),
          "--data-parallel", std::to_string(layout.data_parallel),
          "--micro-batches", std::to_string(layout.micro_batches)};
}

std::optional<LayoutReply> find_smaller_layout(const DryRun& dry_run, std::int64_t ranks) {
  const auto now = dry_run({});
  if (!now) return std::nullopt;
  std::string why = now->message;
  for (const RunLayout& layout : now->layout ? smaller_layouts(*now->layout, ranks) : std::vector<RunLayout>()) {
    const auto reply = dry_run(layout_flags(layout));
    if (!reply) return std::nullopt;
    if (reply->layout == layout) return LayoutReply{.layout = layout, .message = ""};
    if (!reply->message.empty()) why = reply->message;
  }
  return LayoutReply{.layout = {}, .message = why};
}

}  // namespace chimera

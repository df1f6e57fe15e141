#include "runtime/weight_versions.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <fmt/format.h>

#include <utility>

#include "core/invariant.h"

namespace chimera {

WeightVersions::WeightVersions(Stage& stage, std::int32_t newest) : stage_(stage), newest_(newest), in_use_(newest) {
  // variable_data(): the memory without the autograd leaf, whose data use() and update() exchange.
  Values& values = held_[newest];
  for (const Parameter& parameter : stage.parameters()) values.push_back(parameter.value.variable_data());
}

WeightVersions::Values WeightVersions::take_out_version(std::int32_t version) {
  return take_out(held_, version, [&] { return fmt::format("version {} of a stage's weights", version); });
}

void WeightVersions::use(std::int32_t version) {
  if (version == in_use_) return;
  const auto held = held_.find(version);
  if (held == held_.end()) throw InternalError(fmt::format("version {} of a stage's weights is missing", version));
  put(held->second);
  in_use_ = version;
}

void WeightVersions::drop(std::int32_t version) {
  // The optimizer reads the newest values once more, so they go only when update() replaces them.
  if (version == newest_)
    newest_is_dropped_ = true;
  else
    spare_.push_back(take_out_version(version));
}

void WeightVersions::update(const std::function<void()>& change) {
  // A newest version that no op needs any more is updated in place. Otherwise the update works on a copy, in memory of
  // a dropped version if there is any.
  Values next;
  if (newest_is_dropped_) {
    next = take_out_version(newest_);
  } else {
    const at::NoGradGuard no_grad;
    const Values& values = held_.at(newest_);
    if (spare_.empty()) {
      for (const at::Tensor& value : values) next.push_back(at::empty_like(value));
    } else {
      next = std::move(spare_.back());
      spare_.pop_back();
    }
    for (std::size_t i = 0; i < values.size(); ++i) next[i].copy_(values[i]);
  }
  newest_is_dropped_ = false;
  put(next);
  held_.emplace(++newest_, std::move(next));
  in_use_ = newest_;
  // Autograd counts changes in place, and would reject the backward of a forward that began with an older version.
  const at::AutoDispatchBelowADInplaceOrView unnoticed;
  change();
}

void WeightVersions::put(const Values& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    at::Tensor parameter = stage_.parameters()[i].value;
    // Changes the memory behind the leaf, which stays the same object for the graph, the optimizer and the stage.
    parameter.set_data(values[i]);
  }
}

}  // namespace chimera

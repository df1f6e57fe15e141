#pragma once
// The stages of one rank, owned by whoever trains them and borrowed by everything else.

#include <map>
#include <memory>

#include "engine/run_shape.h"

namespace chimera {

/// The stages that the worker holds in any replica, by id: each is what `make(StageId)` returns, a std::unique_ptr.
template <class Make>
[[nodiscard]] auto make_held_stages(const RunShape& shape, WorkerId worker, const Make& make) {
  std::map<StageId, decltype(make(StageId()))> stages;
  for (const StageId id : shape.stages_of(worker)) stages.emplace(id, make(id));
  return stages;
}

/// The same stages as pointers to `Base`.
template <class Base, class Made>
[[nodiscard]] std::map<StageId, Base*> borrow(const std::map<StageId, std::unique_ptr<Made>>& stages) {
  std::map<StageId, Base*> borrowed;
  for (const auto& [id, stage] : stages) borrowed.emplace(id, stage.get());
  return borrowed;
}

}  // namespace chimera

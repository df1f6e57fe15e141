#include "model/weight_gradients.h"

#include <utility>

namespace chimera {
namespace {

thread_local WeightGradients::Pointer current_queue;

}  // namespace

void WeightGradients::hand_over(std::function<void()> add) {
  if (deferred_) {
    kept_.push_back(std::move(add));
  } else {
    add();
  }
}

void WeightGradients::run() {
  for (auto& add : std::exchange(kept_, {})) {
    add();
    add = nullptr;  // its tensors are not needed while the next ones run
  }
}

const WeightGradients::Pointer& WeightGradients::current() { return current_queue; }

WeightGradients::Scope::Scope(Pointer queue) : before_(std::exchange(current_queue, std::move(queue))) {}

WeightGradients::Scope::~Scope() { current_queue = std::move(before_); }

}  // namespace chimera

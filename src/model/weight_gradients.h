#pragma once
// Split backward: what a linear layer leaves to do after the gradient of its input, and when that is done.

#include <ATen/core/ivalue.h>

#include <functional>
#include <vector>

namespace chimera {

/// The weight gradients that one micro-batch's backward through a stage still owes. A layer whose forward runs under a
/// Scope hands its weight gradient to that scope's queue during backward. A whole backward (B) adds each at once; an
/// input-gradient pass (I) keeps them, and W adds them later: the same computations in the same order for each
/// parameter, hence the same bits.
class WeightGradients : public torch::CustomClassHolder {
 public:
  using Pointer = c10::intrusive_ptr<WeightGradients>;

  /// From now on, keep what layers hand over until run().
  void defer() { deferred_ = true; }
  [[nodiscard]] bool is_deferred() const { return deferred_; }
  /// Runs `add` now, or keeps it. `add` adds to a parameter's gradient; it owns the tensors it needs.
  void hand_over(std::function<void()> add);
  /// Runs what was kept, in the order it came, and frees it.
  void run();
  /// Weight gradients kept.
  [[nodiscard]] std::size_t kept() const { return kept_.size(); }

  /// The queue of the forward under way on this thread; null outside any Scope.
  [[nodiscard]] static const Pointer& current();

  /// Makes `queue` the current one of this thread while it lives.
  class Scope {
   public:
    explicit Scope(Pointer queue);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Pointer before_;
  };

 private:
  bool deferred_ = false;
  std::vector<std::function<void()>> kept_;
};

}  // namespace chimera

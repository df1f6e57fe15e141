#pragma once

// Parameters that are updated together, with their gradients in one flat tensor, so that one all-reduce sums the
// gradients of the whole group over the workers that hold it. Each stage is such a group. The matrix of a tied model is
// a group of its own, because it is both the token embedding of the first stage and the output matrix of the last. If
// the workers of a group share its optimizer state (--shard-optimizer), each parameter has one of them as owner.
// owners_of() chooses owners by size; an OwnerScope can set others, such as owners by the cost of updates.

#include <ATen/core/Tensor.h>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/scoped_value.h"

namespace chimera {

/// Returns a tensor of `count` zeros. On the CPU it is in shared memory that other processes can map
/// (core/shared_memory.h); LibTorch's memory profiler counts it.
[[nodiscard]] at::Tensor shared_zeros(std::int64_t count, const at::TensorOptions& options);

struct Parameter;

/// Scope in which `owners` chooses the owner of each parameter of a group that this thread makes; an empty result
/// leaves the choice to owners_of(). An owner is the index of a worker among the workers that hold the group. The
/// parameters of such a group are sorted by owner.
class OwnerScope : ScopedValue<const OwnerScope*> {
 public:
  using Owners = std::function<std::vector<std::size_t>(const std::vector<Parameter>& parameters)>;
  explicit OwnerScope(Owners owners);

  /// Returns [parameter]: the owners that the current scope gives; empty without a scope.
  [[nodiscard]] static std::vector<std::size_t> owners(const std::vector<Parameter>& parameters);

 private:
  Owners owners_;
};

/// A leaf that requires grad. Its .grad() is a view into the flat gradients of its group.
struct Parameter {
  std::string name;  ///< global, e.g. `h.5.attn.c_attn.weight`
  at::Tensor value;
  /// With tensor parallelism, if `value` is only this rank's part of the parameter: number of elements of the whole
  /// parameter; otherwise 0
  std::int64_t whole_elements = 0;
};

/// Base class of stages and of the tied matrix.
class ParameterGroup {
 public:
  virtual ~ParameterGroup() = default;
  ParameterGroup& operator=(ParameterGroup&&) = delete;

  [[nodiscard]] const std::vector<Parameter>& parameters() const { return parameters_; }
  /// Returns the flat tensor with all gradients in the order of parameters(). Each starts at a multiple of 64 bytes;
  /// there are zeros between them.
  [[nodiscard]] at::Tensor& gradients() { return accumulators_.front(); }
  /// Returns the tensors that backwards add gradients to. The first is gradients(), and all have its size. There is
  /// more than one only if a parameter has two uses (TiedWeight).
  [[nodiscard]] const std::vector<at::Tensor>& accumulators() const { return accumulators_; }
  /// Returns [parameter]: the owners that an OwnerScope gave, ascending; empty if none did.
  [[nodiscard]] const std::vector<std::size_t>& owners() const { return owners_; }
  void zero_gradients();
  /// Adds the other accumulators to gradients(). Call it once, after a step's last backward.
  void add_accumulators();

 protected:
  /// Makes `parameters` leaves of autograd with zero gradients. They must be contiguous and of one type and device, and
  /// there must be at least one.
  explicit ParameterGroup(std::vector<Parameter> parameters, std::size_t num_accumulators = 1);

 private:
  void sort_by_owner();
  void make_gradients(std::size_t num_accumulators);

  std::vector<Parameter> parameters_;
  std::vector<at::Tensor> accumulators_;
  std::vector<std::size_t> owners_;
};

/// The matrix [V, H] that is both token embedding and output matrix of a tied model, as two leaves of autograd: they
/// share the values, but have separate gradients. A leaf is undefined if the worker does not have this use.
struct TiedLeaves {
  at::Tensor embedding;
  at::Tensor head;
};

/// Uses of the tied matrix on a worker: as embedding if it holds the first stage of a replica, as head if it holds the
/// last.
struct TiedUses {
  bool embedding = false;
  bool head = false;
  [[nodiscard]] bool any() const { return embedding || head; }
};

/// The tied matrix on one worker. Each use adds its gradients to its own accumulator (the embedding to the first), so
/// that gradients are added in the same order wherever the stages are.
class TiedWeight final : public ParameterGroup {
 public:
  /// Requires at least one of `uses`.
  TiedWeight(Parameter weight, const TiedUses& uses);
  [[nodiscard]] const TiedLeaves& leaves() const { return leaves_; }

 private:
  TiedLeaves leaves_;
};

/// Return [parameter]: its owner, 0 .. members - 1. All elements are cut into `members` equal shares in order, and the
/// worker whose share contains the middle of a parameter owns it. So owners ascend, and a worker may own nothing.
/// `sizes` are the elements of whole parameters, also with tensor parallelism. If the group has owners of an
/// OwnerScope, the second function returns these.
[[nodiscard]] std::vector<std::size_t> owners_of(const std::vector<std::int64_t>& sizes, std::size_t members);
[[nodiscard]] std::vector<std::size_t> owners_of(const ParameterGroup& group, std::size_t members);

/// Returns [owner]: the number of consecutive elements of gradients() that belong to it.
[[nodiscard]] std::vector<std::int64_t> shard_sizes(ParameterGroup& group, std::size_t members);

}  // namespace chimera

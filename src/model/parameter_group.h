#pragma once

// Parameters that are summed over workers and updated together, with their gradients in one flat tensor: one message
// or file per group instead of one per parameter. A stage is such a group, and so is the matrix of a tied model, which
// is both token embedding and output matrix and may belong to two stages. owners_of() divides a group among replicas
// that shard the optimizer's state.

#include <ATen/core/Tensor.h>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace chimera {

/// Returns `count` zeros. On the CPU, other processes can map them (core/shared_memory.h), and LibTorch's memory
/// profiler counts them.
[[nodiscard]] at::Tensor shared_zeros(std::int64_t count, const at::TensorOptions& options);

/// A leaf that requires grad. Its .grad() is a view into the flat gradients of its group.
struct Parameter {
  std::string name;  ///< global, e.g. `h.5.attn.c_attn.weight`
  at::Tensor value;
  /// Elements of the whole parameter, of which `value` is the part of one of T ranks; 0: `value` is whole
  std::int64_t whole_elements = 0;
};

class ParameterGroup {
 public:
  virtual ~ParameterGroup() = default;
  ParameterGroup(const ParameterGroup&) = delete;
  ParameterGroup& operator=(const ParameterGroup&) = delete;

  [[nodiscard]] const std::vector<Parameter>& parameters() const { return parameters_; }
  /// All gradients in the order of parameters(), each aligned to 64 bytes; zeros between them.
  [[nodiscard]] at::Tensor& gradients() { return accumulators_.front(); }
  /// Tensors that backwards accumulate into; the first is gradients(), and all have its size. There are several only
  /// for separate uses of a parameter.
  [[nodiscard]] const std::vector<at::Tensor>& accumulators() const { return accumulators_; }
  void zero_gradients();
  /// Adds the other accumulators to gradients(). Call it once, after a step's last backward.
  void add_accumulators();

 protected:
  /// Makes `parameters` (contiguous, of one type and device, at least one) leaves with zero gradients.
  explicit ParameterGroup(std::vector<Parameter> parameters, std::size_t num_accumulators = 1);

 private:
  std::vector<Parameter> parameters_;
  std::vector<at::Tensor> accumulators_;
};

/// Leaves of the matrix [V, H] that is both token embedding and output matrix of a tied model. They share its memory,
/// but have separate gradients. Undefined for uses that the worker does not have.
struct TiedLeaves {
  at::Tensor embedding;
  at::Tensor head;
};

/// Uses of the tied matrix on a worker: the first stage of some replica, or the last.
struct TiedUses {
  bool embedding = false;
  bool head = false;
  [[nodiscard]] bool any() const { return embedding || head; }
};

/// The tied matrix on one worker. Each use adds its gradients to its own accumulator (the embedding to the first), so
/// all partitions add in the same order.
class TiedWeight final : public ParameterGroup {
 public:
  /// Requires at least one of `uses`.
  TiedWeight(Parameter weight, const TiedUses& uses);
  [[nodiscard]] const TiedLeaves& leaves() const { return leaves_; }

 private:
  TiedLeaves leaves_;
};

/// Returns the owner of each parameter, given the sizes (of whole parameters, so that owners are equal on T ranks), if
/// `members` divide them: consecutive parameters, cut near equal numbers of elements. A parameter belongs to the member
/// in whose equal share its middle lies. Members may own nothing.
[[nodiscard]] std::vector<std::size_t> owners_of(const std::vector<std::int64_t>& sizes, std::size_t members);
[[nodiscard]] std::vector<std::size_t> owners_of(const ParameterGroup& group, std::size_t members);

/// Returns the number of consecutive elements of gradients() that hold each owner's parameters, [members].
[[nodiscard]] std::vector<std::int64_t> shard_sizes(ParameterGroup& group, std::size_t members);

}  // namespace chimera

#pragma once

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
};

/// Parameters that are summed over workers and updated together. Their gradients are in one flat tensor.
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

/// Returns the owner of each parameter, given the sizes, if `members` divide them: consecutive parameters, cut near
/// equal numbers of elements. A parameter belongs to the member in whose equal share its middle lies. Members may own
/// nothing.
[[nodiscard]] std::vector<std::size_t> owners_of(const std::vector<std::int64_t>& sizes, std::size_t members);
[[nodiscard]] std::vector<std::size_t> owners_of(const ParameterGroup& group, std::size_t members);

/// Returns the number of consecutive elements of gradients() that hold each owner's parameters, [members].
[[nodiscard]] std::vector<std::int64_t> shard_sizes(ParameterGroup& group, std::size_t members);

}  // namespace chimera

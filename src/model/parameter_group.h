#pragma once

#include <ATen/core/Tensor.h>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Tensors where other ranks of the host can add to them.

// Tensors that are trained together: what is summed over workers, measured and updated as one.

namespace chimera {

/// `count` zeros; on the CPU they lie in memory of their own that other processes can map (core/shared_memory.h), and
/// are reported to whoever counts LibTorch's memory.
[[nodiscard]] at::Tensor shared_zeros(std::int64_t count, const at::TensorOptions& options);

/// A tensor that is trained: a leaf that requires grad. Its .grad() is a view into the flat gradients of its group.
struct Parameter {
  std::string name;  ///< global, e.g. `h.5.attn.c_attn.weight`
  at::Tensor value;
};

/// Parameters and their gradients in one flat tensor.
class ParameterGroup {
 public:
  virtual ~ParameterGroup() = default;
  ParameterGroup(const ParameterGroup&) = delete;
  ParameterGroup& operator=(const ParameterGroup&) = delete;

  [[nodiscard]] const std::vector<Parameter>& parameters() const { return parameters_; }
  /// All gradients in one tensor, in the order of parameters(), each from a multiple of 64 bytes on; zeros between.
  [[nodiscard]] at::Tensor& gradients() { return accumulators_.front(); }
  /// The tensors that backwards accumulate into, each of the size of gradients(), which is the first of them. There is
  /// only one unless the parameters have several uses whose gradients are kept apart.
  [[nodiscard]] const std::vector<at::Tensor>& accumulators() const { return accumulators_; }
  /// Zeroes all accumulators.
  void zero_gradients();
  /// Adds the other accumulators to gradients(). To be called once, after a step's last backward.
  void add_accumulators();

 protected:
  /// Makes `parameters` (contiguous, of one type and device, at least one) leaves that require grad, with gradients of
  /// zero.
  explicit ParameterGroup(std::vector<Parameter> parameters, std::size_t num_accumulators = 1);

 private:
  std::vector<Parameter> parameters_;
  std::vector<at::Tensor> accumulators_;
};

}  // namespace chimera

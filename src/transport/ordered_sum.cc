#include "transport/ordered_sum.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace chimera {
namespace {

struct SumOperand {
  Subtree tree;
  at::Tensor tensor;
  // Example: the subtree of level 2 and index 3 has the leaves 12 to 15.
  [[nodiscard]] std::int64_t first_block() const { return tree.index << tree.level; }
};

/// Sorts the parts of all members by the first leaf of their subtrees. TreeAdder then joins neighbors as soon as both
/// halves of a node are there, so every node is added in one way, whoever holds its parts.
std::vector<SumOperand> from_left_to_right(const SumOrder& order, const std::vector<std::vector<at::Tensor>>& parts) {
  std::vector<SumOperand> all;
  for (std::size_t member = 0; member < parts.size(); ++member) {
    if (member >= order.parts.size() || parts[member].size() != order.parts[member].size())
      throw TransportError("a member's parts do not match the order of the sum");
    for (std::size_t i = 0; i < parts[member].size(); ++i) all.push_back({order.parts[member][i], parts[member][i]});
  }
  if (all.empty()) throw TransportError("there is nothing to add");
  std::sort(all.begin(), all.end(),
            [](const SumOperand& a, const SumOperand& b) { return a.first_block() < b.first_block(); });
  return all;
}

}  // namespace

at::Tensor add_in_order(const SumOrder& order, const std::vector<std::vector<at::Tensor>>& parts) {
  const at::NoGradGuard no_grad;
  // In place, so that a sum needs no memory of its own: all parts are this transport's to overwrite.
  const auto add = [](const at::Tensor& left, const at::Tensor& right) { return left.add_(right); };
  TreeAdder<at::Tensor> adder;
  for (SumOperand& part : from_left_to_right(order, parts)) adder.push(part.tree, std::move(part.tensor), add);
  return adder.total(add);
}

}  // namespace chimera

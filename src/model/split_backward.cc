#include "model/split_backward.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "model/weight_gradients.h"

namespace chimera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::variable_list;
using TensorFunction = std::function<at::Tensor(const at::Tensor&)>;

/// Which nodes of a graph lie on a way from its root to `target`.
class Path {
 public:
  Path(const std::shared_ptr<Node>& root, const Node* target) : target_(target) {
    nodes_.emplace(root.get(), Visit{root, root.get() == target});
    std::vector<std::pair<Node*, std::size_t>> stack{{root.get(), 0}};  // a node, and which of its edges is next
    while (!stack.empty()) {
      auto& [node, next] = stack.back();
      if (next < node->num_outputs()) {
        enter(node->next_edges()[next++].function, stack);
      } else {
        leave(node, stack);
      }
    }
  }

  [[nodiscard]] bool contains(const Edge& edge) const {
    return edge.is_valid() && nodes_.at(edge.function.get()).on_path;
  }

  /// Nodes of the path with an edge that leaves it, towards parameters.
  [[nodiscard]] std::vector<std::shared_ptr<Node>> feeding_parameters() const {
    std::vector<std::shared_ptr<Node>> found;
    for (const auto& [node, visit] : nodes_) {
      const auto& edges = node->next_edges();
      const bool leaves = std::ranges::any_of(edges, [&](const Edge& e) { return e.is_valid() && !contains(e); });
      if (visit.on_path && leaves) found.push_back(visit.node);
    }
    return found;
  }

 private:
  struct Visit {
    std::shared_ptr<Node> node;
    bool on_path = false;
  };

  void enter(const std::shared_ptr<Node>& node, std::vector<std::pair<Node*, std::size_t>>& stack) {
    if (!node || !nodes_.emplace(node.get(), Visit{node, node.get() == target_}).second) return;
    stack.emplace_back(node.get(), 0);
  }

  void leave(Node* node, std::vector<std::pair<Node*, std::size_t>>& stack) {
    Visit& visit = nodes_.at(node);
    for (const Edge& edge : node->next_edges()) visit.on_path = visit.on_path || contains(edge);
    stack.pop_back();
  }

  const Node* target_;
  std::unordered_map<Node*, Visit> nodes_;
};

/// Notes the gradients that arrive at a node.
struct Capture : torch::autograd::FunctionPreHook {
  explicit Capture(std::shared_ptr<variable_list> into) : gradients(std::move(into)) {}
  variable_list operator()(const variable_list& arriving) override {
    *gradients = arriving;
    return arriving;
  }
  std::shared_ptr<variable_list> gradients;
};

/// Where W starts: edges into the nodes that feed parameters, and the gradient on each.
struct Start {
  edge_list edges;
  variable_list gradients;

  void run() const {
    if (edges.empty()) return;
    torch::autograd::Engine::get_default_engine().execute(edges, gradients, /*keep_graph=*/false,
                                                          /*create_graph=*/false, /*accumulate_grad=*/true);
  }
};

/// What one forward leaves for its backward.
struct Graph {
  at::Tensor input;   // a leaf
  at::Tensor output;  // with the graph that leads to it
  WeightGradients::Pointer queue;
};

struct KeptGraph : torch::CustomClassHolder {
  Graph graph;
};

/// I: the gradient of graph.input, and what W starts from. Cuts the path behind itself, so that W does not walk it
/// again and what W does not need is freed.
std::pair<at::Tensor, Start> input_gradient(const Graph& graph, const at::Tensor& output_gradient) {
  const Edge root = torch::autograd::impl::gradient_edge(graph.output);
  if (!graph.input.requires_grad()) return {at::Tensor(), {{root}, {output_gradient}}};
  const auto leaf = torch::autograd::impl::grad_accumulator(graph.input);
  const Path path(root.function, leaf.get());
  if (!path.contains(root)) return {at::zeros_like(graph.input), {{root}, {output_gradient}}};
  const auto nodes = path.feeding_parameters();
  std::vector<std::shared_ptr<variable_list>> arrived;
  for (const auto& node : nodes) {
    arrived.push_back(std::make_shared<variable_list>());
    node->add_pre_hook(std::make_unique<Capture>(arrived.back()));
  }
  const at::Tensor gradient =
      torch::autograd::grad({graph.output}, {graph.input}, {output_gradient}, /*retain_graph=*/true)[0];
  Start start;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    nodes[i]->pre_hooks().pop_back();
    for (std::size_t k = 0; k < arrived[i]->size(); ++k) {
      if (!(*arrived[i])[k].defined()) continue;
      start.edges.emplace_back(nodes[i], static_cast<std::uint32_t>(k));
      start.gradients.push_back(std::move((*arrived[i])[k]));
    }
  }
  for (const auto& node : nodes) {
    for (Edge& edge : node->next_edges()) {
      if (path.contains(edge)) edge = Edge();
    }
  }
  return {gradient, std::move(start)};
}

/// Autograd sees one node; the graph of the function is inside it.
struct SplitFunction : torch::autograd::Function<SplitFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& /*anchor*/,
                            const TensorFunction* function) {
    auto kept = c10::make_intrusive<KeptGraph>();
    Graph& graph = kept->graph;
    {
      const at::AutoGradMode with_graph(true);
      graph.input = input.detach().requires_grad_(input.requires_grad());
      graph.output = (*function)(graph.input);
    }
    if (!graph.output.requires_grad()) {
      throw ConfigError("its output does not depend differentiably on its input or any parameter");
    }
    graph.queue = WeightGradients::current();
    at::Tensor result = graph.output.detach();
    context->saved_data["graph"] = at::IValue::make_capsule(std::move(kept));
    return result;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto kept = c10::static_intrusive_pointer_cast<KeptGraph>(context->saved_data["graph"].toCapsule());
    const Graph graph = std::exchange(kept->graph, {});
    if (!graph.queue || !graph.queue->is_deferred()) {
      torch::autograd::backward({graph.output}, {output_gradients[0]});
      const bool unused = graph.input.requires_grad() && !graph.input.grad().defined();
      return {unused ? at::zeros_like(graph.input) : graph.input.grad(), at::Tensor(), at::Tensor()};
    }
    auto [gradient, start] = input_gradient(graph, output_gradients[0]);
    graph.queue->hand_over([start = std::move(start)] { start.run(); });
    return {gradient, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor split_backward(const TensorFunction& function, const at::Tensor& input) {
  if (!at::GradMode::is_enabled()) return function(input);
  // Parameters are not among the arguments: without the anchor a first stage's output would need no gradient.
  const at::Tensor anchor = at::empty({0}).requires_grad_();
  return SplitFunction::apply(input, anchor, &function);
}

}  // namespace chimera

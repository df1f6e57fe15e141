#include "model/split_backward.h"

#include <ATen/ATen.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/autograd.h"
#include "model/linear.h"

// In op I, the engine runs from the output to the input only (a Path). The nodes of the path whose other edges lead to
// parameters are ParameterFeeders: they record the gradients that arrive (Capture). In op W, the engine starts at these
// nodes with the recorded gradients; their edges along the path are cut, so that it computes only what I has left out.
// A node that must not run twice computes everything in I, and KnownGradients replays its results in W.

namespace chimera {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using NodePointer = decltype(Edge::function);  // shared or intrusive, depending on the version of torch
using TensorFunction = std::function<at::Tensor(const at::Tensor&)>;

template <typename Made, typename... Arguments>
NodePointer make_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<NodePointer, std::shared_ptr<Node>>)
    return std::make_shared<Made>(std::forward<Arguments>(arguments)...);
  else
    return c10::make_intrusive<Made>(std::forward<Arguments>(arguments)...);
}

/// Nodes of a graph on a path from its root to `target`.
class Path {
 public:
  Path(const NodePointer& root, const Node* target) : nodes_{root} {
    on_path_[root.get()] = false;
    // The list grows in the loop. No recursion: graphs of long models would overflow the stack.
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      for (const Edge& edge : nodes_[i]->next_edges())
        if (edge.is_valid() && on_path_.try_emplace(edge.function.get(), false).second) nodes_.push_back(edge.function);
    }
    // The number of a node exceeds those of all nodes behind it, which are therefore judged before it.
    std::ranges::sort(nodes_, {}, [](const NodePointer& node) { return node->topological_nr(); });
    const auto leads_there = [this](const Edge& edge) { return contains(edge); };
    for (const NodePointer& node : nodes_)
      on_path_[node.get()] = node.get() == target || std::ranges::any_of(node->next_edges(), leads_there);
  }

  [[nodiscard]] bool contains(const Edge& edge) const { return edge.is_valid() && on_path_.at(edge.function.get()); }

  [[nodiscard]] std::vector<NodePointer> feeding_parameters() const {
    std::vector<NodePointer> found;
    for (const NodePointer& node : nodes_) {
      // An edge off the path leads to parameters (or to other leaves that need gradients).
      const auto leaves = [this](const Edge& edge) { return edge.is_valid() && !contains(edge); };
      if (on_path_.at(node.get()) && std::ranges::any_of(node->next_edges(), leaves)) found.push_back(node);
    }
    return found;
  }

 private:
  std::vector<NodePointer> nodes_;
  std::unordered_map<const Node*, bool> on_path_;
};

struct Capture : torch::autograd::FunctionPreHook {
  explicit Capture(std::shared_ptr<variable_list> into) : gradients(std::move(into)) {}
  variable_list operator()(const variable_list& arriving) override {
    // A hook sees the sum of all gradients that arrive at the node, just before the node runs.
    *gradients = arriving;
    return arriving;
  }
  std::shared_ptr<variable_list> gradients;
};

/// A Python node: autograd.Function or compiled module. Its backward always computes all gradients, and may free its
/// saved tensors. Torch does not export its type.
// By its mangled name: C++ programs do not link torch_python, which defines the class.
bool is_of_python(const Node& node) { return std::strcmp(typeid(node).name(), "N5torch8autograd6PyNodeE") == 0; }

/// Replacement for a node: returns known gradients at the node's turn in the engine's order.
struct KnownGradients : Node {
  KnownGradients(const Node& node, variable_list gradients)
      : Node(node.sequence_nr(), edge_list(node.next_edges())), gradients_(std::move(gradients)) {
    // The engine needs some gradient to start a node: a scalar that apply() ignores.
    add_input_metadata(start());
  }
  static at::Tensor start() { return at::zeros({}); }

 protected:
  variable_list apply(variable_list&& /*unused*/) override { return std::move(gradients_); }

 private:
  variable_list gradients_;
};

/// Edges into the nodes that feed parameters, and their gradients: the start of W.
struct Start {
  edge_list edges;
  variable_list gradients;

  void run() const {
    if (edges.empty()) return;
    torch::autograd::Engine::get_default_engine().execute(edges, gradients, /*keep_graph=*/false,
                                                          /*create_graph=*/false, /*accumulate_grad=*/true);
  }
};

/// The inner graph of one call of `function`, from a leaf that replaces the input. The outer graph has only
/// SplitFunction.
struct Graph {
  at::Tensor input;
  at::Tensor output;
  WeightGradients::Pointer queue;
};

/// Replacement for a node off the path: I ends here with the gradient that would have arrived at `edge`.
struct Sink : Node {
  // The engine checks what arrives against this description.
  explicit Sink(const Edge& edge) {
    const auto& metadata = edge.function->input_metadata(edge.input_nr);
    // A node that describes no input, such as one that got an undefined gradient.
    if (metadata.was_default_constructed())
      add_input_metadata(undefined_input());
    else
      add_input_metadata(metadata.zeros_like());
  }

 protected:
  variable_list apply(variable_list&& /*unused*/) override { return {}; }
};

/// Records the gradients at a node of the path in I, as the start of W.
class ParameterFeeder {
 public:
  /// Redirects a Python node, and a node with post hooks, which must run once and see all its gradients: I computes
  /// them all.
  ParameterFeeder(NodePointer node, const Path& path)
      : node_(std::move(node)), runs_again_(!is_of_python(*node_) && node_->post_hooks().empty()) {
    // Ordinary nodes compute a gradient only for edges that the engine needs: in I those of the path, in W the others.
    // They may thus run twice without doing any work twice.
    if (runs_again_)
      node_->add_pre_hook(std::make_unique<Capture>(seen_));
    else
      redirect(path);
  }

  [[nodiscard]] bool runs_again() const { return runs_again_; }
  /// Edges whose gradients I must compute.
  [[nodiscard]] const edge_list& sinks() const { return sinks_; }

  /// `sunk`: gradients of sinks().
  void finish(const Path& path, std::span<const at::Tensor> sunk, Start& start) {
    restore(sunk);
    for (Edge& edge : node_->next_edges()) {
      // W must not follow the path again, and I has freed what the nodes there had saved.
      if (path.contains(edge)) edge = Edge();
    }
    if (runs_again_) {
      forget_hooks();
      start_from_arrived(start);
    } else {
      // The node object itself may have freed its tensors, so another takes its place, with the same edges.
      start.edges.emplace_back(make_node<KnownGradients>(*node_, std::move(*seen_)), 0);
      start.gradients.push_back(KnownGradients::start());
    }
  }

 private:
  void redirect(const Path& path) {
    for (Edge& edge : node_->next_edges()) {
      if (!edge.is_valid() || path.contains(edge)) continue;
      // The engine now computes the gradient of this edge in I and hands it out, without going on to the parameter.
      sinks_.emplace_back(make_node<Sink>(edge), 0);
      redirected_.push_back(std::exchange(edge, sinks_.back()));
    }
  }

  void restore(std::span<const at::Tensor> sunk) {
    if (sinks_.empty()) return;
    edge_list& edges = node_->next_edges();
    seen_->resize(edges.size());
    // W then finds the original edges and the gradients that I computed for them.
    for (std::size_t k = 0; k < sinks_.size(); ++k) {
      const auto edge = std::ranges::find(edges, sinks_[k]);
      (*seen_)[static_cast<std::size_t>(edge - edges.begin())] = sunk[k];
      *edge = redirected_[k];
    }
  }

  /// Removes hooks that ran in I; the recorded gradients include their effect.
  void forget_hooks() {
    node_->pre_hooks().clear();
    node_->tensor_pre_hooks().clear();
    node_->retains_grad_hooks().clear();
  }

  void start_from_arrived(Start& start) {
    for (std::size_t k = 0; k < seen_->size(); ++k) {
      if (!(*seen_)[k].defined()) continue;
      start.edges.emplace_back(node_, static_cast<std::uint32_t>(k));
      start.gradients.push_back(std::move((*seen_)[k]));
    }
  }

  NodePointer node_;
  bool runs_again_;
  std::shared_ptr<variable_list> seen_ = std::make_shared<variable_list>();
  edge_list sinks_;
  edge_list redirected_;  // original edges, as in sinks_
};

/// Cuts the path, so that W does not repeat it and unneeded tensors are freed.
std::pair<at::Tensor, Start> input_gradient(const Graph& graph, const at::Tensor& output_gradient) {
  const Edge root = torch::autograd::impl::gradient_edge(graph.output);
  // A first stage: nothing to pass back, so W is the whole backward.
  if (!graph.input.requires_grad()) return {at::Tensor(), {{root}, {output_gradient}}};
  const auto leaf = torch::autograd::impl::grad_accumulator(graph.input);
  const Path path(root.function, leaf.get());
  // The output depends on parameters but not on the input.
  if (!path.contains(root)) return {at::zeros_like(graph.input), {{root}, {output_gradient}}};
  std::vector<ParameterFeeder> feeders;
  edge_list wanted;
  wanted.emplace_back(leaf, 0);
  for (const NodePointer& node : path.feeding_parameters()) {
    const edge_list& sinks = feeders.emplace_back(node, path).sinks();
    wanted.insert(wanted.end(), sinks.begin(), sinks.end());
  }
  // W runs the nodes again that compute gradients of parameters, so their saved tensors must outlive I.
  const bool keep_graph = std::ranges::any_of(feeders, [](const auto& feeder) { return feeder.runs_again(); });
  const variable_list gradients = torch::autograd::Engine::get_default_engine().execute(
      {root}, {output_gradient}, keep_graph, /*create_graph=*/false, /*accumulate_grad=*/false, wanted);
  Start start;
  std::span<const at::Tensor> sunk(gradients);
  // The first gradient is the input's; the others are those of the feeders' sinks, in their order.
  sunk = sunk.subspan(1);
  for (ParameterFeeder& feeder : feeders) {
    feeder.finish(path, sunk.first(feeder.sinks().size()), start);
    sunk = sunk.subspan(feeder.sinks().size());
  }
  return {gradients.front(), std::move(start)};
}

struct SplitFunction : torch::autograd::Function<SplitFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& /*anchor*/,
                            const TensorFunction* function) {
    Graph graph;
    {
      const at::AutoGradMode with_graph(true);
      // A leaf of the inner graph, so that both graphs can run, and be freed, separately.
      graph.input = input.detach().requires_grad_(input.requires_grad());
      graph.output = (*function)(graph.input);
    }
    graph.queue = WeightGradients::current();
    hold(context, "graph", graph);
    return graph.output.detach();
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    // Taken out, so that the graph is freed as soon as it has run.
    const Graph graph = std::exchange(held<Graph>(context, "graph"), Graph());
    if (!graph.output.requires_grad()) {  // Nothing trained, and no use of the input that has a gradient
      const at::Tensor none = graph.input.requires_grad() ? at::zeros_like(graph.input) : at::Tensor();
      return {none, at::Tensor(), at::Tensor()};
    }
    if (!graph.queue->is_deferred()) {
      torch::autograd::backward({graph.output}, {output_gradients[0]});
      // Autograd leaves the gradient undefined if the output does not depend on the input; receivers expect zeros.
      const bool unused = graph.input.requires_grad() && !graph.input.grad().defined();
      return {unused ? at::zeros_like(graph.input) : graph.input.grad(), at::Tensor(), at::Tensor()};
    }
    auto [gradient, start] = input_gradient(graph, output_gradients[0]);
    graph.queue->submit([start = std::move(start)] { start.run(); });
    return {gradient, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor split_backward(const TensorFunction& function, const at::Tensor& input) {
  if (!at::GradMode::is_enabled()) return function(input);
  // Without this argument, a first stage's output would not require grad.
  const at::Tensor anchor = at::empty({0}).requires_grad_();
  return SplitFunction::apply(input, anchor, &function);
}

}  // namespace chimera

#include "engine/muon.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "model/element_types.h"
#include "model_config/matrices.h"

// Each parameter group has MuonMatrices. If several ranks hold a group, each iterates some of its matrices (share()),
// writes the results into a flat buffer in the order of an all-gather, and gets the others by the gather. Momentum and
// weights change only in update(), after all gathers: until then, a lost rank leaves the old state, and step_alone()
// makes the same update from it.

namespace chimera {
namespace {

constexpr const char* kMomentum = "momentum";

/// The matrix of which a rank has a part.
struct WholeMatrix {
  std::int64_t out = 0;
  std::int64_t in = 0;
  std::optional<TensorCut> cut = {};  // Dimension 0: the ranks divide `out`, 1: `in`; nothing: the part is the whole
};

WholeMatrix whole_of(const Parameter& parameter, const LogicalMatrix& part) {
  if (parameter.whole_elements == 0) return {part.out, part.in};
  // The part has the same share of this dimension as of all elements, because only one dimension is cut.
  const auto whole = [&](std::int64_t size) { return size * parameter.whole_elements / parameter.value.numel(); };
  const TensorCut stored = *tensor_cut(parameter.name);
  // `out` is dimension 0 of a stored [out, in], and dimension 1 of a transposed one.
  const bool cuts_out = (stored.dimension == 1) == part.is_transposed;
  const TensorCut cut{.dimension = cuts_out ? 0 : 1, .of_heads = stored.of_heads};
  return cuts_out ? WholeMatrix{whole(part.out), part.in, cut} : WholeMatrix{part.out, whole(part.in), cut};
}

double adjustment(MuonAdjust adjust, const WholeMatrix& matrix) {
  const auto out = static_cast<double>(matrix.out);
  const auto in = static_cast<double>(matrix.in);
  return adjust == MuonAdjust::Original ? std::sqrt(std::max(1.0, out / in)) : 0.2 * std::sqrt(std::max(out, in));
}

/// Returns the matrices that Muon updates; nothing if AdamW updates the parameter.
std::vector<LogicalMatrix> matrices_of(const Parameter& parameter, const MuonOptions& options) {
  const auto is_part = [&](const std::string& part) { return parameter.name.find(part) != std::string::npos; };
  if (std::ranges::any_of(options.exclude, is_part)) return {};
  return logical_matrices(parameter.name, parameter.value.sizes().vec());
}

/// Returns the matrix within a tensor of the parameter's shape, as out x in.
at::Tensor view_of(const at::Tensor& stored, const LogicalMatrix& matrix) {
  return matrix.is_transposed ? stored.narrow(1, matrix.first, matrix.out).t()
                              : stored.narrow(0, matrix.first, matrix.out);
}

/// Matrices of parameters that are updated together.
class MuonMatrices {
 public:
  /// The rank is the `own`-th of the `members` ranks that share the iterations.
  MuonMatrices(const OptimizerOptions& options, const std::vector<Parameter>& parameters, std::size_t members,
               std::size_t own, TensorGroup* tensor)
      : momentum_(options.muon.momentum), own_(own), tensor_(tensor) {
    std::vector<double> costs;
    for (const Parameter& parameter : parameters) {
      const auto matrices = matrices_of(parameter, options.muon);
      if (matrices.empty()) continue;
      // One type for the whole group, as all its results are in one buffer.
      type_ = options.muon.iterations ? scalar_type(*options.muon.iterations) : parameter.value.scalar_type();
      state_.push_back({parameter.name, kMomentum, at::zeros_like(parameter.value.detach())});
      const at::Tensor momentum = state_.back().value;
      const bool decays = has_decay(options.decayed, parameter.name, parameter.value.dim());
      for (const LogicalMatrix& matrix : matrices) {
        const WholeMatrix whole = whole_of(parameter, matrix);
        matrices_.push_back({.parameter = parameter.value,
                             .place = matrix,
                             .whole = whole,
                             .gradient = view_of(parameter.value.grad(), matrix),
                             .momentum = view_of(momentum, matrix),
                             .decay = decays ? options.weight_decay : 0,
                             .adjustment = adjustment(options.muon.adjust, whole)});
        costs.push_back(iteration_flops(whole.out, whole.in));
      }
    }
    if (members > 1 && !matrices_.empty()) share(share_out(costs, members), members);
  }

  [[nodiscard]] const std::vector<OptimizerTensor>& state() const { return state_; }

  /// Iterates this rank's matrices and starts to gather the results; null if there is nothing to gather.
  std::unique_ptr<Pending> start(double factor, Transport& transport, ParameterGroupId id) {
    // The group is on this rank alone, or has no matrices.
    if (counts_.empty()) return nullptr;
    for (const Matrix& matrix : matrices_)
      if (matrix.member == own_) matrix.result.copy_(iterated(matrix, factor));
    return transport.start_all_gather(id, results_, counts_);
  }

  /// Updates all matrices: with the gathered results, or without other ranks (`alone`) with results of its own.
  void finish(double learning_rate, double factor, bool alone) {
    const bool is_gathered = !alone && !counts_.empty();
    for (const Matrix& matrix : matrices_)
      update(matrix, is_gathered ? matrix.result : iterated(matrix, factor), learning_rate, factor);
  }

 private:
  struct Matrix {
    at::Tensor parameter;  // Asynchronous schedules exchange its memory, so views of it must not be kept
    LogicalMatrix place;
    WholeMatrix whole;
    at::Tensor gradient;  // out x in, as `momentum`
    at::Tensor momentum;
    double decay = 0;
    double adjustment = 1;
    std::size_t member = 0;  // that iterates it
    at::Tensor result = {};  // its place in results_, in the shape of iterated(); undefined: not shared
    [[nodiscard]] at::Tensor value() const { return view_of(parameter.detach(), place); }
  };

  /// Places the results of each member one after another.
  void share(const std::vector<std::size_t>& member_of, std::size_t members) {
    std::int64_t elements = 0;
    for (const Matrix& matrix : matrices_) elements += matrix.place.count();
    results_ = at::empty({elements}, matrices_.front().gradient.options().dtype(type_));
    std::int64_t first = 0;
    // Members one after another, and within a member its matrices in order: the layout of an all-gather with counts.
    for (std::size_t member = 0; member < members; ++member) {
      const std::int64_t begin = first;
      for (std::size_t i = 0; i < matrices_.size(); ++i) {
        if (member_of[i] != member) continue;
        Matrix& matrix = matrices_[i];
        const auto [out, in] = std::pair(matrix.place.out, matrix.place.in);
        matrix.member = member;
        matrix.result = results_.narrow(0, first, out * in)
                            .view(is_turned(matrix) ? at::IntArrayRef({in, out}) : at::IntArrayRef({out, in}));
        first += matrix.place.count();
      }
      counts_.push_back(first - begin);
    }
  }

  /// Returns whether orthogonalized() transposes the matrix.
  static bool is_turned(const Matrix& matrix) { return matrix.whole.out > matrix.whole.in; }

  /// Returns this rank's part of the result, transposed if is_turned().
  [[nodiscard]] at::Tensor iterated(const Matrix& matrix, double factor) const {
    const at::Tensor gradient = factor == 1 ? matrix.gradient : matrix.gradient * factor;
    // Nesterov momentum: (1 - m) G + m B with the new B = m B + (1 - m) G, which is not stored yet.
    const at::Tensor own = gradient.lerp(matrix.momentum.lerp(gradient, 1 - momentum_), momentum_);
    if (!matrix.whole.cut) return orthogonalized(own, type_);
    const TensorCut cut = *matrix.whole.cut;
    const std::int64_t size = cut.dimension == 0 ? matrix.whole.out : matrix.whole.in;
    // All T ranks iterate the whole matrix. Iterating parts would need communication in each of the iterations.
    const at::Tensor result = orthogonalized(join_parts(own, cut, size, *tensor_), type_);
    const TensorRange range = tensor_->place().share_of(size, cut);
    return result.narrow(is_turned(matrix) ? 1 - cut.dimension : cut.dimension, range.first, range.count);
  }

  void update(const Matrix& matrix, const at::Tensor& result, double learning_rate, double factor) const {
    at::Tensor momentum = matrix.momentum;
    momentum.lerp_(factor == 1 ? matrix.gradient : matrix.gradient * factor, 1 - momentum_);
    at::Tensor value = matrix.value();
    if (matrix.decay != 0) value.mul_(1 - learning_rate * matrix.decay);
    value.add_(is_turned(matrix) ? result.t() : result, -learning_rate * matrix.adjustment);
  }

  double momentum_;
  std::size_t own_;
  TensorGroup* tensor_;  // null: matrices are whole
  at::ScalarType type_ = at::kFloat;
  std::vector<OptimizerTensor> state_;
  std::vector<Matrix> matrices_;
  at::Tensor results_;                // flat; undefined if not shared
  std::vector<std::int64_t> counts_;  // [member] elements of results_; empty: not shared
};

class Muon final : public Optimizer {
 public:
  Muon(std::vector<std::pair<ParameterGroupId, MuonMatrices>> groups, std::unique_ptr<Optimizer> others,
       Transport* transport)
      : groups_(std::move(groups)), others_(std::move(others)), transport_(transport) {}

  /// Overlaps a group's all-gather with the next group's iterations.
  void step(double learning_rate, double gradient_factor) override {
    const at::NoGradGuard no_grad;
    std::vector<std::unique_ptr<Pending>> gathers;
    if (transport_ != nullptr)
      for (auto& [id, matrices] : groups_) gathers.push_back(matrices.start(gradient_factor, *transport_, id));
    for (const auto& gather : gathers)
      if (gather) gather->wait();
    // From here on weights change. Ranks must agree that all results are there, or a survivor could not repeat the
    // update.
    if (transport_ != nullptr) transport_->confirm();
    for (auto& [id, matrices] : groups_) matrices.finish(learning_rate, gradient_factor, /*alone=*/false);
    others_->step(learning_rate, gradient_factor);
  }

  void step_alone(double learning_rate, double gradient_factor) override {
    const at::NoGradGuard no_grad;
    for (auto& [id, matrices] : groups_) matrices.finish(learning_rate, gradient_factor, /*alone=*/true);
    others_->step(learning_rate, gradient_factor);
  }

  [[nodiscard]] std::vector<OptimizerTensor> state() const override {
    std::vector<OptimizerTensor> tensors;
    for (const auto& [id, matrices] : groups_)
      tensors.insert(tensors.end(), matrices.state().begin(), matrices.state().end());
    for (OptimizerTensor& tensor : others_->state()) tensors.push_back(std::move(tensor));
    return tensors;
  }

  void set_steps(std::int64_t steps) override { others_->set_steps(steps); }

 private:
  std::vector<std::pair<ParameterGroupId, MuonMatrices>> groups_;
  std::unique_ptr<Optimizer> others_;  // AdamW
  Transport* transport_;               // null: iterations are not shared
};

std::unique_ptr<Optimizer> adamw_of_others(OptimizerOptions options, const std::vector<Parameter>& parameters) {
  std::vector<Parameter> others;
  for (const Parameter& parameter : parameters)
    if (matrices_of(parameter, options.muon).empty()) others.push_back(parameter);
  options.kind = OptimizerKind::AdamW;
  return make_optimizer(options, others);
}

}  // namespace

at::Tensor orthogonalized(const at::Tensor& matrix, at::ScalarType type) {
  constexpr double kA = 3.4445;
  constexpr double kB = -4.7750;
  constexpr double kC = 2.0315;
  constexpr double kEpsilon = 1e-7;
  constexpr int kIterations = 5;
  // The smaller dimension first: x x^T is then the smaller of the two possible products.
  const at::Tensor wide = matrix.size(0) > matrix.size(1) ? matrix.t() : matrix;
  // Contiguous for any strides of the argument, so that the products have the same bits.
  at::Tensor x = at::empty(wide.sizes(), wide.options().dtype(type)).copy_(wide);
  x.div_(x.norm().clamp_min(kEpsilon));  // So that no singular value exceeds 1
  for (int i = 0; i < kIterations; ++i) {
    // With A = x x^T: x = a x + (b A + c A^2) x. The polynomial a s + b s^3 + c s^5 moves every singular value s in (0,
    // 1] near 1.
    const at::Tensor gram = at::mm(x, x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, kB, kC), x, kA);
  }
  return x;
}

std::unique_ptr<Optimizer> make_muon(const OptimizerOptions& options, const std::vector<Parameter>& parameters,
                                     TensorGroup* tensor) {
  std::vector<std::pair<ParameterGroupId, MuonMatrices>> groups;
  groups.emplace_back(ParameterGroupId(0), MuonMatrices(options, parameters, 1, 0, tensor));
  return std::make_unique<Muon>(std::move(groups), adamw_of_others(options, parameters), nullptr);
}

std::unique_ptr<Optimizer> make_shared_muon(const OptimizerOptions& options,
                                            const std::map<ParameterGroupId, ParameterGroup*>& trained,
                                            const RankGroups& groups, RankId rank, Transport& transport,
                                            TensorGroup* tensor) {
  std::vector<std::pair<ParameterGroupId, MuonMatrices>> shared;
  std::vector<Parameter> parameters;
  for (const auto& [id, held] : trained) {
    const std::vector<RankId>& ranks = groups[id.index()];
    // Groups are in ascending order of their ids on every rank, so all start their gathers in one order.
    const auto own = static_cast<std::size_t>(std::ranges::find(ranks, rank) - ranks.begin());
    shared.emplace_back(id, MuonMatrices(options, held->parameters(), ranks.size(), own, tensor));
    parameters.insert(parameters.end(), held->parameters().begin(), held->parameters().end());
  }
  return std::make_unique<Muon>(std::move(shared), adamw_of_others(options, parameters), &transport);
}

std::vector<std::size_t> muon_owners(const OptimizerOptions& options, const std::vector<Parameter>& parameters,
                                     std::size_t members) {
  std::vector<double> costs;
  for (const Parameter& parameter : parameters) {
    double cost = 0;
    for (const LogicalMatrix& matrix : matrices_of(parameter, options.muon)) {
      const WholeMatrix whole = whole_of(parameter, matrix);
      cost += iteration_flops(whole.out, whole.in);
    }
    // Of whole parameters, so that owners are equal on T ranks
    costs.push_back(cost > 0 ? cost : static_cast<double>(std::max(parameter.whole_elements, parameter.value.numel())));
  }
  return share_out(costs, members);
}

}  // namespace chimera

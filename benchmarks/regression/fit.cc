#include "regression/fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unsupported/Eigen/NonLinearOptimization>
#include <unsupported/Eigen/NumericalDiff>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/random.h"
#include "core/signals.h"
#include "plan/predict.h"

namespace chimera {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;
using RunIndices = std::vector<std::size_t>;

constexpr double kSoft = 0.1;   // relative error from which errors count linearly
constexpr double kStep = 0.01;  // of a logarithm, for derivatives
constexpr std::uint64_t kResamples = 200;

void scale_links(LinkProfile& links, double LinkTimes::*part, double value) {
  const double old = links.between_nodes.*part;
  links.within_node.*part = old > 0 ? links.within_node.*part * value / old : value;
  links.between_nodes.*part = value;
}

/// Returns the machine's value, or a usual one instead of 0.
double start_of(const MachineProfile& machine, FitScalar scalar) {
  const auto or_usual = [](double value, double usual) { return value > 0 ? value : usual; };
  switch (scalar) {
    case FitScalar::Layers: return 1;
    case FitScalar::Sent: return or_usual(machine.point_to_point.between_nodes.beta, 1e-9);
    case FitScalar::Summed: return or_usual(machine.all_reduce.between_nodes.beta, 1e-9);
    case FitScalar::Latency: return or_usual(machine.point_to_point.between_nodes.alpha, 1e-4);
    case FitScalar::Launch: return or_usual(machine.block_launch, 1e-3);
    case FitScalar::Ranks: return or_usual(machine.sum_rank_loss, 0.1);
    case FitScalar::Overlap: return or_usual(machine.contention.sums_overlap, 0.2);
  }
  return 1;
}

/// Logarithms of predicted step times, [run], at x; x[k] - 1 is the logarithm of scalar k over its start.
using Predict = std::function<VectorXd(const VectorXd& x)>;

class FitProblem {
 public:
  FitProblem(const MachineProfile& machine, const std::vector<MeasuredRun>& runs, const std::vector<FitScalar>& scalars)
      : machine_(machine), runs_(runs), scalars_(scalars) {
    for (const MeasuredRun& run : runs) predictors_.emplace_back(run.problem);
  }

  [[nodiscard]] double value(const VectorXd& x, std::size_t k) const {
    const double value = start_of(machine_, scalars_[k]) * std::exp(x[static_cast<Eigen::Index>(k)] - 1);
    constexpr double kMaxOverlap = 0.9;
    return scalars_[k] == FitScalar::Overlap ? std::min(value, kMaxOverlap) : value;
  }

  [[nodiscard]] MachineProfile machine_at(const VectorXd& x) const {
    MachineProfile machine = machine_;
    for (std::size_t k = 0; k < scalars_.size(); ++k) machine = with_scalar(machine, scalars_[k], value(x, k));
    return machine;
  }

  [[nodiscard]] VectorXd predict(const VectorXd& x) {
    const MachineProfile machine = machine_at(x);
    VectorXd logs(static_cast<Eigen::Index>(runs_.size()));
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      throw_if_interrupted();
      predictors_[i].set_machine(machine);
      const PlannedSchedule planned = predictors_[i].prepare(runs_[i].candidate);
      logs[static_cast<Eigen::Index>(i)] = std::log(predictors_[i].step_seconds(planned, runs_[i].candidate));
    }
    return logs;
  }

 private:
  const MachineProfile& machine_;
  const std::vector<MeasuredRun>& runs_;
  const std::vector<FitScalar>& scalars_;
  std::vector<Predictor> predictors_;  // [run]; each keeps its schedule
};

/// Residuals of chosen runs for Eigen's optimizer.
struct Residuals {
  using Scalar = double;
  using InputType = VectorXd;
  using ValueType = VectorXd;
  using JacobianType = MatrixXd;
  enum { InputsAtCompileTime = Eigen::Dynamic, ValuesAtCompileTime = Eigen::Dynamic };

  const Predict& predict;
  const VectorXd& measured;
  const RunIndices& chosen;
  int scalars;

  [[nodiscard]] int inputs() const { return scalars; }
  [[nodiscard]] int values() const { return static_cast<int>(chosen.size()); }

  /// The square is quadratic for small errors and linear for large ones (soft L1).
  int operator()(const VectorXd& x, VectorXd& residuals) const {
    const VectorXd error = predict(x) - measured;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const double each = error[static_cast<Eigen::Index>(chosen[i])];
      const double relative = each / kSoft;
      residuals[static_cast<Eigen::Index>(i)] = each * std::sqrt(2 / (1 + std::sqrt(1 + relative * relative)));
    }
    return 0;
  }
};

VectorXd minimized(const Predict& predict, const VectorXd& measured, const RunIndices& chosen, VectorXd x) {
  const Residuals residuals{predict, measured, chosen, static_cast<int>(x.size())};
  Eigen::NumericalDiff<Residuals> with_slopes(residuals, kStep * kStep);
  Eigen::LevenbergMarquardt<Eigen::NumericalDiff<Residuals>> solver(with_slopes);
  solver.parameters.factor = 1;
  solver.parameters.maxfev = 200;
  solver.parameters.ftol = solver.parameters.xtol = 1e-4;
  (void)solver.minimize(x);
  return x;
}

/// Returns the tangent of `predict` at `x`.
Predict linearized(const Predict& predict, const VectorXd& x) {
  const VectorXd base = predict(x);
  MatrixXd slopes(base.size(), x.size());
  for (Eigen::Index k = 0; k < x.size(); ++k) {
    VectorXd moved = x;
    moved[k] += kStep;
    slopes.col(k) = (predict(moved) - base) / kStep;
  }
  return [base, slopes, x](const VectorXd& other) -> VectorXd { return base + slopes * (other - x); };
}

RunIndices all_but(std::size_t count, const std::function<bool(std::size_t)>& left_out) {
  RunIndices rest;
  for (std::size_t i = 0; i < count; ++i) {
    if (!left_out(i)) rest.push_back(i);
  }
  return rest;
}

double relative_error(const VectorXd& predicted, const VectorXd& measured, std::size_t run) {
  const auto i = static_cast<Eigen::Index>(run);
  return std::expm1(predicted[i] - measured[i]);
}

std::vector<double> errors_without_figures(const Predict& predict, const VectorXd& measured,
                                           const std::vector<MeasuredRun>& runs, const VectorXd& x) {
  std::set<std::string> figures;
  for (const MeasuredRun& run : runs) figures.insert(run.figure);
  if (figures.size() < 2) return {};
  std::vector<double> errors(runs.size());
  for (const std::string& figure : figures) {
    const auto is_out = [&](std::size_t i) { return runs[i].figure == figure; };
    const RunIndices rest = all_but(runs.size(), is_out);
    if (rest.size() < static_cast<std::size_t>(x.size())) return {};
    const VectorXd predicted = predict(minimized(predict, measured, rest, x));
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (is_out(i)) errors[i] = relative_error(predicted, measured, i);
    }
  }
  return errors;
}

std::vector<double> errors_without_runs(const Predict& linear, const VectorXd& measured, const VectorXd& x) {
  const auto count = static_cast<std::size_t>(measured.size());
  std::vector<double> errors;
  for (std::size_t run = 0; run < count; ++run) {
    const RunIndices rest = all_but(count, [&](std::size_t i) { return i == run; });
    errors.push_back(relative_error(linear(minimized(linear, measured, rest, x)), measured, run));
  }
  return errors;
}

/// Returns solutions for samples of the runs with replacement.
std::vector<VectorXd> resampled(const Predict& linear, const VectorXd& measured, const VectorXd& x) {
  const CounterRandom random(1, "resampled runs");
  const auto count = static_cast<std::uint64_t>(measured.size());
  std::vector<VectorXd> solutions;
  for (std::uint64_t sample = 0; sample < kResamples; ++sample) {
    RunIndices chosen;
    for (std::uint64_t i = 0; i < count; ++i) chosen.push_back(random.below(sample * count + i, count));
    solutions.push_back(minimized(linear, measured, chosen, x));
  }
  return solutions;
}

std::string unit_of(FitScalar scalar) {
  switch (scalar) {
    case FitScalar::Layers: return "factor on layer times";
    case FitScalar::Sent: return "seconds per byte sent";
    case FitScalar::Summed: return "seconds per byte summed";
    case FitScalar::Latency: return "seconds of latency of a message";
    case FitScalar::Launch: return "least seconds of a block's op";
    case FitScalar::Ranks: return "loss of all-reduces per doubling of ranks";
    case FitScalar::Overlap: return "overlap of all-reduces";
  }
  return "";
}

std::string source_of(const MachineFit& fit, std::size_t runs) {
  std::vector<std::string> values;
  for (const FittedScalar& each : fit.scalars)
    values.push_back(
        fmt::format("{} {:.4g} ({:.3g} to {:.3g})", unit_of(each.scalar), each.value, each.low, each.high));
  const bool has_figures = !fit.errors.figure_left_out.empty();
  return fmt::format(
      "Fitted by `build/benchmarks/fit` to the step times of {} runs: {}; 90 % intervals by resampling runs. Median "
      "error {:.1f} % if {} is left out of the fit: expected_error.",
      runs, fmt::join(values, ", "), 100 * fit.machine.expected_error, has_figures ? "a figure" : "a run");
}

std::string error_line(const char* what, const std::vector<double>& errors) {
  if (errors.empty()) return "";
  const ErrorSummary summary = summarize_errors(errors);
  return fmt::format("{:<28} median {:5.1f} %, worst {:5.1f} %\n", what, 100 * summary.median, 100 * summary.worst);
}

}  // namespace

MachineProfile with_scalar(MachineProfile machine, FitScalar scalar, double value) {
  switch (scalar) {
    case FitScalar::Layers:
      for (LayerTimes& layer : machine.layers) {
        for (LayerTime& time : layer.times) {
          for (double LayerTime::*part :
               {&LayerTime::forward, &LayerTime::input_gradient, &LayerTime::weight_gradient, &LayerTime::recompute})
            time.*part *= value;
        }
      }
      break;
    case FitScalar::Sent: scale_links(machine.point_to_point, &LinkTimes::beta, value); break;
    case FitScalar::Summed: scale_links(machine.all_reduce, &LinkTimes::beta, value); break;
    case FitScalar::Latency: scale_links(machine.point_to_point, &LinkTimes::alpha, value); break;
    case FitScalar::Launch: machine.block_launch = value; break;
    case FitScalar::Ranks: machine.sum_rank_loss = value; break;
    case FitScalar::Overlap: machine.contention.sums_overlap = value; break;
  }
  return machine;
}

MachineFit fit_machine(const MachineProfile& machine, const std::vector<MeasuredRun>& runs,
                       const std::vector<FitScalar>& scalars) {
  constexpr std::size_t kRunsPerScalar = 2;
  if (scalars.empty() || runs.size() < kRunsPerScalar * scalars.size()) {
    throw ConfigError(fmt::format("{} measured runs cannot fit {} scalars; expected at least {} runs for each",
                                  runs.size(), scalars.size(), kRunsPerScalar));
  }
  VectorXd measured(static_cast<Eigen::Index>(runs.size()));
  for (std::size_t i = 0; i < runs.size(); ++i) measured[static_cast<Eigen::Index>(i)] = std::log(runs[i].step_seconds);
  FitProblem problem(machine, runs, scalars);
  const Predict predict = [&](const VectorXd& x) { return problem.predict(x); };
  RunIndices all(runs.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  const VectorXd start = VectorXd::Ones(static_cast<Eigen::Index>(scalars.size()));
  const VectorXd x = minimized(predict, measured, all, start);

  const Predict linear = linearized(predict, x);
  MachineFit fit{.machine = problem.machine_at(x), .scalars = {}, .errors = {}};
  const VectorXd predicted = predict(x);
  for (std::size_t i = 0; i < runs.size(); ++i) fit.errors.fitted.push_back(relative_error(predicted, measured, i));
  fit.errors.run_left_out = errors_without_runs(linear, measured, x);
  fit.errors.figure_left_out = errors_without_figures(predict, measured, runs, x);
  const auto samples = resampled(linear, measured, x);
  for (std::size_t k = 0; k < scalars.size(); ++k) {
    std::vector<double> values;
    for (const VectorXd& sample : samples) values.push_back(problem.value(sample, k));
    std::ranges::sort(values);
    const auto quantile = [&](double q) {
      return values[static_cast<std::size_t>(q * static_cast<double>(kResamples - 1))];
    };
    fit.scalars.push_back({scalars[k], problem.value(x, k), quantile(0.05), quantile(0.95)});
  }
  const auto& left_out = fit.errors.figure_left_out.empty() ? fit.errors.run_left_out : fit.errors.figure_left_out;
  fit.machine.expected_error = std::round(1e3 * summarize_errors(left_out).median) / 1e3;
  fit.machine.sources.push_back(source_of(fit, runs.size()));
  return fit;
}

ErrorSummary summarize_errors(std::vector<double> errors) {
  if (errors.empty()) return {};
  for (double& error : errors) error = std::abs(error);
  std::ranges::sort(errors);
  return {(errors[(errors.size() - 1) / 2] + errors[errors.size() / 2]) / 2, errors.back()};
}

std::string to_text(const MachineFit& fit, const std::vector<MeasuredRun>& runs) {
  std::string text = fmt::format("{}: fitted to {} runs\n\n{:<42} {:>10}  90 % interval\n", fit.machine.name,
                                 runs.size(), "scalar", "value");
  for (const FittedScalar& each : fit.scalars) {
    text += fmt::format("{:<42} {:>10.4g}  {:.3g} to {:.3g}\n", unit_of(each.scalar), each.value, each.low, each.high);
  }
  text += "\nerrors of step times\n" + error_line("fit to all runs", fit.errors.fitted) +
          error_line("one run left out", fit.errors.run_left_out) +
          error_line("one figure left out", fit.errors.figure_left_out);
  std::map<std::string, std::vector<double>> by_figure;
  for (std::size_t i = 0; i < fit.errors.figure_left_out.size(); ++i)
    by_figure[runs[i].figure].push_back(fit.errors.figure_left_out[i]);
  for (const auto& [figure, errors] : by_figure)
    text += error_line(fmt::format("  without {}", figure).c_str(), errors);
  text += fmt::format("\n{:<64} {:>11} {:>11} {:>8} {:>9}\n", "run", "measured s", "predicted s", "error", "left out");
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const double error = fit.errors.fitted[i];
    const auto& figures = fit.errors.figure_left_out;
    const double left_out = figures.empty() ? fit.errors.run_left_out[i] : figures[i];
    const std::string figure = runs[i].figure.empty() ? "" : runs[i].figure + ": ";
    const std::string recompute = to_text(recompute_choice(runs[i].candidate));
    text += fmt::format("{:<64} {:>11.4g} {:>11.4g} {:>+6.1f} % {:>+7.1f} %\n",
                        figure + describe(runs[i].candidate) + (recompute == "none" ? "" : ", recompute " + recompute),
                        runs[i].step_seconds, runs[i].step_seconds * (1 + error), 100 * error, 100 * left_out);
  }
  return text;
}

}  // namespace chimera

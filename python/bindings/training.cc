// The Python module _training: a pipeline of Python layers on the C++ executor and transports.

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <array>
#include <cfenv>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "checkpoints.h"
#include "engine/fit.h"
#include "errors.h"
#include "schedule/schedule_json.h"
#include "transport/connection_breaker.h"
#include "transport/gloo/gloo_transport.h"
#include "transport/pairs/communicators.h"
#include "transport/pairs/pair_transport.h"
#include "transport/stream.h"
#include "transport/threads/rank_threads.h"
#include "transport/threads/thread_transport.h"
#include "user_code.h"

namespace py = pybind11;

namespace {

using namespace chimera;

/// Samples of the current step, of all groups or of one.
struct CurrentBatch {
  Batch batch;
  std::int64_t first = 0;  // Index of the first sample in the mini-batch

  [[nodiscard]] Batch part(const SampleRange& range) const {
    const auto cut = [&](const at::Tensor& all) { return all.narrow(0, range.first - first, range.count); };
    return {cut(batch.input), cut(batch.target)};
  }
};

/// The placement of stages and ranks, without layers.
class Plan {
 public:
  Plan(const std::string& schedule, std::int64_t layers, FitOptions options) {
    options.own_schedule = schedule_from_json(schedule, "schedule");
    const auto none = [](const at::Tensor& input) { return input; };
    Model model{std::vector<LayerFactory>(static_cast<std::size_t>(layers), [none] { return Layer(none); }), {}};
    model.loss.sum = [](const at::Tensor&, const at::Tensor&) { return LossSum(); };
    plan_ = prepare_fit(
        std::move(model), [](const SampleRange&) { return Batch(); }, std::move(options));
  }

  [[nodiscard]] const FitRun& get() const { return plan_; }
  [[nodiscard]] std::int64_t num_ranks() const { return plan_.num_ranks(); }
  [[nodiscard]] std::int64_t mini_batch() const { return plan_.mini_batch(); }
  [[nodiscard]] std::int64_t group(std::int64_t rank) const { return plan_.ranks.place(RankId(rank)).group.value(); }
  /// [stage]: first layer and end.
  [[nodiscard]] std::vector<std::pair<std::int64_t, std::int64_t>> stage_layers() const {
    std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
    for (std::size_t s = 0; s < plan_.ends.size(); ++s)
      ranges.emplace_back(s == 0 ? 0 : plan_.ends[s - 1], plan_.ends[s]);
    return ranges;
  }
  [[nodiscard]] std::vector<std::int64_t> stages_of(std::int64_t rank) const {
    std::vector<std::int64_t> stages;
    for (const StageId id : plan_.stages_of(plan_.ranks.place(RankId(rank)).worker)) stages.push_back(id.value());
    return stages;
  }
  /// The rank whose replica of the stage is saved and gathered.
  [[nodiscard]] std::int64_t owner(std::int64_t stage) const { return plan_.owner(StageId(stage)).value(); }
  /// Pairs of ranks that exchange messages, the lower rank first.
  [[nodiscard]] std::vector<RankPair> communicating_pairs() const { return plan_.communicating_pairs(); }
  [[nodiscard]] std::vector<std::vector<std::int64_t>> rank_groups() const {
    std::vector<std::vector<std::int64_t>> groups;
    for (const auto& members : plan_.rank_groups()) {
      auto& group = groups.emplace_back();
      for (const RankId member : members) group.push_back(member.value());
    }
    return groups;
  }
  /// Limits of thread blocks for the communicators of all ranks, of a group and of a pair, on GPUs with this number of
  /// multiprocessors.
  [[nodiscard]] std::array<int, 3> block_limits(int multiprocessors) const {
    const BlockLimits limits = chimera::block_limits({.world_size = static_cast<int>(plan_.num_ranks()),
                                                      .groups = plan_.rank_groups(),
                                                      .pairs = plan_.communicating_pairs(),
                                                      .has_early_sums = true},
                                                     multiprocessors);
    return {limits.everyone, limits.group, limits.pair};
  }
  [[nodiscard]] bool is_copied(std::int64_t stage) const { return plan_.use(StageId(stage)).replicated; }

 private:
  FitRun plan_;
};

/// The gradient that backwards of a parameter add to. Python code may replace `.grad`, its memory
/// (`Module.double()`), or set it to None, so Python gets another tensor over the same memory.
class OwnGradient {
 public:
  explicit OwnGradient(const at::Tensor& parameter) : parameter_(parameter), gradient_(parameter.grad()) {}

  /// Makes `.grad` this gradient again.
  void restore() {
    const at::Tensor& now = parameter_.grad();
    if (now.defined() && now.is_same(shown_) && now.data_ptr() == gradient_.data_ptr() &&
        now.scalar_type() == gradient_.scalar_type() && now.sizes() == gradient_.sizes() &&
        now.strides() == gradient_.strides()) {
      return;
    }
    shown_ = gradient_.detach();
    parameter_.mutable_grad() = shown_;
  }

 private:
  at::Tensor parameter_;
  at::Tensor gradient_;
  at::Tensor shown_;
};

/// Settings that each thread has for itself: intra-op threads, rounding, and flushing of denormal numbers.
class ThreadSettings {
 public:
  ThreadSettings() { std::fegetenv(&floating_point_); }
  void apply() const {
    if (at::get_num_threads() != threads_) at::set_num_threads(threads_);
    std::fesetenv(&floating_point_);
  }

 private:
  int threads_ = at::get_num_threads();
  std::fenv_t floating_point_{};
};

/// The ranks of this process: all ranks as threads, or one rank.
class Run {
 public:
  using Group = Communicators::Group;

  /// `layers`: the layers of each rank of this process, with parameters on `device`.
  Run(const Plan& plan, const std::vector<RankLayers>& layers, std::int64_t first_rank, const py::object& loss,
      const py::object& count, const at::Device& device)
      : first_rank_(first_rank), device_(device), batch_(std::make_shared<CurrentBatch>()) {
    const auto data = [batch = batch_](const SampleRange& range) { return batch->part(range); };
    for (const RankLayers& own : layers) {
      auto rank_run = std::make_unique<FitRun>(plan.get());
      rank_run->data = data;
      rank_run->model.loss = python_loss(loss, count);
      for (const auto& [index, layer] : own) {
        rank_run->model.layers[static_cast<std::size_t>(index)] = [made = made_layer(layer)] { return made; };
      }
      runs_.push_back(std::move(rank_run));
    }
    ranks_.resize(runs_.size());
    if (runs_.size() == 1 && plan.num_ranks() > 1) {
      const std::int64_t of_group = plan.get().mini_batch() / plan.get().ranks.data_parallel;
      batch_->first = plan.group(first_rank) * of_group;
    }
  }

  ~Run() { close(false); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Destroys ranks and connections, whose threads would outlive the interpreter. Waits up to three seconds for the
  /// other processes, unless this one `has_failed`.
  void close(bool has_failed) {
    const py::gil_scoped_release unlocked;
    over_ = true;
    if (has_failed) leave_in_failure();
    leave();
    threads_.reset();  // At its end a thread frees what a failed backward has left, and needs the GIL
  }

  /// Connects to the other processes over Gloo.
  void join_processes(const RendezvousPoint& rendezvous, std::int64_t world_size) {
    GlooOptions options;
    options.timeout = std::chrono::minutes(30);  // Long, because no launcher of ours detects hangs
    options.rank = static_cast<int>(first_rank_);
    options.world_size = static_cast<int>(world_size);
    options.rendezvous = rendezvous;
    options.rendezvous.listens = first_rank_ == 0 && !rendezvous.host.empty();
    options.groups = runs_.front()->rank_groups();
    options.pairs = runs_.front()->communicating_pairs();
    options.breaker = std::make_shared<ConnectionBreaker>();
    options.breaker->exclude_open();  // Of the launcher's store, and of the caller's code
    guarded([&] { transports_.push_back(connect_gloo(options)); });
    options.breaker->exclude_later();
  }

  /// Takes connected process groups. `both`: for each peer, the groups to the peer and from it (see Communicators).
  void join_groups(const Group& everyone, const std::vector<Group>& groups,
                   const std::map<int, std::pair<Group, Group>>& both, int message_blocks) {
    std::map<int, Communicators::Pair> pairs;
    for (const auto& [peer, pair] : both) pairs[peer] = {.out = pair.first, .in = pair.second};
    Communicators to{.rank = static_cast<int>(first_rank_),
                     .device = device_,
                     .pairs = pairs,
                     .groups = runs_.front()->rank_groups(),
                     .process_groups = groups,
                     .everyone = everyone,
                     .sums_in_order = runs_.front()->canonical.has_value(),
                     .message_blocks = message_blocks};
    to.end = [all = all_groups(to)](bool has_failed) {
      if (has_failed) return abort_together(all);
      for (const Group& group : all) group->shutdown();
    };
    guarded([&] { transports_.push_back(make_pair_transport(std::move(to))); });
  }

  /// Creates the stages. The first samples of the batch determine the shapes of messages. Collective, as are all
  /// functions below.
  void start(const at::Tensor& input, const at::Tensor& target) {
    batch_->batch = {input, target};
    if (transports_.empty()) {
      const int ranks = static_cast<int>(runs_.size());
      threads_ = std::make_unique<RankThreads>(ranks);
      hub_ = std::make_unique<ThreadHub>(ranks, runs_.front()->rank_groups());
      for (int r = 0; r < ranks; ++r) {
        transports_.push_back(hub_->transport(RankId(r)));
        streams_.emplace_back(device_);
      }
    }
    on_all_ranks([&](std::size_t r) {
      ranks_[r] = std::make_unique<RankFit>(*runs_[r], rank(r), *transports_[r]);
      if (complete_) ranks_[r]->complete_gradients(complete_);
    });
    for (const auto& each : ranks_) {
      for (const auto& [id, stage] : each->stages()) {
        for (const Parameter& parameter : stage->parameters()) own_.emplace_back(parameter.value);
      }
    }
  }

  /// Runs the ops of a step, or of a validation, once without messages on GPUs (RankFit::warm_up()).
  void warm_up(const at::Tensor& input, const at::Tensor& target, bool validates) {
    batch_->batch = {input, target};
    on_all_ranks([&](std::size_t r) { validates ? ranks_[r]->warm_up_validation() : ranks_[r]->warm_up(); });
  }

  /// Returns loss, gradient norm, and whether the caller must not update weights: with `skip_non_finite`, if the loss
  /// or a gradient is not finite on any rank. Clips the gradients to `clip` (0: no clipping) and leaves them for the
  /// caller's optimizer.
  /// `work`: of each micro-batch of this process, which then stand in the places where the step is fast; may be empty.
  std::tuple<double, double, bool> step(const at::Tensor& input, const at::Tensor& target, double clip,
                                        bool skip_non_finite, const std::vector<double>& work) {
    batch_->batch = {input, target};
    deal(work);
    for (OwnGradient& own : own_) own.restore();
    FitStep done;
    on_all_ranks([&](std::size_t r) {
      const auto clip_gradients = [&](double norm) {
        const double factor = clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1;  // As clip_grad_norm_ of torch
        if (factor == 1) return;
        for (const auto& [id, stage] : ranks_[r]->stages()) stage->gradients().mul_(factor);
      };
      const FitStep mine = ranks_[r]->train_step(steps_, clip_gradients, skip_non_finite);
      if (r == 0) done = mine;
    });
    ++steps_;
    return {done.loss, done.gradient_norm, done.is_skipped};
  }

  /// Calls `complete` with a stage after its last backward in a step, before its gradients are summed.
  void complete_gradients(const py::object& complete) {
    complete_ = [call = stage_function(complete)](StageId stage) { call(stage.value()); };
  }

  /// Sets FitRun::sum_targets.
  void sum_targets(const py::object& sum) {
    for (const auto& run : runs_) run->sum_targets = number_function(sum);
  }

  /// Completed steps, including those before a loaded checkpoint.
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

  double validate(const at::Tensor& input, const at::Tensor& target) {
    batch_->batch = {input, target};
    deal({});
    double loss = 0;
    on_all_ranks([&](std::size_t r) {
      const double mine = ranks_[r]->validation_loss(steps_);
      if (r == 0) loss = mine;
    });
    return loss;
  }

 private:
  void deal(const std::vector<double>& work) {
    RunShape shape = *runs_.front();
    const std::int64_t before = batch_->first / shape.samples_per_op();
    // A process has the samples of its own group only, so micro-batches do not change the group.
    if (transports_.size() == 1) shape.ranks.data_parallel = 1;
    std::vector<std::int64_t> places = fast_places(shape, work);
    for (std::int64_t& micro_batch : places) micro_batch += before;
    if (!places.empty()) places.insert(places.begin(), static_cast<std::size_t>(before), 0);  // Of other groups
    for (const auto& run : runs_) run->dealt.micro_batch_at = places;
  }

  [[nodiscard]] RankId rank(std::size_t local) const { return RankId(first_rank_ + static_cast<std::int64_t>(local)); }

  /// Runs `body` for each rank of this process. Rank threads take over the caller's thread-local modes of torch:
  /// dispatch and function modes, hooks on saved tensors, profilers; and its ThreadSettings. Data that all ranks refuse
  /// leave the run usable.
  void on_all_ranks(const std::function<void(std::size_t)>& body) {
    if (over_) throw Error("this pipeline has failed before; create a new one");
    std::vector<std::exception_ptr> refusals(runs_.size());
    const auto run = [&](std::size_t r) {
      // Keeps this thread's Python state. Otherwise a hook's last use of Python would delete it, with the exception.
      const py::gil_scoped_acquire state;
      const py::gil_scoped_release unlocked;
      try {
        body(r);
      } catch (const NoTargetsError&) {
        refusals[r] = std::current_exception();
      } catch (python_error& error) {
        error.persist();  // Python keeps it per thread
        throw;
      }
    };
    guarded([&] {
      if (!threads_) return run(0);
      const StreamMark begin(device_);
      const at::ThreadLocalState of_caller;
      const ThreadSettings settings;
      std::vector<StreamMark> ends(runs_.size());
      const auto failure = threads_->run(
          static_cast<int>(runs_.size()),
          [&](RankId each) {
            const at::ThreadLocalStateGuard modes(of_caller);
            settings.apply();
            ends[each.index()] = streams_[each.index()].run(begin, [&] { run(each.index()); });
          },
          [&](const std::string& why) { hub_->close(why); });
      if (failure) std::rethrow_exception(failure->error);
      for (const StreamMark& end : ends) end.await();
    });
    for (const std::exception_ptr& refusal : refusals) {
      if (refusal) std::rethrow_exception(refusal);
    }
  }

  /// Runs `action` without the GIL. A failure ends the run and destroys the transports, so that peers are notified.
  void guarded(const std::function<void()>& action) {
    try {
      const py::gil_scoped_release unlocked;
      try {
        action();
      } catch (...) {
        over_ = true;
        leave_in_failure();
        throw;
      }
    } catch (...) {
      raise_in_python();
    }
  }

  /// Destroys the transports during an exception, so that their destructors do not wait for peers.
  void leave_in_failure() noexcept {
    struct Leave {
      Run& run;
      ~Leave() { run.leave(); }
    };
    try {
      const Leave leave{*this};
      throw 0;
    } catch (int) {
    }
  }

  void leave() noexcept {
    ranks_.clear();
    transports_.clear();
  }

  std::int64_t first_rank_;
  at::Device device_;
  std::shared_ptr<CurrentBatch> batch_;
  std::vector<std::unique_ptr<FitRun>> runs_;  // [rank of this process]
  std::unique_ptr<RankThreads> threads_;       // If ranks are threads
  std::unique_ptr<ThreadHub> hub_;
  std::vector<SideStream> streams_;  // [rank], if ranks are threads
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<RankFit>> ranks_;
  std::vector<OwnGradient> own_;
  std::function<void(StageId)> complete_;
  std::int64_t steps_ = 0;
  bool over_ = false;
};

Plan make_plan(const std::string& schedule, std::int64_t layers, const std::vector<std::int64_t>& partition,
               std::int64_t data_parallel, std::int64_t micro_batch_size, const std::vector<std::int64_t>& recompute,
               const std::string& reduction, bool over_nccl) {
  FitOptions options;
  if (over_nccl) options.receives_ahead = kReceivesAheadOnGpus;
  options.partition = partition;
  options.data_parallel = data_parallel;
  options.micro_batch_size = micro_batch_size;
  for (const std::int64_t stage : recompute) options.recompute.stages.emplace(stage);
  if (!recompute.empty()) options.recompute.rule = StageRule::Listed;
  options.reduction = parse_named<ReductionOrder>("reduction", reduction);
  return {schedule, layers, std::move(options)};
}

/// Returns the environment variables of rank processes with GPUs, to be set before CUDA starts. `host` and `port`: the
/// rendezvous of several hosts; empty on one host.
std::map<std::string, std::string> gpu_variables(const std::string& host, std::uint16_t port) {
  try {
    std::map<std::string, std::string> variables;
    for (const VariableList& list : {cuda_variables(), nccl_variables({.host = host, .port = port})}) {
      variables.insert(list.begin(), list.end());
    }
    return variables;
  } catch (...) {
    raise_in_python();
  }
}

}  // namespace

PYBIND11_MODULE(_training, module) {
  module.doc() = "The compiled training half.";
  chimera::bind_errors(module);
  py::class_<PythonLayer>(module, "Layer")
      .def(py::init([](std::string kind, py::object call, NamedTensors parameters) {
             return PythonLayer{std::move(kind), std::move(call), std::move(parameters)};
           }),
           py::arg("kind"), py::arg("call"), py::arg("parameters"));
  py::class_<Plan>(module, "Plan")
      .def(py::init(&make_plan), py::arg("schedule"), py::arg("layers"), py::arg("partition"), py::arg("data_parallel"),
           py::arg("micro_batch_size"), py::arg("recompute"), py::arg("reduction"), py::arg("over_nccl"))
      .def_property_readonly("num_ranks", &Plan::num_ranks)
      .def_property_readonly("mini_batch", &Plan::mini_batch)
      .def_property_readonly("stage_layers", &Plan::stage_layers)
      .def("group", &Plan::group)
      .def("stages_of", &Plan::stages_of)
      .def("owner", &Plan::owner)
      .def("talking_pairs", &Plan::communicating_pairs)
      .def("rank_groups", &Plan::rank_groups)
      .def("block_limits", &Plan::block_limits)
      .def("is_copied", &Plan::is_copied);
  py::class_<Run>(module, "Run")
      .def(py::init<const Plan&, const std::vector<RankLayers>&, std::int64_t, const py::object&, const py::object&,
                    const at::Device&>(),
           py::arg("plan"), py::arg("layers"), py::arg("first_rank"), py::arg("loss"), py::arg("count"),
           py::arg("device"))
      .def("close", &Run::close, py::arg("has_failed"))
      .def("join_in_file", [](Run& run, const std::string& path,
                              std::int64_t world) { run.join_processes(file_rendezvous(path), world); })
      .def("join_at_server", [](Run& run, const std::string& host, std::uint16_t port,
                                std::int64_t world) { run.join_processes({.host = host, .port = port}, world); })
      .def("join_groups", &Run::join_groups, py::arg("everyone"), py::arg("groups"), py::arg("pairs"),
           py::arg("message_blocks"))
      .def("start", &Run::start)
      .def("warm_up", &Run::warm_up, py::arg("inputs"), py::arg("targets"), py::arg("validates"))
      .def("complete_gradients", &Run::complete_gradients, py::arg("complete"))
      .def("sum_targets", &Run::sum_targets, py::arg("sum"))
      .def("step", &Run::step, py::arg("inputs"), py::arg("targets"), py::arg("clip"), py::arg("skip_non_finite"),
           py::arg("work"))
      .def("validate", &Run::validate)
      .def_property("steps", &Run::steps, &Run::set_steps);
  module.def("gpu_variables", &gpu_variables);
  watch_draws();
  module.def("note_draw", &note_draw);
  module.def("end_watch", &end_watch);
  module.def("random_bits_in_op", &random_bits_in_op, py::arg("seed"), py::arg("layer"));
  chimera::bind_checkpoints(module);
}

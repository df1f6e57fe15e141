#include "train/loop/run.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "core/cgroup.h"
#include "core/clock.h"
#include "core/console.h"
#include "core/core_use.h"
#include "core/error.h"
#include "core/fault_point.h"
#include "core/files.h"
#include "core/json.h"
#include "core/reject.h"
#include "core/shell_words.h"
#include "hugging_face/staged_folder.h"
#include "launch/flight/hang.h"
#include "launch/local/failure_report.h"
#include "launch/local/gpu_cores.h"
#include "launch/local/process.h"
#include "runtime/gather.h"
#include "runtime/memory_meter.h"
#include "telemetry/event_file.h"
#include "telemetry/run_history.h"
#include "telemetry/speed_report.h"
#include "train/export/export_model.h"
#include "train/loop/trainer.h"
#include "train/observe/observation.h"
#include "train/observe/own_flight.h"
#include "train/observe/progress_report.h"
#include "train/observe/step_costs.h"
#include "train/observe/step_summary.h"
#include "train/recover/final_error.h"
#include "train/recover/host_watch.h"
#include "train/recover/reconnecting_transport.h"
#include "train/recover/stop_signals.h"
#include "train/setup/device.h"
#include "train/setup/job_identity.h"
#include "train/setup/job_outputs.h"
#include "train/setup/rerouted_job.h"
#include "transport/connection_breaker.h"
#include "transport/gloo/gloo_transport.h"
#include "transport/stream.h"
#include "transport/threads/rank_threads.h"

namespace chimera {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

FailureReport failure_of(const std::exception_ptr& exception, const std::string& op) {
  try {
    std::rethrow_exception(exception);
  } catch (const PeerLostError& error) {
    return {.op = op, .message = first_line(error.what()), .own_cause = false};
  } catch (const ConfigError& error) {
    return {.op = op, .message = first_line(error.what()), .usage = true};
  } catch (const FinalError& error) {
    return {.op = op, .message = first_line(error.what()), .is_final = true};
  } catch (const c10::OutOfMemoryError& error) {
    return {.op = op, .message = summarize_out_of_memory(error.what_without_backtrace())};
  } catch (const c10::Error& error) {
    return {.op = op, .message = first_line(error.what_without_backtrace())};
  } catch (const std::exception& error) {
    return {.op = op, .message = first_line(error.what())};
  }
}

/// MKL reads this at its first product. Its sums then do not depend on memory alignment.
void fix_products(bool is_canonical) {
  if (is_canonical) ::setenv("MKL_CBWR", "AUTO", /*overwrite=*/0);
}

void use_threads(const TrainOptions& options, std::int64_t local_ranks) {
  static std::once_flag once;
  std::call_once(once, [] { at::set_num_interop_threads(1); });
  at::set_num_threads(intra_op_threads(options, local_ranks));
  set_matmul_precision(options);
}

std::optional<MemoryMeter> meter_of(const OutputOptions& output, std::int64_t ranks) {
  if (output.tensor_memory.empty()) return std::nullopt;
  return std::optional<MemoryMeter>(std::in_place, static_cast<std::size_t>(ranks));
}

/// Returns the peak tensor bytes of all ranks as JSON.
std::string tensor_memory(const JobShape& job, RankId rank, Transport& transport, const MemoryMeter& meter) {
  std::vector<double> bytes;
  const double own = static_cast<double>(meter.usage(job.launched_rank(rank)).peak);
  for (const auto& peak : gather({own}, rank, job.num_ranks(), transport)) bytes.push_back(peak.front());
  return fmt::format("{{\"peak_bytes\": [{:.0f}]}}\n", fmt::join(bytes, ", "));
}

void say_saved(const std::string& folder) {
  messages().write(fmt::format("chimera: ended by a signal; step {} is saved in {}, --resume auto continues from it\n",
                               list_steps(folder).back(), folder));
}

std::optional<StopSignals> stop_signals(const std::string& folder, StopSignals::Second second) {
  if (folder.empty()) return std::nullopt;
  return std::optional<StopSignals>(std::in_place, second);
}

/// Keeps the figures of the summary for `chimera diagnose`. They must not cost the result of the training.
void write_speed(const std::string& folder, const SpeedAnalysis& report) {
  try {
    write_whole(folder + "/" + kSpeedName, json_text(to_json(report), 2) + "\n");
  } catch (const Error& error) {
    messages().write(fmt::format("chimera: {}\n", error.what()));
  }
}

int exit_code(bool is_whole) { return static_cast<int>(is_whole ? ExitCode::Success : kSavedExit); }

std::int64_t last_closed_step(const Trainer& trainer) {
  const StepPosition& position = trainer.position();
  return position.is_closed() ? position.done() : position.done() - 1;
}

/// A rank's end of the connections, for open_transport().
struct Endpoint {
  RankId rank;
  RendezvousPoint rendezvous;
  Fingerprint compared;
  std::chrono::milliseconds timeout = kGlooDefaultTimeout;
  std::chrono::milliseconds start_up_timeout = kGlooDefaultTimeout;
  std::shared_ptr<ConnectionBreaker> breaker;
};

int gpu_of(const TrainOptions& options, RankId launched) {
  return static_cast<int>(device_of(options, launched).index());
}

std::unique_ptr<Transport> open_transport(const Job& job, Endpoint end) {
  const std::vector<RankPair> pairs = communicating_pairs(job);
  if (!uses_gpu(job.options)) {
    return connect_gloo({.rank = static_cast<int>(end.rank.value()),
                         .world_size = static_cast<int>(job.num_ranks()),
                         .rendezvous = std::move(end.rendezvous),
                         .timeout = end.timeout,
                         .start_up_timeout = end.start_up_timeout,
                         .groups = job.rank_groups(),
                         .pairs = pairs,
                         .fingerprint = std::move(end.compared),
                         .breaker = std::move(end.breaker)});
  }
  return accelerator().connect({.rank = static_cast<int>(end.rank.value()),
                                .world_size = static_cast<int>(job.num_ranks()),
                                .gpu = gpu_of(job.options, job.launched_rank(end.rank)),
                                .rendezvous = std::move(end.rendezvous),
                                .groups = job.rank_groups(),
                                .pairs = pairs,
                                .sums_in_order = job.canonical.has_value(),
                                .has_early_sums = has_early_sums(job.programs.training),
                                .fingerprint = std::move(end.compared),
                                .start_up_timeout = end.start_up_timeout,
                                .timeout = end.timeout,
                                .on_group_connected = note_more_progress,
                                .breaker = std::move(end.breaker)});
}

/// Limits the delay if another rank is lost during reconnection. Communicators of GPUs take seconds each.
std::chrono::milliseconds rejoining_patience(const TrainOptions& options) {
  return uses_gpu(options) ? std::chrono::minutes(2) : std::chrono::seconds(10);
}

std::vector<RankId> ranks_of(const RankSet& set) {
  std::vector<RankId> ranks;
  for (std::size_t rank = 0; rank < set.size(); ++rank) {
    if (set.test(rank)) ranks.emplace_back(static_cast<std::int64_t>(rank));
  }
  return ranks;
}

/// The trainer of a rank in a job that continues after the loss of ranks. A loss without a replacement, and the return
/// of a rank, change the job (rerouted_job.h): the trainer ends, and the next one continues with its state. After the
/// first step of the changed job, copies of lost ranks' stages on other ranks may change it once more.
class LastingTrainer {
 public:
  /// `rank` is the launched rank.
  LastingTrainer(const Job& launched, RankId rank, ReconnectingTransport& reconnecting, std::optional<Trainer>& trainer)
      : launched_(launched),
        rank_(rank),
        reconnecting_(reconnecting),
        trainer_(trainer),
        fingerprint_(fingerprint(launched)) {}

  struct Calls {
    std::function<void()> on_change;  ///< The running ranks change; called before they connect
    std::function<void()> on_begin;   ///< The trainer has weights and is about to run
    Trainer::OnStep on_step;          ///< As for Trainer::run(), perhaps twice for a step
  };

  /// Trains all steps. Throws the trainer's errors unless a rank loss caused them.
  RunSummary run(const Calls& calls) {
    while (true) {
      try {
        join(calls);
        begin(calls);
        const auto on_step = [&](const StepMetrics& step) {
          costs_.note_step(step.step, step.step_seconds);
          calls.on_step(step);
        };
        const std::int64_t next = trainer_->position().done() + 1;
        const bool balances = rerouted_ && next < launched_.options.updates.steps;
        RunSummary summary = trainer_->run(on_step, balances ? std::optional(next) : std::nullopt);
        if (balances && trainer_->position().done() == next) {  // Else stopped by a signal
          balance(calls);
          summary = trainer_->run(on_step);
        }
        is_saved_ = trainer_->finish_checkpoints();  // A rank that is lost meanwhile is replaced
        return summary;
      } catch (const FinalError&) {
        throw;
      } catch (const PeerFinalError&) {
        throw;
      } catch (const std::exception& error) {
        if (left_at_ == 0) left_at_ = monotonic_seconds();
        if (!reconnecting_.must_leave(error, trainer_ ? trainer_->current() : "start-up")) throw;
      }
      if (trainer_) trainer_->drop_step();
      reconnecting_.leave();
    }
  }

  [[nodiscard]] bool is_saved() const { return is_saved_; }
  [[nodiscard]] const StepCosts& costs() const { return costs_; }

 private:
  void join(const Calls& calls) {
    const JoinedGeneration& next = reconnecting_.await_generation();
    RunChange change{.lost = ranks_of(next.absent), .extra_copies = next.extra_copies};
    if (change != change_) {
      change_job(std::move(change));
      calls.on_change();
    }
    connect();
  }

  void begin(const Calls& calls) {
    const auto copies = rerouted_ ? extra_copies(*rerouted_) : std::vector<GroupHolder>{};
    costs_.begin({change_.lost, copies}, trainer_->position().done() + 1,
                 left_at_ > 0 ? monotonic_seconds() - left_at_ : 0);
    left_at_ = 0;
    calls.on_begin();
  }

  /// Continues with copies of the lost ranks' stages on other ranks, if steps then take less time, and without copies
  /// that are no longer needed.
  void balance(const Calls& calls) {
    RunChange change = agree_on_copies();
    if (change == change_) return;
    left_at_ = monotonic_seconds();
    trainer_->drop_step();
    change_job(std::move(change));
    reconnecting_.reset();
    connect();
    begin(calls);
  }

  /// Rank 0 decides, because the search may take long.
  RunChange agree_on_copies() {
    std::array<double, 1 + 2 * kMaxExtraCopies> numbers{};
    if (trainer_->rank() == RankId(0)) {
      const RunChange change = balanced(launched_, change_);
      auto number = numbers.begin();
      *number++ = static_cast<double>(change.extra_copies.size());
      for (const auto& [rank, group] : change.extra_copies) {
        *number++ = static_cast<double>(rank.value());
        *number++ = static_cast<double>(group.value());
      }
    }
    reconnecting_.all_sum(numbers);
    RunChange change{.lost = change_.lost};
    for (std::size_t i = 1; std::ssize(change.extra_copies) < static_cast<std::int64_t>(numbers.front()); i += 2) {
      change.extra_copies.push_back({RankId(static_cast<std::int64_t>(numbers.at(i))),
                                     ParameterGroupId(static_cast<std::int64_t>(numbers.at(i + 1)))});
    }
    return change;
  }

  /// Connects to the other ranks, and continues with the state of the job before.
  void connect() {
    const auto& job = this->job();
    const auto& launched = job.launched_ranks;
    const RankId rank(launched.empty() ? rank_.value() : std::ranges::find(launched, rank_) - launched.begin());
    reconnecting_.join([&](const RendezvousPoint& rendezvous, const std::shared_ptr<ConnectionBreaker>& breaker,
                           bool is_first) {
      Fingerprint compared = fingerprint_;
      // Replacements have no checkpoint.
      if (!is_first) std::erase_if(compared, [](const auto& part) { return part.name == kResumeFlag; });
      return open_transport(job, {.rank = rank,
                                  .rendezvous = rendezvous,
                                  .compared = std::move(compared),
                                  .start_up_timeout = is_first ? kGlooDefaultTimeout : rejoining_patience(job.options),
                                  .breaker = breaker});
    });
    if (!trainer_ && kept_) {
      trainer_.emplace(job, rank, reconnecting_, WeightOrigin::Own, &*kept_);
    } else if (!trainer_) {
      note_progress({RankProgress::Phase::StartUp});
      trainer_.emplace(job, rank, reconnecting_,
                       reconnecting_.is_recovering() ? WeightOrigin::Replacement : WeightOrigin::Own);
    }
    kept_.reset();
    if (!reconnecting_.is_recovering()) return;
    trainer_->rejoin();
    note_progress({RankProgress::Phase::Steps, trainer_->position().done() + 1});
    std::vector<std::int64_t> groups;
    for (const auto& [holder, group] : extra_copies(job)) {
      if (holder == rank_) groups.push_back(group.value());
    }
    reconnecting_.note_resumed(trainer_->position().done(), std::move(groups));
  }

  void change_job(RunChange change) {
    if (trainer_) kept_ = trainer_->keep();
    trainer_.reset();
    rerouted_.reset();
    if (change != RunChange{}) rerouted_ = std::make_unique<Job>(rerouted_job(launched_, change));
    change_ = std::move(change);
    if (job().launched_rank(RankId(0)) == rank_)
      rewrite_flight_job(launched_.options.flight_folder(), flight_job(job(), launched_.options.planned));
  }

  [[nodiscard]] const Job& job() const { return rerouted_ ? *rerouted_ : launched_; }

  const Job& launched_;
  RankId rank_;
  ReconnectingTransport& reconnecting_;
  std::optional<Trainer>& trainer_;
  Fingerprint fingerprint_;
  RunChange change_;
  std::unique_ptr<const Job> rerouted_;  // Set if some ranks are lost, or have extra copies
  std::optional<Trainer::Kept> kept_;    // Between two trainers
  StepCosts costs_{launched_.num_ranks()};
  double left_at_ = 0;  // Time at which this rank left the unfinished step; 0: it runs
  bool is_saved_ = true;
};

/// Exports the model, and returns the folder's name. If this fails, leaves a checkpoint, because the weights cannot be
/// recomputed.
std::string export_or_save(const Trainer& trainer, bool is_saved, Transport& transport) {
  const TrainOptions& options = trainer.job().options;
  const auto save = [&] {
    std::string folder =
        options.checkpoint.folder.empty() ? options.exported.folder + ".checkpoint" : options.checkpoint.folder;
    if (!is_saved || (options.checkpoint.folder.empty() && !trainer.save_in(folder))) folder.clear();
    return folder;
  };
  try {
    return export_model(trainer.job(), trainer.model().whole_parameters(), trainer.rank(), transport);
  } catch (const PeerLostError&) {
    (void)save();
    throw;
  } catch (const std::exception& error) {
    const std::string folder = save();
    throw Error(fmt::format("--export {}: {}; {}", options.exported.folder, error.what(),
                            folder.empty()
                                ? "the last step is not saved either"
                                : fmt::format("the model is saved in {}; `chimera export {} --output DIR` exports it",
                                              folder, shell_word(folder))));
  }
}

/// Rank 0 also writes metrics, progress and summary. Returns false after a stop request that left steps undone but
/// saved. Throws the trainer's errors and stores their place in `op`. `reconnecting` may be null.
bool train_as(const Job& job, RankId rank, Transport& transport, std::optional<MemoryMeter>& meter, std::string& op,
              ReconnectingTransport* reconnecting = nullptr) {
  set_fault_rank(static_cast<int>(rank.value()));
  use_threads(job.options, job.local_ranks());
  // The recording covers the model too, so it starts before the trainer exists.
  std::optional<MemoryMeter::Recording> recording;
  if (meter) recording.emplace(*meter, rank);
  std::optional<LastingTrainer> lasting;  // Before `trainer`, which uses its job
  std::optional<Trainer> trainer;
  try {
    bool speaks = rank == RankId(0);
    std::optional<EventFile> events;
    std::optional<MetricsFile> metrics;  // Truncated only after the model exists
    std::string lines;                   // For --report, including earlier attempts
    std::optional<Progress> progress;
    std::optional<FolderHold> exported_to;
    const auto open_files = [&] {
      speaks = trainer->rank() == RankId(0);
      if (!speaks) return;
      if (!job.options.exported.folder.empty() && !exported_to) exported_to.emplace(job.options.exported.folder);
      if (!progress) progress.emplace(job.first_step, job.options.updates.steps, job.options.output.log_every);
      if (metrics || events) return;
      if (!job.options.output.report.empty())
        lines = read_kept_lines(job.options.output.metrics, last_closed_step(*trainer));
      if (!job.options.output.tensorboard.empty())
        events.emplace(job.options.output.tensorboard, last_closed_step(*trainer) + 1);
      if (!job.options.output.metrics.empty()) metrics.emplace(job.options.output.metrics, last_closed_step(*trainer));
    };
    bool has_warned = false;
    std::int64_t spoken = 0;  // Last reported step
    // After a change of the running ranks, another rank may write. Opening drops the line of the last step, which the
    // trainer closes again, so it is reported again.
    const auto close_files = [&] {
      spoken = 0;
      metrics.reset();
      events.reset();
      progress.reset();
      exported_to.reset();
    };
    RemainingTime pace(job.options.updates.steps);
    auto last = std::chrono::steady_clock::now();
    const auto on_step = [&](StepMetrics step) {
      const auto now = std::chrono::steady_clock::now();
      step.time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
      step.seconds_left = pace.seconds_left(step.step, std::chrono::duration<double>(now - last).count());
      last = now;
      if (!speaks || step.step <= spoken) return;
      spoken = step.step;
      if (job.peak_flops > 0) step.utilization = step_flops(job, job.options) / step.step_seconds / job.peak_flops;
      if (step.utilization > 1 && !std::exchange(has_warned, true))
        messages().write(fmt::format("chimera: an MFU above 100 % is impossible: {}\n", kWrongPeak));
      if (metrics) metrics->write(step);
      if (!job.options.output.report.empty()) lines += to_json_line(step);
      if (events) events->write(step);
      progress->show(step);
    };
    RunSummary run;
    if (reconnecting != nullptr) {
      lasting.emplace(job, rank, *reconnecting, trainer);
      run = lasting->run({.on_change = close_files, .on_begin = open_files, .on_step = on_step});
      note_progress({RankProgress::Phase::Ending});  // Ranks lost from now on are not replaced
    } else {
      trainer.emplace(job, rank, transport);
      open_files();
      trainer->trace(job.options.output.observes());
      run = trainer->run(on_step);
    }
    // Everything below only reports. An error there must not cost the result of the training.
    // Checkpoint and model first: they cannot be recomputed.
    const bool is_saved = lasting ? lasting->is_saved() : trainer->finish_checkpoints();
    const Job& final_job = trainer->job();  // With other ranks than `job` if some are lost
    std::string exported;
    if (run.is_whole && !job.options.exported.folder.empty()) exported = export_or_save(*trainer, is_saved, transport);
    if (const Tracer* tracer = run.steps > 0 ? trainer->tracer() : nullptr) {
      const auto recorded = gather_steps(job, job.options.device.transport, rank, transport, *tracer);
      if (speaks) write_observations(job, recorded, run, lines);
    }
    if (meter) {
      const std::string text = tensor_memory(final_job, trainer->rank(), transport, *meter);
      if (speaks) write_final_output(job.replaces_outputs(), "--tensor-memory", job.options.output.tensor_memory, text);
    }
    if (speaks && run.steps > 0) {
      output().write(speed_summary(final_job, run, available_cores()));
      if (!job.options.checkpoint.folder.empty() && !uses_gpu(job.options)) {
        write_speed(job.options.checkpoint.folder,
                    analyze_speed(final_job, job.options.planned, run, available_cores()));
      }
    }
    if (speaks && lasting) output().write(lasting->costs().describe());
    if (metrics) metrics->finish();
    if (events) events->finish();
    if (!is_saved) {
      throw Error(fmt::format("--checkpoint {}: the last step is not saved", job.options.checkpoint.folder));
    }
    note_progress({RankProgress::Phase::Ending});
    if (speaks && run.is_whole) output().write(end_of_run_text(job, exported));
    if (speaks && !run.is_whole) say_saved(job.options.checkpoint.folder);
    return run.is_whole;
  } catch (const ConfigError& error) {
    op = trainer ? trainer->current() : "start-up";
    if (!trainer || !trainer->position().is_closed()) throw;
    throw Error(error.what());  // Such as a full disk: after the training, no flag is to blame
  } catch (...) {
    op = trainer ? trainer->current() : "start-up";
    throw;
  }
}

/// Timeout with another launcher: nothing identifies a live rank that blocks the others.
constexpr std::chrono::milliseconds kPlacedPatience = std::chrono::minutes(30);

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

/// Threads that start later, those of c10d and NCCL too, inherit the cores.
void bind_near_gpu(const TrainOptions& options, RankId launched) {
  if (!uses_gpu(options)) return;
  const int gpu = gpu_of(options, launched);
  (void)bind_to_cores(cores_near(accelerator().traits(gpu).pci));
}

/// Connects a rank of a job that ends if a rank is lost.
std::unique_ptr<Transport> connect_once(const Job& job, const RankEnvironment& rank) {
  note_progress({RankProgress::Phase::Joining});
  // A failed rank of Gloo stays until the culprit is known, but peers must notice at once.
  const bool breaks = rank.placed && !uses_gpu(job.options);
  return open_transport(
      job, {.rank = RankId(rank.rank),
            .rendezvous = rank.rendezvous,
            .compared = fingerprint(job),
            .timeout = rank.placed ? kPlacedPatience : kGlooDefaultTimeout,
            .start_up_timeout = rank.placed || rank.remote ? milliseconds(job.options.recovery.rendezvous_seconds)
                                                           : kGlooDefaultTimeout,
            .breaker = breaks ? std::make_shared<ConnectionBreaker>() : nullptr});
}

}  // namespace

int run_threads(const Job& job) {
  fix_products(job.canonical.has_value());
  const std::string flight = job.options.flight_folder();
  begin_own_flight(flight, flight_job(job, job.options.planned));
  const auto begin = sample_core_use();
  const auto ranks = static_cast<int>(job.num_ranks());
  std::vector<std::string> ops(static_cast<std::size_t>(ranks));  // [rank]
  std::optional<MemoryMeter> meter = meter_of(job.options.output, job.num_ranks());
  std::atomic<bool> is_whole = true;
  const auto signals = stop_signals(job.options.checkpoint.folder, StopSignals::Second::EndsProcess);
  // No launcher watches thread ranks, so this process detects its own hangs.
  ThreadHangWatch watch(ranks, milliseconds(job.options.recovery.hang_seconds),
                        milliseconds(job.options.recovery.hang_seconds_at_start()), !uses_gpu(job.options),
                        job.options.numbers.cuda_graphs);
  const auto failed = try_rank_threads(ranks, job.rank_groups(), [&](RankId rank, Transport& transport) {
    const ThreadHangWatch::Rank watched(watch, static_cast<int>(rank.value()));
    const FlightRecordingScope recorded(flight, static_cast<int>(rank.value()));
    const PooledStreamGuard stream(device_of(job.options, rank));
    if (!train_as(job, rank, transport, meter, ops[rank.index()])) is_whole = false;
  });
  if (!failed) {
    end_own_flight(flight, std::nullopt);
    finish_output(kDrainAfterSuccess);
    return exit_code(is_whole);
  }
  FailureReport failure = failure_of(failed->error, ops[failed->rank.index()]);
  failure.rank = static_cast<int>(failed->rank.value());
  const std::string reason = describe_failure(failure.rank, {.report = failure, .ending = {}});
  messages().write("chimera: " + reason + "\n");
  end_own_flight(flight, FlightVerdict{.reason = reason,
                                       .culprit = failure.rank,
                                       .op = failure.op,
                                       .nanoseconds = monotonic_nanoseconds(),
                                       .others_share = load_of_others_since(begin)});
  messages().drain(kDrainAfterFailure);
  return static_cast<int>(ExitCode::No);
}

int run_rank(const Job& job, RankEnvironment rank) {
  fix_products(job.canonical.has_value());
  const std::string flight = job.options.flight_folder();
  std::string op = "start-up";
  if (rank.placed && rank.rank == 0) begin_own_flight(flight, flight_job(job, job.options.planned));
  std::unique_ptr<Heartbeats> heartbeats;
  std::optional<int> told;  // of a reported failure
  const auto tell = [&] {
    const FailureReport failure = failure_of(std::current_exception(), op);
    if (heartbeats) heartbeats->leave();
    report_failure(failure);
    return static_cast<int>(exit_code_of(failure));
  };
  try {
    // Another launcher decides how many processes it starts, and knows nothing of the options.
    if (rank.world_size != job.num_ranks()) {
      reject("this rank's options make a job of {} ranks, but {} were started", job.num_ranks(), rank.world_size);
    }
    bool is_whole = true;
    bind_near_gpu(job.options, RankId(rank.rank));
    std::optional<FlightRecordingScope> recorded;
    if (!rank.placed) recorded.emplace(flight, rank.rank);
    {
      std::optional<ReconnectingTransport> reconnecting;
      std::unique_ptr<Transport> connected;
      if (rank.orders) {
        reconnecting.emplace(rank);
      } else {
        connected = connect_once(job, rank);
      }
      Transport& transport = reconnecting ? static_cast<Transport&>(*reconnecting) : *connected;
      if (rank.placed) recorded.emplace(flight, rank.rank);  // Rank 0 has created the folder
      rank.rendezvous_file.reset();
      // The rendezvous has timeouts of its own. From here on, a silent host would block all others.
      if (job.options.recovery.hang_seconds > 0) heartbeats = watch_hosts(rank, transport);
      note_progress({RankProgress::Phase::StartUp});
      std::optional<MemoryMeter> meter = meter_of(job.options.output, job.num_ranks());
      // Static: a signal during process exit must not cause a failure.
      static auto signals = stop_signals(job.options.checkpoint.folder,
                                         rank.placed ? StopSignals::Second::EndsProcess : StopSignals::Second::Nothing);
      try {
        const PooledStreamGuard stream(device_of(job.options, RankId(rank.rank)));
        is_whole = train_as(job, RankId(rank.rank), transport, meter, op, reconnecting ? &*reconnecting : nullptr);
      } catch (...) {
        // Reports first, because NCCL's shutdown may take long without peers.
        if (uses_gpu(job.options)) told = tell();
        throw;
      }
      if (rank.placed) {  // A launcher may kill others after the first kSavedExit
        if (signals) signals->ignore_all();
        std::array<double, 1> nothing{};
        transport.all_sum(nothing);  // Barrier: no rank exits before all are done
      }
      heartbeats.reset();
    }
    op = "its end";
    if (rank.placed && rank.rank == 0) end_own_flight(flight, std::nullopt);
    finish_output(kDrainAfterSuccess);
    return exit_code(is_whole);
  } catch (...) {
    return told ? *told : tell();
  }
}

}  // namespace chimera

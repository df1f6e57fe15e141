#include "train/loop/run.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <sstream>

#include "checkpoint/checkpoint_folder.h"
#include "core/cgroup.h"
#include "core/clock.h"
#include "core/console.h"
#include "core/core_use.h"
#include "core/fault_point.h"
#include "core/file_descriptor.h"
#include "core/files.h"
#include "core/json.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "core/shell_words.h"
#include "hugging_face/staged_folder.h"
#include "launch/flight/hang.h"
#include "launch/local/failure_report.h"
#include "launch/local/gpu_cores.h"
#include "launch/local/place.h"
#include "launch/local/process.h"
#include "rendezvous/address.h"
#include "rendezvous/heartbeats.h"
#include "runtime/gather.h"
#include "runtime/memory_meter.h"
#include "telemetry/speed_report.h"
#include "train/export/export_model.h"
#include "train/loop/run_outputs.h"
#include "train/loop/trainer.h"
#include "train/loop/trainer_handover.h"
#include "train/observe/observation.h"
#include "train/observe/progress_report.h"
#include "train/observe/step_summary.h"
#include "train/recover/final_error.h"
#include "train/recover/stop_signals.h"
#include "train/setup/device.h"
#include "train/setup/dry_run.h"
#include "train/setup/job_identity.h"
#include "train/setup/job_outputs.h"
#include "transport/connection_breaker.h"
#include "transport/stream.h"
#include "transport/threads/rank_threads.h"

// The ranks of a run, as threads of one process (run_threads()) or as this process (run_rank()). Both call train_as(),
// which trains and then writes what a run leaves behind, in the order of what can be replaced least: checkpoint, model,
// records, summary. Errors become a FailureReport with the op in which they happened; in a process, it goes to the
// launcher, which decides what the run's reason to end was.

namespace chimera {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// Returns what needs the memory of a rank, for its out-of-memory error.
std::string holders_of(const Job& job, std::size_t rank) {
  constexpr double kAnySpeed = 1e12;
  const Forecast all = forecast(job, machine_at(kAnySpeed, job, job.options));
  return holders_text(all.ranks.at(rank), all.reserved);
}

FailureReport failure_of(const std::exception_ptr& exception, const std::string& op, const Job& job, RankId rank) {
  try {
    std::rethrow_exception(exception);
  } catch (const PeerLostError& error) {
    return {.op = op, .message = first_line(error.what()), .own_cause = false};
  } catch (const ConfigError& error) {
    return {.op = op, .message = first_line(error.what()), .usage = true};
  } catch (const FinalError& error) {
    return {.op = op, .message = first_line(error.what()), .is_final = true};
  } catch (const c10::OutOfMemoryError& error) {
    return {.op = op,
            .message = summarize_out_of_memory(error.what_without_backtrace()) + "; " + holders_of(job, rank.index())};
  } catch (const std::exception& error) {  // The first line has no backtrace of c10
    return {.op = op, .message = first_line(error.what())};
  }
}

/// MKL reads this at its first product. Its sums then do not depend on memory alignment.
void fix_products(bool is_canonical) {
  if (is_canonical) ::setenv("MKL_CBWR", "AUTO", /*overwrite=*/0);
}

void use_threads(const TrainOptions& options, std::int64_t local_ranks) {
  static std::once_flag once;
  // LibTorch takes this number only once in a process, and thread ranks all come here.
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
  const double own = static_cast<double>(meter.usage(job.launched_rank(rank)).peak);
  const auto bytes = gather({own}, rank, job.num_ranks(), transport);
  return fmt::format("{{\"peak_bytes\": [{:.0f}]}}\n",
                     fmt::join(mapped(bytes, [](const auto& peak) { return peak.front(); }), ", "));
}

std::optional<StopSignals> stop_signals(const std::string& folder, StopSignals::Second second) {
  if (folder.empty()) return std::nullopt;
  return std::optional<StopSignals>(std::in_place, second);
}

/// Keeps the figures of the summary for `chimera diagnose`. They must not cost the result of the training.
void write_speed(const std::string& folder, const SpeedAnalysis& report) {
  try {
    write_whole(folder + "/" + kSpeedName, json_report(to_json(report)));
  } catch (const Error& error) {
    print_message("{}", error.what());
  }
}

int exit_code(bool is_whole) { return static_cast<int>(is_whole ? ExitCode::Success : kSavedExit); }

/// Exports the model, and returns the folder's name. If this fails, leaves a checkpoint, because the weights cannot be
/// recomputed.
std::string export_or_save(const Trainer& trainer, bool is_saved, Transport& transport) {
  const TrainOptions& options = trainer.job().options;
  const auto save = [&]() -> std::string {
    const std::string& folder = options.checkpoint.folder;
    if (!folder.empty()) return is_saved ? checkpoint_path(folder, options.updates.steps) : "";
    try {
      return trainer.save_in(options.exported.folder + ".checkpoint");
    } catch (const std::exception& error) {  // The run ends by the error of the export
      print_message("{}", error.what());
      return "";
    }
  };
  try {
    return export_model(trainer.job(), trainer.model().whole_parameters(), trainer.rank(), transport);
  } catch (const PeerLostError& error) {
    if (dynamic_cast<const PeerFinalError*>(&error) != nullptr) (void)save();
    throw;
  } catch (const std::exception& error) {
    const std::string saved = save();
    throw FinalError(fmt::format("--export {}: {}; {}", options.exported.folder, error.what(),
                                 saved.empty() ? "the last step is not saved either"
                                               : fmt::format("the model is saved in {}; `chimera export {} --output "
                                                             "DIR` exports it",
                                                             saved, shell_word(saved))));
  }
}

/// Rank 0 also writes metrics, progress and summary. Returns false after a stop request that left steps undone but
/// saved. Throws the trainer's errors and stores their place in `op`. `reconnecting` may be null.
bool train_as(const Job& job, RankId rank, Transport& transport, std::optional<MemoryMeter>& meter, std::string& op,
              ReconnectingTransport* reconnecting = nullptr) {
  fault_rank() = static_cast<int>(rank.value());
  use_threads(job.options, job.local_ranks());
  // The recording covers the model too, so it starts before the trainer exists.
  std::optional<MemoryMeter::Recording> recording;
  if (meter) recording.emplace(*meter, rank);
  std::optional<TrainerHandover> lasting;  // Before `trainer`, which uses its job
  std::optional<Trainer> trainer;
  try {
    RunOutputs outputs(job.options);
    RunSummary run;
    bool is_saved = true;
    std::string exported;
    // A run that a signal has ended exports nothing: its model is not the one that was asked for.
    const auto export_whole = [&] {
      if (!job.options.exported.folder.empty()) exported = export_or_save(*trainer, is_saved, transport);
    };
    if (reconnecting != nullptr) {
      lasting.emplace(job, rank, *reconnecting, trainer, outputs);
      run = lasting->run(is_saved, export_whole);
      note_progress({RankProgress::Phase::Ending});  // Ranks lost from now on are not replaced
    } else {
      trainer.emplace(job, rank, transport);
      outputs.open(*trainer);
      trainer->trace(job.options.output.observes());
      run = trainer->run([&](const StepMetrics& step) { outputs.note_step(step); });
      // Checkpoint and model first: they cannot be recomputed.
      is_saved = trainer->finish_checkpoints();
      note_progress({RankProgress::Phase::Ending});
      if (run.is_whole) export_whole();
    }
    // Everything below only reports. An error there must not cost the result of the training.
    const Job& final_job = trainer->job();  // With other ranks than `job` if some are lost
    const bool speaks = outputs.speaks();
    if (const Tracer* tracer = run.steps > 0 ? trainer->tracer() : nullptr) {
      const auto recorded = gather_steps(final_job, job.options.device, trainer->rank(), transport, *tracer);
      if (speaks) write_observations(final_job, recorded, run, outputs.lines());
    }
    if (meter) {
      const std::string text = tensor_memory(final_job, trainer->rank(), transport, *meter);
      if (speaks) write_final_output(job.replaces_outputs(), "--tensor-memory", job.options.output.tensor_memory, text);
    }
    if (speaks && run.steps > 0) {
      output().write(speed_summary(final_job, job.options, run, available_cores()));
      if (!job.options.checkpoint.folder.empty() && !job.options.numbers.cuda_graphs) {
        write_speed(job.options.checkpoint.folder,
                    analyze_speed(final_job, job.options.planned, run, available_cores()));
      }
    }
    if (speaks && lasting) output().write(lasting->costs().describe());
    outputs.finish();
    if (!is_saved)
      throw Error(fmt::format("--checkpoint {}: the last step is not saved", job.options.checkpoint.folder));
    note_progress({RankProgress::Phase::Ending});
    if (speaks && run.is_whole) output().write(end_of_run_text(job, exported));
    if (speaks && !run.is_whole) {
      const std::string& folder = job.options.checkpoint.folder;
      print_message("ended by a signal; step {} is saved in {}, --resume auto continues from it",
                    list_steps(folder).back(), folder);
    }
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

/// Threads that start later, those of c10d and NCCL too, inherit the cores.
void bind_near_gpu(const TrainOptions& options, RankId launched) {
  if (!uses_gpu(options)) return;
  const int gpu = device_of(options, launched).index();
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
            .start_up_timeout = rank.placed || rank.remote ? to_milliseconds(job.options.recovery.rendezvous_seconds)
                                                           : kGlooDefaultTimeout,
            .breaker = breaks ? std::make_shared<ConnectionBreaker>() : nullptr});
}

/// Exits at once. Only rank 0, or a rank per host if rank 0 is silent, prints the reason.
void end_for_silence(int rank, const std::string& reason, bool own) {
  const auto place = find_place(own_variables());
  if (own && (rank == 0 || (place && place->local_rank == 0))) {
    print_message(reason);
    messages().drain(kDrainAfterFailure);
  }
  ::_exit(static_cast<int>(ExitCode::PeerLost));
}

/// Starts heartbeats, which detect dead hosts in a job that another launcher has started, such as torchrun: a host that
/// loses power closes no connection, and Gloo would wait for it forever. They run until the result is destroyed.
/// Collective; all ranks call it after they have connected. If a rank is silent, this process exits at once with
/// ExitCode::PeerLost. `keeps_connections` says that the transport (as Gloo, unlike NCCL) closes no TCP connection that
/// is open now. If one closes nevertheless, and the rank does not fail within 2.5 s, it waits in vain, and the job ends
/// as for a silent rank. Returns null if heartbeats are not needed: on one host, and with the launcher of chimera.
std::unique_ptr<Heartbeats> watch_hosts(const RankEnvironment& rank, Transport& transport, bool keeps_connections) {
  // Our launcher sees its processes die, and a run on one host ends with the host.
  if (!rank.placed || rank.rendezvous.host.empty()) return nullptr;
  HeartbeatOptions options{.rank = rank.rank, .secret = rank.rendezvous.secret, .on_silence = {}};
  options.on_silence = [rank = rank.rank](const std::string& reason, bool own) { end_for_silence(rank, reason, own); };
  if (keeps_connections) {
    options.has_lost_connection = [open = open_tcp_connections()] {
      return !std::ranges::includes(open_tcp_connections(), open);
    };
  }
  // Rank 0 listens for the heartbeats of all others, and tells them its port over the connections that exist already.
  FileDescriptor socket;
  std::string own;  // Rank 0: port and address
  if (rank.rank == 0) {
    const std::string address = own_address(rank.rendezvous);
    socket = Heartbeats::socket_at(address);
    own = fmt::format("{} {}", Heartbeats::port_of(socket), address);
  }
  std::istringstream told(gather_texts(own, RankId(rank.rank), rank.world_size, transport).front());
  if (rank.rank == 0) return std::make_unique<Heartbeats>(std::move(socket), std::move(options));
  std::uint16_t port = 0;
  std::string address;
  told >> port >> address;
  return std::make_unique<Heartbeats>(address, port, std::move(options));
}

/// Scope in which the activities of the calling thread are recorded as activities of `rank`. Here and below, `folder`
/// is TrainOptions::flight_folder(); empty: nothing is recorded.
class FlightRecordingScope {
 public:
  FlightRecordingScope(const std::string& folder, int rank) {
    const auto record = [&] {
      recorder_.emplace(flight_path(folder, rank));
      set_flight_recorder(&*recorder_);
    };
    try_flight(folder, record, fmt::format("rank {}: ", rank));
  }
  FlightRecordingScope& operator=(FlightRecordingScope&&) = delete;
  ~FlightRecordingScope() { set_flight_recorder(nullptr); }

 private:
  std::optional<FlightRecorder> recorder_;
};

/// Writes the verdict. If there is none, because the run has succeeded, removes the folder.
void end_own_flight(const std::string& folder, const std::optional<FlightVerdict>& verdict) {
  try_flight(folder, [&] { verdict ? write_verdict(folder, *verdict) : remove_flight(folder); });
}

}  // namespace

int run_threads(const Job& job) {
  fix_products(job.canonical.has_value());
  const std::string flight = job.options.flight_folder();
  try_flight(flight, [&] { begin_flight(flight, flight_job(job, job.options.planned)); });
  const auto begin = sample_core_use();
  const auto ranks = static_cast<int>(job.num_ranks());
  std::vector<std::string> ops(static_cast<std::size_t>(ranks));  // [rank]
  std::optional<MemoryMeter> meter = meter_of(job.options.output, job.num_ranks());
  std::atomic<bool> is_whole = true;
  const auto signals = stop_signals(job.options.checkpoint.folder, StopSignals::Second::EndsProcess);
  // No launcher watches thread ranks, so this process detects its own hangs.
  ThreadHangWatch watch(ranks, to_milliseconds(job.options.recovery.hang_seconds),
                        to_milliseconds(job.options.recovery.hang_seconds_at_start()), !uses_gpu(job.options),
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
  FailureReport failure = failure_of(failed->error, ops[failed->rank.index()], job, failed->rank);
  failure.rank = static_cast<int>(failed->rank.value());
  const std::string reason = describe_failure(failure.rank, {.report = failure, .ending = {}});
  print_message(reason);
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
  if (rank.placed && rank.rank == 0)
    try_flight(flight, [&] { begin_flight(flight, flight_job(job, job.options.planned)); });
  std::unique_ptr<Heartbeats> heartbeats;
  std::optional<int> told;  // of a reported failure
  const auto tell = [&] {
    const FailureReport failure = failure_of(std::current_exception(), op, job, RankId(rank.rank));
    if (heartbeats) heartbeats->leave();
    report_failure(failure);
    return static_cast<int>(exit_code_of(failure));
  };
  try {
    // Another launcher decides how many processes it starts, and knows nothing of the options.
    if (rank.world_size != job.num_ranks())
      reject("this rank's options make a job of {} ranks, but {} were started", job.num_ranks(), rank.world_size);
    bool is_whole = true;
    bind_near_gpu(job.options, RankId(rank.rank));
    std::optional<FlightRecordingScope> recorded;
    if (!rank.placed) recorded.emplace(flight, rank.rank);
    {
      std::optional<ReconnectingTransport> reconnecting;
      std::unique_ptr<Transport> connected;
      if (rank.orders)
        reconnecting.emplace(rank);
      else
        connected = connect_once(job, rank);
      Transport& transport = reconnecting ? static_cast<Transport&>(*reconnecting) : *connected;
      if (rank.placed) recorded.emplace(flight, rank.rank);  // Rank 0 has created the folder
      rank.rendezvous_file.reset();
      // The rendezvous has timeouts of its own. From here on, a silent host would block all others.
      if (job.options.recovery.hang_seconds > 0) heartbeats = watch_hosts(rank, transport, !uses_gpu(job.options));
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

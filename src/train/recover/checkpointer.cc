#include "train/recover/checkpointer.h"

#include <fcntl.h>
#include <sys/file.h>

#include <ATen/ATen.h>
#include <algorithm>
#include <cerrno>
#include <exception>
#include <iterator>
#include <set>
#include <thread>

#include "checkpoint/commit.h"
#include "checkpoint/manifest.h"
#include "core/console.h"
#include "core/fault_point.h"
#include "core/files.h"
#include "core/invariant.h"
#include "core/reject.h"
#include "hugging_face/stored_names.h"
#include "launch/local/rank.h"
#include "model/element_types.h"
#include "runtime/non_finite.h"
#include "runtime/worker_context.h"
#include "train/recover/stop_signals.h"
#include "train/setup/job_checkpoints.h"

// A save is always in one of three phases, Idle, Writing (each rank its part) and Committing (rank 0 the manifest). All
// ranks apply the same sums of votes, so they change the phase after the same step, and may take it for granted that
// the others are in it too. After the last step nobody sums votes any more; finish() then sums them alone.

namespace chimera {
namespace {

/// Before the last checkpoint is tried again.
constexpr std::chrono::milliseconds kLongestLastPause{8000};

/// Creates the folder; locks it while the descriptor is open.
FileDescriptor hold_folder(Disk& disk, const std::string& folder) {
  try {
    make_parent_folders(folder);
    make_run_folder(disk, folder);
    FileDescriptor held(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (held.get() < 0) throw Error(fmt::format("{}: cannot be opened ({})", folder, system_message(errno)));
    // Some network disks have no locks. Their errors must not forbid a run.
    if (::flock(held.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      throw Error(folder + ": another run saves in this folder; give another folder");
    // Only the holder of the lock may clean up; another run could still be writing.
    remove_unfinished(disk, folder);
    return held;
  } catch (const Error& error) {
    reject("--checkpoint {}", error.what());
  }
}

/// Notes progress meanwhile: a slow disk is not a hang.
template <class Condition>
void wait_until(const Condition& holds) {
  for (; !holds(); std::this_thread::sleep_for(std::chrono::milliseconds(1))) note_more_progress();
}

}  // namespace

CheckpointPart::CheckpointPart(const JobShape& job, RankId rank,
                               const std::map<ParameterGroupId, ParameterGroup*>& trained,
                               const std::vector<OptimizerTensor>& state, TensorGroup* tensor)
    : rank_(static_cast<int>(rank.value())), ranks_(static_cast<int>(job.num_ranks())), tensor_(tensor) {
  if (tensor != nullptr)
    for (ParameterSpec& spec : all_parameters(job.model)) shapes_.emplace(spec.name, std::move(spec.shape));
  const std::vector<RankGroups> shards = job.shards();
  std::set<std::string> written;
  for (const auto& [id, group] : trained) {
    const RankGroups& holders = shards[id.index()];
    std::vector<Parameter> own;
    for (std::size_t shard = 0; shard < holders.size(); ++shard) {
      // Several ranks hold equal copies of a shard; the first of them writes it.
      if (holders[shard].front() != job.ranks().in_lane(rank)) continue;
      std::ranges::copy(owned_parameters(*group, holders.size(), shard), std::back_inserter(own));
    }
    for (const Parameter& parameter : own) {
      written.insert(parameter.name);
      // With the names of Hugging Face, so that --from can read a checkpoint like any model folder.
      for (const std::string& name : exported_names(job.model, parameter.name))
        add(weights_, name, parameter.name, parameter.value);
    }
  }
  for (const OptimizerTensor& moment : state) {
    // The optimizer also has the state of parameters that another rank writes.
    if (!written.contains(moment.parameter)) continue;
    add(state_, state_name(job.model, moment.parameter, moment.kind), moment.parameter, moment.value);
  }
}

void CheckpointPart::add(std::vector<Piece>& pieces, std::string name, const std::string& parameter,
                         const at::Tensor& source) {
  TensorEntry entry{.name = std::move(name), .type = element_type(source.scalar_type()), .shape = source.sizes().vec()};
  auto cut = tensor_ == nullptr ? std::nullopt : tensor_cut(parameter);
  if (cut && entry.shape == shapes_.at(parameter)) cut.reset();  // is_cut() has left it whole
  if (cut) entry.shape = shapes_.at(parameter);
  // Ranks that do not write keep the cut pieces too, because gathering them in copy() is a collective.
  if (cut || is_written()) pieces.push_back({.entry = std::move(entry), .source = source, .cut = cut, .copy = {}});
}

// Pageable memory: the driver stages its copies through pinned memory, and pinning a checkpoint would take as long as
// the copies, and twice the memory (CachingHostAllocator rounds up to powers of two).
void CheckpointPart::copy(const std::function<void()>& progress) {
  const at::NoGradGuard no_grad;
  for (std::vector<Piece>* pieces : {&weights_, &state_}) {
    for (Piece& piece : *pieces) {
      at::Tensor source = piece.source.detach();
      if (piece.cut) source = gather_whole(source, *piece.cut, piece.entry.shape, *tensor_);
      if (!is_written()) continue;
      // The memory of the first save serves all later ones.
      if (!piece.copy.defined()) piece.copy = at::empty_like(source, source.options().device(at::kCPU));
      piece.copy.copy_(source);
      progress();
    }
  }
}

std::vector<FileEntry> CheckpointPart::write(Disk& disk, const std::string& unfinished) const {
  std::vector<FileEntry> files;
  if (!is_written()) return files;
  for (const ShardKind kind : {ShardKind::Weights, ShardKind::OptimizerState}) {
    std::vector<ShardTensor> tensors;
    for (const Piece& piece : kind == ShardKind::Weights ? weights_ : state_) {
      // A checkpoint that cannot be continued must not replace one that can.
      if (!all_finite(piece.copy)) throw CheckpointError(fmt::format("{} is not finite", piece.entry.name));
      tensors.push_back(
          {piece.entry, {static_cast<const std::byte*>(piece.copy.const_data_ptr()), piece.copy.nbytes()}});
    }
    if (tensors.empty()) continue;
    files.push_back(write_shard(disk, unfinished, shard_name(kind, rank_, ranks_), tensors));
  }
  return files;
}

void SaveRetries::note_failure(Clock::time_point now) {
  next_ = now + pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
}

Checkpointer::Checkpointer(const Job& job, RankId rank, Transport& transport,
                           const std::map<ParameterGroupId, ParameterGroup*>& trained,
                           const std::vector<OptimizerTensor>& state, TensorGroup* tensor)
    : job_(job),
      rank_(rank),
      transport_(transport),
      part_(job, rank, trained, state, tensor),
      plans_{.saved = job.first_step} {
  if (rank == RankId(0)) lock_ = hold_folder(disk_, job.options.checkpoint.folder);
}

SaveVotes& Checkpointer::votes() {
  const bool is_first = rank_ == RankId(0);
  // The votes of a step carry news about writing and committing, so a save needs no collective of its own.
  const Outcome outcome = outcome_;
  const bool is_writing = current_.phase == Phase::Writing;
  const bool has_news = outcome != Outcome::None && (is_writing || is_first);
  const double every = job_.options.checkpoint.every.seconds;
  const auto now = std::chrono::steady_clock::now();
  // Only rank 0 reads a clock: one vote is enough for a save.
  const bool is_time = is_first && every > 0 && std::chrono::duration<double>(now - last_save_).count() >= every;
  const bool is_retry = is_first && current_.phase == Phase::Idle && retries_.is_due(now);
  votes_ = {};
  if (is_time || is_retry) votes_.wanted = 1;
  // A signal reaches each rank at another moment. All see the sum, and so stop after the same step.
  votes_.stop = stop_requested() ? 1 : 0;
  if (current_.phase != Phase::Idle && has_news) {
    // Repeated in each step until the sum has the votes of all ranks; votes of earlier steps do not count.
    (is_writing ? votes_.written : votes_.committed) = 1;
    votes_.failed = outcome == Outcome::Failed ? 1 : 0;
  }
  return votes_;
}

bool Checkpointer::is_due(std::int64_t step) {
  advance();
  const SaveInterval& every = job_.options.checkpoint.every;
  if (votes_.wanted > 0 || (every.steps > 0 && step % every.steps == 0)) plans_.is_due = true;
  if (votes_.stop > 0) plans_.is_stopping = true;
  const bool is_last = step == job_.options.updates.steps || stops_after(step);  // Saved by finish()
  return plans_.is_due && current_.phase == Phase::Idle && !is_last && may_save_after(step);
}

/// Updates of an asynchronous schedule are complete only at a flush.
bool Checkpointer::may_save_after(std::int64_t step) const {
  return !job_.run.schedule.updates || job_.flush_interval(step).first == step;
}

void Checkpointer::save(const StepMetrics& metrics) {
  require_invariant(
      current_.phase == Phase::Idle,
      fmt::format("step {} is saved while the save of step {} is not complete", metrics.step, current_.metrics.step));
  // All ranks copy between the same two steps, so the parts belong to one state. Writing may then take many steps.
  plans_.is_due = false;
  current_ = {.phase = Phase::Writing, .metrics = metrics};
  last_save_ = std::chrono::steady_clock::now();
  part_.copy(note_more_progress);
  start([this] { write_part(); });
}

bool Checkpointer::finish(const StepMetrics& last) {
  complete();
  // plans_.saved follows from summed votes, so all ranks take equally many turns.
  for (auto pause = SaveRetries::kFirstPause; plans_.saved != last.step; pause *= 2) {
    save(last);
    complete();
    if (plans_.saved == last.step || pause > kLongestLastPause) break;
    if (rank_ == RankId(0))
      print_message("the last checkpoint is tried again in {:.3g} s", std::chrono::duration<double>(pause).count());
    wait_until([end = std::chrono::steady_clock::now() + pause] { return std::chrono::steady_clock::now() >= end; });
  }
  return plans_.saved == last.step;
}

void Checkpointer::complete() {
  while (current_.phase != Phase::Idle) {
    if (current_.phase == Phase::Writing || rank_ == RankId(0)) wait_until([&] { return has_ended(); });
    auto numbers = votes().pack();
    transport_.all_sum(numbers);
    votes_ = SaveVotes::unpack(numbers);
    advance();
  }
}

void Checkpointer::drop() {
  if (current_.phase != Phase::Idle) wait_until([&] { return has_ended(); });
  // Parts of lost ranks may be missing, so the save is given up, and is due again.
  current_.is_dropped = current_.phase != Phase::Idle;
  plans_.is_due = plans_.is_due || current_.is_dropped;
  current_.phase = Phase::Idle;
  outcome_ = Outcome::None;
  votes_ = {};
}

void Checkpointer::resume(const SavePlans& plans) {
  plans_ = plans;
  if (std::exchange(current_.is_dropped, false) && rank_ == RankId(0)) {
    // Not yet in drop(): other ranks may still have been writing into the folder.
    abandon(disk_, job_.options.checkpoint.folder, current_.metrics.step);
  }
}

/// Applies the summed votes, the same on every rank.
void Checkpointer::advance() {
  // Every rank applies the same sums, so all change their phase after the same step.
  if (current_.phase == Phase::Writing && votes_.written == static_cast<double>(job_.num_ranks())) {
    current_.phase = Phase::Committing;
    current_.has_failed = votes_.failed > 0;
    if (rank_ == RankId(0)) start([this] { commit_parts(); });
  } else if (current_.phase == Phase::Committing && votes_.committed > 0) {
    current_.phase = Phase::Idle;
    if (current_.has_failed || votes_.failed > 0) {
      retries_.note_failure(std::chrono::steady_clock::now());
    } else {
      plans_.saved = current_.metrics.step;
      retries_.note_success();
    }
  }
}

void Checkpointer::start(std::function<void()> task) {
  outcome_ = Outcome::None;
  if (!thread_) thread_.emplace();
  // The outcome tells the end of the task, so nobody needs the future. Fault points of tests ask for the rank of their
  // thread, so the new thread takes it over.
  static_cast<void>(thread_->begin([this, task = std::move(task), step = current_.metrics.step, rank = fault_rank()] {
    fault_rank() = rank;
    try {
      task();
      outcome_ = Outcome::Done;
    } catch (const std::exception& error) {
      print_message("rank {}: the checkpoint of step {} is not saved: {}; training continues", rank_.value(), step,
                    error.what());
      outcome_ = Outcome::Failed;
    }
  }));
}

void Checkpointer::write_part() {
  fault_point("save");
  const std::string unfinished = open_unfinished(disk_, job_.options.checkpoint.folder, current_.metrics.step);
  mark_rank_written(disk_, unfinished, static_cast<int>(rank_.value()), part_.write(disk_, unfinished));
  fault_point("saved");
}

nlohmann::ordered_json Checkpointer::progress() const {
  const StepMetrics& metrics = current_.metrics;
  nlohmann::ordered_json progress = {
      {"step", metrics.step},
      {"updates", metrics.updates},
      // Beside the steps, because a run that resumes may have other mini-batches.
      {"samples", metrics.step * job_.run.mini_batch() + job_.options.resume.sample_shift},
      {"tokens", metrics.step * metrics.tokens + job_.options.resume.token_shift},
      {"learning_rate", metrics.learning_rate},
      {"loss", metrics.loss},
      {"grad_norm", metrics.gradient_norm},
      {"tokens_per_second", metrics.tokens_per_second}};
  if (metrics.loss_watch.losses > 0) progress["loss_watch"] = nlohmann::json(metrics.loss_watch);
  return progress;
}

void Checkpointer::commit_parts() {
  const CheckpointOptions& options = job_.options.checkpoint;
  if (current_.has_failed) return abandon(disk_, options.folder, current_.metrics.step);  // The failed rank reports why
  // The manifest is written last. A checkpoint without one does not exist for readers, so a crash at any point leaves
  // the earlier checkpoints valid.
  try {
    CheckpointContent description{job_.checkpoints->record, job_.checkpoints->files};
    description.run["progress"] = progress();
    description.run[kKeepSection] = {{"last", options.keep.last}, {"every", options.keep.every}};
    commit(disk_, options.folder, current_.metrics.step, static_cast<int>(job_.num_ranks()), description);
  } catch (const std::exception&) {
    abandon(disk_, options.folder, current_.metrics.step);
    throw;
  }
  try {
    // After the commit, so that at no time fewer checkpoints exist than --keep promises.
    remove_expired(disk_, options.folder, current_.metrics.step, options.keep);
  } catch (const CheckpointError& error) {
    print_message("an old checkpoint is not removed: {}; training continues", error.what());
  }
}

}  // namespace chimera

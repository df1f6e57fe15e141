#include "train/setup/job_checkpoints.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <cmath>
#include <system_error>
#include <tuple>
#include <utility>

#include "checkpoint/disk.h"
#include "checkpoint/manifest.h"
#include "core/cgroup.h"
#include "core/console.h"
#include "core/files.h"
#include "core/printable.h"
#include "core/reject.h"
#include "engine/stored_values.h"
#include "hugging_face/config_json.h"
#include "hugging_face/model_folder.h"
#include "hugging_face/stored_names.h"
#include "launch/flight/progress.h"
#include "model_config/footprint.h"
#include "model_config/parameters.h"
#include "train/setup/data_tokenizer.h"
#include "train/setup/device.h"
#include "train/setup/job_identity.h"
#include "train/setup/option_table.h"

// What a job has to do with checkpoints before it trains: find the one to resume (look_up()), refuse it if its run was
// of another model or data (require_same_run()), take over from it what flags do not say (rates, position in the data,
// retention), and refuse a folder in which saves of two runs would mix. The launcher does all this once, and starts its
// ranks with `is_checked` set, so that they repeat neither the reading nor the messages.

namespace chimera {

namespace {

/// Returns the samples and tokens of ResumeOptions. Older checkpoints tell no numbers, so no shift.
std::pair<std::int64_t, std::int64_t> shifts(const RunShape& run, std::int64_t sequence, const Manifest& manifest) {
  const auto progress = manifest.run.value("progress", nlohmann::ordered_json::object());
  const std::int64_t samples = manifest.step * run.mini_batch();
  const std::int64_t tokens = samples * sequence;
  return {progress.value("samples", samples) - samples, progress.value("tokens", tokens) - tokens};
}

constexpr const char* kRanges = "left_out";

std::string left_out_path(const std::string& folder) { return folder + "/" + kLeftOutName; }

constexpr const char* kAuto = "auto";
constexpr std::int64_t kManyCheckpoints = 100;
constexpr const char* kNone = "none";

void note_slow_checkpoint() { note_progress({RankProgress::Phase::StartUp}); }

/// The result is empty for a new run.
NewestCheckpoint look_up(const TrainOptions& options, const std::string& from) {
  if (from.empty() || from == kNone) return {};
  // The launcher has compared the hashes of all bytes, so its ranks need not read everything again.
  if (options.resume.is_checked) return {open_checkpoint(from, /*threads=*/0), {}};
  if (from != kAuto) return find_checkpoint(from, available_cores(), note_slow_checkpoint);
  if (options.checkpoint.folder.empty()) reject("--resume auto needs a folder of checkpoints; give --checkpoint");
  NewestCheckpoint newest = newest_checkpoint(options.checkpoint.folder, available_cores(), note_slow_checkpoint);
  // A folder with nothing but damaged checkpoints is an error: a new run would replace what may be repaired. Damaged
  // ones beside a good one are only reported, and the run continues from the good one.
  if (newest.checkpoint || newest.rejected.empty()) return newest;
  throw CheckpointError(fmt::format("{}: has no good checkpoint; {}", options.checkpoint.folder, newest.rejected[0]));
}

[[noreturn]] void refuse(const Checkpoint& checkpoint, const std::string& why) {
  reject("--resume {}: {}", checkpoint.path, why);
}

/// Texts give other tokens with another tokenizer, which a hash of the data does not say. Empty for the same tokenizer.
std::string describe_tokenizers(const Checkpoint& checkpoint, const std::string& here) {
  const auto& run = checkpoint.manifest.run;
  const std::string there = recorded_source(run);
  if (there.empty() || there == here) return "";
  // Newer checkpoints have a copy of the tokenizer's files, so they can be named as --tokenizer themselves.
  const bool has_copy = run.at("tokenizer").is_object() && !run.at("tokenizer").at("files").empty();
  return fmt::format("; its tokenizer was {}, this run has {}: give --tokenizer {}", there,
                     here.empty() ? "none" : here, has_copy ? checkpoint.path : there);
}

void require_same_run(const TrainOptions& options, const std::string& tokenizer, const nlohmann::ordered_json& record,
                      const Checkpoint& checkpoint) {
  const RunDifferences differing = differences(checkpoint.manifest.run, record);
  if (!differing.model.empty())
    refuse(checkpoint, fmt::format("is of another model or optimizer ({})", fmt::join(differing.model, "; ")));
  if (options.updates.optimizer.kind == OptimizerKind::Muon) {
    const auto& numbers = checkpoint.manifest.run.at("hyperparameters");
    const auto there = numbers.value("muon_exclude", std::vector<std::string>{});
    if (there != options.updates.optimizer.muon.exclude) {
      refuse(checkpoint, fmt::format("its run had {}; give the same, because other matrices have no momentum",
                                     there.empty() ? "no --muon-exclude"
                                                   : fmt::format("--muon-exclude {}", fmt::join(there, ","))));
    }
  }
  if (!differing.data.empty() && !options.resume.other_data) {
    refuse(checkpoint, fmt::format("its run had other samples ({}){}; give --resume-other-data to continue anyway",
                                   fmt::join(differing.data, "; "), describe_tokenizers(checkpoint, tokenizer)));
  }
  if (options.resume.is_checked) return;  // The launcher has reported it
  std::vector<std::string> other = differing.data;
  other.insert(other.end(), differing.other.begin(), differing.other.end());
  if (other.empty()) return;
  print_message("--resume {}: continues with settings that differ from the saved run ({})", checkpoint.path,
                fmt::join(other, "; "));
}

/// The rate of a step depends on the number of steps, so a run that gets more steps goes back up from its decay.
void report_jump_of_rate(const TrainOptions& options, const Checkpoint& checkpoint) {
  constexpr double kJump = 0.01;  // Relative to the saved run's last rate
  const std::int64_t step = checkpoint.manifest.step;
  if (options.resume.is_checked || step >= options.updates.steps) return;
  // Compares the rate that this run would have had in the saved run's last step. A schedule that moves fast, such as a
  // warm-up, also changes from `step - 1` to `step`, so that alone is no jump.
  const double here = options.updates.learning_rate.at(step - 1, options.updates.steps);
  const double there = checkpoint.manifest.run.at("progress").value("learning_rate", here);
  const double next = options.updates.learning_rate.at(step, options.updates.steps);
  if (std::abs(here - there) <= kJump * there || std::abs(next - there) <= kJump * there) return;
  print_message(
      "--resume {}: the learning rate jumps from {:.3g} in step {} to {:.3g} in step {}, because its "
      "flags or --steps differ from the saved run; --learning-rate and --learning-rate-shape choose others",
      checkpoint.path, there, step, next, step + 1);
}

/// Flags that are not given keep their values of the saved run.
void take_rates(TrainOptions& options, const nlohmann::ordered_json& run) {
  const auto numbers = run.value("hyperparameters", nlohmann::ordered_json::object());
  LearningRate& rate = options.updates.learning_rate;
  if (options.updates.usual_peak) rate.peak = numbers.value("learning_rate", rate.peak);
  if (options.updates.usual_warmup) rate.warmup = std::min(numbers.value("warmup", rate.warmup), options.updates.steps);
}

/// The data continue after the last sample, also with another mini-batch.
void take_position(Job& job, const Checkpoint& checkpoint) {
  ResumeOptions& resume = job.options.resume;
  std::tie(resume.sample_shift, resume.token_shift) = shifts(job.run, job.options.data.sequence, checkpoint.manifest);
  if (resume.sample_shift == 0 || !job.options.output.reports) return;
  print_message("--resume {}: continues after {} samples, with mini-batches of {}", checkpoint.path,
                job.first_step * job.run.mini_batch() + resume.sample_shift, job.run.mini_batch());
}

/// An asynchronous schedule can start only after a flush.
void require_beginning(const Job& job, const Checkpoint& checkpoint) {
  const std::int64_t step = checkpoint.manifest.step;
  if (step > job.options.updates.steps)
    refuse(checkpoint, fmt::format("has done {} steps; --steps {} are fewer", step, job.options.updates.steps));
  // A resumed pipeline starts empty, which changes an asynchronous run unless it was empty there before.
  if (!job.run.schedule.updates || step == job.options.updates.steps || job.flush_interval(step).first == step) return;
  refuse(checkpoint, fmt::format("schedule {} is asynchronous and cannot start at step {}, because it has no flush "
                                 "there; give a --save-every that divides this step",
                                 job.run.schedule.name, step));
}

/// Saves of two runs must not mix.
void require_own_folder(const TrainOptions& options, std::int64_t first_step) {
  if (options.checkpoint.folder.empty() || options.resume.is_checked) return;
  for (const std::int64_t step : list_steps(options.checkpoint.folder)) {
    if (step <= first_step) continue;
    const std::string whose = first_step == 0 ? "of another run" : fmt::format("after step {}", first_step);
    reject("--checkpoint {}: has {} {}; give --resume auto or another folder", options.checkpoint.folder,
           checkpoint_name(step), whose);
  }
}

/// Each save replaces the file.
void require_own_latest(const TrainOptions& options) {
  const std::string path = options.checkpoint.folder + "/" + kLatestName;
  if (options.checkpoint.folder.empty() || !path_exists(path)) return;
  if (!list_steps(options.checkpoint.folder).empty()) return;  // a run's, perhaps damaged
  // The folder has a file with this name but no checkpoint: perhaps another program's.
  const std::string text = read_whole(path);
  if (text.empty() || step_of_name(text.substr(0, text.find('\n')))) return;
  reject("--checkpoint {}: {} does not name a checkpoint, and would be replaced; give another folder",
         options.checkpoint.folder, path);
}

/// Returns the tokenizer's files, and the configs if transformers has a class for the model.
std::map<std::string, std::string> description_of(const ModelConfig& model, const ModelFolder* from, DataType dtype,
                                                  std::map<std::string, std::string> files) {
  const ElementType type = element_type_of_word("--dtype", to_text(master_type(dtype)));
  try {
    files[kConfigName] = from != nullptr ? with_element_type(from->config_json(), type) : to_config_json(model, type);
    if (is_causal(model.family)) files[kGenerationConfigName] = "{\n  \"_from_model_config\": true\n}\n";
    // transformers has no class for the model.
  } catch (const ConfigError&) {
    // Only weights, tokenizer and manifest
  }
  return files;
}

/// Flags that are not given keep their values of the saved run.
void take_retention(Job& job, const nlohmann::ordered_json& run) {
  CheckpointOptions& options = job.options.checkpoint;
  const Retention usual = options.keep;
  const auto saved = run.value(kKeepSection, nlohmann::ordered_json::object());
  if (!options.keeps_last) options.keep.last = saved.value("last", usual.last);
  if (!options.keeps_every) options.keep.every = saved.value("every", usual.every);
  if (options.folder.empty() || options.keep == usual || !job.options.output.reports) return;
  print_message("--keep {} --keep-every {}, as in the saved run", options.keep.last, options.keep.every);
}

LossWatch watch_of(const nlohmann::ordered_json& progress) {
  return progress.contains("loss_watch") ? nlohmann::json(progress.at("loss_watch")).get<LossWatch>() : LossWatch();
}

WeightFiles::Found found_tensor(const ResumedRun& resumed, const std::string& name,
                                const std::vector<std::int64_t>& shape) {
  auto found = resumed.tensors.find(name);
  if (!found) throw CheckpointError(fmt::format("{}: has no tensor {}", resumed.checkpoint.path, name));
  if (found->tensor.shape != shape) {
    throw CheckpointError(fmt::format("{}: tensor {} has shape [{}], not [{}]", found->file->path(), name,
                                      fmt::join(found->tensor.shape, ", "), fmt::join(shape, ", ")));
  }
  return *std::move(found);
}

}  // namespace

NextStart next_start(const Job& job, std::int64_t failed_step) {
  const NewestCheckpoint newest = newest_checkpoint(job.options.checkpoint.folder, available_cores());
  report_rejected(newest);
  if (newest.checkpoint) {
    const auto [samples, tokens] = shifts(job.run, job.options.data.sequence, newest.checkpoint->manifest);
    return {
        .arguments = {kFailedStepFlag, std::to_string(failed_step), "--resume", newest.checkpoint->path,
                      fmt::format("{}={}", kSampleShiftFlag, samples), fmt::format("{}={}", kTokenShiftFlag, tokens)},
        .description =
            fmt::format("continues from step {} ({})", newest.checkpoint->manifest.step, newest.checkpoint->path)};
  }
  return {.arguments = {kFailedStepFlag, std::to_string(failed_step)},
          .description = fmt::format("no checkpoint yet, starts again after step {}", job.first_step)};
}

double checkpoint_bytes(const ModelConfig& model, const TrainOptions& options) {
  const Workload workload = workload_of(options);
  const StageLayers whole{0, model.layers, true, true};
  const StageMemory memory = stage_footprint(model, whole, workload).memory;
  return static_cast<double>(parameter_count(model) * workload.weight_bytes) + memory.optimizer;
}

void require_space(const ModelConfig& model, const TrainOptions& all, std::int64_t first_step) {
  const CheckpointOptions& options = all.checkpoint;
  if (options.folder.empty()) return;
  // Of the nearest folder that exists, because the run makes its folder later.
  const auto available = free_bytes(options.folder + "/" + checkpoint_name(0));
  if (!available) return;
  const auto free = static_cast<double>(*available);
  const double one = checkpoint_bytes(model, all);
  if (free < one) {
    reject("--checkpoint {}: a checkpoint needs {}, and {} are free there", options.folder, bytes_text(one),
           bytes_text(free));
  }
  const std::int64_t steps = all.updates.steps - first_step;
  const std::int64_t saves = options.every.steps > 0 ? (steps + options.every.steps - 1) / options.every.steps : steps;
  const auto existing = static_cast<std::int64_t>(list_steps(options.folder).size());
  // The oldest checkpoint is removed when the next one is complete. With --keep 3 and two checkpoints in the folder,
  // two more must fit: the third, and the next one, which is complete before the oldest is removed.
  const std::int64_t most = std::min(saves, options.keep.last + 1 - std::min(existing, options.keep.last));
  if (options.every.steps == 0 && most > kManyCheckpoints) return;  // a time between saves says nothing of their number
  if (free >= one * static_cast<double>(most)) return;
  print_message(
      "--checkpoint {}: {} checkpoints of {} may be kept and written there, and {} are free; give a lower "
      "--keep, or a larger disk",
      options.folder, most, bytes_text(one), bytes_text(free));
}

void take_saved_rates(TrainOptions& options) {
  const NewestCheckpoint newest = look_up(options, options.resume.from);
  if (newest.checkpoint) take_rates(options, newest.checkpoint->manifest.run);
}

void open_checkpoints(Job& job) {
  // "auto" is decided here: from now on, resume.from is the path of a checkpoint, or "none".
  const std::string asked = std::exchange(job.options.resume.from, kNone);
  job.options.resume.is_auto = asked == kAuto;
  const bool may_save = !job.options.checkpoint.folder.empty() || !job.options.exported.folder.empty();
  // A run that neither resumes nor saves needs no record of itself.
  if ((asked.empty() || asked == kNone) && !may_save) return;
  if (!job.options.resume.is_checked) require_own_latest(job.options);
  try {
    NewestCheckpoint newest = look_up(job.options, asked);
    if (job.options.output.reports) report_rejected(newest);
    // Before run_record(), which has the rates in it.
    if (newest.checkpoint) take_rates(job.options, newest.checkpoint->manifest.run);
    auto checkpoints = std::make_shared<JobCheckpoints>();
    checkpoints->record = run_record(job);
    checkpoints->files = description_of(job.model, job.from.get(), job.options.numbers.dtype, job.data.tokenizer_texts);
    job.checkpoints = checkpoints;
    if (newest.checkpoint) {
      require_same_run(job.options, job.data.tokenizer, checkpoints->record, *newest.checkpoint);
      require_beginning(job, *newest.checkpoint);
      report_jump_of_rate(job.options, *newest.checkpoint);
      CheckpointTensors tensors(newest.checkpoint->path, newest.checkpoint->manifest);
      const auto& progress = newest.checkpoint->manifest.run.at("progress");
      job.first_step = newest.checkpoint->manifest.step;
      take_position(job, *newest.checkpoint);
      take_retention(job, newest.checkpoint->manifest.run);
      job.options.resume.from = newest.checkpoint->path;
      checkpoints->resumed = ResumedRun{*std::move(newest.checkpoint), std::move(tensors),
                                        progress.at("updates").get<std::int64_t>(), watch_of(progress)};
    }
  } catch (const CheckpointError& error) {
    reject("--resume: {}", error.what());
  } catch (const nlohmann::json::exception& error) {
    reject("--resume: the manifest's progress is not complete ({})", error.what());
  }
  // Ranks would all report the same.
  if (job.options.output.reports) require_space(job.model, job.options, job.first_step);
  if (asked != kAuto)
    require_own_folder(job.options, job.first_step);  // auto has rejected newer ones; new saves replace them
}

InitialValue resumed_values(const ResumedRun& resumed, const ModelConfig& model) {
  return values_from_files([&resumed, &model](const ParameterSpec& parameter) {
    // All names of a parameter have the same values.
    return found_tensor(resumed, exported_names(model, parameter.name).front(), parameter.shape);
  });
}

void resume_optimizer(const ResumedRun& resumed, const ModelConfig& model, Optimizer& optimizer, TensorGroup* tensor) {
  for (const OptimizerTensor& state : optimizer.state()) {
    note_slow_checkpoint();
    const std::string name = state_name(model, state.parameter, state.kind);
    std::vector<std::int64_t> shape = state.value.sizes().vec();
    const auto found = resumed.tensors.find(name);
    // Checkpoints have whole tensors. The state of a cut matrix is a part of one, unless is_cut() has left the matrix
    // whole on all ranks.
    const bool is_part = tensor != nullptr && found && tensor_cut(state.parameter) && found->tensor.shape != shape;
    if (is_part) shape = found->tensor.shape;
    const TensorPlace place = is_part ? tensor->place() : TensorPlace{};
    read_values(found_tensor(resumed, name, shape), state.parameter, place, state.value);
  }
  optimizer.set_steps(resumed.updates);
}

std::string state_name(const ModelConfig& model, const std::string& parameter, const std::string& kind) {
  return fmt::format("{}.{}", exported_names(model, parameter).front(), kind);
}

std::vector<LeftOutSteps> read_left_out(const std::string& folder) {
  const std::string path = left_out_path(folder);
  if (!path_exists(path)) return {};  // No spike yet
  try {
    return remove_seal(path, read_whole(path)).at(kRanges).get<std::vector<LeftOutSteps>>();
  } catch (const CheckpointError& error) {
    reject("{}: {}; it lists the steps that --spike leaves out; remove it to run all steps", path, error.what());
  }
}

void write_left_out(const std::string& folder, const std::vector<LeftOutSteps>& ranges) {
  // The seal is a hash of the content: a truncated file must not silently train on the steps of a spike.
  replace_file(real_disk(), folder, kLeftOutName, add_seal(nlohmann::ordered_json{{kRanges, ranges}}));
}

void forget_left_out(const std::string& folder) {
  std::error_code error;
  std::filesystem::remove(left_out_path(folder), error);
  // No error if the file does not exist: remove() then returns false.
  if (error) reject("{}: cannot be removed ({})", left_out_path(folder), error.message());
}

}  // namespace chimera

#include "train/setup/job_outputs.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <initializer_list>

#include "checkpoint/checkpoint_folder.h"
#include "core/console.h"
#include "core/file_descriptor.h"
#include "core/files.h"
#include "core/reject.h"
#include "data/mixture.h"
#include "hugging_face/config_json.h"
#include "hugging_face/staged_folder.h"
#include "launch/flight/flight_record.h"
#include "telemetry/event_file.h"
#include "train/setup/job_checkpoints.h"

// Checks all outputs of a run before it starts, and writes the final ones. A run may take days, so what could spoil its
// results must show at once: a path that cannot be written, two flags with one file, a file that the run reads, and a
// file with the results of another run, which is kept unless --overwrite is given or the run continues it.

namespace chimera {
namespace {

struct Output {
  const char* flag;
  const std::string& path;
  const char* begin;  // first characters of such a file; empty: see require_own_metrics()
};

/// Puts the flag before the message of a ConfigError that names only the path.
template <class Act>
void name_flag(const char* flag, const Act& act) {
  try {
    act();
  } catch (const ConfigError& error) {
    reject("{} {}", flag, error.what());
  }
}

/// Returns false for files such as /dev/null, which several flags may share.
bool is_kept(const std::string& path) {
  // A file that does not exist yet will be a regular one.
  return !path_exists(path) || is_file(path);
}

bool is_in_folder(const std::string& path, const std::string& folder) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  // The parents are compared as files, not as texts, because links give a folder several names.
  return is_folder(folder) && is_same_file(parent.empty() ? "." : parent, folder);
}

bool has_name_of_data(const std::string& path) {
  return std::ranges::any_of(std::array{".bin", ".idx", ".txt"},
                             [&](const char* ending) { return path.ends_with(ending); });
}

void require_no_input(const Output& output, const TrainOptions& options) {
  const std::string& path = output.path;
  const auto refuse = [&](const std::string& why) { reject("{} {}: {}", output.flag, path, why); };
  // An output that replaces an input would destroy it, or read its own output in the next run.
  std::vector<std::string> files = options.output.files_read;
  files.insert(files.end(), {options.model.name, options.schedule.file, options.data.tokenizer, options.model.from});
  const bool exists = path_exists(path);
  for (const std::string& file : files) {
    if (file.empty()) continue;
    if (is_same_file(path, file) || (exists && is_in_folder(path, file)))
      refuse("the run reads this file; give another one");
  }
  for (const std::string& data : {options.data.training, options.data.validation}) {
    for (const MixtureEntry& entry : parse_mixture(data)) {
      if (is_same_file(path, entry.path)) refuse("the run reads this file; give another one");
      // A folder of data is read by the names in it: metrics.txt in it would be data of the next run.
      if (!is_in_folder(path, entry.path) || !has_name_of_data(path)) continue;
      refuse(fmt::format("is in the folder {}, where runs read each file with such a name; give another folder",
                         entry.path));
    }
  }
}

void require_distinct(const Output& output, const Output& other) {
  if (!is_same_file(output.path, other.path) || !is_kept(output.path)) return;
  reject("{} {}: {} writes this file; give another one", output.flag, output.path, other.flag);
}

/// Metrics are appended line by line. A pipe is not opened, as closing it would end its reader's input.
void require_appendable(const Output& output) {
  std::error_code none;
  const auto refuse = [&](int cause) {
    reject("{} {}: cannot be written ({})", output.flag, output.path, system_message(cause));
  };
  if (!std::filesystem::exists(output.path, none)) {
    // A link may name a file that does not exist, whose folder is another than the link's.
    const std::filesystem::path folder = std::filesystem::absolute(output.path).parent_path();
    const std::filesystem::path target = std::filesystem::read_symlink(output.path, none);
    if (!none && !std::filesystem::is_directory((folder / target).parent_path(), none)) refuse(ENOENT);
    return name_flag(output.flag, [&] { require_parents(output.path); });
  }
  if (std::filesystem::is_directory(output.path, none)) refuse(EISDIR);
  if (::access(output.path.c_str(), W_OK) != 0) refuse(errno);
}

void require_own_metrics(const TrainOptions& options, const ResumedRun* resumed) {
  const std::string& path = options.output.metrics;
  if (options.output.overwrite || options.recovery.is_restart) return require_unlocked_lines(path);
  // A resumed run continues its own file. The line of the checkpoint's step must have the loss of the checkpoint.
  if (resumed != nullptr) {
    const auto& progress = resumed->checkpoint.manifest.run.at("progress");
    return require_continuable_lines(path, resumed->checkpoint.manifest.step,
                                     nlohmann::json(progress.value("loss", nlohmann::ordered_json())));
  }
  // Without a checkpoint, --resume auto starts again what ended before its first one.
  if (options.resume.is_auto && is_in_folder(path, options.checkpoint.folder))
    return require_continuable_lines(path, 0, std::nullopt);
  require_unlocked_lines(path);
  require_unused("--metrics", path, false);
}

/// As require_own_metrics(). Events of a run that resumes are not compared: a restart event ends their old tail.
void require_own_events(const TrainOptions& options, bool resumes) {
  const bool restarts = options.recovery.is_restart || resumes ||
                        (options.resume.is_auto && is_in_folder(options.output.tensorboard, options.checkpoint.folder));
  if (options.output.overwrite || restarts || !has_events(options.output.tensorboard)) return;
  reject("--tensorboard {}: has events of another run; give another folder, or --overwrite",
         options.output.tensorboard);
}

bool is_in_use(const std::string& path) {
  std::error_code absent;
  return is_file(path) && !std::filesystem::is_empty(path, absent);
}

void require_as_written(const Output& output) {
  if (!is_in_use(output.path)) return;
  // A run that continues may replace only a file of the same kind, which earlier attempts have written.
  std::string begin(std::string_view(output.begin).size(), '\0');
  std::ifstream(output.path, std::ios::binary).read(begin.data(), std::ssize(begin));
  if (begin == output.begin) return;
  reject("{} {}: exists already and is not of this run; give another file, or --overwrite", output.flag, output.path);
}

/// Throws ConfigError if another run saves in the folder. A rank locks it later.
void require_unlocked_folder(const std::string& folder) {
  // The lock that a running job holds ends with its process, so no stale file can block a folder.
  const FileDescriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.get() < 0 || ::flock(file.get(), LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  reject("--checkpoint {}: another run saves in this folder; give another folder", folder);
}

/// Checks the nearest existing parent, because the run creates the folder later.
void require_folder(const std::string& flag, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::is_symlink(path, error) && !fs::exists(path, error)) {  // no folder can be made under its name
    reject("{} {}: is a link to {}, which does not exist; make that folder, or remove the link", flag, path,
           fs::read_symlink(path, error).string());
  }
  fs::path place = fs::absolute(path, error).lexically_normal();
  while (!fs::exists(place, error) && place.has_relative_path()) place = place.parent_path();
  if (!fs::is_directory(place, error)) reject("{} {}: {} is not a folder", flag, path, place.string());
  if (::access(place.c_str(), W_OK | X_OK) != 0)
    reject("{} {}: cannot be written ({})", flag, path, system_message(errno));
}

/// The run would remove or replace the export, or take it for a checkpoint.
void require_no_file_of_the_run(const TrainOptions& options) {
  const std::string& run = options.checkpoint.folder;
  const std::filesystem::path folder(options.exported.folder);
  const std::filesystem::path parent = folder.has_parent_path() ? folder.parent_path() : ".";
  if (run.empty() || (!is_same_file(folder, run) && !is_same_file(parent, run))) return;
  std::string name = folder.filename();
  if (name.ends_with(".tmp")) name.resize(name.size() - 4);
  const bool is_own = step_of_name(name) || name == kLatestName || name == kLeftOutName || name == kOrderName ||
                      is_same_file(folder, options.flight_folder()) || is_same_file(folder, options.output.metrics);
  if (is_own || is_same_file(folder, run))
    reject("{}: the run writes this file or folder of --checkpoint; give another name", folder.string());
}

}  // namespace

void require_outputs(const Job& job) {
  const TrainOptions& options = job.options;
  std::vector<Output> given;
  for (const Output& output :
       std::initializer_list<Output>{{"--metrics", options.output.metrics, ""},
                                     {"--trace", options.output.trace, "{\"displayTimeUnit\""},
                                     {"--op-times", options.output.op_times, "{\n \"latency\""},
                                     {"--tensor-memory", options.output.tensor_memory, "{\"peak_bytes\""},
                                     {"--timeline", options.output.timeline, "<!doctype html>"},
                                     {"--report", options.output.report, "<!doctype html>"}}) {
    if (output.path.empty()) continue;
    require_no_input(output, options);
    for (const Output& other : given) require_distinct(output, other);
    given.push_back(output);
  }
  if (!options.checkpoint.folder.empty()) require_folder("--checkpoint", options.checkpoint.folder);
  if (const std::string flight = options.flight_folder(); options.output.reports && !flight.empty()) {
    require_folder("--flight-record", flight);
    name_flag("--flight-record", [&] {
      require_flight_folder(flight);
      if (!options.recovery.is_restart) require_no_recording(flight);  // the locks of a lost host may remain
    });
  }
  if (!options.output.tensorboard.empty()) {
    require_folder("--tensorboard", options.output.tensorboard);
    if (options.output.reports) require_own_events(options, job.first_step > 0);
  }
  if (!options.checkpoint.folder.empty() && options.output.reports && !options.recovery.is_restart)
    require_unlocked_folder(options.checkpoint.folder);
  if (!options.exported.folder.empty() && is_same_file(options.exported.folder, options.model.from))
    reject("--export {}: is the folder of --from; give another one", options.exported.folder);
  for (const Output& output : given) {
    const bool is_metrics = &output.path == &options.output.metrics;
    if (is_metrics)
      require_appendable(output);
    else
      name_flag(output.flag, [&] { require_writable_whole(output.path); });
    if (!options.output.reports) continue;
    if (is_metrics)
      require_own_metrics(options, job.first_step > 0 ? &*job.checkpoints->resumed : nullptr);
    else if (job.first_step == 0 && !options.recovery.is_restart)
      require_unused(output.flag, output.path, options.output.overwrite);
    else if (!options.output.overwrite)
      require_as_written(output);
  }
}

void write_final_output(bool replaces, const char* flag, const std::string& path, const std::string& text) {
  // Two runs that started together may both have found the file unused. The later one must not destroy hours of work.
  std::string own = path;
  for (int i = 2; !replaces && is_in_use(own); ++i) own = fmt::format("{}.{}", path, i);
  if (own != path) print_message("{} {}: another run has written it since the start; wrote {}", flag, path, own);
  write_whole(own, text);
}

ElementType export_type(const TrainOptions& options) {
  const std::string& given = options.exported.dtype;
  return element_type_of_word("--export-dtype",
                              given.empty() ? std::string(to_text(master_type(options.numbers.dtype))) : given);
}

ExportPlan plan_job_export(const ModelConfig& model, const TrainOptions& options) {
  return plan_export(exported_tensors(model, export_type(options)), options.exported.shard_bytes);
}

void require_exportable(const ModelConfig& model, const TrainOptions& options) {
  const ElementType type = export_type(options);
  // For its errors: a model without a class in transformers cannot be exported. That of --from has its own config.json.
  if (options.model.from.empty()) (void)to_config_json(model, type);
  std::uint64_t bytes = 0;
  for (const ExportFile& file : plan_job_export(model, options).files) bytes += file.layout.file_bytes;
  try {
    const std::string& folder = options.exported.folder;
    // At the start, because a full disk or a wrong name must not show after days of training. Ranks that are started
    // later must not refuse files that have appeared since.
    if (!options.output.reports) return;
    require_no_file_of_the_run(options);
    require_new_folder(folder, bytes, {options.model.from, options.data.tokenizer});
    if (path_exists(folder)) const FolderHold tried(folder);  // Another run may hold an empty folder
  } catch (const ConfigError& error) {
    reject("--export {}", error.what());
  }
}

}  // namespace chimera

#include "train/setup/outputs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <vector>

#include "core/error.h"
#include "core/file_descriptor.h"
#include "core/output_file.h"
#include "data/mixture.h"

namespace chimera {
namespace {

/// A flag and the file that it has the run write.
struct Output {
  const char* flag;
  const std::string& path;
};

bool is_same_file(const std::string& one, const std::string& other) {
  std::error_code absent;
  return one == other || std::filesystem::equivalent(one, other, absent);
}

/// Not /dev/null, which many may write to.
bool is_kept(const std::string& path) {
  std::error_code absent;
  return !std::filesystem::exists(path, absent) || std::filesystem::is_regular_file(path, absent);
}

/// Adds a file, or those of a folder.
void add_files(std::vector<std::string>& files, const std::string& path) {
  std::error_code unreadable;
  if (!std::filesystem::is_directory(path, unreadable)) return files.push_back(path);
  for (const auto& entry : std::filesystem::directory_iterator(path, unreadable))
    files.push_back(entry.path().string());
}

std::vector<std::string> inputs(const TrainOptions& options) {
  std::vector<std::string> files = options.files_read;
  for (const std::string& path : {options.model, options.schedule_file, options.tokenizer, options.from}) {
    add_files(files, path);
  }
  for (const std::string& data : {options.data, options.validation}) {
    for (const MixtureEntry& entry : parse_mixture(data)) add_files(files, entry.path);
  }
  return files;
}

void require_no_input(const Output& output, const TrainOptions& options) {
  for (const std::string& input : inputs(options)) {
    if (!is_same_file(output.path, input)) continue;
    throw ConfigError(fmt::format("{} {}: is the file that the run reads; give another one", output.flag, output.path));
  }
}

void require_distinct(const Output& output, const Output& other) {
  if (!is_same_file(output.path, other.path) || !is_kept(output.path)) return;
  throw ConfigError(fmt::format("{} {}: {} writes it; give another one", output.flag, output.path, other.flag));
}

/// Lines of metrics are added one by one. A pipe is not opened: its reader would take the end of this for that of the
/// lines.
void require_appendable(const Output& output) {
  std::error_code unreadable;
  const bool can_be_written = std::filesystem::is_fifo(output.path, unreadable)
                                  ? ::access(output.path.c_str(), W_OK) == 0
                                  : std::ofstream(output.path, std::ios::app).is_open();
  if (can_be_written) return;
  throw ConfigError(fmt::format("{} {}: cannot be written ({})", output.flag, output.path, system_message(errno)));
}

void require_replaceable(const Output& output) {
  try {
    require_writable_whole(output.path);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{} {}", output.flag, error.what()));
  }
}

/// The folder is made once the run has begun: that it can be is what its nearest parent that exists says.
void require_folder(const std::string& flag, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path place = fs::absolute(path, error).lexically_normal();
  while (!fs::exists(place, error) && place.has_relative_path()) place = place.parent_path();
  if (!fs::is_directory(place, error)) {
    throw ConfigError(fmt::format("{} {}: {} is no folder", flag, path, place.string()));
  }
  if (::access(place.c_str(), W_OK | X_OK) != 0) {
    throw ConfigError(fmt::format("{} {}: cannot be written ({})", flag, path, system_message(errno)));
  }
}

}  // namespace

void require_outputs(const TrainOptions& options) {
  if (!options.tensor_memory.empty() && options.device != DeviceKind::Cpu) {
    throw ConfigError("--tensor-memory counts tensors on the CPU; leave it out with --device cuda");
  }
  std::vector<Output> given;
  for (const Output& output : std::initializer_list<Output>{{"--metrics", options.metrics},
                                                            {"--trace", options.trace},
                                                            {"--op-times", options.op_times},
                                                            {"--tensor-memory", options.tensor_memory},
                                                            {"--timeline", options.timeline},
                                                            {"--report", options.report}}) {
    if (output.path.empty()) continue;
    require_no_input(output, options);
    for (const Output& other : given) require_distinct(output, other);
    given.push_back(output);
  }
  if (!options.tensorboard.empty()) require_folder("--tensorboard", options.tensorboard);
  if (!options.checkpoint.folder.empty()) require_folder("--checkpoint", options.checkpoint.folder);
  if (!options.export_folder.empty() && is_same_file(options.export_folder, options.from)) {
    throw ConfigError(fmt::format("--export {}: is the folder of --from; give another one", options.export_folder));
  }
  for (const Output& output : given) {
    if (&output.path == &options.metrics) {
      require_appendable(output);
    } else {
      require_replaceable(output);
    }
  }
}

}  // namespace chimera

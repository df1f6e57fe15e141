// `chimera checkpoint ACTION`. actions() is the table of actions. Each makes its answer twice, as rows of JSON and as
// text, and print() shows one of them. What is wrong with a checkpoint is an answer of `list` and `verify`, not an
// error.

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/diff.h"
#include "checkpoint/manifest.h"
#include "checkpoint/verify.h"
#include "commands.h"
#include "core/cgroup.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/mapped.h"
#include "flags/outputs.h"

namespace chimera::apps {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDiff = "diff";  // the only action with two checkpoints

struct CheckpointCommand {
  std::string path;
  std::string other;
  Format format = Format::Text;
};

std::uint64_t bytes_of(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const FileEntry& file : manifest.files) bytes += file.bytes;
  return bytes;
}

std::string in_megabytes(std::uint64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6); }

std::string field_text(const Json& value) { return value.is_string() ? std::string(value) : json_text(value); }

Json loss_of(const Manifest& manifest) { return manifest.run.value(Json::json_pointer("/progress/loss"), Json()); }

/// Returns the path itself if it is a checkpoint. A step folder without a manifest counts as a damaged checkpoint,
/// which the caller reports. Throws CheckpointError if there is none.
std::vector<std::string> checkpoints_at(const std::string& path) {
  // A folder of checkpoints means all of them.
  if (const auto steps = list_steps(path); !steps.empty())
    return mapped(steps, [&](std::int64_t step) { return checkpoint_path(path, step); });
  namespace fs = std::filesystem;
  if (path_exists(path + "/" + kManifestName) || step_of_name(fs::path(path).filename().string())) return {path};
  if (!is_folder(path)) throw CheckpointError(path + ": is not a folder of checkpoints");
  // Says why no folder counts: unfinished saves look like checkpoints to a user.
  const NewestCheckpoint none = newest_checkpoint(path, 0);
  throw CheckpointError(path + ": has no checkpoints" + (none.rejected.empty() ? "" : "; " + none.rejected.front()));
}

Checkpoint one_checkpoint(const std::string& path) {
  NewestCheckpoint newest = find_checkpoint(path, available_cores());
  report_rejected(newest);
  return *std::move(newest.checkpoint);
}

/// Returns the exit code.
int print(const CheckpointCommand& command, const Json& json, const std::string& text,
          ExitCode code = ExitCode::Success) {
  write_output("", command.format == Format::Json ? json_report(json) : text, command.format);
  return static_cast<int>(code);
}

int list(const CheckpointCommand& command) {
  Json rows = Json::array();
  std::string text;
  for (const std::string& path : checkpoints_at(command.path)) {
    try {
      // A damaged checkpoint has a row with its error, because a list that ended there would hide the good ones.
      const Manifest manifest = read_manifest(path);
      const Json loss = loss_of(manifest);
      rows.push_back({{"path", path}, {"step", manifest.step}, {"bytes", bytes_of(manifest)}, {"loss", loss}});
      text += fmt::format("{}  step {}  {}  {}\n", path, manifest.step, in_megabytes(bytes_of(manifest)),
                          loss.is_number() ? fmt::format("loss {:.4f}", loss.get<double>()) : "no loss");
    } catch (const CheckpointError& error) {
      rows.push_back({{"path", path}, {"error", error.what()}});
      text += fmt::format("{}\n", error.what());
    }
  }
  return print(command, {{"checkpoints", rows}}, text);
}

constexpr std::size_t kLongText = 100;  // Random states of Python, for example

int show(const CheckpointCommand& command) {
  const std::string path = checkpoints_at(command.path).back();
  const Manifest manifest = read_manifest(path);
  Json json = {{"path", path}, {"step", manifest.step}, {"run", manifest.run}, {"files", Json::array()}};
  std::string text = fmt::format("{}: step {}\n", path, manifest.step);
  for (const auto& section : manifest.run.items()) {
    const Json& fields = section.value();
    text += section.key() + ":";
    if (!fields.is_object()) {
      const std::string words = field_text(fields);
      text += " " + (words.size() > kLongText ? words.substr(0, kLongText) + "..." : words);
    } else {
      for (auto field = fields.begin(); field != fields.end(); ++field)
        text += fmt::format(" {}={}", field.key(), field_text(*field));
    }
    text += "\n";
  }
  for (const FileEntry& file : manifest.files) {
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}});
    text += fmt::format("{:>14}  {}\n", file.bytes, file.name);
  }
  return print(command, json, text);
}

std::vector<std::string> faults_of(const std::string& path) {
  try {
    return mapped(verify_files(path, read_manifest(path), available_cores()),
                  [&](const FileFault& fault) { return fmt::format("{}/{}: {}", path, fault.file, fault.what); });
  } catch (const CheckpointError& error) {
    return {error.what()};
  }
}

int verify(const CheckpointCommand& command) {
  Json rows = Json::array();
  std::string text;
  bool all_good = true;
  for (const std::string& path : checkpoints_at(command.path)) {
    const std::vector<std::string> faults = faults_of(path);
    all_good = all_good && faults.empty();
    rows.push_back({{"path", path}, {"good", faults.empty()}, {"faults", faults}});
    if (faults.empty()) text += fmt::format("{}: good\n", path);
    for (const std::string& fault : faults) text += fault + "\n";
  }
  return print(command, {{"checkpoints", rows}}, text, all_good ? ExitCode::Success : ExitCode::No);
}

int diff(const CheckpointCommand& command) {
  const Checkpoint first = one_checkpoint(command.path);
  const Checkpoint second = one_checkpoint(command.other);
  const auto differing = compare_tensors(CheckpointTensors(first.path, first.manifest),
                                         CheckpointTensors(second.path, second.manifest), available_cores());
  Json rows = Json::array();
  std::string text;
  for (const TensorDifference& tensor : differing) {
    // A tensor that only one side has, or of another shape or type, has no elements to compare.
    if (!tensor.reason.empty()) {
      rows.push_back({{"tensor", tensor.name}, {"reason", tensor.reason}});
      text += fmt::format("{}: {}\n", tensor.name, tensor.reason);
      continue;
    }
    rows.push_back({{"tensor", tensor.name},
                    {"elements", tensor.elements},
                    {"differing", tensor.differing},
                    {"largest", tensor.largest},
                    {"relative", tensor.relative}});
    text += fmt::format("{}: {} of {} elements, by {:.3g} at most, relative {:.3g}\n", tensor.name, tensor.differing,
                        tensor.elements, tensor.largest, tensor.relative);
  }
  if (differing.empty()) text = "equal in every bit\n";
  return print(command, {{"first", first.path}, {"second", second.path}, {"tensors", rows}}, text,
               differing.empty() ? ExitCode::Success : ExitCode::No);
}

/// An action returns the exit code.
struct Action {
  const char* name;
  const char* description;
  const char* path;  // name of the first argument
  const char* more;  // examples and text
  std::function<int(const CheckpointCommand&)> run;
};

const std::vector<Action>& actions() {
  static const std::vector<Action> all = {
      {"list", "List the checkpoints of a folder", "FOLDER",
       "  chimera checkpoint list run\n"
       "  chimera checkpoint list run --format json\n",
       list},
      {"show", "Show the manifest of a checkpoint", "CHECKPOINT",
       "  chimera checkpoint show run\n"
       "  chimera checkpoint show run/step-00000100 --format json\n"
       "\nIf the argument is a folder of checkpoints, the newest one is shown.\n",
       show},
      {"verify", "Verify all bytes against their hashes", "CHECKPOINT",
       "  chimera checkpoint verify run\n"
       "  chimera checkpoint verify run/step-00000100\n"
       "\nIf the argument is a folder of checkpoints, all are verified.\n"
       "\nExit codes: 0 all are valid; 1 one is not.\n",
       verify},
      {kDiff, "List tensors that differ, and by how much", "FIRST",
       "  chimera checkpoint diff run other\n"
       "  chimera checkpoint diff run other/step-00000100 --format json\n"
       "\nIf an argument is a folder of checkpoints, its newest valid one is compared.\n"
       "\nExit codes: 0 they are equal; 1 they differ.\n",
       diff}};
  return all;
}

}  // namespace

void add_checkpoint(CLI::App& program, const Invocation&, int& exit_code) {
  auto* command = program.add_subcommand("checkpoint", "Inspect checkpoints: list, show, verify, diff");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n"
      "  chimera checkpoint list run\n"
      "  chimera checkpoint verify run/step-00000100\n"
      "  chimera checkpoint diff run other/step-00000100 --format json\n"
      "\nA folder of checkpoints stands for its newest valid checkpoint. `chimera export` converts a checkpoint for "
      "transformers.\n"
      "\nMore: docs/checkpoints.md");
  for (const Action& action : actions()) {
    auto options = std::make_shared<CheckpointCommand>();
    auto* inner = command->add_subcommand(action.name, action.description);
    inner->footer(fmt::format("Examples:\n{}\nMore: docs/checkpoints.md", action.more));
    inner->add_option(action.path, options->path, "a checkpoint, or a folder of checkpoints")->required();
    if (std::string_view(action.name) == kDiff) {
      inner->add_option("SECOND", options->other, "the checkpoint to compare with, or a folder of checkpoints")
          ->required();
    }
    add_format(*inner, options->format, {Format::Text, Format::Json});
    inner->callback([options, &action, &exit_code] {
      try {
        exit_code = action.run(*options);
      } catch (const CheckpointError& error) {  // the argument names no checkpoint, or a damaged one
        throw ConfigError(error.what());
      }
    });
  }
}

}  // namespace chimera::apps

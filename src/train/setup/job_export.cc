#include "train/setup/job_export.h"

#include "checkpoint/checkpoint_folder.h"
#include "core/files.h"
#include "core/reject.h"
#include "hugging_face/config_json.h"
#include "hugging_face/staged_folder.h"

namespace chimera {

namespace {

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

#include "train/setup/job_export.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/error.h"
#include "core/reject.h"
#include "hugging_face/config_json.h"
#include "hugging_face/staged_folder.h"

namespace chimera {

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
    // At the start, because a full disk or a wrong name must not show after days of training.
    require_new_folder(folder, bytes, {options.model.from, options.data.tokenizer});
    std::error_code none;  // Another run may hold an empty folder
    if (options.output.reports && std::filesystem::exists(folder, none)) const FolderHold tried(folder);
  } catch (const ConfigError& error) {
    reject("--export {}", error.what());
  }
}

}  // namespace chimera

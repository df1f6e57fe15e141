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

ExportPlan plan_job_export(const Job& job) {
  return plan_export(exported_tensors(job.model, export_type(job.options)), job.options.exported.shard_bytes);
}

void require_exportable(const Job& job) {
  const ElementType type = export_type(job.options);
  if (!job.from) (void)to_config_json(job.model, type);
  std::uint64_t bytes = 0;
  for (const ExportFile& file : plan_job_export(job).files) bytes += file.layout.file_bytes;
  try {
    const std::string& folder = job.options.exported.folder;
    require_new_folder(folder, bytes, {job.options.model.from, job.options.data.tokenizer});
    std::error_code none;  // Another run may hold an empty folder
    if (job.options.output.reports && std::filesystem::exists(folder, none)) const FolderHold tried(folder);
  } catch (const ConfigError& error) {
    reject("--export {}", error.what());
  }
}

}  // namespace chimera

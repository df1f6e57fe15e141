#include "export_flags.h"

#include <fmt/format.h>

#include "core/error.h"
#include "hugging_face/config_json.h"
#include "hugging_face/export_plan.h"
#include "options.h"

namespace chimera::apps {

CLI::Option* add_element_type(CLI::App& app, const std::string& flag, std::string& word,
                              const std::string& description) {
  return add_word(
      app, flag, element_type_names(),
      [&word, flag](const std::string& given) {
        (void)element_type_of_word(flag, given);
        word = given;
      },
      description);
}

CLI::Option* add_shard_size(CLI::App& app, const std::string& flag, std::uint64_t& bytes) {
  return app
      .add_option_function<std::string>(
          flag, [&bytes, flag](const std::string& text) { bytes = parse_bytes(flag, text); },
          "maximum bytes of tensors per file, such as 300MB (default 5GB)")
      ->type_name("SIZE");
}

void ExportFlags::add_to(CLI::App& app, TrainOptions& options) {
  add_path(app, "--export", options.export_folder,
           "write the trained model to this new folder when the run ends, for transformers", PathKind::Folder);
  details = {add_element_type(app, "--export-dtype", options.export_dtype,
                              "type of the exported tensors (default: the type of the weights, float32 or float64)"),
             add_shard_size(app, "--export-shard-size", options.export_shard_bytes)};
}

void ExportFlags::check_flags(const TrainOptions& options) const {
  for (const CLI::Option* option : details) {
    if (option->count() > 0 && options.export_folder.empty()) {
      throw ConfigError(fmt::format("{} is for --export", option->get_name()));
    }
  }
}

}  // namespace chimera::apps

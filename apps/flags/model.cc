#include "flags/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "answers/model_request.h"
#include "flags/flag_door.h"
#include "flags/values.h"
#include "hugging_face/config_json.h"
#include "hugging_face/export_plan.h"

namespace chimera::apps {

void add_model_fields(CLI::App& app, ModelOverrides& fields) {
  FlagDoor door(app);
  visit_overrides(door, fields);
}

CLI::Option* add_element_type(CLI::App& app, const std::string& flag, std::string& word,
                              const std::string& description) {
  const auto take = [&word, flag](const std::string& given) {
    // For its error. The word is kept, because an empty one means another default in each command.
    (void)element_type_of_word(flag, given);
    word = given;
  };
  return add_word(app, flag, element_type_names(), take, description);
}

CLI::Option* add_shard_size(CLI::App& app, const std::string& flag, std::uint64_t& bytes) {
  return add_text(
      app, flag, [&bytes, flag](const std::string& text) { bytes = parse_bytes(flag, text); }, "SIZE",
      "maximum bytes of tensors per file, such as 300MB (default 5GB)");
}

void add_partition(CLI::App& app, PartitionChoice& partition) {
  add_text(
      app, "--partition", [&partition](const std::string& text) { partition = parse_partition(text); }, "CUT",
      fmt::format(
          "how layers are distributed over stages: even; balanced, which shortens the step that FLOPs and bytes "
          "predict; auto: balanced where it is faster; or blocks per stage such as 8,9,9,6 (default {})",
          to_text(partition)));
}

std::string preset_list() { return fmt::format("{}", fmt::join(preset_names(), ", ")); }

}  // namespace chimera::apps

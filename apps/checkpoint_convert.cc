#include "checkpoint_convert.h"

#include <optional>

#include "core/error.h"
#include "hugging_face/config_json.h"

#ifdef CHIMERA_WITH_TORCH
#include "train/export/export_model.h"
#endif

namespace chimera::apps {

void convert_checkpoint(const std::string& checkpoint, const ConvertOptions& options) {
#ifdef CHIMERA_WITH_TORCH
  std::optional<ElementType> type;
  if (!options.dtype.empty()) type = element_type_of_word("--dtype", options.dtype);
  convert_folder(checkpoint, options.output, type, options.shard_bytes, options.tokenizer);
#else
  (void)checkpoint, (void)options;
  throw ConfigError("checkpoint convert needs LibTorch, and this program was built without it");
#endif
}

}  // namespace chimera::apps

#pragma once
// `chimera checkpoint convert`: a checkpoint as a Hugging Face folder, which is `chimera export` of the folder that a
// checkpoint is.

#include <cstdint>
#include <string>

#include "hugging_face/export_plan.h"

namespace chimera::apps {

struct ConvertOptions {
  std::string output;
  std::string dtype;      // empty: each tensor's own
  std::string tokenizer;  // empty: that of the checkpoint's run, where it is known
  std::uint64_t shard_bytes = kDefaultShardBytes;
};

/// Writes the folder. Needs LibTorch; without it throws ConfigError.
void convert_checkpoint(const std::string& checkpoint, const ConvertOptions& options);

}  // namespace chimera::apps

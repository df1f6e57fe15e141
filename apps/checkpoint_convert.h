#pragma once

#include <cstdint>
#include <string>

#include "hugging_face/export_plan.h"

namespace chimera::apps {

struct ConvertOptions {
  std::string output;
  std::string dtype;      // empty: unchanged
  std::string tokenizer;  // empty: the run's tokenizer, if recorded
  std::uint64_t shard_bytes = kDefaultShardBytes;
};

/// Throws ConfigError without LibTorch.
void convert_checkpoint(const std::string& checkpoint, const ConvertOptions& options);

}  // namespace chimera::apps

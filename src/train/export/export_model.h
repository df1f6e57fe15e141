#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/parameter_group.h"
#include "safetensors/element_type.h"
#include "train/setup/job.h"
#include "transport/transport.h"

// Export of a model as a Hugging Face folder.

namespace chimera {

/// Writes the model of folder `source` into the new folder `output`: all tensors under the names of transformers 5, in
/// files of at most `shard_bytes`. Rounds tensors to `type` if given. Copies configs and the tokenizer's files, from
/// `tokenizer` unless it is empty. Memory holds only one block of a tensor. Throws ConfigError if ModelFolder rejects
/// the source, the tokenizer is unreadable or too large for the model, or the output cannot be written. After an error
/// there is no output folder.
void convert_folder(const std::string& source, const std::string& output, std::optional<ElementType> type,
                    std::uint64_t shard_bytes, const std::string& tokenizer);

/// Writes the weights to the folder of --export. All ranks call it; each writes its `own` groups into preallocated
/// files, so no rank holds the whole model. `own` must cover each parameter on exactly one rank. Rank 0 adds
/// config.json, generation_config.json and the tokenizer's files if known. The folder appears atomically. Throws
/// ConfigError on a rank that cannot write, PeerLostError on the others.
void export_model(const Job& job, const std::vector<const ParameterGroup*>& own, RankId rank, Transport& transport);

}  // namespace chimera

#pragma once

// The model as a new Hugging Face folder, which from_pretrained loads: from a folder or checkpoint (`chimera export`),
// or from the ranks at the end of a training (`train --export`). Both plan the files first, with all sizes, and write
// each tensor into its place block by block, so that nobody holds the whole model. The folder appears when it is
// complete (StagedFolder).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/parameter_group.h"
#include "safetensors/element_type.h"
#include "train/setup/job.h"
#include "transport/transport.h"

namespace chimera {

/// Writes the model in folder `source` to the new folder `output`. Tensors have the names that transformers 5 uses, in
/// files of at most `shard_bytes`, rounded to `type` if given. Copies the configs and the tokenizer's files; a
/// `tokenizer` that is not empty replaces the tokenizer of `source`. Holds only one block of a tensor in memory.
///
/// Throws ConfigError if ModelFolder rejects the source, if the tokenizer is unreadable or too large for the model, or
/// if the output exists or cannot be written. An error leaves no new folder.
void convert_folder(const std::string& source, const std::string& output, std::optional<ElementType> type,
                    std::uint64_t shard_bytes, const std::string& tokenizer);

/// Throws ConfigError if the folder of --export cannot be created, or if transformers has no class for the model. Call
/// it before a training, whose end is too late for such an error.
void require_exportable(const Job& job);

/// All ranks call it. Each writes its `own` parameters into preallocated files, so no rank holds the whole model. `own`
/// must cover each parameter on exactly one rank. Rank 0 adds config.json, generation_config.json and the tokenizer's
/// files if known. The folder appears atomically. Throws ConfigError on a rank that cannot write, PeerLostError on the
/// others.
void export_model(const Job& job, const std::vector<Parameter>& own, RankId rank, Transport& transport);

}  // namespace chimera

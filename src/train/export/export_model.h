#pragma once

// Writes a model as a new Hugging Face folder, which from_pretrained() of transformers loads. convert_folder() converts
// a folder or a checkpoint, for `chimera export`. export_model() writes the weights of the ranks at the end of a
// training run, for `train --export`. Both first plan all files (plan_export()), and then write each
// tensor to its position, block by block, so that no process holds the whole model in memory. The folder appears only
// when it is complete.

#include "model/parameter_group.h"
#include "safetensors/element_type.h"
#include "train/setup/job.h"
#include "transport/transport.h"

namespace chimera {

/// Writes the model in folder `source` to the new folder `output`. Tensors have the names that transformers 5 uses. If
/// `type` is given, the elements of tensors are converted to this type, with rounding. Each file has at most
/// `shard_bytes` bytes of tensors. Copies the configuration and the tokenizer's files; if `tokenizer` is not empty, it
/// replaces the tokenizer of `source`. Holds only one block of a tensor in memory.
///
/// Throws ConfigError if ModelFolder rejects the source, if the tokenizer is unreadable or too large for the model, or
/// if the output exists or cannot be written. An error leaves no new folder.
void convert_folder(const std::string& source, const std::string& output, std::optional<ElementType> type,
                    std::uint64_t shard_bytes, const std::string& tokenizer);

/// Writes the model of a job to the folder of --export. All ranks call it. Each writes its `own` parameters into
/// preallocated files, so no rank holds the whole model. `own` must cover each parameter on exactly one rank. Rank 0
/// adds config.json, generation_config.json and the tokenizer's files if known. The folder appears atomically. Throws
/// CheckpointError on a rank that cannot write, PeerFinalError on the others. Returns the folder's name on rank 0
/// (StagedFolder::commit()).
std::string export_model(const Job& job, const std::vector<Parameter>& own, RankId rank, Transport& transport);

}  // namespace chimera

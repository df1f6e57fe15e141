#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hugging_face/export_plan.h"
#include "model/parameter_group.h"
#include "safetensors/element_type.h"
#include "train/setup/job.h"
#include "transport/transport.h"

// A model's folder, written anew.

// A trained model as a Hugging Face folder.

namespace chimera {

/// Writes the model of the folder `source` into the new folder `output`: every tensor with its own bytes or, where
/// `type` is given, rounded to that, under the names that transformers 5 writes, in files of at most `shard_bytes`.
/// Configs and the tokenizer's files come along; with `tokenizer` (as open_tokenizer takes it, or empty) that one's. No
/// more than a block of a tensor is in memory. Throws ConfigError for a source that ModelFolder refuses, for a
/// tokenizer that cannot be read or has more tokens than the model, and where the output cannot be written; it then is
/// not there.
void convert_folder(const std::string& source, const std::string& output, std::optional<ElementType> type,
                    std::uint64_t shard_bytes, const std::string& tokenizer);

/// What the files of --export will be.
[[nodiscard]] ExportPlan planned_export(const JobShape& job);

/// Throws ConfigError where the folder of --export could not be made now, or no class of transformers is like the
/// model.
void require_exportable(const JobShape& job);

/// Writes the weights of all ranks, which all call it, to the folder of --export: each rank its own, into files that
/// have their full size already, so that none ever holds the model. `own`: those for whose parameters this rank
/// answers, each of the model on one rank. Rank 0 adds config.json, generation_config.json and the files of the
/// tokenizer that made the tokens, where it is known. The folder appears whole or not at all. Throws ConfigError on a
/// rank that cannot write, PeerLostError on the others.
void export_model(const Job& job, const std::vector<const ParameterGroup*>& own, RankId rank, Transport& transport);

}  // namespace chimera

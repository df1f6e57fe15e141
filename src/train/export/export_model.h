#pragma once
// A trained model as a Hugging Face folder.

#include <vector>

#include "hugging_face/export_plan.h"
#include "model/parameter_group.h"
#include "train/setup/job.h"
#include "transport/transport.h"

namespace chimera {

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

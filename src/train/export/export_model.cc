#include "train/export/export_model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "hugging_face/config_json.h"
#include "hugging_face/model_folder.h"
#include "hugging_face/staged_folder.h"
#include "hugging_face/stored_names.h"
#include "launch/local/rank.h"
#include "model/element_types.h"
#include "tokenizer/tokenizer_folder.h"
#include "train/setup/data_tokenizer.h"

namespace chimera {
namespace {

/// [name in the output]
using Sources = std::map<std::string, WeightFiles::Found>;

void copy_elements(const WeightFiles::Found& source, const TensorEntry& tensor, PartWriter& writer) {
  const at::ScalarType stored = floating_type(source.tensor.type);
  const at::Tensor block = at::empty({kBlockOfElements}, stored);
  const auto stored_bytes = static_cast<std::uint64_t>(block.element_size());
  const auto elements = static_cast<std::int64_t>(source.tensor.bytes / stored_bytes);
  std::uint64_t at = tensor.begin;
  for_each_block(elements, [&](std::int64_t first, std::int64_t count) {
    const at::Tensor part = block.narrow(0, 0, count);
    source.file->read(source.tensor, static_cast<std::uint64_t>(first) * stored_bytes,
                      {static_cast<std::byte*>(part.mutable_data_ptr()), part.nbytes()});
    const at::Tensor block_of_file = convert(part, tensor.type, tensor.name);
    writer.write(at, {static_cast<const std::byte*>(block_of_file.const_data_ptr()), block_of_file.nbytes()});
    at += block_of_file.nbytes();
  });
}

}  // namespace

void convert_folder(const std::string& source, const std::string& output, std::optional<ElementType> type,
                    std::uint64_t shard_bytes, const std::string& tokenizer) {
  const ModelFolder folder(source);
  const std::string chosen = tokenizer.empty() ? tokenizer_of_folder(source) : tokenizer;
  if (makes_bytes(chosen)) require_room_for_bytes(folder.model());
  const DataTokenizer fitting(chosen, nullptr, folder.model());
  Sources sources;
  std::vector<TensorEntry> tensors;
  for (const ParameterSpec& parameter : all_parameters(folder.model())) {
    const WeightFiles::Found found = folder.find(parameter);
    for (const std::string& name : exported_names(folder.model(), parameter.name)) {
      tensors.push_back({.name = name, .type = type.value_or(found.tensor.type), .shape = found.tensor.shape});
      sources[name] = found;
    }
  }
  const ExportPlan plan = plan_export(std::move(tensors), shard_bytes);
  std::uint64_t bytes = 0;
  for (const ExportFile& file : plan.files) bytes += file.layout.file_bytes;
  require_new_folder(output, bytes, {source, tokenizer});
  StagedFolder staged(output);
  staged.make_weights(plan);
  for (const ExportFile& file : plan.files) {
    PartWriter writer(staged.path() + "/" + file.name);
    for (const TensorEntry& tensor : file.layout.tensors) copy_elements(sources.at(tensor.name), tensor, writer);
    writer.finish();
  }
  add_description(staged, folder.model(), &folder, type);
  add_tokenizer(staged, folder.model(), chosen.empty() ? source : chosen);
  staged.commit();
}

namespace {

/// Returns the sum over all ranks. If `act` throws on a rank, all ranks throw.
double in_agreement(Transport& transport, const std::function<double()>& act) {
  std::vector<double> failures_and_number = {0, 0};
  std::exception_ptr failure;
  try {
    failures_and_number[1] = act();
  } catch (...) {
    failure = std::current_exception();
    failures_and_number[0] = 1;
  }
  transport.all_sum(failures_and_number);
  if (failure) std::rethrow_exception(failure);
  if (failures_and_number[0] > 0) throw PeerLostError("another rank could not write its part of --export");
  return failures_and_number[1];
}

struct Destination {
  const ExportFile* file = nullptr;
  const TensorEntry* tensor = nullptr;
};

std::map<std::string, Destination> destinations_of(const ExportPlan& plan) {
  std::map<std::string, Destination> destinations;
  for (const ExportFile& file : plan.files) {
    for (const TensorEntry& tensor : file.layout.tensors) destinations[tensor.name] = {&file, &tensor};
  }
  return destinations;
}

/// Converts and writes block by block.
void write_elements(const at::Tensor& value, const TensorEntry& tensor, PartWriter& writer) {
  const at::Tensor flat = value.detach().view({-1});
  std::uint64_t at = tensor.begin;
  for_each_block(flat.numel(), [&](std::int64_t first, std::int64_t count) {
    const at::Tensor block = convert(flat.narrow(0, first, count), tensor.type, tensor.name);
    writer.write(at, {static_cast<const std::byte*>(block.const_data_ptr()), block.nbytes()});
    at += block.nbytes();
    note_progress({RankProgress::Phase::Ending});
  });
}

void write_own(const ModelConfig& model, const std::vector<const ParameterGroup*>& own, const ExportPlan& plan,
               const std::string& folder) {
  const std::map<std::string, Destination> destinations = destinations_of(plan);
  std::map<const ExportFile*, PartWriter> writers;
  for (const ParameterGroup* group : own) {
    for (const Parameter& parameter : group->parameters()) {
      for (const std::string& name : exported_names(model, parameter.name)) {
        const Destination& destination = destinations.at(name);
        auto writer = writers.find(destination.file);
        if (writer == writers.end()) {
          writer = writers.emplace(destination.file, PartWriter(folder + "/" + destination.file->name)).first;
        }
        write_elements(parameter.value, *destination.tensor, writer->second);
      }
    }
  }
  for (auto& [file, writer] : writers) writer.finish();
}

}  // namespace

void export_model(const Job& job, const std::vector<const ParameterGroup*>& own, RankId rank, Transport& transport) {
  const std::string& folder = job.options.export_folder;
  const ExportPlan plan = planned_export(job);
  std::optional<StagedFolder> staged;  // Rank 0 only
  const double number = in_agreement(transport, [&] {
    if (rank != RankId(0)) return 0.0;
    staged.emplace(folder).make_weights(plan);
    return static_cast<double>(staged->number());
  });
  in_agreement(transport, [&] {
    write_own(job.model, own, plan, StagedFolder::path_of(folder, static_cast<std::int64_t>(number)));
    return 0.0;
  });
  in_agreement(transport, [&] {
    if (rank != RankId(0)) return 0.0;
    add_description(*staged, job.model, job.from.get(), export_type(job.options));
    add_tokenizer(*staged, job.model, job.tokenizer);
    staged->commit();
    return 0.0;
  });
}

}  // namespace chimera

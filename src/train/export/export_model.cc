#include "train/export/export_model.h"

#include <ATen/ATen.h>

#include "core/fault_point.h"
#include "hugging_face/model_folder.h"
#include "hugging_face/staged_folder.h"
#include "hugging_face/stored_names.h"
#include "launch/local/rank.h"
#include "model/element_types.h"
#include "tokenizer/tokenizer_folder.h"
#include "train/recover/final_error.h"
#include "train/setup/data_tokenizer.h"
#include "train/setup/job_outputs.h"

// Two ways to the same folder. convert_folder() is one process that reads a folder or a checkpoint, and export_model()
// is the end of a run, in which each rank has some of the tensors. Both make a plan first, which gives every tensor its
// file and offset. So writers need not know of each other, and nothing has to fit into memory at once.

namespace chimera {
namespace {

struct TensorSource {
  std::int64_t elements = 0;
  std::function<at::Tensor(std::int64_t first, std::int64_t count)> read;  // returns a part, flat
};
using TensorSources = std::map<std::string, TensorSource>;  // by name in the output

/// Converts and writes block by block.
void write_tensor(const TensorEntry& tensor, const TensorSource& source, PartWriter& writer) {
  std::uint64_t at = tensor.begin;
  for_each_block(source.elements, [&](std::int64_t first, std::int64_t count) {
    const at::Tensor block = convert(source.read(first, count), tensor.type, tensor.name);
    writer.write(at, {static_cast<const std::byte*>(block.const_data_ptr()), block.nbytes()});
    // Blocks have a bounded number of elements, so this loop needs little memory for a tensor of any size.
    at += block.nbytes();
    note_more_progress();
  });
}

/// Other ranks may write the other tensors of the plan.
void write_tensors(const ExportPlan& plan, const TensorSources& sources, const std::string& folder) {
  for (const ExportFile& file : plan.files) {
    std::optional<PartWriter> writer;
    for (const TensorEntry& tensor : file.layout.tensors) {
      const auto source = sources.find(tensor.name);
      if (source == sources.end()) continue;
      // A file without a tensor of this rank is not opened.
      if (!writer) writer.emplace(folder + "/" + file.name);
      write_tensor(tensor, source->second, *writer);
    }
    if (writer) writer->finish();
  }
}

TensorSource source_in_file(const WeightFiles::Found& found) {
  const at::ScalarType stored = floating_type(found.tensor.type);
  const std::uint64_t bytes = c10::elementSize(stored);
  return {.elements = static_cast<std::int64_t>(found.tensor.bytes / bytes),
          .read = [found, stored, bytes](std::int64_t first, std::int64_t count) {
            at::Tensor part = at::empty({count}, stored);
            found.file->read(found.tensor, static_cast<std::uint64_t>(first) * bytes,
                             {static_cast<std::byte*>(part.mutable_data_ptr()), part.nbytes()});
            return part;
          }};
}

TensorSources own_sources(const ModelConfig& model, const std::vector<Parameter>& own) {
  // A tied matrix has one parameter but may have two names, for example of embedding and head.
  TensorSources sources;
  for (const Parameter& parameter : own) {
    // On a device, each block is copied to the host by convert().
    const at::Tensor flat = parameter.value.detach().reshape({-1});  // A part may be a view
    for (const std::string& name : exported_names(model, parameter.name)) {
      sources[name] = {.elements = flat.numel(),
                       .read = [flat](std::int64_t first, std::int64_t count) { return flat.narrow(0, first, count); }};
    }
  }
  return sources;
}

}  // namespace

void convert_folder(const std::string& source, const std::string& output, std::optional<ElementType> type,
                    std::uint64_t shard_bytes, const std::string& tokenizer) {
  const ModelFolder folder(source);
  const std::string chosen = tokenizer.empty() ? tokenizer_of_folder(source) : tokenizer;
  if (makes_bytes(chosen)) require_room_for_bytes(folder.model());
  // Checks that the tokenizer fits the model.
  const DataTokenizer fitting(chosen, nullptr, folder.model());
  TensorSources sources;
  std::vector<TensorEntry> tensors;
  for (const ParameterSpec& parameter : all_parameters(folder.model())) {
    const WeightFiles::Found found = folder.find(parameter);
    for (const std::string& name : exported_names(folder.model(), parameter.name)) {
      tensors.push_back({.name = name, .type = type.value_or(found.tensor.type), .shape = found.tensor.shape});
      sources[name] = source_in_file(found);
    }
  }
  const ExportPlan plan = plan_export(std::move(tensors), shard_bytes);
  std::uint64_t bytes = 0;
  for (const ExportFile& file : plan.files) bytes += file.layout.file_bytes;
  // The sizes are known before the first byte is written, so a disk that is too small is found now.
  require_new_folder(output, bytes, {source, tokenizer});
  StagedFolder staged(output);
  staged.make_weights(plan);
  write_tensors(plan, sources, staged.path());
  const std::string& from = chosen.empty() ? source : chosen;
  add_description(staged, folder.model(), &folder, type);
  add_tokenizer(staged, folder.model(), from, tokenizer_texts(from));
  staged.commit();
}

std::string export_model(const Job& job, const std::vector<Parameter>& own, RankId rank, Transport& transport) {
  const std::string& folder = job.options.exported.folder;
  const ExportPlan plan = plan_job_export(job.model, job.options);
  // Three phases: rank 0 creates files of full size and the description, all ranks write their tensors at their
  // offsets, and rank 0 renames the folder, which is complete by then, to its final name.
  std::optional<StagedFolder> staged;  // Rank 0 only
  const double number = sum_in_agreement(transport, [&] {
    if (rank != RankId(0)) return 0.0;
    staged.emplace(folder).make_weights(plan);
    add_description(*staged, job.model, job.from.get(), export_type(job.options));
    add_tokenizer(*staged, job.model, job.data.tokenizer, job.data.tokenizer_texts);
    return static_cast<double>(staged->number());
  });
  sum_in_agreement(transport, [&] {
    fault_point("export");
    write_tensors(plan, own_sources(job.model, own), StagedFolder::path_of(folder, static_cast<std::int64_t>(number)));
    return 0.0;
  });
  std::string name;
  sum_in_agreement(transport, [&] {
    if (rank == RankId(0)) name = staged->commit();
    return 0.0;
  });
  return name;
}

}  // namespace chimera

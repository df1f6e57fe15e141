#include "train/export/convert_folder.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "hugging_face/folder_files.h"
#include "hugging_face/model_folder.h"
#include "hugging_face/staged_folder.h"
#include "hugging_face/stored_names.h"
#include "model/element_types.h"
#include "tokenizer/tokenizer.h"
#include "train/setup/data_tokenizer.h"

namespace chimera {
namespace {

/// The tensor of the source that each tensor of the output is.
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
    const at::Tensor block_of_file = converted(part, tensor.type, tensor.name);
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
  require_new_folder(output, bytes);
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

}  // namespace chimera

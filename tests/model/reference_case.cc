#include "model/reference_case.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "model/layers.h"
#include "model/make_stage.h"

namespace chimera {
namespace {

/// The metadata holds the model file.
ModelConfig config_of(const std::string& path, const LoadedTensors& file) {
  const std::string model_file = path + ".model.toml";
  std::ofstream(model_file) << file.metadata.at("model_file");
  ModelConfig config = find_model(model_file);
  std::filesystem::remove(model_file);
  return config;
}

/// Returns the tensor of that name, or an undefined one.
at::Tensor find_tensor(const LoadedTensors& file, const std::string& name) {
  const auto found = file.tensors.find(name);
  return found == file.tensors.end() ? at::Tensor() : found->second;
}

MicroBatch batch_of(const LoadedTensors& file) {
  MicroBatch batch{.tokens = find_tensor(file, "tokens"),
                   .targets = find_tensor(file, "targets"),
                   .token_types = find_tensor(file, "token_types"),
                   .attention_mask = find_tensor(file, "attention_mask"),
                   .next_sentence = find_tensor(file, "next_sentence")};
  batch.token_loss_scale = 1.0 / batch.targets.ne(kIgnored).sum().item<double>();
  batch.sentence_loss_scale = 1.0 / static_cast<double>(batch.tokens.size(0));
  return batch;
}

void set_weights(const ParameterGroup& group, const LoadedTensors& file) {
  const torch::autograd::AutoGradMode no_grad(false);
  for (const Parameter& parameter : group.parameters()) {
    const at::Tensor value = find_tensor(file, "weights/" + parameter.name);
    if (!value.defined() || value.sizes() != parameter.value.sizes())
      throw Error("weights/" + parameter.name + " is missing, or of another shape than the model's");
    parameter.value.copy_(value);
  }
}

}  // namespace

std::unique_ptr<Stage> ReferenceCase::load(const StageLayers& layers) const {
  auto stage = make_stage(config, layers, dtype, initial_values_of(1), tied ? tied->leaves() : TiedLeaves{});
  set_weights(*stage, file);
  return stage;
}

ReferenceCase read_case(const std::string& path) {
  ReferenceCase result;
  result.file = read_safetensors(path);
  result.config =
      config_of(std::filesystem::temp_directory_path() / std::filesystem::path(path).filename(), result.file);
  result.dtype = result.file.metadata.at("dtype") == "float32" ? at::kFloat : at::kDouble;
  result.batch = batch_of(result.file);
  if (!result.config.tied) return result;
  result.tied = make_tied_weight(result.config, {.embedding = true, .head = true}, result.dtype, initial_values_of(1));
  set_weights(*result.tied, result.file);
  return result;
}

}  // namespace chimera

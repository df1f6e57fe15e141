#include "model/module_rules.h"

#include <fmt/format.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>

#include "core/error.h"

namespace chimera {
namespace {

namespace nn = torch::nn;

template <class... Modules>
bool is_any_of(const nn::Module& module) {
  return ((dynamic_cast<const Modules*>(&module) != nullptr) || ...);
}

template <class Module>
bool drops_between_layers(const nn::Module& module) {
  const auto* recurrent = dynamic_cast<const Module*>(&module);
  return recurrent != nullptr && recurrent->options_base.dropout() > 0;
}

bool draws_random_numbers(const nn::Module& module) {
  if (is_any_of<nn::DropoutImpl, nn::Dropout2dImpl, nn::Dropout3dImpl, nn::AlphaDropoutImpl,
                nn::FeatureAlphaDropoutImpl, nn::RReLUImpl, nn::FractionalMaxPool2dImpl, nn::FractionalMaxPool3dImpl>(
          module)) {
    return true;
  }
  if (drops_between_layers<nn::RNNImpl>(module) || drops_between_layers<nn::LSTMImpl>(module) ||
      drops_between_layers<nn::GRUImpl>(module)) {
    return true;
  }
  const auto* attention = dynamic_cast<const nn::MultiheadAttentionImpl*>(&module);
  return attention != nullptr && attention->options.dropout() > 0;
}

/// Why not, in words.
const char* use_in_words(const ModuleUse& use) {
  return use.recomputed ? "where its forward is run again" : "where several workers train copies of it";
}

}  // namespace

void require_repeatable(const Layer& layer, std::int64_t index, const ModuleUse& use) {
  if (!layer.module() || (!use.replicated && !use.recomputed)) return;
  for (const auto& entry : layer.module()->named_modules()) {
    const nn::Module& module = *entry.value();
    const std::string name = entry.key().empty() ? module.name() : fmt::format("{} ({})", module.name(), entry.key());
    for (const auto& buffer : module.named_buffers(/*recurse=*/false)) {
      throw ConfigError(
          fmt::format("layer {}: {} has the buffer '{}', which goes wrong {}; use a module without buffers "
                      "(GroupNorm, LayerNorm), keep constants as plain members, or choose another schedule",
                      index, name, buffer.key(), use_in_words(use)));
    }
    if (draws_random_numbers(module)) {
      throw ConfigError(
          fmt::format("layer {}: {} draws from torch's random generator, which goes wrong {}; "
                      "use chimera::KeyedDropout",
                      index, name, use_in_words(use)));
    }
  }
}

}  // namespace chimera

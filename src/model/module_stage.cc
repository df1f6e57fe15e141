#include "model/module_stage.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>
#include <algorithm>
#include <array>
#include <exception>
#include <mutex>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "core/reject.h"
#include "core/scoped_value.h"
#include "model/dropout.h"
#include "model/split_backward.h"

// A user's code can do things that no pipeline survives: random numbers that differ in a second forward, modules shared
// between stages, writes to an input that another stage still reads, outputs of changing shapes. Everything that can be
// checked is checked when the stage is made or in its forward, and the message names the layer.
//
// A packed message is a flat tensor: the tensors one after the other, each followed by zeros up to the next multiple of
// kMessageAlignment elements. Its type represents all floating-point tensors among them exactly. Bool is sent by value,
// and other types as bytes, one per element, because even bfloat16 represents 0 to 255 exactly.

namespace chimera {
namespace {

constexpr std::int64_t kMessageAlignment = 16;  // elements; a tensor begins at a multiple of 32 bytes or more

/// Floating-point types of 8 bits are sent as bytes, like integers.
bool is_wide(at::ScalarType type) { return at::isFloatingType(type) && at::elementSize(type) > 1; }

bool is_sent_by_value(at::ScalarType type) { return is_wide(type) || type == at::kBool; }

bool is_missing(const TensorShape& shape) { return shape.dtype == at::ScalarType::Undefined; }

std::int64_t message_elements(const TensorShape& shape) {
  if (is_missing(shape)) return 0;
  const std::int64_t elements = c10::multiply_integers(shape.sizes);
  return is_sent_by_value(shape.dtype) ? elements : elements * static_cast<std::int64_t>(at::elementSize(shape.dtype));
}

std::int64_t padding_behind(std::int64_t elements) {
  return (kMessageAlignment - elements % kMessageAlignment) % kMessageAlignment;
}

at::ScalarType message_type(const MessageLayout& layout) {
  at::ScalarType type = at::ScalarType::Undefined;
  for (const TensorShape& shape : layout) {
    if (!is_wide(shape.dtype)) continue;
    // Promotion, not the maximum of sizes: bfloat16 and float16 together need float32.
    type = type == at::ScalarType::Undefined ? shape.dtype : at::promoteTypes(type, shape.dtype);
  }
  return type == at::ScalarType::Undefined ? at::kFloat : type;
}

/// Integers travel as one number per byte, because a floating-point message does not hold large integers exactly.
at::Tensor restored(const at::Tensor& flat, const TensorShape& shape) {
  if (is_missing(shape)) return {};
  const at::Tensor source = shape.has_gradient ? flat : flat.detach();
  if (is_sent_by_value(shape.dtype)) return source.view(shape.sizes).to(shape.dtype);
  // The inverse of pack(): bytes of one element lie side by side again, and are reinterpreted.
  return source.to(at::kByte).view(shape.dtype).view(shape.sizes);
}

std::string describe_shapes(const MessageLayout& layout, bool with_gradients) {
  std::vector<std::string> shapes;
  for (const TensorShape& shape : layout) {
    const bool has_note = with_gradients && !shape.has_gradient;
    shapes.push_back(is_missing(shape)
                         ? "nothing"
                         : fmt::format("[{}] of {}{}", fmt::join(shape.sizes, ", "), c10::toString(shape.dtype),
                                       has_note ? " without a gradient" : ""));
  }
  return fmt::format("{}", fmt::join(shapes, ", "));
}

namespace nn = torch::nn;

template <class... Modules>
bool is_any_of(const nn::Module& module) {
  return ((dynamic_cast<const Modules*>(&module) != nullptr) || ...);
}

template <class Module>
bool drops_between_layers(const nn::Module& module) {
  // Recurrent modules drop elements between their layers, but have no dropout module that named_modules() would list.
  const auto* recurrent = dynamic_cast<const Module*>(&module);
  return recurrent != nullptr && recurrent->options_base.dropout() > 0;
}

/// A second forward (recomputation) or a replica would draw other numbers than the first.
bool draws_random_numbers(const nn::Module& module) {
  if (is_any_of<nn::DropoutImpl, nn::Dropout2dImpl, nn::Dropout3dImpl, nn::AlphaDropoutImpl,
                nn::FeatureAlphaDropoutImpl, nn::RReLUImpl, nn::FractionalMaxPool2dImpl, nn::FractionalMaxPool3dImpl>(
          module))
    return true;
  if (drops_between_layers<nn::RNNImpl>(module) || drops_between_layers<nn::LSTMImpl>(module) ||
      drops_between_layers<nn::GRUImpl>(module))
    return true;
  const auto* attention = dynamic_cast<const nn::MultiheadAttentionImpl*>(&module);
  return attention != nullptr && attention->options.dropout() > 0;
}

/// Settings of the micro-batch whose layers or loss run on this thread, for random_bits_in_op().
thread_local const Dropout* running = nullptr;

const char* use_in_words(const ModuleUse& use) {
  return use.recomputed ? "if its forward runs again (recomputation)" : "if several workers train copies of it";
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// Returns call(), a call of a user's code. An exception becomes a ConfigError that begins with place(); a
/// UserCodeError keeps its cause.
template <class Call, class Place>
auto call_user(const Call& call, const Place& place) {
  try {
    return call();
  } catch (const UserCodeError& error) {
    throw UserCodeError(fmt::format("{}: {}", place(), error.what()), error.cause());
  } catch (const c10::Error& error) {
    reject("{}: {}", place(), first_line(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    reject("{}: {}", place(), first_line(error.what()));
  }
}

void require_new(const at::Tensor& parameter, const std::string& name) {
  // ParameterGroup gives each parameter a gradient, so one that has a gradient is in another stage already.
  if (!parameter.is_leaf() || parameter.grad().defined())
    reject("parameter {} is in use elsewhere; a factory must make a new module at every call", name);
}

void require_one_type(const std::vector<Parameter>& parameters) {
  for (const Parameter& parameter : parameters) {
    const at::Tensor& first = parameters.front().value;
    if (parameter.value.scalar_type() == first.scalar_type() && parameter.value.device() == first.device()) continue;
    reject("parameters of one stage must be of one type and device: {} is {}, but {} is {}", parameters.front().name,
           c10::toString(first.scalar_type()), parameter.name, c10::toString(parameter.value.scalar_type()));
  }
}

/// The leaf has the type and device of the layers' first parameter.
at::Tensor unused_leaf(const std::vector<Layer>& layers) {
  at::TensorOptions options;
  for (const Layer& layer : layers) {
    // The dummy lies where the stage computes: autograd and the gradient sums run on its device.
    if (!layer.module() || layer.module()->parameters().empty()) continue;
    const at::Tensor first = layer.module()->parameters().front();
    if (at::isFloatingType(first.scalar_type())) options = options.dtype(first.scalar_type());
    options = options.device(first.device());
    break;
  }
  return at::zeros({1}, options);
}

std::vector<Parameter> trained_parameters(const ModuleStageSpec& spec, const std::vector<Layer>& layers,
                                          const ModuleUse& use) {
  std::vector<Parameter> parameters;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::int64_t index = spec.first_layer + static_cast<std::int64_t>(i);
    require_repeatable(layers[i], index, use);
    if (!layers[i].module()) continue;
    for (const auto& entry : layers[i].module()->named_parameters()) {
      const std::string name = fmt::format("{}.{}", index, entry.key());
      at::Tensor value = entry.value();
      // Frozen parameters stay in the module and are never updated or summed; values() has them for checkpoints.
      if (!value.requires_grad()) continue;
      require_new(value, name);
      // Gradients of a group lie in one flat tensor, which has the layout of contiguous parameters.
      if (!value.is_contiguous()) value.set_data(value.contiguous());
      parameters.push_back({name, value});
    }
  }
  if (parameters.empty()) parameters.push_back({fmt::format("{}.untrained", spec.first_layer), unused_leaf(layers)});
  require_one_type(parameters);
  return parameters;
}

/// Writes to any of the inputs change it.
std::int64_t versions_of(const at::Tensor& source, const MicroBatch& batch) {
  // Versions only grow, so equal sums mean that no version has changed.
  std::int64_t sum = source._version();
  for (const at::Tensor& input : batch.more_inputs) sum += input.defined() ? input._version() : 0;
  return sum;
}

}  // namespace

std::string find_fault(const TensorVector& values) {
  if (std::ranges::none_of(values, &at::Tensor::defined)) return "no tensor; a message needs at least one";
  for (const at::Tensor& value : values) {
    if (!value.defined()) continue;
    const at::ScalarType type = value.scalar_type();
    const bool is_dense = value.layout() == at::kStrided && !value.is_quantized();
    // A gradient comes back in the type of the message, so types that are sent as bytes cannot have one.
    if (is_dense && !at::isComplexType(type) && (!value.requires_grad() || is_wide(type))) continue;
    return fmt::format("{}; messages carry dense real tensors, with gradients for types of at least 16 bits",
                       describe(TensorVector{value}));
  }
  return "";
}

MessageLayout message_layout_of(const TensorVector& values) {
  MessageLayout layout;
  for (const at::Tensor& value : values) {
    TensorShape& shape = layout.emplace_back();
    shape.has_gradient = value.defined() && value.requires_grad();
    shape.dtype = value.scalar_type();
    if (value.defined()) shape.sizes = value.sizes().vec();
  }
  // A plain message is the tensor itself, whose gradient always comes back; it is zero if nothing depends on it.
  if (is_plain(layout)) layout.front().has_gradient = true;
  return layout;
}

bool fits(const MessageLayout& found, const MessageLayout& layout) {
  return std::ranges::equal(found, layout, [](const TensorShape& own, const TensorShape& expected) {
    return own.sizes == expected.sizes && own.dtype == expected.dtype && (expected.has_gradient || !own.has_gradient);
  });
}

bool is_plain(const MessageLayout& layout) {
  return layout.size() == 1 && at::isFloatingType(layout.front().dtype) && !layout.front().sizes.empty();
}

TensorShape message_shape(const MessageLayout& layout) {
  if (is_plain(layout)) return layout.front();
  std::int64_t elements = 0;
  for (const TensorShape& shape : layout) {
    const std::int64_t own = message_elements(shape);
    elements += own + padding_behind(own);
  }
  return {{elements}, message_type(layout)};
}

at::Tensor pack(const TensorVector& values, const MessageLayout& layout) {
  if (is_plain(layout)) return values.front();
  const at::ScalarType type = message_type(layout);
  TensorVector parts;
  for (const at::Tensor& value : values) {
    if (!value.defined()) continue;
    at::Tensor flat = value.reshape({-1});
    if (!is_sent_by_value(value.scalar_type())) flat = flat.contiguous().view(at::kByte);
    parts.push_back(flat.to(type));
    parts.push_back(at::zeros({padding_behind(flat.numel())}, flat.options().dtype(type)));
  }
  return at::cat(parts);
}

TensorVector unpack(const at::Tensor& message, const MessageLayout& layout) {
  if (is_plain(layout)) return {message};
  std::vector<std::int64_t> sizes;
  for (const TensorShape& shape : layout) {
    sizes.push_back(message_elements(shape));
    // Parts 2i are tensors, parts 2i + 1 the padding behind them.
    sizes.push_back(padding_behind(sizes.back()));
  }
  const TensorVector parts = message.split_with_sizes(sizes);
  TensorVector values;
  for (std::size_t i = 0; i < layout.size(); ++i) values.push_back(restored(parts[2 * i], layout[i]));
  return values;
}

std::string describe(const MessageLayout& layout) { return describe_shapes(layout, /*with_gradients=*/true); }

std::string describe(const TensorVector& values) {
  return describe_shapes(message_layout_of(values), /*with_gradients=*/false);
}

void require_repeatable(const Layer& layer, std::int64_t index, const ModuleUse& use) {
  if (!layer.module() || (!use.replicated && !use.recomputed)) return;
  for (const auto& entry : layer.module()->named_modules()) {
    const nn::Module& module = *entry.value();
    const std::string name = entry.key().empty() ? module.name() : fmt::format("{} ({})", module.name(), entry.key());
    // Batch norms and their kind: replicas would collect different statistics, and a second forward would count a batch
    // twice.
    for (const auto& buffer : module.named_buffers(/*recurse=*/false)) {
      reject(
          "layer {}: {} has the buffer '{}', which gives wrong results {}; use a module without buffers (GroupNorm, "
          "LayerNorm), keep constants as plain members, or choose another schedule",
          index, name, buffer.key(), use_in_words(use));
    }
    if (draws_random_numbers(module)) {
      reject(
          "layer {}: {} draws from torch's random generator, which gives wrong results {}; use chimera::KeyedDropout",
          index, name, use_in_words(use));
    }
  }
}

std::uint64_t random_bits_in_op(std::uint64_t seed, std::int64_t layer) {
  if (running == nullptr) throw Error("only layers and the loss of a stage have random numbers of an op");
  // The micro-batch is named by its first sample, which does not depend on schedule and number of ranks.
  const WordStream stream{static_cast<std::uint32_t>(running->step), static_cast<std::uint32_t>(running->first_sample),
                          static_cast<std::uint32_t>(layer)};
  std::array<std::uint32_t, 2> words{};
  random_words(CounterRandom(seed, "op").bits(0), stream, 0, words);
  return std::uint64_t{words[1]} << 32U | words[0];
}

c10::scope_exit<std::function<void()>> keep_values(const std::vector<at::Tensor>& tensors) {
  std::vector<std::pair<at::Tensor, at::Tensor>> saved;
  for (const at::Tensor& tensor : tensors) saved.emplace_back(tensor, tensor.clone());
  return c10::make_scope_exit(std::function<void()>([saved = std::move(saved)] {
    const at::NoGradGuard no_graph;
    for (const auto& [tensor, value] : saved) tensor.copy_(value);
  }));
}

ModuleStage::ModuleStage(const ModuleStageSpec& spec, std::vector<Layer> layers, const ModuleUse& use)
    : Stage(trained_parameters(spec, layers, use)), spec_(spec), layers_(std::move(layers)) {}

std::string ModuleStage::name() const {
  const std::int64_t last = spec_.end_layer - 1;
  const std::string layers = spec_.first_layer == last ? fmt::format("layer {}", last)
                                                       : fmt::format("layers {} to {}", spec_.first_layer, last);
  return fmt::format("stage {} ({})", spec_.stage.value(), layers);
}

at::Tensor ModuleStage::forward(const at::Tensor& input, const MicroBatch& batch) {
  const at::Tensor& source = input.defined() ? input : batch.tokens;
  // Another stage (a replica on threads) may read the same memory later; torch counts the writes to a tensor.
  const auto versions = versions_of(source, batch);
  const auto finished = [&](const at::Tensor& tensor) {
    // The loss is part of the function, so that it is split and recomputed together with the layers.
    const TensorVector values = run(tensor, batch);
    return spec_.loss == nullptr ? message(values) : scaled_loss(values, batch);
  };
  at::Tensor output = split_backward(finished, source);
  if (versions_of(source, batch) != versions)
    reject("{} writes to its input, which other stages still read; its first op must not be in place", name());
  return output;
}

TensorVector ModuleStage::received(const at::Tensor& input, const MicroBatch& batch) const {
  // Empty on the first stage, whose input is the data.
  if (!received_.empty()) return unpack(input, received_);
  TensorVector values{input};
  values.insert(values.end(), batch.more_inputs.begin(), batch.more_inputs.end());
  return values;
}

TensorVector ModuleStage::run(const at::Tensor& input, const MicroBatch& batch) const {
  const ScopedValue op(running, &batch.dropout);
  TensorVector values = received(input, batch);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const std::int64_t index = spec_.first_layer + static_cast<std::int64_t>(i);
    // KeyedDropout modules inside the layer draw masks of this micro-batch and layer.
    const DropoutScope scope(batch.dropout, index);
    values = call_user([&] { return layers_[i](values); },
                       [&] {
                         return fmt::format("stage {}, layer {} ({}), on an input {}", spec_.stage.value(), index,
                                            layers_[i].name(), describe(values));
                       });
  }
  return values;
}

at::Tensor ModuleStage::scaled_loss(const TensorVector& values, const MicroBatch& batch) const {
  if (values.size() != 1)
    throw ConfigError(fmt::format("{} gives {} tensors to the loss, which takes one", name(), values.size()));
  const ScopedValue op(running, &batch.dropout);
  const LossSum loss = call_user([&] { return spec_.loss->sum(values.front(), batch.targets); },
                                 [&] { return fmt::format("the loss, on an output {}", describe(values)); });
  if (loss.sum.dim() != 0) reject("the loss must be a sum, one number, not {}", describe(TensorVector{loss.sum}));
  // The scale of the gradients was computed from Loss::count() before this forward.
  if (const std::int64_t count = spec_.loss->count(batch.targets); count != loss.count)
    reject("the loss counted {} elements, but Loss::count returned {}; both must be equal", loss.count, count);
  return loss.sum * batch.token_loss_scale;
}

at::Tensor ModuleStage::message(const TensorVector& values) {
  if (const std::string fault = find_fault(values); !fault.empty()) reject("{} gives {}", name(), fault);
  const MessageLayout found = message_layout_of(values);
  // The first micro-batch decides. Receives of the next stage were posted for this layout.
  if (sent_.empty()) sent_ = found;
  if (!fits(found, sent_)) {
    reject("{} gives {}, but at first it gave {}; all micro-batches must have one shape", name(), describe(found),
           describe(sent_));
  }
  return pack(values, sent_);
}

at::Tensor ModuleStage::first_output(const at::Tensor& input, const MicroBatch& batch) {
  const at::NoGradGuard no_graph;
  const auto unchanged = keep_values(buffers());
  at::Tensor output = forward(input, batch);
  if (spec_.loss == nullptr && !is_plain(sent_)) {
    const at::AutoGradMode with_graph(true);  // Tells which tensors have gradients
    // A second run with a graph: only autograd tells which outputs depend on a parameter or on the input.
    sent_ = message_layout_of(run(input.defined() ? input.detach().requires_grad_() : batch.tokens, batch));
  }
  return output;
}

std::vector<at::Tensor> ModuleStage::buffers() const {
  std::vector<at::Tensor> all;
  for (const Layer& layer : layers_) {
    if (!layer.module()) continue;
    for (const at::Tensor& buffer : layer.module()->buffers()) all.push_back(buffer);
  }
  return all;
}

std::vector<Parameter> ModuleStage::values() const {
  std::vector<Parameter> all;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (!layers_[i].module()) continue;
    const std::int64_t index = spec_.first_layer + static_cast<std::int64_t>(i);
    for (const auto& named : {layers_[i].module()->named_parameters(), layers_[i].module()->named_buffers()})
      for (const auto& entry : named) all.push_back({fmt::format("{}.{}", index, entry.key()), entry.value()});
  }
  return all;
}

std::unique_ptr<ModuleStage> make_module_stage(const ModuleStageSpec& spec, const std::vector<LayerFactory>& factories,
                                               const ModuleUse& use, std::uint64_t seed) {
  static std::mutex mutex;  // torch's generator is global to the process, as the factories' data may be
  const std::lock_guard lock(mutex);
  std::vector<Layer> layers;
  for (std::int64_t index = spec.first_layer; index < spec.end_layer; ++index) {
    // By layer, not by stage: a layer has the same initial values in every partition.
    at::manual_seed(CounterRandom(seed, "layer").bits(static_cast<std::uint64_t>(index)));
    layers.push_back(call_user(factories[static_cast<std::size_t>(index)],
                               [&] { return fmt::format("layer {} could not be made", index); }));
  }
  return std::make_unique<ModuleStage>(spec, std::move(layers), use);
}

}  // namespace chimera

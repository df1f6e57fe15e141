#include "model/dropout.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/invariant.h"
#include "core/random.h"
#include "core/reject.h"
#include "model/autograd.h"

// On the CPU, random word number i of a sample's sequence decides about element i of the sample's mask (core/random.h).
// The functions below therefore map each tensor to places in masks of whole samples: a *run* is a part of the tensor
// that is consecutive in the mask, and each run is processed in chunks, which threads divide. On devices, a generator
// seeded from the same words draws the mask in one kernel.

namespace chimera {
namespace {

constexpr std::int64_t kChunk = 16 * static_cast<std::int64_t>(kWordGroup);  // words made at a time

/// The masks of a micro-batch at one site of a layer. Backward keeps only this object, and draws the same words again.
struct Masks {
  Masks(const Dropout& settings, DropoutSite place) : dropout(settings), site(place) {}

  /// Returns the words of a sample's mask; `sample` counts from the first of the micro-batch.
  [[nodiscard]] WordStream words_of(std::int64_t sample) const {
    return {static_cast<std::uint32_t>(dropout.step), static_cast<std::uint32_t>(dropout.first_sample + sample),
            // Four sites per layer (kSites), so every pair of layer and site has a stream of its own.
            static_cast<std::uint32_t>(dropout.layer) * 4 + static_cast<std::uint32_t>(site)};
  }

  Dropout dropout;
  DropoutSite site;
  // From seed and name, so that weights and data with the same seed have other words.
  std::uint64_t key = CounterRandom(dropout.seed, "dropout").bits(0);
  double scale = 1 / (1 - dropout.probability);
  // Words below it drop their element
  std::uint32_t drop_below = static_cast<std::uint32_t>(std::min(std::round(dropout.probability * 0x1p32), 0x1p32 - 1));
};

/// Elements of a tensor that are consecutive in the mask of a whole sample.
struct Runs {
  std::int64_t per_sample = 1;
  std::int64_t length = 0;
  std::int64_t first = 0;  // place of a sample's first run in the mask
  // Attention probabilities of a slice: each run is a row of a [heads, sequence, sequence] mask
  std::int64_t rows = 0;      // l; 0: a sample is one run
  std::int64_t sequence = 0;  // elements of a row of the mask

  [[nodiscard]] std::int64_t place(std::int64_t run) const {
    // Run number `run` is row run % l of head run / l. In the mask, a head has `sequence` rows of `sequence` elements.
    return rows == 0 ? first : first + (run / rows * sequence + run % rows) * sequence;
  }
};

Runs runs_of(const at::Tensor& input, const Masks& masks) {
  const std::int64_t sample_size = input.numel() / input.size(0);
  const bool has_heads = masks.site == DropoutSite::AttentionProbabilities;
  const std::int64_t head = has_heads ? masks.dropout.first_head : 0;
  // Whole samples: a sample's elements are one run. With tensor parallelism, attention probabilities [b, heads, L, L]
  // of this rank begin behind the masks of the heads on earlier ranks.
  if (masks.dropout.sequence == 0)
    return {.length = sample_size, .first = head == 0 ? 0 : head * (sample_size / input.size(1))};
  // A slice of hidden states [b, l, H]: the rows of its tokens are consecutive in the sample.
  if (!has_heads) return {.length = sample_size, .first = masks.dropout.first_token * (sample_size / input.size(1))};
  // Attention probabilities of a slice, [b, heads, l, first_token + l]: each row is a run, because rows of the whole
  // mask continue to the end of the sequence.
  const std::int64_t rows = input.size(2);
  return {.per_sample = input.size(1) * rows,
          .length = input.size(3),
          .first = (head * masks.dropout.sequence + masks.dropout.first_token) * masks.dropout.sequence,
          .rows = rows,
          .sequence = masks.dropout.sequence};
}

/// Applies `count` <= kChunk elements of a sample's mask, from `place` on.
template <class Element>
void apply(const Masks& masks, std::int64_t sample, std::int64_t place, const Element* in, Element* out,
           std::int64_t count) {
  constexpr auto kGroup = static_cast<std::int64_t>(kWordGroup);
  // Not initialized: random_words() fills all words that are read.
  std::array<std::uint32_t, kChunk + kWordGroup> buffer;
  // Words come in groups, so a run that starts inside a group draws the whole group and skips its first words.
  const std::int64_t before = place % kGroup;
  const std::span words(buffer.data(), static_cast<std::size_t>(before + count));
  random_words(masks.key, masks.words_of(sample), static_cast<std::uint32_t>(place / kGroup), words);
  const std::span own = words.subspan(static_cast<std::size_t>(before));
  using Wide = at::opmath_type<Element>;
  const auto scale = static_cast<Wide>(masks.scale);
  const std::uint32_t drop_below = masks.drop_below;
  for (std::int64_t i = 0; i < count; ++i) {
    const Wide factor = own[static_cast<std::size_t>(i)] < drop_below ? Wide(0) : scale;
    out[i] = static_cast<Element>(static_cast<Wide>(in[i]) * factor);
  }
}

/// The words of the first sample's sequence seed the device's generator, which draws the masks of all samples. A slice
/// has words of its own.
std::uint64_t device_seed(const Masks& masks) {
  std::array<std::uint32_t, 2> words{};
  // The first token serves as the number of a word group, so that slices of one sequence get different seeds.
  const auto group = static_cast<std::uint32_t>(masks.dropout.first_token);
  random_words(masks.key, masks.words_of(0), group, words);
  return std::uint64_t{words[1]} << 32U | words[0];
}

/// Not the default generator, which rank threads share.
at::Generator new_generator(at::Device device) {
  return at::globalContext().getAcceleratorHooksInterface(device.type()).getNewGenerator(device.index());
}

at::Generator generator_of(const Masks& masks, at::Device device) {
  if (masks.dropout.graph != nullptr) return masks.dropout.graph->next(masks.dropout, masks.site, device);
  at::Generator generator = new_generator(device);
  generator.set_current_seed(device_seed(masks));
  return generator;
}

at::Tensor masked_on_device(const at::Tensor& input, const Masks& masks) {
  const at::Generator generator = generator_of(masks, input.device());
  const at::Tensor kept = at::empty(input.sizes(), input.options().dtype(at::kBool));
  // The backward kernel of ATen's dropout multiplies by mask and scale, which is what both directions need here.
  return at::native_dropout_backward(input, kept.bernoulli_(1 / masks.scale, generator), masks.scale);
}

at::Tensor masked(const at::Tensor& input, const Masks& masks) {
  if (!input.is_cpu()) return masked_on_device(input, masks);
  const at::Tensor in = input.contiguous();
  const at::Tensor out = at::empty_like(in);
  const Runs runs = runs_of(in, masks);
  const std::int64_t all_runs = in.size(0) * runs.per_sample;
  const std::int64_t chunks = (runs.length + kChunk - 1) / kChunk;  // per run
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, in.scalar_type(), "dropout", [&] {
    const scalar_t* from = in.const_data_ptr<scalar_t>();
    scalar_t* to = out.data_ptr<scalar_t>();
    // Chunks of all runs are numbered together, so that threads share the work evenly for few long runs (hidden states)
    // and for many short ones (rows of attention).
    at::parallel_for(0, all_runs * chunks, at::internal::GRAIN_SIZE / kChunk,
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t i = begin; i < end; ++i) {
                         const std::int64_t run = i / chunks;
                         const std::int64_t start = i % chunks * kChunk;
                         const std::int64_t offset = run * runs.length + start;
                         apply(masks, run / runs.per_sample, runs.place(run % runs.per_sample) + start, from + offset,
                               to + offset, std::min(kChunk, runs.length - start));
                       }
                     });
  });
  return out;
}

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const Dropout& dropout,
                            DropoutSite site) {
    const Masks masks(dropout, site);
    hold(context, "masks", masks);
    return masked(input, masks);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    return {masked(output_gradients[0], held<Masks>(context, "masks")), at::Tensor(), at::Tensor()};
  }
};

constexpr std::int64_t kSites = 4;                  // DropoutSite values per layer
constexpr std::int64_t kMaxDropoutsPerLayer = 256;  // KeyedDropout calls
thread_local DropoutScope* current = nullptr;

}  // namespace

Dropout Dropout::in_layer(std::int64_t index) const {
  Dropout result = *this;
  result.layer = index;
  return result;
}

void GraphMasks::make_generators(at::Device device) {
  // drawn_ has the masks of one forward: the forward, a recomputation of attention and the backward draw each once.
  constexpr std::size_t kForwardAndBackwards = 3;
  generators_.clear();
  for (std::size_t i = 0; i < kForwardAndBackwards * drawn_.size(); ++i) generators_.push_back(new_generator(device));
  drawn_.clear();
}

at::Generator GraphMasks::next(const Dropout& masks, DropoutSite site, at::Device device) {
  drawn_.emplace_back(masks.layer, site);
  // The forward before the recording, which only counts masks (RecordedOps::make_generators()).
  if (generators_.empty()) return new_generator(device);
  if (drawn_.size() > generators_.size()) throw InternalError("a graph draws more masks than it has generators");
  return generators_[drawn_.size() - 1];
}

void GraphMasks::reseed(const Dropout& batch) {
  for (std::size_t i = 0; i < drawn_.size(); ++i) {
    // drawn_[i] is the mask of generators_[i]. Forward and backward use different generators for one mask, but both get
    // the seed of its layer and site, and so the same bits.
    const auto& [layer, site] = drawn_[i];
    generators_[i].set_current_seed(device_seed(Masks(batch.in_layer(layer), site)));
  }
}

at::Tensor dropout(const at::Tensor& input, const Dropout& masks, DropoutSite site) {
  return masks.is_active() ? DropoutFunction::apply(input, masks, site) : input;
}

DropoutScope::DropoutScope(const Dropout& masks, std::int64_t layer)
    // A mask is identified by layer and one of 4 sites. A user's layer has up to 256 masks, so it takes the numbers of
    // 64 layers: call number n is site n % 4 of layer 64 `layer` + n / 4.
    : ScopedValue(current, this), masks_(masks.in_layer(layer * (kMaxDropoutsPerLayer / kSites))) {}

KeyedDropoutImpl::KeyedDropoutImpl(double probability) : probability_(probability) {
  if (!(probability >= 0 && probability < 1))
    reject("KeyedDropout: the probability must be at least 0 and below 1, not {}", probability);
}

at::Tensor KeyedDropoutImpl::forward(const at::Tensor& input) {
  if (!is_training()) return input;
  if (current == nullptr) throw Error("KeyedDropout has no sample to take its mask for: only stages run it, or eval()");
  const std::int64_t place = current->next_++;
  if (place == kMaxDropoutsPerLayer)
    reject("a layer has more than {} KeyedDropouts; cut it into several", kMaxDropoutsPerLayer);
  Dropout masks = current->masks_.in_layer(current->masks_.layer + place / kSites);
  masks.probability = probability_;
  return dropout(input, masks, static_cast<DropoutSite>(place % kSites));
}

}  // namespace chimera

#include "generate/generator.h"

#include "core/choices.h"

namespace chimera {
namespace {

/// The enumeration counts from 0.
template <NamedEnum Enum>
constexpr auto words_of() {
  std::array<std::string_view, kNames<Enum>.size()> words{};
  for (const Named<Enum>& named : kNames<Enum>) words[static_cast<std::size_t>(named.value)] = named.name;
  return words;
}

constexpr auto kScales = words_of<ScaleMethod>();
constexpr auto kOrders = words_of<OpOrder>();

template <auto Field>
std::int64_t get(const PipelineShape& shape) {
  // A field is an integer or an enumeration. Both become a number here, so that sweeps and plans treat all axes alike.
  return static_cast<std::int64_t>(shape.*Field);
}

template <auto Field>
void set(PipelineShape& shape, std::int64_t value) {
  shape.*Field = static_cast<std::remove_reference_t<decltype(shape.*Field)>>(value);
}

template <auto Field>
constexpr ShapeAxis field(Axis axis, std::string_view name, std::string_view symbol, std::string_view meaning,
                          std::int64_t least, std::span<const std::string_view> names = {}) {
  return {axis, name, symbol, meaning, least, names, get<Field>, set<Field>};
}

// Sorted like the enumeration: shape_axis() uses an Axis as index.
constexpr std::array kAxes = {
    field<&PipelineShape::pipelines>(Axis::Pipelines, "pipelines", "2f", "number of pipelines on the same workers (2f)",
                                     1),
    field<&PipelineShape::chunks>(Axis::Chunks, "chunks", "v", "virtual stages per worker (v)", 1),
    field<&PipelineShape::waves>(Axis::Waves, "waves", "w", "waves through the workers (w)", 1),
    field<&PipelineShape::scale>(Axis::Scale, "scale", "", "rule for more than D micro-batches", 0, kScales),
    field<&PipelineShape::order>(
        Axis::Order, "order", "",
        "op order: slots, fastest for equal times; deepest, what is farthest along first, for latency and unequal "
        "times; auto, the better one for the costs of simulate, else deepest for whole units of more than one chunk",
        0, kOrders),
    field<&PipelineShape::slices>(Axis::Slices, "slices", "k", "slices of consecutive tokens per micro-batch (k)", 1),
};

}  // namespace

std::string ShapeAxis::text(std::int64_t value) const {
  return is_number() ? std::to_string(value) : std::string(names[static_cast<std::size_t>(value)]);
}

std::span<const ShapeAxis> shape_axes() { return kAxes; }

const ShapeAxis& shape_axis(Axis axis) { return kAxes[static_cast<std::size_t>(axis)]; }

Schedule Generator::generate(const PipelineShape& shape) const {
  if (const auto reason = find_shape_error(shape)) throw ConfigError("schedule " + name + ": " + *reason);
  Schedule schedule = make(shape);
  schedule.name = name;
  return schedule;
}

}  // namespace chimera

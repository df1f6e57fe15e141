#include "model/rotary.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <algorithm>
#include <numbers>

#include "model/autograd.h"

// Rotation in one pass; ATen operations would take about six, and keep their results.

namespace chimera {
namespace {

/// Rotates one head: `in` and `out` [2 * half] must not overlap; `direction` is 1 or -1 (inverse).
template <class Element>
void turn(const Element* __restrict in, Element* __restrict out, const Element* __restrict cosine,
          const Element* __restrict sine, std::int64_t half, at::opmath_type<Element> direction) {
  using Wide = at::opmath_type<Element>;
  for (std::int64_t j = 0; j < half; ++j) {
    const Wide a = in[j];
    const Wide b = in[j + half];
    const Wide c = cosine[j];
    const Wide s = direction * static_cast<Wide>(sine[j]);
    out[j] = static_cast<Element>(a * c - b * s);
    out[j + half] = static_cast<Element>(b * c + a * s);
  }
}

at::Tensor rotated_on_cpu(const at::Tensor& input, const RotaryTable& table, double direction) {
  const at::Tensor in = input.contiguous();
  const at::Tensor out = at::empty_like(in);
  const std::int64_t half = table.cosine.size(1);
  const std::int64_t length = in.size(1);
  const std::int64_t width = in.size(2);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, in.scalar_type(), "rotate", [&] {
    const scalar_t* from = in.const_data_ptr<scalar_t>();
    const scalar_t* cosine = table.cosine.const_data_ptr<scalar_t>();
    const scalar_t* sine = table.sine.const_data_ptr<scalar_t>();
    scalar_t* to = out.data_ptr<scalar_t>();
    const auto run = [&](std::int64_t first, std::int64_t end) {
      for (std::int64_t token = first; token < end; ++token) {
        // `token` counts over the samples [b, L], `angles` is the row of its position in the table.
        const std::int64_t angles = token % length * half;
        for (std::int64_t head = token * width; head < (token + 1) * width; head += 2 * half) {
          turn<scalar_t>(from + head, to + head, cosine + angles, sine + angles, half,
                         static_cast<at::opmath_type<scalar_t>>(direction));
        }
      }
    };
    // Tokens are independent, so the number of threads does not change a bit.
    at::parallel_for(0, in.size(0) * length, std::max<std::int64_t>(1, at::internal::GRAIN_SIZE / width), run);
  });
  return out;
}

at::Tensor rotated_on_device(const at::Tensor& input, const RotaryTable& table, double direction) {
  const at::Tensor cosine = table.cosine.unsqueeze(1).unsqueeze(1);  // [L, 1, 1, d / 2]
  const at::Tensor sine = table.sine.unsqueeze(1);                   // [L, 1, d / 2]
  // [b, L, heads, 2, d / 2]: dimension 3 has the two coordinates of each rotation.
  const at::Tensor in = input.reshape({input.size(0), input.size(1), -1, 2, table.cosine.size(1)});
  const at::Tensor out = in * cosine;
  out.select(3, 0).addcmul_(in.select(3, 1), sine, -direction);
  out.select(3, 1).addcmul_(in.select(3, 0), sine, direction);
  return out.view(input.sizes());
}

at::Tensor turned(const at::Tensor& input, const RotaryTable& table, double direction) {
  return input.is_cpu() ? rotated_on_cpu(input, table, direction) : rotated_on_device(input, table, direction);
}

struct RotateFunction : torch::autograd::Function<RotateFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& cosine,
                            const at::Tensor& sine) {
    context->save_for_backward({cosine, sine});
    return turned(input, {cosine, sine}, 1);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto saved = context->get_saved_variables();
    // A rotation is orthogonal: the gradient is turned back by the same angle.
    return {turned(output_gradients[0], {saved[0], saved[1]}, -1), at::Tensor(), at::Tensor()};
  }
};

/// Divides frequencies with few turns within the original positions by the factor, keeps those with many turns, and
/// interpolates between.
at::Tensor llama3_frequencies(const at::Tensor& frequencies, const RopeScaling& scaling) {
  // Number of full rotations of each frequency within the original positions; high frequencies make many.
  const at::Tensor turns = frequencies * (static_cast<double>(scaling.original_positions) / (2 * std::numbers::pi));
  const at::Tensor stays =
      (turns - scaling.low_frequency_factor) / (scaling.high_frequency_factor - scaling.low_frequency_factor);
  // 0: at most low_frequency_factor turns, divided by the factor. 1: at least high_frequency_factor turns, kept.
  const at::Tensor share = stays.clamp(0, 1);
  return (1 - share) * frequencies / scaling.factor + share * frequencies;
}

}  // namespace

RotaryTable RotaryTable::slice(std::int64_t first, std::int64_t end) const {
  return {cosine.narrow(0, first, end - first), sine.narrow(0, first, end - first)};
}

at::Tensor rotary_frequencies(const ModelConfig& config, const at::TensorOptions& options) {
  const at::ScalarType wide = at::promote_types(options.dtype().toScalarType(), at::kFloat);
  const auto size = static_cast<double>(head_size_of(config));
  const at::Tensor exponents = at::arange(0, head_size_of(config), 2, options.dtype(wide)) / size;
  const at::Tensor frequencies = at::pow(config.rope_theta, exponents).reciprocal();
  switch (config.rope_scaling.type) {
    case RopeScalingType::None: return frequencies;
    case RopeScalingType::Linear: return frequencies / config.rope_scaling.factor;
    case RopeScalingType::Llama3: return llama3_frequencies(frequencies, config.rope_scaling);
  }
  return frequencies;
}

RotaryTable rotary_table(const ModelConfig& config, std::int64_t length, const at::TensorOptions& options) {
  const at::NoGradGuard no_graph;
  const at::Tensor frequencies = rotary_frequencies(config, options);
  // Row p has the angles of position p.
  const at::Tensor angles = at::arange(length, frequencies.options()).unsqueeze(1) * frequencies;
  return {angles.cos().to(options.dtype()), angles.sin().to(options.dtype())};
}

at::Tensor rotate(const at::Tensor& input, const RotaryTable& table) {
  return RotateFunction::apply(input, table.cosine, table.sine);
}

}  // namespace chimera

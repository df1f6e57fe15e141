#include "model/llama_layers.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "model/autograd.h"
#include "model/linear.h"

// Fused on the CPU: with ATen's operations, the norm and the rotation would each pass over their input about six times,
// and keep intermediate results.

namespace chimera {
namespace {

/// Partial sums, which compilers vectorize.
template <class Wide, class Term>
Wide vector_sum(std::int64_t n, Term&& term) {
  constexpr std::int64_t kLanes = 16;
  // Without -ffast-math, a compiler must not reorder additions; the 16 sums do it explicitly, always in the same way.
  std::array<Wide, kLanes> sums = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) sums[static_cast<std::size_t>(lane)] += term(i + lane);
  Wide sum = 0;
  for (; i < n; ++i) sum += term(i);
  for (const Wide lane : sums) sum += lane;
  return sum;
}

/// Returns the reciprocal root mean square.
template <class Element, class Wide>
Wide normalize_row(const Element* x, const Element* weight, Element* y, std::int64_t n, Wide epsilon) {
  const Wide square =
      vector_sum<Wide>(n, [x](std::int64_t i) { return static_cast<Wide>(x[i]) * static_cast<Wide>(x[i]); });
  const Wide scale = 1 / std::sqrt(square / static_cast<Wide>(n) + epsilon);
  for (std::int64_t i = 0; i < n; ++i) {
    // Rounded before the multiplication, as in Hugging Face's LlamaRMSNorm.
    y[i] = static_cast<Element>(static_cast<Wide>(x[i]) * scale) * weight[i];
  }
  return scale;
}

/// Gradient of a row: scale (g w - x' mean(g w x')) with the normalized row x'.
template <class Element, class Wide>
void add_row_gradient(const Element* x, const Element* weight, const Element* gradient, Wide scale, Element* result,
                      std::int64_t n) {
  const auto weighted = [=](std::int64_t i) { return static_cast<Wide>(gradient[i]) * static_cast<Wide>(weight[i]); };
  const Wide along = vector_sum<Wide>(n, [=](std::int64_t i) { return weighted(i) * static_cast<Wide>(x[i]); });
  // x' = scale x, so mean(g w x') x' = x scale^2 sum(g w x) / n.
  const Wide mean = along * scale * scale / static_cast<Wide>(n);
  for (std::int64_t i = 0; i < n; ++i)
    result[i] = static_cast<Element>(scale * (weighted(i) - static_cast<Wide>(x[i]) * mean));
}

template <class Run>
void in_parallel(std::int64_t count, std::int64_t work, Run&& run) {
  at::parallel_for(0, count, std::max<std::int64_t>(1, at::internal::GRAIN_SIZE / work), run);
}

/// Returns the output and the scale of each row, [rows].
std::pair<at::Tensor, at::Tensor> forward_on_cpu(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  const std::int64_t n = weight.numel();
  const std::int64_t rows = x.numel() / n;
  const at::ScalarType wide = at::promote_types(x.scalar_type(), at::kFloat);
  const at::Tensor output = at::empty_like(x);
  // One number per row is all that backward needs besides the input.
  const at::Tensor all_scales = at::empty({rows}, x.options().dtype(wide));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "rms_norm", [&] {
    using Wide = at::opmath_type<scalar_t>;
    const scalar_t* from = x.const_data_ptr<scalar_t>();
    const scalar_t* weights = weight.const_data_ptr<scalar_t>();
    scalar_t* to = output.data_ptr<scalar_t>();
    Wide* scales = all_scales.data_ptr<Wide>();
    in_parallel(rows, n, [&](std::int64_t first, std::int64_t end) {
      for (std::int64_t row = first; row < end; ++row)
        scales[row] = normalize_row(from + row * n, weights, to + row * n, n, static_cast<Wide>(epsilon));
    });
  });
  return {output, all_scales};
}

/// Returns the gradients of input and weight; the latter [n], at least float32.
std::pair<at::Tensor, at::Tensor> backward_on_cpu(const at::Tensor& x, const at::Tensor& weight,
                                                  const at::Tensor& scales, const at::Tensor& gradient) {
  const std::int64_t n = weight.numel();
  const std::int64_t rows = x.numel() / n;
  const at::Tensor input_gradient = at::empty_like(x);
  const at::Tensor weight_gradient = at::zeros({n}, scales.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "rms_norm_backward", [&] {
    using Wide = at::opmath_type<scalar_t>;
    const scalar_t* from = x.const_data_ptr<scalar_t>();
    const scalar_t* weights = weight.const_data_ptr<scalar_t>();
    const scalar_t* incoming = gradient.const_data_ptr<scalar_t>();
    const Wide* scale = scales.const_data_ptr<Wide>();
    scalar_t* to = input_gradient.data_ptr<scalar_t>();
    in_parallel(rows, n, [&](std::int64_t first, std::int64_t end) {
      for (std::int64_t row = first; row < end; ++row)
        add_row_gradient(from + row * n, weights, incoming + row * n, scale[row], to + row * n, n);
    });
    // Threads split the columns, not the rows: each column is summed in one order for any number of threads.
    Wide* sums = weight_gradient.data_ptr<Wide>();
    in_parallel(n, rows, [&](std::int64_t first, std::int64_t end) {
      for (std::int64_t row = 0; row < rows; ++row) {
        const scalar_t* x_row = from + row * n;
        const scalar_t* gradient_row = incoming + row * n;
        for (std::int64_t i = first; i < end; ++i)
          sums[i] += static_cast<Wide>(gradient_row[i]) * (static_cast<Wide>(x_row[i]) * scale[row]);
      }
    });
  });
  return {input_gradient, weight_gradient};
}

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            double epsilon) {
    const at::Tensor x = input.contiguous();
    const auto [output, scales] = forward_on_cpu(x, weight, epsilon);
    context->save_for_backward({x, weight, scales});
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor gradient = output_gradients[0].contiguous();
    const auto [input_gradient, weight_gradient] = backward_on_cpu(saved[0], saved[1], saved[2], gradient);
    return {input_gradient, weight_gradient, at::Tensor()};
  }
};

/// LibTorch's kernels on GPUs: one forward, two backward.
struct FusedRmsNormFunction : torch::autograd::Function<FusedRmsNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            double epsilon) {
    auto [output, scales] = at::_fused_rms_norm(input, weight.sizes(), weight, epsilon);
    context->save_for_backward({input, scales});
    // Through the queue, as linear() does. On the CPU, autograd adds the weight's gradient already in op I.
    save_leaves(context, {weight});
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor weight = saved_leaves(context)[0];
    const auto [input_gradient, term] =
        at::_fused_rms_norm_backward(output_gradients[0].contiguous(), saved[0], weight.sizes(), saved[1], weight,
                                     {context->needs_input_grad(0), weight.requires_grad()});
    const auto queue = saved_queue(context);
    queue->submit([=, term = term, queue = queue.get()] {
      if (term.defined()) add_to_gradient(weight, term, queue);
    });
    return {input_gradient, at::Tensor(), at::Tensor()};
  }
};

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
        for (std::int64_t head = token * width; head < (token + 1) * width; head += 2 * half)
          turn<scalar_t>(from + head, to + head, cosine + angles, sine + angles, half,
                         static_cast<at::opmath_type<scalar_t>>(direction));
      }
    };
    // Tokens are independent, so the number of threads does not change a bit.
    in_parallel(in.size(0) * length, width, run);
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

at::Tensor rms_norm(const at::Tensor& input, const RmsNorm& layer) {
  if (!input.is_cpu()) return FusedRmsNormFunction::apply(input, layer.weight, layer.epsilon);
  return RmsNormFunction::apply(input, layer.weight, layer.epsilon);
}

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

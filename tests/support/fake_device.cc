#include "support/fake_device.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pthread.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>

#include "core/clock.h"
#include "runtime/memory_meter.h"

namespace chimera::testing {
namespace {

thread_local c10::DeviceIndex device_index = 0;

at::Device current_device() { return {kFakeDevice, device_index}; }

constexpr double kBehind = 5000;  // seconds, of the device's clock

thread_local c10::StreamId current = 0;
thread_local int unrecorded = 0;

/// Results of a host thread's event queries since it last issued work.
struct Looking {
  std::intptr_t at = 0;  // the event
  bool again_and_again = false;
};
thread_local Looking looking;

struct FakeStreams final : c10::impl::DeviceGuardImplInterface {
  FakeStreams() = default;
  explicit FakeStreams(c10::DeviceType /*type*/) {}
  [[nodiscard]] c10::DeviceType type() const override { return kFakeDevice; }
  [[nodiscard]] c10::Device exchangeDevice(c10::Device device) const override {
    return {kFakeDevice, std::exchange(device_index, std::max<c10::DeviceIndex>(device.index(), 0))};
  }
  [[nodiscard]] c10::Device getDevice() const override { return current_device(); }
  void setDevice(c10::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { device_index = device.index(); }
  [[nodiscard]] c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, current);
  }
  [[nodiscard]] c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high*/) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, FakeDevice::get().next_stream());
  }
  [[nodiscard]] c10::Stream exchangeStream(c10::Stream stream) const override {
    return c10::Stream(c10::Stream::UNSAFE, stream.device(), std::exchange(current, stream.id()));
  }
  /// Autograd starts a thread for each.
  [[nodiscard]] c10::DeviceIndex deviceCount() const noexcept override { return kFakeDevices; }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex /*index*/,
              const c10::EventFlag flag) const override {
    FakeDevice::get().given();
    const std::intptr_t number = FakeDevice::get().next_event();
    *event = reinterpret_cast<void*>(number);
    FakeDevice::get().recorded(number, stream.id(), flag == c10::EventFlag::BACKEND_DEFAULT);
    FakeDevice::get().told(fmt::format("stream {} records event {}", stream.id(), number));
  }
  void block(void* event, const c10::Stream& stream) const override {
    FakeDevice::get().awaited(reinterpret_cast<std::intptr_t>(event), stream.id());
    FakeDevice::get().told(
        fmt::format("stream {} awaits event {}", stream.id(), reinterpret_cast<std::intptr_t>(event)));
  }
  [[nodiscard]] bool queryEvent(void* event) const override {
    const auto number = reinterpret_cast<std::intptr_t>(event);
    FakeDevice::get().looked_at(number);
    return FakeDevice::get().is_done(number);
  }
  [[nodiscard]] double elapsedTime(void* from, void* to, const c10::DeviceIndex /*index*/) const override {
    const auto time = [](void* event) { return FakeDevice::get().time_of(reinterpret_cast<std::intptr_t>(event)); };
    return 1e3 * (time(to) - time(from));
  }
  void synchronizeDevice(const c10::DeviceIndex /*index*/) const override { FakeDevice::get().waited("for all work"); }
  void destroyEvent(void* /*event*/, const c10::DeviceIndex /*index*/) const noexcept override {}
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, FakeStreams);

/// Memory that this allocator returns counts as pinned. Like CUDA's, it keeps freed blocks by size, and reuses them. On
/// GPUs ranks are processes with an allocator each, so threads share blocks only if their names are equal. A thread has
/// the name of the thread that started it.
class PinnedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    const std::size_t rounded = std::bit_ceil(std::max<std::size_t>(size, 1));
    std::array<char, 16> name{};
    ::pthread_getname_np(::pthread_self(), name.data(), name.size());
    const Kind kind{name.data(), rounded};
    void* address = nullptr;
    std::size_t number = 0;  // of a new block
    {
      const std::scoped_lock lock(mutex_);
      std::vector<void*>& free = free_[kind];
      if (free.empty()) {
        // Not by the CPU's allocator, whose memory counts as the device's.
        free.push_back(std::aligned_alloc(kAlignment, std::max(rounded, kAlignment)));
        blocks_.emplace(free.back(), kind);
        number = blocks_.size();
      }
      address = free.back();
      free.pop_back();
    }
    if (number > 0) FakeDevice::get().used(fmt::format("{} bytes of pinned memory in block {}", rounded, number), {});
    return {address, address, &give_back, at::kCPU};
  }
  /// Never reuses the blocks that are free now.
  void forget() {
    const std::scoped_lock lock(mutex_);
    free_.clear();
  }
  void copy_data(void* to, const void* from, std::size_t size) const override { default_copy_data(to, from, size); }
  bool has(const void* address) const {
    const std::scoped_lock lock(mutex_);
    return blocks_.contains(address);
  }
  std::int64_t count() const {
    const std::scoped_lock lock(mutex_);
    return static_cast<std::int64_t>(blocks_.size());
  }

 private:
  using Kind = std::pair<std::string, std::size_t>;  // name of the thread, size
  static constexpr std::size_t kAlignment = 64;
  static void give_back(void* address);

  mutable std::mutex mutex_;
  // kept to the end: a freed address might be reused for memory that is not pinned
  std::map<const void*, Kind> blocks_;
  std::map<Kind, std::vector<void*>> free_;
};

PinnedMemory& pinned_memory() {
  static PinnedMemory& memory = *new PinnedMemory;  // static tensors may outlive others
  return memory;
}

void PinnedMemory::give_back(void* address) {
  PinnedMemory& own = pinned_memory();
  const std::scoped_lock lock(own.mutex_);
  own.free_[own.blocks_.at(address)].push_back(address);
}

struct FakeHooks final : at::PrivateUse1HooksInterface {
  [[nodiscard]] bool isBuilt() const override { return true; }
  [[nodiscard]] bool isAvailable() const override { return true; }
  [[nodiscard]] bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  [[nodiscard]] c10::DeviceIndex deviceCount() const override { return kFakeDevices; }
  [[nodiscard]] c10::DeviceIndex getCurrentDevice() const override { return device_index; }
  [[nodiscard]] c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory(); }
  [[nodiscard]] bool isPinnedPtr(const void* data) const override { return pinned_memory().has(data); }
  [[nodiscard]] const at::Generator& getDefaultGenerator(c10::DeviceIndex /*device*/) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  [[nodiscard]] at::Generator getNewGenerator(c10::DeviceIndex /*device*/) const override {
    return at::detail::createCPUGenerator();
  }
};

bool is_fake(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kFakeDevice; }

/// Deleter of the device's allocator.
void free_memory(void* owner) { delete static_cast<at::Tensor*>(owner); }

/// The same memory, sizes and strides on another device.
at::Tensor same_memory(const at::Tensor& tensor, at::Device device) {
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .context(new at::Tensor(tensor), free_memory)
      .options(tensor.options().device(device))
      .target_device(device)
      .make_tensor();
}

/// Makes `to` share the storage and sizes of `from`.
void adopt(const at::Tensor& to, const at::Tensor& from) {
  to.unsafeGetTensorImpl()->set_storage_keep_dtype(from.storage());
  to.unsafeGetTensorImpl()->set_sizes_contiguous(from.sizes());
}

/// All tensors of the values, in order.
std::vector<at::Tensor> tensors_in(std::span<const c10::IValue> values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) {
    if (value.isTensor()) tensors.push_back(value.toTensor());
    if (value.isTensorList()) std::ranges::copy(value.toTensorVector(), std::back_inserter(tensors));
  }
  return tensors;
}

/// Returns a function that calls the op with the same inputs again and copies its results to the first outputs.
std::function<void()> again(const c10::OperatorHandle& op, const torch::jit::Stack& inputs,
                            const torch::jit::Stack& outputs) {
  const std::size_t count = op.schema().returns().size();
  const std::vector<at::Tensor> first = tensors_in(std::span(outputs).last(count));
  return [op, inputs, first, count] {
    const at::AutoDispatchBelowADInplaceOrView kernels_alone;
    torch::jit::Stack stack = inputs;
    op.callBoxed(stack);
    const std::vector<at::Tensor> results = tensors_in(std::span<const c10::IValue>(stack).last(count));
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (!first[i].defined() || first[i].data_ptr() == results[i].data_ptr()) continue;
      first[i].copy_(results[i]);
    }
  };
}

/// The inputs of an op on the device, as CPU tensors.
class DispatchedCall {
 public:
  explicit DispatchedCall(const c10::OperatorHandle& op) : op_(op) {}

  void run(torch::jit::Stack& stack) {
    const std::size_t arguments = op_.schema().arguments().size();
    for (std::size_t i = stack.size() - arguments; i < stack.size(); ++i) stack[i] = on_cpu(stack[i]);
    const torch::jit::Stack inputs(stack.end() - static_cast<std::ptrdiff_t>(arguments), stack.end());
    op_.callBoxed(stack);
    if (auto* recording = FakeDevice::get().recording()) recording->push_back(again(op_, inputs, stack));
    const std::size_t results = op_.schema().returns().size();
    for (std::size_t i = stack.size() - results; i < stack.size(); ++i) stack[i] = on_device(stack[i]);
  }

 private:
  at::Tensor on_cpu(const at::Tensor& tensor) {
    if (!is_fake(tensor)) return tensor;
    device_ = tensor.device();
    const bool may_grow = tensor.numel() == 0;  // such as the output of arange()
    views_.emplace_back(
        may_grow ? at::empty(tensor.sizes(), tensor.options().device(at::kCPU)) : same_memory(tensor, at::kCPU),
        tensor);
    return views_.back().first;
  }

  c10::IValue on_cpu(const c10::IValue& value) {
    if (value.isTensor()) return on_cpu(value.toTensor());
    if (value.isDevice() && value.toDevice().type() == kFakeDevice) {
      if (value.toDevice().has_index()) device_ = value.toDevice();
      return at::Device(at::kCPU);
    }
    if (value.isTensorList()) {
      std::vector<at::Tensor> tensors;
      for (const at::Tensor& each : value.toTensorVector()) tensors.push_back(on_cpu(each));
      return tensors;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> tensors;
      for (const std::optional<at::Tensor>& each : value.toOptionalTensorVector())
        tensors.push_back(each ? std::optional(on_cpu(*each)) : std::nullopt);
      return tensors;
    }
    return value;
  }

  at::Tensor on_device(const at::Tensor& tensor) const {
    if (!tensor.defined()) return tensor;
    for (const auto& [view, original] : views_) {
      if (!view.is_same(tensor)) continue;
      if (view.sizes() != original.sizes()) adopt(original, same_memory(view, original.device()));
      return original;
    }
    return same_memory(tensor, device_);
  }

  c10::IValue on_device(const c10::IValue& value) const {
    if (value.isTensor()) return on_device(value.toTensor());
    if (value.isTensorList()) {
      std::vector<at::Tensor> tensors;
      for (const at::Tensor& each : value.toTensorVector()) tensors.push_back(on_device(each));
      return tensors;
    }
    if (!value.isNone()) FakeDevice::get().waited(op_.schema().name() + " gives the host a value");
    return value;
  }

  const c10::OperatorHandle& op_;
  at::Device device_ = current_device();  // of an input, if there is one
  std::vector<std::pair<at::Tensor, at::Tensor>> views_;
};

/// The result sizes of these ops depend on values.
bool depends_on_values(const std::string& op) {
  static const std::set<std::string> ops = {"aten::nonzero", "aten::masked_select", "aten::_unique2",
                                            "aten::repeat_interleave"};
  return ops.contains(op);
}

bool is_view(const c10::FunctionSchema& schema) {
  const auto is_alias = [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  };
  return std::ranges::any_of(schema.returns(), is_alias);
}

/// Kernels that an op launches on a GPU. Attention: of the fused kernels.
int kernels_of(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  static const std::set<std::string> allocations = {"aten::empty", "aten::empty_strided", "aten::resize_",
                                                    "aten::set_"};
  static const std::map<std::string, int> several = {
      {"aten::native_layer_norm_backward", 2},                           // input; weight and bias
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", 3}  // row sums; gradients; conversion
  };
  const std::string& name = op.schema().name();
  if (is_view(op.schema()) || allocations.contains(name)) return 0;
  // A matrix is copied to the result before the product is added; a bias is not.
  const auto& sum = stack[stack.size() - op.schema().arguments().size()];
  if (name == "aten::addmm" && sum.toTensor().dim() == 2) return 2;
  const auto found = several.find(name);
  return found == several.end() ? 1 : found->second;
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  FakeDevice::get().given();
  const std::string name = op.schema().name();
  FakeDevice::get().launched(name, kernels_of(op, *stack));
  if (depends_on_values(name)) FakeDevice::get().waited(name);
  for (const c10::IValue& input : std::span<const c10::IValue>(*stack).last(op.schema().arguments().size())) {
    if (input.isGenerator()) FakeDevice::get().draws_from(input.toGenerator());
  }
  FakeDevice::get().used(name, tensors_in(std::span<const c10::IValue>(*stack).last(op.schema().arguments().size())));
  DispatchedCall(op).run(*stack);
}

at::Scalar read_element(const at::Tensor& tensor) {
  FakeDevice::get().waited("reads an element");
  return at::_local_scalar_dense(same_memory(tensor, at::kCPU));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  FakeDevice::get().launched("aten::copy_", 1);
  const auto memory = [](const at::Tensor& tensor) { return is_fake(tensor) ? same_memory(tensor, at::kCPU) : tensor; };
  if (is_fake(from) != is_fake(to)) {
    const at::Tensor& host = is_fake(from) ? to : from;
    const char* direction = is_fake(from) ? "to the host" : "to the device";
    const bool pinned = pinned_memory().has(host.storage().data());
    if (!non_blocking) FakeDevice::get().waited(fmt::format("copies {} elements {}", from.numel(), direction));
    if (non_blocking && !pinned) FakeDevice::get().waited(fmt::format("copies {}, but not pinned", direction));
  }
  if (is_fake(from) && is_fake(to)) FakeDevice::get().used("aten::copy_", {from, to});
  memory(to).copy_(memory(from));
  if (auto* recording = FakeDevice::get().recording()) {
    if (!is_fake(from)) throw std::logic_error("a recorded copy reads the host's memory");
    recording->push_back([to = memory(to), from = memory(from)] { to.copy_(from); });
  }
  return to;
}

/// As the GPU kernel does, adds products of narrow numbers to a wide sum without rounding them. The CPU has no such
/// kernel.
at::Tensor& add_wide_product(const at::Tensor& term, const at::Tensor& left, const at::Tensor& right,
                             at::ScalarType type, const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& sum) {
  FakeDevice::get().given();
  FakeDevice::get().launched("aten::addmm", 1);
  if (!sum.is_same(term)) throw std::logic_error("a product is added, but not in place");
  FakeDevice::get().used("aten::addmm", {left, right, sum});
  const auto wide = [type](const at::Tensor& tensor) { return same_memory(tensor, at::kCPU).to(type); };
  const auto add = [=, sum = same_memory(sum, at::kCPU)] {
    const MemoryMeter::Pause uncounted;
    sum.addmm_(wide(left), wide(right), beta, alpha);
  };
  add();
  if (auto* recording = FakeDevice::get().recording()) recording->push_back(add);
  return sum;
}

/// Runs `compute` on the CPU; a recording repeats it.
std::vector<at::Tensor> computed(const std::function<std::vector<at::Tensor>()>& compute) {
  FakeDevice::get().given();
  const std::vector<at::Tensor> first = compute();
  if (auto* recording = FakeDevice::get().recording()) {
    recording->push_back([=] {
      const std::vector<at::Tensor> again = compute();
      for (std::size_t i = 0; i < first.size(); ++i) first[i].copy_(again[i]);
    });
  }
  return first;
}

/// Runs `compute` on the CPU, whose scratch memory is none of the device.
std::vector<at::Tensor> computed_apart(const std::function<std::vector<at::Tensor>()>& compute) {
  return computed([=] {
    std::vector<at::Tensor> results;
    {
      const MemoryMeter::Pause uncounted;
      results = compute();
    }
    for (at::Tensor& each : results) each = each.clone();
    return results;
  });
}

at::Tensor imitated(const std::string& op, const std::vector<at::Tensor>& inputs,
                    const std::function<at::Tensor()>& compute) {
  FakeDevice::get().launched(op, 1);
  FakeDevice::get().used(op, inputs);
  const auto results = computed_apart([=] { return std::vector{compute()}; });
  return same_memory(results[0], inputs[0].device());
}

at::Tensor product(const at::Tensor& left, const at::Tensor& right) {
  const auto host = [](const at::Tensor& tensor) { return same_memory(tensor, at::kCPU); };
  return imitated("aten::mm", {left, right}, [=] { return host(left).mm(host(right)); });
}

at::Tensor sum(const at::Tensor& all, at::OptionalIntArrayRef dimensions, bool keeps,
               std::optional<at::ScalarType> type) {
  const std::vector<std::int64_t> over = dimensions ? dimensions->vec() : std::vector<std::int64_t>();
  return imitated("aten::sum", {all},
                  [=, all = same_memory(all, at::kCPU)] { return at::sum(all, over, keeps, type); });
}

at::Tensor wide_product(const at::Tensor& left, const at::Tensor& right, at::ScalarType type) {
  const auto wide = [type](const at::Tensor& tensor) { return same_memory(tensor, at::kCPU).to(type); };
  return imitated("aten::mm", {left, right}, [=] { return wide(left).mm(wide(right)); });
}

/// The CPU has none of the fused kernels; as they do, these round once.
std::tuple<at::Tensor, at::Tensor> fused_rms_norm(const at::Tensor& input, at::IntArrayRef /*shape*/,
                                                  const std::optional<at::Tensor>& weight,
                                                  std::optional<double> epsilon) {
  FakeDevice::get().launched("aten::_fused_rms_norm", 1);
  const auto results =
      computed_apart([=, input = same_memory(input, at::kCPU), weight = same_memory(*weight, at::kCPU)] {
        const at::Tensor x = input.to(at::promote_types(input.scalar_type(), at::kFloat));
        const at::Tensor scales = (x.square().mean(-1, /*keepdim=*/true) + epsilon.value()).rsqrt();
        return std::vector{(x * scales * weight).to(input.scalar_type()), scales};
      });
  return {same_memory(results[0], input.device()), same_memory(results[1], input.device())};
}

std::tuple<at::Tensor, at::Tensor> fused_rms_norm_backward(const at::Tensor& output_gradient, const at::Tensor& input,
                                                           at::IntArrayRef /*shape*/, const at::Tensor& scales,
                                                           const std::optional<at::Tensor>& weight,
                                                           std::array<bool, 2> /*mask*/) {
  FakeDevice::get().launched("aten::_fused_rms_norm_backward", 2);  // input; weight
  const auto host = [](const at::Tensor& tensor) { return same_memory(tensor, at::kCPU); };
  const auto results = computed_apart([gradient = host(output_gradient), input = host(input), scales = host(scales),
                                       weight = host(*weight)] {
    const at::ScalarType wide = scales.scalar_type();
    const at::Tensor normed = input.to(wide) * scales;
    const at::Tensor weighted = gradient.to(wide) * weight.to(wide);
    const at::Tensor mean = (weighted * normed).mean(-1, /*keepdim=*/true);
    const at::Tensor term = (gradient.to(wide) * normed).flatten(0, -2).sum(0);
    return std::vector{(scales * (weighted - normed * mean)).to(input.scalar_type()), term.to(weight.scalar_type())};
  });
  return {same_memory(results[0], input.device()), same_memory(results[1], input.device())};
}

/// Causal attention of the last tokens, in float32. The CPU's kernel aligns the mask with the first key.
struct FlashAttention {
  FlashAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v)
      : query(wide(q)),
        key(wide(k).repeat_interleave(q.size(1) / k.size(1), 1)),
        value(wide(v).repeat_interleave(q.size(1) / k.size(1), 1)),
        scale(1 / std::sqrt(static_cast<double>(q.size(3)))) {
    const at::Tensor later = at::ones({q.size(2), k.size(2)}, at::kBool).triu(k.size(2) - q.size(2) + 1);
    weights = query.matmul(key.transpose(2, 3)).mul(scale).masked_fill(later, -INFINITY).softmax(-1);
  }
  static at::Tensor wide(const at::Tensor& tensor) { return same_memory(tensor, at::kCPU).to(at::kFloat); }

  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
  double scale;
  at::Tensor weights;
};

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor, at::Tensor, at::Tensor>
flash_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double /*dropout*/,
                bool /*is_causal*/, bool /*debug*/, std::optional<double> /*scale*/) {
  FakeDevice::get().launched("aten::_scaled_dot_product_flash_attention", 1);
  const auto results = computed([=] {
    const FlashAttention of(query, key, value);
    return std::vector{of.weights.matmul(of.value).to(query.scalar_type())};
  });
  return {same_memory(results[0], query.device()), {}, {}, {}, query.size(2), key.size(2), {}, {}, {}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_attention_backward(
    const at::Tensor& output_gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& /*output*/, const at::Tensor& /*sums*/, const at::Tensor& /*queries*/, const at::Tensor& /*keys*/,
    c10::SymInt /*most_queries*/, c10::SymInt /*most_keys*/, double /*dropout*/, bool /*is_causal*/,
    const at::Tensor& /*seed*/, const at::Tensor& /*offset*/, std::optional<double> /*scale*/) {
  FakeDevice::get().launched("aten::_scaled_dot_product_flash_attention_backward", 3);
  const auto results = computed([=] {
    const FlashAttention of(query, key, value);
    const at::Tensor gradient = FlashAttention::wide(output_gradient);
    const at::Tensor of_weights = gradient.matmul(of.value.transpose(2, 3)) * of.weights;
    const at::Tensor scores = (of_weights - of.weights * of_weights.sum(-1, /*keepdim=*/true)) * of.scale;
    const auto shared = [&](const at::Tensor& each) {
      return each.unflatten(1, {key.size(1), -1}).sum(2).to(key.scalar_type());
    };
    return std::vector{scores.matmul(of.key).to(query.scalar_type()), shared(scores.transpose(2, 3).matmul(of.query)),
                       shared(of.weights.transpose(2, 3).matmul(gradient))};
  });
  const at::Device device = query.device();
  return {same_memory(results[0], device), same_memory(results[1], device), same_memory(results[2], device)};
}

/// Chooses attention's kernels as the CPU does: fused ones if possible.
std::int64_t attention_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              const std::optional<at::Tensor>& mask, double dropout, bool is_causal,
                              std::optional<double> scale, bool is_grouped) {
  const auto host = [](const at::Tensor& tensor) { return same_memory(tensor, at::kCPU); };
  return at::_fused_sdp_choice(host(query), host(key), host(value), mask ? std::optional(host(*mask)) : std::nullopt,
                               dropout, is_causal, scale, is_grouped);
}

/// Views share the storage, as on a GPU. The fallback would give each a storage of its own, without an offset.
at::Tensor strided_view(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides,
                        std::optional<std::int64_t> offset) {
  FakeDevice::get().given();
  return at::native::as_strided_tensorimpl(tensor, sizes, strides, offset);
}

at::Tensor reshaped_view(const at::Tensor& tensor, at::IntArrayRef sizes) {
  FakeDevice::get().given();
  return at::native::view(tensor, sizes);
}

void record_stream(at::Tensor& /*tensor*/, at::Stream stream) {
  FakeDevice::get().told(fmt::format("memory is kept for stream {}", stream.id()));
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("record_stream", record_stream);
  library.impl("addmm.dtype_out", add_wide_product);
  library.impl("_local_scalar_dense", read_element);
  library.impl("_copy_from", copy_from);
  library.impl("mm", product);
  library.impl("sum.dim_IntList", sum);
  library.impl("mm.dtype", wide_product);
  library.impl("_fused_rms_norm", fused_rms_norm);
  library.impl("_fused_rms_norm_backward", fused_rms_norm_backward);
  library.impl("_scaled_dot_product_flash_attention", flash_attention);
  library.impl("_scaled_dot_product_flash_attention_backward", flash_attention_backward);
  library.impl("as_strided", strided_view);
  library.impl("view", reshaped_view);
  // Without these, several other ops would be called.
  for (const char* op : {"native_layer_norm", "_foreach_add_.List", "_foreach_copy_"})
    library.impl(op, torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

}  // namespace

}  // namespace chimera::testing

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &chimera::testing::attention_choice)

}  // namespace at::native

namespace chimera::testing {

FakeDevice& FakeDevice::get() {
  static FakeDevice device;
  return device;
}

void FakeDevice::install() {
  static FakeHooks hooks;
  if (at::isPrivateUse1HooksRegistered()) return;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::register_privateuse1_backend("fake");
}

std::int64_t FakeDevice::pinned_blocks() { return pinned_memory().count(); }

bool FakeDevice::has_allocated(const at::Tensor& tensor) {
  return tensor.storage().data_ptr().get_deleter() == &free_memory;
}

void FakeDevice::clear() {
  const std::scoped_lock lock(mutex_);
  lines_.clear();
  waits_.clear();
  events_ = known_done_ = 0;
  times_.clear();
  done_up_to_ = std::numeric_limits<std::intptr_t>::max();
  answers_late_ = false;
  looked_at_.clear();
  streams_ = 0;
  given_count_ = 0;
  kernels_.clear();
  events_of_recordings_.clear();
  wait_at_first_use_ = {};
  used_.clear();
  recordings_begun_.clear();
  pinned_memory().forget();
}

void FakeDevice::waited(std::string what) {
  if (recording() != nullptr) throw std::logic_error("while it is recorded: " + what);
  looking = {};
  const std::scoped_lock lock(mutex_);
  waits_.push_back(std::move(what));
  known_done_ = events_;
}

void FakeDevice::looked_at(std::intptr_t event) {
  {
    const std::scoped_lock lock(mutex_);
    if (events_of_recordings_.contains(event)) throw std::logic_error("looks at an event of a recording");
  }
  looking.again_and_again = looking.again_and_again || looking.at == event;
  looking.at = event;
}

void FakeDevice::given() {
  {
    const std::scoped_lock lock(mutex_);
    ++given_count_;
  }
  if (looking.again_and_again) waited("looks at events until the device is done");
  looking = {};
}

bool FakeDevice::is_done(std::intptr_t event) {
  const std::scoped_lock lock(mutex_);
  if (answers_late_ && looked_at_.insert(event).second) return false;
  if (event <= done_up_to_) known_done_ = std::max(known_done_, event);
  return event <= done_up_to_;
}

/// Work of the network (Unrecorded) is not the rank's.
void FakeDevice::used(const std::string& op, const std::vector<at::Tensor>& inputs) {
  if (current == 0 || unrecorded > 0) return;
  DeviceWait wait;
  std::string use = op;
  {
    const std::scoped_lock lock(mutex_);
    if (!wait_at_first_use_) return;
    for (const at::Tensor& input : inputs) {
      if (input.defined())
        use += fmt::format(" {} {}", c10::toString(input.scalar_type()), fmt::join(input.sizes(), "x"));
    }
    if (used_.emplace(current, use).second) wait = wait_at_first_use_;
  }
  if (wait) wait(current, use);
}

FakeDevice::Unrecorded::Unrecorded() { ++unrecorded; }

FakeDevice::Unrecorded::~Unrecorded() { --unrecorded; }

FakeDevice::Recording* FakeDevice::recording() {
  if (unrecorded > 0) return nullptr;
  const std::scoped_lock lock(mutex_);
  const auto found = recordings_.find(current);
  return found == recordings_.end() ? nullptr : found->second.get();
}

void FakeDevice::draws_from(const at::Generator& generator) {
  if (recording() == nullptr) return;
  const std::scoped_lock lock(mutex_);
  if (std::ranges::count(registered_[current], generator) == 0)
    throw std::logic_error("a recording draws from a generator that is not registered");
}

int FakeDevice::recording_number() {
  if (recording() == nullptr) return 0;
  const std::scoped_lock lock(mutex_);
  return recordings_begun_.at(current);
}

void FakeDevice::recorded(std::intptr_t event, c10::StreamId stream, bool has_time) {
  const std::scoped_lock lock(mutex_);
  if (has_time) times_[event] = monotonic_seconds() - kBehind;
  if (!recordings_.contains(stream)) return;
  if (has_time) throw std::logic_error("a recording has no times");
  events_of_recordings_.insert(event);
}

double FakeDevice::time_of(std::intptr_t event) {
  const std::scoped_lock lock(mutex_);
  if (event > known_done_) throw std::logic_error("reads the time of an event before any wait");
  return times_.at(event);
}

void FakeDevice::awaited(std::intptr_t event, c10::StreamId stream) {
  const std::scoped_lock lock(mutex_);
  if (recordings_.contains(stream) && !events_of_recordings_.contains(event))
    throw std::logic_error("a recording waits for what came before it");
}

namespace {

class Repeated final : public DeviceGraph {
 public:
  Repeated(std::shared_ptr<FakeDevice::Recording> work, std::size_t kernels)
      : work_(std::move(work)), kernels_(kernels, "kernel") {}
  void repeat() override {
    FakeDevice::get().given();
    if (std::exchange(is_done_, true)) {
      for (const auto& kernel : *work_) kernel();
    }
  }
  [[nodiscard]] std::vector<std::string> kernels() const override { return kernels_; }

 private:
  std::shared_ptr<FakeDevice::Recording> work_;
  std::vector<std::string> kernels_;
  bool is_done_ = false;
};

}  // namespace

std::unique_ptr<DeviceGraph> FakeDevice::record(const std::function<void()>& work,
                                                const std::vector<at::Generator>& generators) {
  const auto own = std::make_shared<Recording>();
  const c10::StreamId stream = current;
  if (stream == 0) throw std::logic_error("the default stream cannot be recorded");
  {
    const std::scoped_lock lock(mutex_);
    recordings_[stream] = own;
    registered_[stream] = generators;
    ++recordings_begun_[stream];
  }
  const auto end = [&] {
    const std::scoped_lock lock(mutex_);
    recordings_.erase(stream);
  };
  const std::size_t before = kernels().size();
  try {
    work();
  } catch (...) {
    end();
    throw;
  }
  end();
  return std::make_unique<Repeated>(own, kernels().size() - before);
}

c10::StreamId current_fake_stream() { return current; }

}  // namespace chimera::testing

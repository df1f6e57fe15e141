#include "support/fake_device.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fmt/format.h>
#include <torch/library.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>

namespace chimera::testing {
namespace {

const at::Device kDevice(kFakeDevice, 0);
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
  [[nodiscard]] c10::Device exchangeDevice(c10::Device /*device*/) const override { return kDevice; }
  [[nodiscard]] c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device /*device*/) const override {}
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
  [[nodiscard]] c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, current);
  }
  [[nodiscard]] c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high*/) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, FakeDevice::get().next_stream());
  }
  [[nodiscard]] c10::Stream exchangeStream(c10::Stream stream) const override {
    return c10::Stream(c10::Stream::UNSAFE, kDevice, std::exchange(current, stream.id()));
  }
  /// Autograd starts a thread for it.
  [[nodiscard]] c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex /*index*/,
              const c10::EventFlag /*flag*/) const override {
    FakeDevice::get().given();
    const std::intptr_t number = FakeDevice::get().next_event();
    *event = reinterpret_cast<void*>(number);
    FakeDevice::get().recorded(number, stream.id());
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
  void destroyEvent(void* /*event*/, const c10::DeviceIndex /*index*/) const noexcept override {}
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, FakeStreams);

/// Memory that this allocator returns counts as pinned.
class PinnedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    c10::DataPtr memory = c10::GetCPUAllocator()->allocate(std::max<std::size_t>(size, 1));
    void* const address = memory.get();
    const std::scoped_lock lock(mutex_);
    pinned_.emplace(address, std::move(memory));
    return {address, at::kCPU};
  }
  void copy_data(void* to, const void* from, std::size_t size) const override { default_copy_data(to, from, size); }
  bool has(const void* address) const {
    const std::scoped_lock lock(mutex_);
    return pinned_.contains(address);
  }

 private:
  mutable std::mutex mutex_;
  // kept to the end: a freed address might be reused for memory that is not pinned
  std::map<const void*, c10::DataPtr> pinned_;
};

PinnedMemory& pinned_memory() {
  static PinnedMemory memory;
  return memory;
}

struct FakeHooks final : at::PrivateUse1HooksInterface {
  [[nodiscard]] bool isBuilt() const override { return true; }
  [[nodiscard]] bool isAvailable() const override { return true; }
  [[nodiscard]] bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  [[nodiscard]] c10::DeviceIndex deviceCount() const override { return 1; }
  [[nodiscard]] c10::DeviceIndex getCurrentDevice() const override { return 0; }
  [[nodiscard]] c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory(); }
  [[nodiscard]] bool isPinnedPtr(const void* data) const override { return pinned_memory().has(data); }
};

bool is_fake(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kFakeDevice; }

/// The same memory, sizes and strides on another device.
at::Tensor same_memory(const at::Tensor& tensor, at::Device device) {
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .deleter([tensor](void* /*data*/) {})
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
class Call {
 public:
  explicit Call(const c10::OperatorHandle& op) : op_(op) {}

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
    const bool may_grow = tensor.numel() == 0;  // such as the output of arange()
    views_.emplace_back(
        may_grow ? at::empty(tensor.sizes(), tensor.options().device(at::kCPU)) : same_memory(tensor, at::kCPU),
        tensor);
    return views_.back().first;
  }

  c10::IValue on_cpu(const c10::IValue& value) {
    if (value.isTensor()) return on_cpu(value.toTensor());
    if (value.isDevice()) return value.toDevice().type() == kFakeDevice ? c10::IValue(at::Device(at::kCPU)) : value;
    if (value.isTensorList()) {
      std::vector<at::Tensor> tensors;
      for (const at::Tensor& each : value.toTensorVector()) tensors.push_back(on_cpu(each));
      return tensors;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> tensors;
      for (const std::optional<at::Tensor>& each : value.toOptionalTensorVector()) {
        tensors.push_back(each ? std::optional(on_cpu(*each)) : std::nullopt);
      }
      return tensors;
    }
    return value;
  }

  at::Tensor on_device(const at::Tensor& tensor) const {
    if (!tensor.defined()) return tensor;
    for (const auto& [view, original] : views_) {
      if (!view.is_same(tensor)) continue;
      if (view.sizes() != original.sizes()) adopt(original, same_memory(view, kDevice));
      return original;
    }
    return same_memory(tensor, kDevice);
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
  std::vector<std::pair<at::Tensor, at::Tensor>> views_;
};

/// The result sizes of these ops depend on values.
bool depends_on_values(const std::string& op) {
  static const std::set<std::string> ops = {"aten::nonzero", "aten::masked_select", "aten::_unique2",
                                            "aten::repeat_interleave"};
  return ops.contains(op);
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  FakeDevice::get().given();
  if (depends_on_values(op.schema().name())) FakeDevice::get().waited(op.schema().name());
  Call(op).run(*stack);
}

at::Scalar read_element(const at::Tensor& tensor) {
  FakeDevice::get().waited("reads an element");
  return at::_local_scalar_dense(same_memory(tensor, at::kCPU));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const auto memory = [](const at::Tensor& tensor) { return is_fake(tensor) ? same_memory(tensor, at::kCPU) : tensor; };
  if (is_fake(from) != is_fake(to)) {
    const at::Tensor& host = is_fake(from) ? to : from;
    const char* direction = is_fake(from) ? "to the host" : "to the device";
    const bool pinned = pinned_memory().has(host.storage().data());
    if (!non_blocking) FakeDevice::get().waited(fmt::format("copies {} elements {}", from.numel(), direction));
    if (non_blocking && !pinned) FakeDevice::get().waited(fmt::format("copies {}, but not pinned", direction));
  }
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
  if (!sum.is_same(term)) throw std::logic_error("a product is added, but not in place");
  const auto wide = [type](const at::Tensor& tensor) { return same_memory(tensor, at::kCPU).to(type); };
  const auto add = [=, sum = same_memory(sum, at::kCPU)] { sum.addmm_(wide(left), wide(right), beta, alpha); };
  add();
  if (auto* recording = FakeDevice::get().recording()) recording->push_back(add);
  return sum;
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
}

}  // namespace

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

void FakeDevice::clear() {
  const std::scoped_lock lock(mutex_);
  lines_.clear();
  waits_.clear();
  events_ = 0;
  done_up_to_ = std::numeric_limits<std::intptr_t>::max();
  answers_late_ = false;
  looked_at_.clear();
  streams_ = 0;
  given_count_ = 0;
  events_of_recordings_.clear();
}

std::vector<std::string> FakeDevice::lines() {
  const std::scoped_lock lock(mutex_);
  return lines_;
}

std::vector<std::string> FakeDevice::waits() {
  const std::scoped_lock lock(mutex_);
  return waits_;
}

void FakeDevice::finish_events_up_to(std::intptr_t event) {
  const std::scoped_lock lock(mutex_);
  done_up_to_ = event;
}

void FakeDevice::told(std::string line) {
  const std::scoped_lock lock(mutex_);
  lines_.push_back(std::move(line));
}

void FakeDevice::waited(std::string what) {
  if (recording() != nullptr) throw std::logic_error("while it is recorded: " + what);
  looking = {};
  const std::scoped_lock lock(mutex_);
  waits_.push_back(std::move(what));
}

std::intptr_t FakeDevice::next_event() {
  const std::scoped_lock lock(mutex_);
  return ++events_;
}

c10::StreamId FakeDevice::next_stream() {
  const std::scoped_lock lock(mutex_);
  return ++streams_;
}

void FakeDevice::answer_late() {
  const std::scoped_lock lock(mutex_);
  answers_late_ = true;
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
  return event <= done_up_to_;
}

std::int64_t FakeDevice::given_count() {
  const std::scoped_lock lock(mutex_);
  return given_count_;
}

FakeDevice::Unrecorded::Unrecorded() { ++unrecorded; }

FakeDevice::Unrecorded::~Unrecorded() { --unrecorded; }

FakeDevice::Recording* FakeDevice::recording() {
  if (unrecorded > 0) return nullptr;
  const std::scoped_lock lock(mutex_);
  const auto found = recordings_.find(current);
  return found == recordings_.end() ? nullptr : found->second.get();
}

void FakeDevice::recorded(std::intptr_t event, c10::StreamId stream) {
  const std::scoped_lock lock(mutex_);
  if (recordings_.contains(stream)) events_of_recordings_.insert(event);
}

void FakeDevice::awaited(std::intptr_t event, c10::StreamId stream) {
  const std::scoped_lock lock(mutex_);
  if (recordings_.contains(stream) && !events_of_recordings_.contains(event)) {
    throw std::logic_error("a recording waits for what came before it");
  }
}

namespace {

class Repeated final : public RecordedWork {
 public:
  explicit Repeated(std::shared_ptr<FakeDevice::Recording> work) : work_(std::move(work)) {}
  void repeat() override {
    FakeDevice::get().given();
    if (std::exchange(is_done_, true)) {
      for (const auto& kernel : *work_) kernel();
    }
  }
  [[nodiscard]] std::int64_t num_kernels() const override { return static_cast<std::int64_t>(work_->size()); }

 private:
  std::shared_ptr<FakeDevice::Recording> work_;
  bool is_done_ = false;
};

}  // namespace

std::unique_ptr<RecordedWork> FakeDevice::record(const std::function<void()>& work) {
  const auto own = std::make_shared<Recording>();
  const c10::StreamId stream = current;
  if (stream == 0) throw std::logic_error("the default stream cannot be recorded");
  {
    const std::scoped_lock lock(mutex_);
    recordings_[stream] = own;
  }
  const auto end = [&] {
    const std::scoped_lock lock(mutex_);
    recordings_.erase(stream);
  };
  try {
    work();
  } catch (...) {
    end();
    throw;
  }
  end();
  return std::make_unique<Repeated>(own);
}

c10::StreamId current_fake_stream() { return current; }

}  // namespace chimera::testing

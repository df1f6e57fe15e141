#include "runtime/activations.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/invariant.h"
#include "core/mapped.h"
#include "model/layers.h"
#include "runtime/memory_meter.h"

// While a forward runs in a Scope, autograd asks the hooking engine for hooks, and each tensor that it saves goes
// through add(): the graph then holds a Pointer instead of the tensor. Whoever empties the tensor behind the
// pointer frees the memory, as long as nothing else refers to it. offload() does this after it has started a copy,
// load() fills it again, and the graph reads it in backward.

namespace chimera {
namespace {

thread_local SavedTensors* current_tensors = nullptr;

struct Hooks final : torch::autograd::SavedVariableHooks {
  explicit Hooks(SavedTensors& tensors) : to(tensors) {}
  void call_pack_hook(const at::Tensor& tensor) override { saved = to.add(tensor); }
  at::Tensor call_unpack_hook() override { return *saved; }

  SavedTensors& to;
  SavedTensors::Pointer saved;
};

/// LibTorch asks its engine for the hooks of saved tensors.
struct HookingEngine final : torch::autograd::Engine {
  ~HookingEngine() override { stop(); }
  HookingEngine& operator=(HookingEngine&&) = delete;

  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    const bool collects = current_tensors != nullptr && !StayOnDevice::is_active();
    return collects ? std::make_unique<Hooks>(*current_tensors) : nullptr;
  }
};

bool set_hooking_engine() {
  // The engine can be replaced once per process, and Python's has replaced it already if the package is loaded.
  using torch::autograd::Engine;
  if (&Engine::get_default_engine() != &Engine::get_base_engine())
    throw Error("activations cannot be offloaded: Python's autograd engine is in use");
  torch::autograd::set_default_engine_stub([]() -> Engine& {
    static HookingEngine engine;
    return engine;
  });
  return true;
}

at::Tensor flat_bytes(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  return at::empty({0}, tensor.options().dtype(at::kByte))
      .set_(storage, 0, {static_cast<std::int64_t>(storage.nbytes())}, {1});
}

std::vector<std::vector<SavedTensors::Pointer>> by_storage(std::vector<SavedTensors::Pointer> tensors) {
  std::vector<std::vector<SavedTensors::Pointer>> groups;
  std::unordered_map<const c10::StorageImpl*, std::size_t> group_of;
  for (SavedTensors::Pointer& tensor : tensors) {
    const auto [found, is_new] = group_of.emplace(tensor->storage().unsafeGetStorageImpl(), groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(std::move(tensor));
  }
  return groups;
}

std::string missing(const Op& op) { return "the activation of " + name_of(forward_of(op)); }

}  // namespace

std::vector<at::Tensor> HostCopies::to_host(const std::vector<at::Tensor>& tensors, StreamMark& end) {
  auto copies = mapped<at::Tensor>(tensors, [this](const at::Tensor& tensor) { return take(tensor.numel()); });
  // The current stream waits for the previous copy. Only then is the memory of its tensors free for the ops that
  // follow.
  last_.await();
  // At most one copy is in flight, so device memory is freed at the pace of the link.
  end = last_ = copy(tensors, copies, tensors);
  return copies;
}

std::vector<at::Tensor> HostCopies::to_device(std::vector<at::Tensor> tensors, StreamMark& end) {
  auto results = mapped<at::Tensor>(tensors, [this](const at::Tensor& tensor) {
    return at::empty({tensor.numel()}, at::device(device_).dtype(at::kByte));
  });
  end = copy(tensors, results, results);
  // Reused by the next to_host(), which runs on the same stream, behind this copy.
  for (at::Tensor& tensor : tensors) free_[tensor.numel()].push_back(std::move(tensor));
  return results;
}

/// The device's allocator may otherwise reuse memory that this stream still reads or writes.
StreamMark HostCopies::copy(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to,
                            const std::vector<at::Tensor>& on_device) {
  return stream_.run(StreamMark(device_), [&] {
    for (std::size_t i = 0; i < from.size(); ++i) {
      to[i].copy_(from[i], /*non_blocking=*/true);
      use_on_current_stream(on_device[i]);
    }
  });
}

at::Tensor HostCopies::take(std::int64_t bytes) {
  // Activations of a stage have equal sizes in every micro-batch, so freed memory fits the next one exactly.
  std::vector<at::Tensor>& free = free_[bytes];
  if (free.empty()) {
    const MemoryMeter::Pause uncounted;
    return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(!device_.is_cpu()));
  }
  at::Tensor memory = std::move(free.back());
  free.pop_back();
  return memory;
}

SavedTensors::Scope::Scope(SavedTensors* saved) : ScopedValue(current_tensors, saved) {
  if (saved != nullptr) [[maybe_unused]]
    static const bool is_set = set_hooking_engine();
}

SavedTensors::Pointer SavedTensors::add(const at::Tensor& tensor) {
  const bool stays = tensor.is_leaf() && tensor.requires_grad();
  auto saved =
      std::make_shared<at::Tensor>(stays ? tensor : tensor.detach());  // without the graph, which refers to the hooks
  // Leaves that need gradients are parameters, their copies and the stage's input, which others hold too.
  if (!stays && tensor.layout() == at::kStrided) tensors_.push_back(saved);
  return saved;
}

void SavedTensors::offload(HostCopies& copies) {
  const at::NoGradGuard no_graph;
  std::vector<at::Tensor> on_device;
  // Views of one storage move together, because the memory is free only when all of them have gone. A storage that
  // anything else refers to would stay on the device anyway.
  for (const std::vector<Pointer>& sharers : by_storage(std::exchange(tensors_, {}))) {
    const c10::Storage& storage = sharers.front()->storage();
    // Every sharer holds one reference; one more means another owner, such as a message that is being sent.
    if (storage.nbytes() == 0 || storage.use_count() > sharers.size()) continue;
    on_device.push_back(flat_bytes(*sharers.front()));
    std::vector<View>& views = views_.emplace_back();
    for (const Pointer& tensor : sharers) {
      const at::Tensor value = std::exchange(*tensor, {});
      views.push_back(
          {tensor, value.scalar_type(), value.sizes().vec(), value.strides().vec(), value.storage_offset()});
    }
  }
  in_host_ = copies.to_host(on_device, offloaded_);
}

void SavedTensors::load(HostCopies& copies) {
  const at::NoGradGuard no_graph;
  offloaded_.await();
  const std::vector<at::Tensor> loaded = copies.to_device(std::exchange(in_host_, {}), loaded_);
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    for (const View& view : views_[i]) {
      *view.tensor = at::empty({0}, loaded[i].options().dtype(view.type))
                         .set_(loaded[i].storage(), view.offset, view.sizes, view.strides);
    }
  }
  views_.clear();
}

void Activations::begin(const std::vector<Instruction>& program) {
  recomputed_.clear();
  offloaded_.clear();
  for (const Instruction& instruction : program) {
    // A stage recomputes all its micro-batches or none. Offloads name single forwards: one whose backward follows soon
    // stays on the device (schedule/offload.h).
    if (instruction.kind == InstructionKind::Recompute) recomputed_.insert(instruction.op.stage);
    if (instruction.kind == InstructionKind::Offload) offloaded_.insert(key_of(instruction.op));
  }
}

std::unique_ptr<SavedTensors> Activations::saved_tensors_of(const Op& forward) const {
  return offloaded_.contains(key_of(forward)) ? std::make_unique<SavedTensors>() : nullptr;
}

void Activations::put(const Op& forward, Activation activation) {
  const bool is_new = activations_.emplace(key_of(forward), std::move(activation)).second;
  if (!is_new) throw InternalError("the activation of " + name_of(forward) + " exists twice");
}

Activation& Activations::find(const Op& op) {
  const auto found = activations_.find(key_of(forward_of(op)));
  if (found == activations_.end()) throw InternalError(missing(op) + " is missing");
  return found->second;
}

Activation Activations::take(const Op& op) {
  // A load has been enqueued before. Kernels of the backward must not start before its copies end, so the current
  // stream waits for them; the host does not.
  Activation activation = take_out(activations_, key_of(forward_of(op)), [&] { return missing(op); });
  if (activation.saved == nullptr) return activation;
  activation.saved->await();
  activation.saved.reset();
  if (activation.saved_input) {
    // offload() detached the input; its gradient is sent to the stage before.
    activation.input = std::exchange(activation.saved_input, {})->requires_grad_(true);
  }
  return activation;
}

void Activations::offload(const Op& op) {
  Activation& activation = find(op);
  // A recomputed forward has made no graph yet, so its input is all that it keeps.
  if (recomputed_.contains(op.stage))
    activation.saved_input = activation.saved->add(std::exchange(activation.input, {}).detach());
  activation.saved->offload(*copies_);
}

void Activations::load(const Op& op) { find(op).saved->load(*copies_); }

}  // namespace chimera

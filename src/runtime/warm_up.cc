// Executor::warm_up(): why a GPU runs a program once before its first receives.
//
// A GPU's first use of an op in a process may wait until the whole GPU is idle: CUDA loads a kernel, a library builds
// it, or cuDNN plans attention for a new shape, separately on each thread. A program posts receives before its first
// op. A rank that waits for its own receives has not sent what its peers wait for, and all ranks deadlock. So the ops
// run first, without messages. A warm-up also allocates as much memory as a step. If memory is short, the allocator
// frees its cache, and waits for that until the whole GPU is idle. Here this is safe, because no receive is pending; in
// a step it could be a deadlock.

#include <ATen/ATen.h>

#include <memory>
#include <utility>

#include "core/fault_point.h"
#include "core/scoped_value.h"
#include "runtime/executor.h"
#include "transport/forwarding_transport.h"

namespace chimera {
namespace {

/// Sends no messages, and returns zeros for received messages. Sums are unchanged. Keeps tensors as long as a transfer
/// does, so that a warm-up needs as much memory as a step.
class WithoutMessages final : public ForwardingTransport {
 public:
  WithoutMessages(Transport& ranks, at::Device device) : ForwardingTransport(ranks), device_(device) {}

  std::unique_ptr<Pending> start_send(RankId /*to*/, at::Tensor tensor, const MessageTag& /*tag*/) override {
    return std::make_unique<Completed>(std::move(tensor));
  }
  std::unique_ptr<Pending> post_receive(RankId /*from*/, const TensorSpec& spec, const MessageTag& /*tag*/) override {
    return std::make_unique<Completed>(at::zeros(spec.sizes, at::device(device_).dtype(spec.dtype)));
  }

 private:
  at::Device device_;
};

}  // namespace

/// A second executor leaves nothing behind in this one. No rank waits for a message. A rank may wait for its device
/// while one of its gradient sums is in flight, but all ranks start their sums in one order, so some rank always
/// continues.
void Executor::warm_up(const std::vector<Instruction>& program, StepHooks hooks) {
  const ScopedValue no_faults(fault_rank(), -1);  // a rank that no fault names
  WithoutMessages transport(worker_.transport, worker_.device());
  Executor other(worker_.worker, worker_.stages, transport, worker_.message, worker_.shape, worker_.tied);
  other.activations_.share_host_memory(activations_);
  // A warm-up takes no part in agreements and measures nothing.
  hooks.votes = nullptr;
  hooks.shared = {};
  hooks.observation.tracer = nullptr;
  hooks.recording = {};
  hooks.update.is_left_out = true;
  hooks.update.skip_non_finite = [](const std::string&, bool) {};  // Zeros may give any loss
  static_cast<void>(other.run(program, hooks));
  if (!other.trains_) return;
  for (const auto& [id, group] : worker_.groups) group->zero_gradients();
}

}  // namespace chimera

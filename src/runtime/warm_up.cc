#include "runtime/warm_up.h"

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <utility>

#include "core/fault_point.h"
#include "core/scoped_value.h"
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

/// A second executor leaves nothing behind in the first. No rank waits for a message. A rank may wait for its device
/// while one of its gradient sums is in flight, but all ranks start their sums in one order, so some rank always
/// continues.
void warm_up(Executor& executor, const std::vector<Instruction>& program, StepHooks hooks) {
  const ScopedValue no_faults(fault_rank(), -1);  // a rank that no fault names
  const WorkerContext& worker = executor.worker();
  WithoutMessages transport(worker.transport, worker.device());
  Executor other(worker.worker, worker.stages, transport, worker.message, worker.shape, worker.tied);
  other.share_host_memory(executor);
  // A warm-up takes no part in agreements and measures nothing.
  hooks.votes = nullptr;
  hooks.shared = {};
  hooks.observation.tracer = nullptr;
  hooks.recording = {};
  hooks.update.is_left_out = true;
  hooks.update.skip_non_finite = [](const std::string&, bool) {};  // Zeros may give any loss
  static_cast<void>(other.run(program, hooks));
  if (!other.trains()) return;
  for (const auto& [id, group] : worker.groups) group->zero_gradients();
}

}  // namespace chimera

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <utility>

#include "core/fault_point.h"
#include "runtime/executor.h"
#include "transport/forwarding_transport.h"

namespace chimera {
namespace {

/// Sends no messages, and returns zeros for received messages. Sums are unchanged.
class WithoutMessages final : public ForwardingTransport {
 public:
  WithoutMessages(Transport& ranks, at::Device device) : ForwardingTransport(ranks), device_(device) {}

  std::unique_ptr<Pending> start_send(RankId /*to*/, at::Tensor /*tensor*/, const MessageTag& /*tag*/) override {
    return std::make_unique<Completed>(at::Tensor());
  }
  std::unique_ptr<Pending> post_receive(RankId /*from*/, const TensorSpec& spec, const MessageTag& /*tag*/) override {
    return std::make_unique<Completed>(at::zeros(spec.sizes, at::device(device_).dtype(spec.dtype)));
  }

 private:
  at::Device device_;
};

class WithoutFaults {
 public:
  WithoutFaults() { set_fault_rank(-1); }
  ~WithoutFaults() { set_fault_rank(rank_); }
  WithoutFaults(const WithoutFaults&) = delete;
  WithoutFaults& operator=(const WithoutFaults&) = delete;

 private:
  int rank_ = fault_rank();
};

}  // namespace

/// A second executor leaves nothing behind in this one. No rank waits for a message. A rank may wait for its device
/// while one of its gradient sums is in flight, but all ranks start their sums in one order, so some rank always
/// continues.
void Executor::warm_up(const std::vector<Instruction>& program, StepHooks hooks) {
  const WithoutFaults no_faults;
  const auto tied = groups_.find(tied_matrix(shape_.stages()));
  WithoutMessages transport(transport_, groups_.begin()->second->gradients().device());
  Executor other(worker_, stages_, transport, message_, shape_, tied == groups_.end() ? nullptr : tied->second);
  prepare_copies(program);
  other.copies_ = copies_;
  hooks.votes = nullptr;
  hooks.tracer = nullptr;
  hooks.record = {};
  hooks.leaves_out_update = true;
  hooks.skip_non_finite = [](const std::string&, bool) {};  // zeros may give any loss
  static_cast<void>(other.run(program, hooks));
  if (!other.trains_) return;
  for (const auto& [id, group] : groups_) group->zero_gradients();
}

}  // namespace chimera

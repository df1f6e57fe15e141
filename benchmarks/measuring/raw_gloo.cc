// Functions of Gloo's types are never called (see transport/gloo/group.h).
#define USE_DISTRIBUTED
#define USE_C10D_GLOO

#include "measuring/raw_gloo.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

namespace chimera::benchmarks {

using c10d::ProcessGroupGloo;
using Group = c10::intrusive_ptr<ProcessGroupGloo>;

class RawGloo::Implementation {
 public:
  Implementation(RankId rank, const Program& program, const RankGroups& groups, const std::string& store_path,
                 const TensorSpec& message, std::int64_t gradients_of_stage)
      : rank_(static_cast<int>(rank.value())),
        workers_(static_cast<int>(program.workers.size())),
        sent_{at::zeros(message.sizes, message.dtype)},
        received_{at::zeros(message.sizes, message.dtype)},
        store_(c10::make_intrusive<c10d::FileStore>(store_path, /*numWorkers=*/-1)),
        device_(ProcessGroupGloo::createDeviceForHostname("127.0.0.1")),
        messages_(connect("raw messages", rank_, workers_)),
        everyone_(connect("raw everyone", rank_, workers_)) {
    for (std::size_t s = 0; s < groups.size(); ++s) {
      const auto place = std::ranges::find(groups[s], rank);
      if (place == groups[s].end() || groups[s].size() == 1) continue;
      const ParameterGroupId group(static_cast<std::int64_t>(s));
      groups_[group] = connect(fmt::format("raw stage {}", s), static_cast<int>(place - groups[s].begin()),
                               static_cast<int>(groups[s].size()));
      gradients_[group] = {at::zeros({gradients_of_stage}, message.dtype)};
    }
    const auto scalars = program.stages + program.micro_batches + workers_;
    scalars_ = {at::zeros({scalars}, at::kDouble)};
    all_scalars_.resize(1);
    for (int r = 0; r < workers_; ++r) all_scalars_.front().push_back(at::zeros({scalars}, at::kDouble));
  }

  void run(const Instruction& instruction) {
    const int peer = static_cast<int>(instruction.peer.value());
    const ParameterGroupId group = instruction.group;
    switch (instruction.kind) {
      case InstructionKind::PostReceive:
        receives_[peer].push_back(messages_->recv(received_, peer, peer * workers_ + rank_));
        return;
      case InstructionKind::StartSend:
        sends_[peer].push_back(messages_->send(sent_, peer, rank_ * workers_ + peer));
        return;
      case InstructionKind::WaitReceive: return wait_first(receives_[peer]);
      case InstructionKind::WaitSend: return wait_first(sends_[peer]);
      case InstructionKind::StartAllReduce:
        if (groups_.contains(group)) all_reduces_[group] = groups_.at(group)->allreduce(gradients_.at(group));
        return;
      case InstructionKind::WaitAllReduce:
        if (groups_.contains(group)) all_reduces_.at(group)->wait();
        return;
      case InstructionKind::ReduceScalars: everyone_->allgather(all_scalars_, scalars_)->wait(); return;
      default: return;
    }
  }

 private:
  using Works = std::deque<c10::intrusive_ptr<c10d::Work>>;

  Group connect(const std::string& name, int rank, int size) {
    auto options = ProcessGroupGloo::Options::create(std::chrono::minutes(1));
    options->devices.push_back(device_);
    options->threads = 1;
    return c10::make_intrusive<ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>(name, store_), rank, size,
                                                 options);
  }

  /// Messages of a channel complete in order.
  static void wait_first(Works& works) {
    works.front()->wait();
    works.pop_front();
  }

  int rank_;
  int workers_;
  std::vector<at::Tensor> sent_;  // its content is irrelevant
  std::vector<at::Tensor> received_;
  c10::intrusive_ptr<c10d::FileStore> store_;
  std::shared_ptr<gloo::transport::Device> device_;
  Group messages_;
  Group everyone_;
  std::map<ParameterGroupId, Group> groups_;
  std::map<ParameterGroupId, std::vector<at::Tensor>> gradients_;
  std::vector<at::Tensor> scalars_;
  std::vector<std::vector<at::Tensor>> all_scalars_;
  std::map<int, Works> sends_;     // by peer
  std::map<int, Works> receives_;  // by peer
  std::map<ParameterGroupId, c10::intrusive_ptr<c10d::Work>> all_reduces_;
};

RawGloo::RawGloo(RankId rank, const Program& program, const RankGroups& groups, const std::string& store_path,
                 const TensorSpec& message, std::int64_t gradients_of_stage)
    : implementation_(
          std::make_unique<Implementation>(rank, program, groups, store_path, message, gradients_of_stage)) {}

RawGloo::~RawGloo() = default;

void RawGloo::run(const Instruction& instruction) { implementation_->run(instruction); }

}  // namespace chimera::benchmarks

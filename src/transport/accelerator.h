#pragma once
// What the library for GPUs gives to a program that was built without it.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/meeting_point.h"
#include "transport/pairs/pair_transport.h"
#include "transport/transport.h"

namespace chimera {

/// How a rank finds the others on GPUs, one each. Rank r is worker r and works on GPU r of this machine.
struct NcclOptions {
  int rank = 0;
  int world_size = 1;
  MeetingPoint meeting;  ///< as in GlooOptions
  RankGroups groups;
  std::vector<RankPair> pairs;  ///< ranks that exchange messages, ascending; the same on every rank
  std::chrono::milliseconds start_up_timeout = std::chrono::minutes(2);  ///< for each step of finding the others
};

/// The GPUs of this machine.
class Accelerator {
 public:
  virtual ~Accelerator() = default;
  [[nodiscard]] virtual int num_devices() const = 0;
  /// Why there are none, one line, as CUDA says it; empty where there are.
  [[nodiscard]] virtual std::string problem() const = 0;
  /// Joins the other ranks over NCCL; returns once all have joined, with every communicator made: everyone, then
  /// stages, then pairs, ascending, so that no two ranks wait for each other in different groups. Throws
  /// TransportError.
  [[nodiscard]] virtual std::unique_ptr<Transport> connect(const NcclOptions& options) const = 0;
};

/// The C function of libchimera_cuda.so that returns its Accelerator, which lives as long as the library. Its number
/// changes with this interface.
inline constexpr const char* kAcceleratorEntry = "chimera_accelerator_1";
using AcceleratorEntry = const Accelerator* (*)();

}  // namespace chimera

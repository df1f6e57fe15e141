#pragma once
// What the library for GPUs gives to a program that was built without it.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/rendezvous_point.h"
#include "transport/fingerprint.h"
#include "transport/pairs/pair_transport.h"
#include "transport/recorder.h"
#include "transport/transport.h"

namespace chimera {

/// How a rank finds the others on GPUs, one each.
struct NcclOptions {
  int rank = 0;
  int world_size = 1;
  int gpu = 0;           ///< of this process, among those that it sees
  MeetingPoint meeting;  ///< as in GlooOptions
  RankGroups groups;
  std::vector<RankPair> pairs;   ///< ranks that exchange messages, ascending; the same on every rank
  bool sums_in_order = false;    ///< as in Communicators
  Fingerprint fingerprint = {};  ///< compared before ranks are connected; empty: is not
  std::chrono::milliseconds start_up_timeout = std::chrono::minutes(2);  ///< for each step of finding the others
  /// What takes longer ends the process: NCCL does not say who holds the others up.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

/// What a GPU is and can do.
struct GpuTraits {
  std::string name = {};          ///< as its maker calls it: "NVIDIA H200"
  std::string uuid = {};          ///< no other GPU of any host has it
  int multiprocessors = 0;        ///< on which kernels run side by side
  bool has_bfloat16 = false;      ///< multiplies bfloat16 itself
  bool has_tf32 = false;          ///< multiplies float32 rounded to TensorFloat32
  std::int64_t memory_bytes = 0;  ///< of its own
};

/// The GPUs that this process sees.
class Accelerator {
 public:
  virtual ~Accelerator() = default;
  /// What LibTorch calls such devices.
  [[nodiscard]] virtual at::DeviceType type() const { return at::kCUDA; }
  [[nodiscard]] virtual int num_devices() const = 0;
  [[nodiscard]] virtual GpuTraits traits(int gpu) const = 0;
  /// Most bytes of tensors that this process has had on the GPU at once so far.
  [[nodiscard]] virtual std::int64_t peak_bytes(int gpu) const = 0;
  /// Why there are none, one line, as CUDA says it; empty where there are.
  [[nodiscard]] virtual std::string problem() const = 0;
  /// RecordWork, with streams of this process's own thread and of those that it waits for. What CUDA says against it is
  /// thrown as Error, one line.
  [[nodiscard]] virtual std::unique_ptr<RecordedWork> record(const std::function<void()>& work) const = 0;
  /// Joins the other ranks over NCCL; returns once all have joined, with every communicator made
  /// (make_communicators()) and connected (make_pair_transport()). NCCL listens on the interface of the meeting
  /// (nccl_variables()). When the transport goes because of an exception, all that is under way is aborted. Throws
  /// TransportError, and what compare_attendees() throws.
  [[nodiscard]] virtual std::unique_ptr<Transport> connect(const NcclOptions& options) const = 0;
};

/// The C function of libchimera_cuda.so that returns its Accelerator, which lives as long as the library. Its number
/// changes with this interface, and with Transport.
inline constexpr const char* kAcceleratorEntry = "chimera_accelerator_5";
using AcceleratorEntry = const Accelerator* (*)();

}  // namespace chimera

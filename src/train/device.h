#pragma once
// Where a job computes: --device.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "schedule/program.h"
#include "train/job.h"
#include "transport/accelerator.h"

namespace chimera {

/// The device of a rank's tensors: the CPU; or a GPU, one for each process, the first for all threads.
[[nodiscard]] at::Device device_of(const TrainOptions& options, RankId rank);

/// Whether ranks compute on GPUs.
[[nodiscard]] bool uses_gpu(const TrainOptions& options);

/// Threads that an op of a rank uses: --threads, or the rank's share of the cores; with canonical reduction one.
[[nodiscard]] int intra_op_threads(const JobShape& job);

/// How the job's messages between two ranks are matched: one queue a pair where NCCL carries them.
[[nodiscard]] ChannelDiscipline discipline_of(const TrainOptions& options);

/// The pairs of ranks that exchange messages when the job trains, validates, is observed or repairs copies, ascending.
[[nodiscard]] std::vector<RankPair> talking_pairs(const Job& job);

/// The library for GPUs in the file `path`, opened with all it needs. Throws ConfigError, one line, where it is not
/// there or does not load.
[[nodiscard]] const Accelerator& open_accelerator(const std::string& path);

/// The library that lies beside this program, libchimera_cuda.so, opened once.
[[nodiscard]] const Accelerator& accelerator();

/// Throws ConfigError where the options ask for GPUs and this machine cannot give as many as `ranks` need: no library,
/// no GPU, or too few for one a process.
void require_device(const TrainOptions& options, std::int64_t ranks);

}  // namespace chimera

#include "profile/gpu_check.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <functional>

#include "bench/statistics.h"
#include "core/error.h"
#include "core/printable.h"
#include "runtime/gather.h"
#include "transport/stream.h"

namespace chimera {
namespace {

constexpr std::int64_t kSmallSize = 1 << 10;  // bytes
constexpr std::int64_t kLargeSize = 64 << 20;
constexpr double kSlowLink = 10e9;  // bytes per second; PCI Express has more, sockets have less
constexpr double kUsedByOthers = 0.05;

/// Returns the median of a few runs by the device's clock. The first run warms up. Work on few bytes is repeated in a
/// run, so that the host launches ahead of the device.
double median_seconds(const at::Tensor& bytes, const std::function<void()>& work) {
  constexpr int kRuns = 6;
  const at::Device device = bytes.device();
  const int repeats = bytes.nbytes() <= kSmallSize ? 20 : 1;
  std::vector<double> times;
  for (int run = 0; run < kRuns; ++run) {
    const TimeMark begin(device);
    for (int repeat = 0; repeat < repeats; ++repeat) work();
    const TimeMark end(device);
    await_device(device);
    if (run > 0) times.push_back(end.seconds_since(begin) / repeats);
  }
  return spread_of(times).median;
}

/// Runs on both ends. Returns the seconds one way.
double message_seconds(Transport& transport, const at::Tensor& message, RankId other) {
  const auto send = [&] { transport.start_send(other, message, {})->wait(); };
  const auto receive = [&] {
    static_cast<void>(transport.post_receive(other, {message.sizes().vec(), message.scalar_type()}, {})->wait());
  };
  const bool begins = other != RankId(0);
  return 0.5 * median_seconds(message, [&] {
           begins ? send() : receive();
           begins ? receive() : send();
         });
}

/// Returns the line through the times of both sizes.
LinkTimes line_of(double small, double large) {
  const double beta = std::max(0.0, (large - small) / (kLargeSize - kSmallSize));
  return {.alpha = std::max(0.0, small - beta * kSmallSize), .beta = beta};
}

double speed_of(const LinkTimes& link) { return 1 / std::max(link.beta, 1e-15); }

}  // namespace

NcclOptions connections_of_check(int rank, int ranks, int gpu) {
  NcclOptions options{.rank = rank, .world_size = ranks, .gpu = gpu};
  std::vector<RankId>& all = options.groups.emplace_back();
  for (int other = 0; other < ranks; ++other) {
    all.emplace_back(other);
    if (other > 0) options.pairs.emplace_back(0, other);
  }
  return options;
}

std::string check_gpus(const Accelerator& gpus, at::Device device, Transport& transport, int rank, int ranks,
                       MachineProfile& machine) {
  const GpuTraits own = gpus.traits(static_cast<int>(device.index()));
  const auto used = static_cast<double>(gpus.used_bytes(static_cast<int>(device.index())));
  const auto floats = [&](std::int64_t bytes) { return at::ones({bytes / 4}, at::device(device).dtype(at::kFloat)); };
  const at::Tensor small = floats(kSmallSize);
  const at::Tensor large = floats(kLargeSize);
  std::vector<LinkTimes> links(1);  // [other rank], on rank 0
  for (int other = 1; other < ranks; ++other) {
    if (rank != 0 && rank != other) continue;
    const RankId end(rank == 0 ? other : 0);
    const double seconds = message_seconds(transport, small, end);
    links.push_back(line_of(seconds, message_seconds(transport, large, end)));
  }
  const ParameterGroupId all(0);
  transport.start_all_reduce(all, large)->wait();
  const bool is_right = large.eq(ranks).all().item<bool>();
  const auto sum = [&](at::Tensor values) {
    values.zero_();
    return median_seconds(values, [&] { transport.start_all_reduce(all, values)->wait(); });
  };
  const LinkTimes sums = line_of(sum(small), sum(large));
  const auto name = gather_texts(own.name, RankId(rank), ranks, transport);
  const auto found =
      gather({static_cast<double>(own.memory_bytes), used, own.has_bfloat16 ? 1.0 : 0.0, is_right ? 1.0 : 0.0},
             RankId(rank), ranks, transport);
  std::string text;
  std::string lacks;
  machine.memory_bytes = found.front().front();
  for (std::size_t r = 0; r < found.size(); ++r) {
    const double memory = found[r][0];
    machine.memory_bytes = std::min(machine.memory_bytes, memory);
    text += fmt::format("GPU {}: {}, {}, {} in use", r, name[r], bytes_text(memory), bytes_text(found[r][1]));
    if (found[r][3] == 0) throw Error(fmt::format("GPU {}: a sum over {} GPUs is wrong", r, ranks));
    if (found[r][2] == 0) lacks += fmt::format("GPU {} emulates bfloat16: train with --dtype float32\n", r);
    if (found[r][1] > kUsedByOthers * memory) lacks += fmt::format("GPU {}: other processes use its memory\n", r);
    if (r > 0 && rank == 0) {
      text += fmt::format("; messages with GPU 0 at {:.1f} GB/s after {:.1f} us", 1e-9 * speed_of(links[r]),
                          1e6 * links[r].alpha);
      if (speed_of(links[r]) < kSlowLink) {
        lacks += fmt::format(
            "GPU {} has a slow link with GPU 0: no NVLink, or a control group for each GPU (srun --gpu-bind=none)\n",
            r);
      }
    }
    text += "\n";
  }
  machine.reserved = reserved_on_gpu(machine.memory_bytes);
  machine.workers_per_node = ranks;
  if (rank != 0 || ranks == 1) return text + lacks;
  const auto count = static_cast<double>(ranks);
  machine.point_to_point.within_node = *std::ranges::max_element(links, {}, &LinkTimes::beta);
  machine.all_reduce.within_node = {.alpha = sums.alpha / (2 * std::log2(count)),
                                    .beta = sums.beta * count / (2 * (count - 1))};
  return text + fmt::format("sum over {} GPUs: right, at {:.1f} GB/s\n", ranks, 1e-9 * speed_of(sums)) + lacks;
}

}  // namespace chimera

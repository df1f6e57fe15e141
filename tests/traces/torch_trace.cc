#include "traces/torch_trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "schedule/dependencies.h"
#include "simulate/simulate.h"

namespace chimera::testing {
namespace {

class TorchTraceWriter {
 public:
  TorchTraceWriter(const Schedule& schedule, const Timeline& timeline, const TorchTraceForm& form)
      : schedule_(schedule), table_(schedule), timeline_(timeline), form_(form) {}

  std::string write(std::size_t w) {
    events_.clear();
    written_ = 0;
    offset_ = w < form_.clocks.size() ? form_.clocks[w] : 0;
    free_ = 0;
    for (int k = 0; k < form_.steps; ++k) {
      const double start = k * (timeline_.makespan + form_.between);
      write_step(w, start);
      const double end = form_.between < 0 ? free_ : start + timeline_.makespan;
      annotate("Optimizer.step#SGD.step", end, end + std::max(0.0, form_.between / 2));
    }
    const auto workers = std::ssize(schedule_.workers);
    std::vector<std::int64_t> members;
    for (std::int64_t i = 0; i < workers; ++i) members.push_back(form_.first_rank + i * form_.rank_stride);
    const std::int64_t world = form_.world_size > 0 ? form_.world_size : workers;
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < world; ++i) all.push_back(i);
    return fmt::format(
        R"({{"schemaVersion": 1, "distributedInfo": {{"backend": "gloo", "rank": {}, "world_size": {}, "pg_config": [)"
        R"({{"pg_name": "0", "pg_desc": "default_pg", "ranks": [{}]}}, {{"pg_name": "1", "pg_desc": "mesh_pp", )"
        R"("ranks": [{}]}}]}}, "baseTimeNanoseconds": 1790857026000000000, "traceEvents": [{}], "traceName": "a"}})",
        members[w], world, fmt::join(all, ", "), fmt::join(members, ", "), fmt::join(events_, ",\n"));
  }

 private:
  void event(const char* category, const std::string& name, double start, double end, const std::string& arguments) {
    if (written_ <= form_.cut && form_.cut > 0) return;
    constexpr double kOrigin = 5084047256581.505;  // Microseconds
    events_.push_back(fmt::format(
        R"({{"ph": "X", "cat": "{}", "name": "{}", "pid": 7, "tid": 7, "ts": {:.3f}, "dur": {:.3f}, "args": {{{}}}}})",
        category, name, kOrigin + 1e6 * (start + offset_), 1e6 * (end - start), arguments));
  }
  void annotate(const std::string& name, double start, double end) {
    event("user_annotation", name, start, end, R"("External id": 10, "Record function id": 0)");
  }

  [[nodiscard]] bool waits(std::size_t w, const Op& op) const {
    const OpIndex input = table_.inputs(op)[0];
    return input != kNoOp && table_.worker(input) != w;
  }

  void write_step(std::size_t w, double start) {
    const auto& ops = schedule_.workers[w];
    double free = std::max(start, free_);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      ++written_;
      const TimedOp time{start + timeline_.workers[w].ops[i].start, start + timeline_.workers[w].ops[i].end};
      const bool in_pair = i > 0 && ops[i - 1].paired;
      const double begin = waits(w, ops[i]) || in_pair ? free : time.start;
      const std::string name = "PP:" + to_text(ops[i]);
      if (form_.on_device) {
        write_kernels(name, written_, start + 1e-6 * static_cast<double>(i), time);
        continue;
      }
      if (ops[i].paired) {
        const double end = start + timeline_.workers[w].ops[i + 1].end;
        annotate(fmt::format("PP:({};{})OVERLAP_F_B", to_text(ops[i]), to_text(ops[i + 1])), begin, end);
      } else if (!in_pair) {
        annotate(name, begin, time.end);
      }
      if (waits(w, ops[i]) && form_.marks_waits) annotate("gloo:recv", begin - 1e-3, time.start);
      write_operators(ops[i], time);
      free = free_ = time.end;
    }
  }

  // A backward has operators of three kinds: two fifths of its time are products, half of them for weights.
  void write_operators(const Op& op, const TimedOp& time) {
    if (op.kind == OpKind::Forward) return event("cpu_op", "aten::linear", time.start, time.end, "");
    const double part = (time.end - time.start) / 5;
    const std::string node = "autograd::engine::evaluate_function: ";
    event("cpu_op", node + "GeluBackward0", time.start, time.start + 2 * part, "");
    event("cpu_op", node + "AddmmBackward0", time.start + 2 * part, time.start + 4 * part, "");
    event("cpu_op", "aten::mm", time.start + 2 * part, time.start + 3 * part, "");
    event("cpu_op", node + "torch::autograd::AccumulateGrad", time.start + 4 * part, time.end, "");
  }

  /// Two kernels with a gap of a tenth of the op between them.
  void write_kernels(const std::string& name, std::size_t id, double launched, const TimedOp& time) {
    annotate(name, launched, launched + 8e-7);
    if (form_.annotates_device) return event("gpu_user_annotation", name, time.start, time.end, "");
    const double middle = (time.start + time.end) / 2;
    const double gap = (time.end - time.start) / 10;
    for (const int half : {0, 1}) {
      const std::string correlation = fmt::format(R"("External id": 1, "correlation": {})", 2 * (id + 100'000) + half);
      event("cuda_runtime", "cudaLaunchKernel", launched + 1e-7, launched + 2e-7, correlation);
      event("kernel", "gemm", half == 0 ? time.start : middle + gap, half == 0 ? middle : time.end, correlation);
    }
  }

  const Schedule& schedule_;
  OpTable table_;
  const Timeline& timeline_;
  const TorchTraceForm& form_;
  std::vector<std::string> events_;
  std::size_t written_ = 0;
  double offset_ = 0;
  double free_ = 0;  // End of the worker's last op
};

}  // namespace

std::vector<std::string> torch_traces(const Schedule& schedule, const CostModel& costs, const TorchTraceForm& form) {
  CostModel slowed = costs;
  for (StageCosts& stage : slowed.stages) {
    for (const auto time : kStageTimes) stage.*time *= form.slowdown;
  }
  const Timeline timeline = simulate(schedule, slowed);
  TorchTraceWriter writer(schedule, timeline, form);
  std::vector<std::string> texts;
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) texts.push_back(writer.write(w));
  return texts;
}

std::vector<RankTrace> read_texts(const std::vector<std::string>& texts) {
  std::vector<RankTrace> ranks;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    for (RankTrace& rank : read_trace_text(texts[i], fmt::format("rank{}.json", i))) ranks.push_back(std::move(rank));
  }
  return ranks;
}

CostModel uneven_costs(std::int64_t stages) {
  CostModel costs;
  for (std::int64_t s = 0; s < stages; ++s) {
    const double forward = 0.010 + 0.0005 * static_cast<double>(s);
    costs.stages.push_back({forward, 2 * forward, 1.2 * forward, 0.8 * forward});
  }
  costs.latency = 0.0005;
  return costs;
}

}  // namespace chimera::testing

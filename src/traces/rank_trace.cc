#include "traces/rank_trace.h"

#include <fmt/format.h>
#include <simdjson.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "core/error.h"

// A TraceReader walks over the events of one file once, without a tree of the JSON in memory: traces have millions of
// events. take() sorts them into ranges of the pipeline (annotations), operators of the host, launches and kernels.
// finish() then finds for each op when its work began and ended: on the host by the operators inside of its range, on a
// device by the kernels that were launched in it. Files of our own --trace have ops as ranges of all ranks and need no
// such search (take_own()). Times are seconds since the first event of the file.

namespace chimera {
namespace {

namespace json = simdjson::ondemand;

constexpr std::size_t kMaxTraceBytes = (std::size_t{4} << 30) - 4096;  // simdjson counts in 32 bits
constexpr double kMicrosecond = 1e-6;
constexpr double kLatest = 4e15;  // Microseconds; nanoseconds then fit into 63 bits
constexpr std::int64_t kLatestBase = 4'000'000'000'000'000'000;
constexpr std::int64_t kMaxId = 10'000'000;  // Stages and micro-batches

constexpr std::string_view kNode = "autograd::engine::evaluate_function: ";

/// An operator of the host, or a kernel of the device.
struct Operator {
  enum Kind : std::uint8_t { Other, Node, WeightNode, ProductNode };
  double start = 0;
  // Short, because a trace has millions of operators.
  float seconds = 0;
  Kind kind = Other;
  [[nodiscard]] double end() const { return start + seconds; }
};

using Intervals = std::vector<std::pair<double, double>>;  // Starts and ends

struct Kernel {
  std::int64_t correlation = 0;
  double launched = 0;
  double start = 0;
  double end = 0;
};

/// The fields of an event that count.
struct Event {
  std::string_view category;
  std::string_view name;
  std::string_view arguments;
  std::string_view phase;
  double start = 0;
  double seconds = 0;
  std::int64_t process = -1;
  std::int64_t thread = -1;
};

using OpId = std::array<std::int64_t, 3>;
OpId id_of_op(const Op& op) { return {op.stage.value(), static_cast<std::int64_t>(op.kind), op.micro_batch.value()}; }

std::optional<std::int64_t> take_id(std::string_view& text) {
  std::int64_t id = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || id < 0 || id >= kMaxId) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return id;
}

/// Parses `1F3`, the forward of micro-batch 3 at stage 1.
std::optional<Op> op_of(std::string_view text) {
  const auto stage = take_id(text);
  const auto kind = stage && !text.empty() ? op_kind(text.front()) : std::nullopt;
  if (!kind) return std::nullopt;
  text.remove_prefix(1);
  const auto micro_batch = take_id(text);
  if (!micro_batch || !text.empty()) return std::nullopt;
  return Op{.kind = *kind, .replica = {}, .stage = StageId(*stage), .micro_batch = MicroBatchId(*micro_batch)};
}

/// Returns the number that follows `"name":` in the text of an object.
std::optional<std::int64_t> number_in(std::string_view object, std::string_view name) {
  const auto place = object.find(fmt::format("\"{}\":", name));
  if (place == object.npos) return std::nullopt;
  object.remove_prefix(place + name.size() + 3);
  object.remove_prefix(std::min(object.find_first_not_of(' '), object.size()));
  return take_id(object);
}

/// Returns the ranges that an annotation means: none for annotations of other things, two for a pair.
// torch.distributed.pipelining annotates `PP:0F1`, `PP:(0F1;1B0)OVERLAP_F_B`, `PP:0SEND_F1`, `PP:0UNSHARD` and
// `PP:0REDUCE_GRAD`; its GPipe annotates `Forward 1` and `Backward 1`.
std::vector<TraceRange> ranges_of(std::string_view name) {
  if (name.starts_with("Optimizer.step")) return {{.kind = RangeKind::Optimizer}};
  for (const std::string_view word : {"Forward ", "Backward "}) {
    if (!name.starts_with(word)) continue;
    auto op = op_of(fmt::format("0{}{}", word.front(), name.substr(word.size())));
    if (!op) return {};
    op->stage = StageId(-1);
    return {{.op = *op}};
  }
  if (!name.starts_with("PP:")) return {};
  name.remove_prefix(3);
  if (const auto op = op_of(name)) return {{.op = *op}};
  constexpr std::string_view kOverlap = ")OVERLAP_F_B";
  if (const auto middle = name.find(';'); middle != name.npos && name.starts_with('(') && name.ends_with(kOverlap)) {
    auto first = op_of(name.substr(1, middle - 1));
    const auto second = op_of(name.substr(middle + 1, name.size() - kOverlap.size() - middle - 1));
    if (!first || !second) return {};
    first->paired = true;
    return {{.op = *first}, {.op = *second}};
  }
  // A message is an op with another word before its letter.
  for (const std::string_view word : {"SEND_", "RECV_"}) {
    const auto place = name.find(word);
    if (place == name.npos) continue;
    const auto op = op_of(std::string(name).erase(place, word.size()));
    if (!op) return {};
    return {{.kind = RangeKind::Message, .op = *op, .sends = word.front() == 'S'}};
  }
  const auto stage = take_id(name);
  if (!stage) return {};
  if (name == "UNSHARD" || name == "RESHARD") return {{.kind = RangeKind::Gather, .op = {.stage = StageId(*stage)}}};
  if (name == "REDUCE_GRAD") return {{.kind = RangeKind::GradientSum, .op = {.stage = StageId(*stage)}}};
  return {};
}

/// Which gradient an operator of autograd computes: of weights, of both factors of a product, or another.
Operator::Kind kind_of(std::string_view name) {
  if (!name.starts_with(kNode)) return Operator::Other;
  name.remove_prefix(kNode.size());
  if (name.find("AccumulateGrad") != name.npos || name == "TBackward0") return Operator::WeightNode;
  for (const char* product : {"AddmmBackward", "MmBackward", "LinearBackward", "ConvolutionBackward"})
    if (name.starts_with(product)) return Operator::ProductNode;
  return Operator::Node;
}

/// Returns the seconds from `start` to `end` that intervals cover. They must be sorted by start.
double cover(const Intervals& intervals, double start, double end) {
  double covered = 0;
  for (const auto& [from, to] : intervals) {
    if (to <= start) continue;
    if (from >= end) break;
    covered += std::min(to, end) - std::max(from, start);
    // What is covered so far is not counted again if intervals overlap.
    start = std::min(to, end);
  }
  return covered;
}

class TraceReader {
 public:
  TraceReader(std::string_view text, std::size_t capacity, std::string source)
      : text_(text), capacity_(capacity), source_(std::move(source)) {}

  std::vector<RankTrace> read() {
    try {
      read_document();
    } catch (const simdjson::simdjson_error& error) {
      fail(fmt::format("not a complete trace ({}); is the file cut off?", error.what()));
    }
    // A file of our own --trace, which has all ranks.
    if (!own_.empty()) return own_ranks();
    if (!has_events_) fail("no list `traceEvents`; expected a file of torch.profiler's export_chrome_trace()");
    if (std::ranges::find(rank_.ranges, RangeKind::Op, &TraceRange::kind) == rank_.ranges.end()) {
      fail(
          "no ranges of a pipeline, such as PP:0F0. torch's Schedule1F1B records none: run its order through the table "
          "runtime (`chimera schedule 1f1b --stages D --micro-batches N --format csv`, docs/why_slow.md). In other "
          "trainers, add `with "
          "torch.profiler.record_function(f\"PP:{stage}F{micro_batch}\"):` around the forward of a micro-batch, and "
          "the same with B around its backward");
    }
    if (rank_.rank < 0) fail("no `distributedInfo` with a rank; was torch.distributed initialized before the profile?");
    finish();
    return {std::move(rank_)};
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw ConfigError(source_ + ": " + what); }

  void read_document() {
    json::parser parser;
    json::document document = parser.iterate(text_.data(), text_.size(), capacity_);
    for (auto member : document.get_object()) {
      json::field field = checked(std::move(member));
      const std::string_view key = field.unescaped_key();
      if (key == "traceEvents") {
        has_events_ = true;
        for (auto event : field.value().get_array()) take(event.get_object());
      } else if (key == "distributedInfo") {
        read_ranks(field.value().get_object());
      } else if (key == "baseTimeNanoseconds") {
        base_ = field.value().get_int64();
        if (base_ < 0 || base_ > kLatestBase) fail(fmt::format("baseTimeNanoseconds: {} is no time since 1970", base_));
      }
    }
    if (const char* rest = nullptr; document.current_location().get(rest) == simdjson::SUCCESS)
      fail("something follows the trace; expected one JSON object");
  }

  void read_ranks(json::object info) {
    for (auto member : info) {
      json::field field = checked(std::move(member));
      const std::string_view key = field.unescaped_key();
      if (key == "rank") rank_.rank = field.value().get_int64();
      if (key == "world_size") rank_.world_size = field.value().get_int64();
      if (key == "pg_config")
        for (auto group : field.value().get_array()) read_group(group.get_object());
    }
    if (rank_.rank < 0 || rank_.rank >= rank_.world_size || rank_.world_size > kMaxId)
      fail(fmt::format("distributedInfo: rank {} of {} ranks", rank_.rank, rank_.world_size));
  }

  void read_group(json::object group) {
    std::vector<std::int64_t> ranks;
    bool is_pipeline = false;
    for (auto member : group) {
      json::field field = checked(std::move(member));
      const std::string_view key = field.unescaped_key();
      if (key == "pg_desc") {
        const std::string_view text = field.value().get_string();
        // A description that the user gave to the process group. Such groups are tried first (choose_pipeline() in
        // trace.cc).
        is_pipeline = text.find("pp") != text.npos || text.find("pipe") != text.npos;
      } else if (key == "ranks") {
        for (auto rank : field.value().get_array()) ranks.push_back(rank.get_int64());
      }
    }
    if (!ranks.empty()) rank_.groups.insert(is_pipeline ? rank_.groups.begin() : rank_.groups.end(), std::move(ranks));
  }

  static json::field checked(simdjson::simdjson_result<json::field> member) {
    json::field field;
    if (const auto error = std::move(member).get(field)) throw simdjson::simdjson_error(error);
    return field;
  }

  /// Returns a string as it stands in the file, without unescaping: names of interest have no escapes.
  static std::string_view text_of(json::value value) {
    std::string_view text = value.raw_json_token();
    text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
    return text.size() < 2 || text.front() != '"' ? std::string_view() : text.substr(1, text.size() - 2);
  }

  static std::int64_t id_of(json::value value) {
    std::int64_t id = -1;
    return value.get_int64().get(id) == simdjson::SUCCESS ? id : -1;  // Some processes have names
  }

  /// Returns whether take() needs the arguments of an event: of a launch, a kernel, or a range of our own --trace.
  static bool has_arguments(std::string_view category) {
    return category.empty() || category.starts_with("cuda") || category == "kernel";
  }

  void take(json::object object) {
    Event event;
    for (auto member : object) {
      json::field field = checked(std::move(member));
      const json::raw_json_string key = field.key();
      json::value value = field.value();
      if (key == "ph") event.phase = text_of(value);
      if (key == "cat") event.category = text_of(value);
      if (key == "name") event.name = text_of(value);
      if (key == "ts") event.start = value.get_double();
      if (key == "dur") event.seconds = value.get_double();
      if (key == "tid") event.thread = id_of(value);
      if (key == "pid") event.process = id_of(value);
      if (key == "args" && has_arguments(event.category) && value.type() == json::json_type::object) {
        json::object arguments = value.get_object();
        event.arguments = arguments.raw_json();
      }
    }
    if (event.phase == "M") return name_track(event);
    if (event.phase != "X") return;
    if (!(std::abs(event.start) < kLatest) || !(event.seconds >= 0) || event.seconds > kLatest)
      fail(fmt::format("an event at {} with a duration of {}; expected microseconds", event.start, event.seconds));
    // Relative to the first event, so that doubles keep nanoseconds: absolute times are microseconds since 1970.
    if (!first_) first_ = event.start;
    event.start = (event.start - *first_) * kMicrosecond;
    event.seconds *= kMicrosecond;
    take(event);
  }

  void take(const Event& event) {
    const double end = event.start + event.seconds;
    if (event.category == "user_annotation" || event.category == "gpu_user_annotation") {
      const bool on_device = event.category.front() == 'g';
      for (TraceRange& range : ranges_of(event.name)) {
        range.start = event.start;
        range.end = end;
        if (!on_device) rank_.ranges.push_back(range);
        if (on_device && range.kind == RangeKind::Op) device_ops_.emplace(id_of_op(range.op), event.start, end);
      }
      if (!on_device && event.name.ends_with(":recv")) waits_.push_back(end);
    } else if (event.category == "cpu_op") {
      // The messages of a process group are no computation.
      if (event.name.starts_with("c10d::") || event.name == "record_param_comms") return;
      operators_.push_back({event.start, static_cast<float>(event.seconds), kind_of(event.name)});
    } else if (event.category == "cuda_runtime" || event.category == "cuda_driver") {
      if (const auto correlation = number_in(event.arguments, "correlation")) launches_[*correlation] = event.start;
    } else if (event.category == "kernel") {
      // Kernels of NCCL wait for other ranks; that is no computation.
      if (event.name.find("nccl") != event.name.npos) return;
      const auto correlation = number_in(event.arguments, "correlation");
      if (correlation) kernels_.push_back({*correlation, 0, event.start, end});
    } else if (event.category.empty() && event.process == 1 && !event.arguments.empty()) {
      take_own(event, end);
    }
  }

  // The names of the tracks of a --trace file, such as `group 0, worker 1`.
  void name_track(const Event& event) {
    if (event.process != 1 || event.name != "thread_name") return;
    const std::string_view text = event.arguments;
    RankTrace& rank = own_[event.thread];
    // Tracks count from 1.
    rank.rank = event.thread - 1;
    const auto after = [&](std::string_view word) {
      const auto place = text.find(word);
      std::string_view number = place == text.npos ? "" : text.substr(place + word.size());
      return take_id(number);
    };
    rank.own_worker = after("worker ").value_or(-1);
    rank.world_size = 1 + after("group ").value_or(0);  // Becomes the number of groups
  }

  void take_own(const Event& event, double end) {
    TraceRange range{.start = event.start, .end = end};
    if (event.name == "optimizer step") {
      range.kind = RangeKind::Optimizer;
    } else if (auto op = op_of(event.name)) {
      op->replica = ReplicaId(std::min<std::int64_t>(number_in(event.arguments, "replica").value_or(0), 32'000));
      range.op = *op;
      range.received = range.first_operator = event.start;
      range.work_start = event.start;
      range.work_end = end;
      range.covered = event.seconds;
    } else {
      return;
    }
    own_[event.thread].ranges.push_back(range);
  }

  std::vector<RankTrace> own_ranks() {
    std::vector<RankTrace> ranks;
    std::map<std::int64_t, std::vector<std::int64_t>> groups;
    for (auto& [thread, rank] : own_) {
      if (rank.ranges.empty()) continue;
      groups[rank.world_size - 1].push_back(rank.rank);
      ranks.push_back(std::move(rank));
    }
    if (ranks.empty()) fail("no ops in the trace");
    for (RankTrace& rank : ranks) {
      rank.file = source_;
      rank.groups = {groups[rank.world_size - 1]};
      rank.world_size = std::ssize(ranks);
      std::ranges::stable_sort(rank.ranges, {}, &TraceRange::start);
    }
    return ranks;
  }

  /// Sets the times of work of all ops.
  void finish() {
    rank_.file = source_;
    rank_.origin = base_ + static_cast<std::int64_t>(first_.value_or(0) * 1e3);
    std::ranges::stable_sort(rank_.ranges, {}, &TraceRange::start);
    std::ranges::sort(operators_, {}, &Operator::start);
    std::ranges::sort(waits_);
    for (std::size_t i = 0; i < rank_.ranges.size(); ++i) {
      TraceRange& range = rank_.ranges[i];
      if (range.kind != RangeKind::Op) continue;
      if (range.op.paired && i + 1 < rank_.ranges.size()) {
        split_pair(range, rank_.ranges[i + 1]);
        time_work(range);
        ++i;
      }
      time_work(rank_.ranges[i]);
    }
    time_on_device();
  }

  [[nodiscard]] std::span<const Operator> operators_in(double start, double end) const {
    // operators_ is sorted by start.
    const auto first = std::ranges::lower_bound(operators_, start, {}, &Operator::start);
    return {first, std::ranges::upper_bound(first, operators_.end(), end, {}, &Operator::start)};
  }

  /// The forward of a pair lasts until the first autograd operator; the wait for the message of the backward precedes.
  void split_pair(TraceRange& forward, TraceRange& backward) const {
    const auto operators = operators_in(forward.start, forward.end);
    const auto node = std::ranges::find_if(operators, [](const Operator& o) { return o.kind != Operator::Other; });
    // Without operators of autograd in the pair, it is divided in the middle.
    const double middle = node == operators.end() ? (forward.start + forward.end) / 2 : node->start;
    double end = forward.start;
    for (const Operator& before : std::span(operators.begin(), node)) end = std::max(end, before.end());
    forward.end = backward.start = std::min(end, middle);
  }

  void time_work(TraceRange& range) const {
    const auto operators = operators_in(range.start, range.end);
    if (!operators.empty()) range.first_operator = operators.front().start;
    // Waits that end after the first operator are for other ops.
    const double latest = (operators.empty() ? range.end : range.first_operator) + kMicrosecond;
    auto wait = std::ranges::lower_bound(waits_, range.start);
    for (; wait != waits_.end() && *wait <= latest; ++wait) range.received = *wait;
    // Waits for messages are taken out later, when it is known which ops wait (TraceBuilder::end_waits()).
    range.work_start = range.start;
    range.work_end = range.end;
    Intervals intervals;
    double nodes = 0;
    double weights = 0;
    for (const Operator& o : operators) {
      intervals.emplace_back(o.start, o.end());
      if (o.kind != Operator::Other) nodes += o.seconds;
      if (o.kind == Operator::WeightNode) weights += o.seconds;
      // The backward of a product computes two products of the same size, one for the weight.
      if (o.kind != Operator::ProductNode) continue;
      weights += o.seconds / 2;
      ++range.weight_groups;
    }
    range.covered = cover(intervals, range.start, range.end);
    if (range.op.kind == OpKind::Backward && nodes > 0) range.weight_products = weights / nodes;
  }

  /// Replaces the times by those of kernels, which belong to the range in which they were launched; or by the ranges of
  /// the device, if there are no kernels.
  void time_on_device() {
    std::erase_if(kernels_, [&](Kernel& kernel) {
      const auto launch = launches_.find(kernel.correlation);
      if (launch != launches_.end()) kernel.launched = launch->second;
      return launch == launches_.end();
    });
    std::ranges::sort(kernels_, {}, &Kernel::launched);
    for (TraceRange& range : rank_.ranges) {
      if (range.kind != RangeKind::Op) continue;
      Intervals busy;
      // The first launch at or after the start of the range.
      auto kernel = std::ranges::lower_bound(kernels_, range.start, {}, &Kernel::launched);
      for (; kernel != kernels_.end() && kernel->launched < range.end; ++kernel)
        busy.emplace_back(kernel->start, kernel->end);
      // A trace without launches: the device's own ranges have the same names, in the same order.
      if (busy.empty()) {
        const auto next = device_ops_.lower_bound({id_of_op(range.op), -kLatest, -kLatest});
        if (next == device_ops_.end() || std::get<OpId>(*next) != id_of_op(range.op)) continue;
        busy.emplace_back(std::get<1>(*next), std::get<2>(*next));
        device_ops_.erase(next);
      }
      rank_.on_device = true;
      std::ranges::sort(busy);
      range.work_start = range.received = range.first_operator = busy.front().first;
      range.work_end = std::ranges::max(busy, {}, &std::pair<double, double>::second).second;
      range.covered = cover(busy, range.work_start, range.work_end);
      // Operators of the host say nothing about the times of kernels.
      range.weight_products = -1;
    }
  }

  std::string_view text_;
  std::size_t capacity_;
  std::string source_;
  bool has_events_ = false;
  std::int64_t base_ = 0;
  std::optional<double> first_;
  RankTrace rank_;
  std::set<std::tuple<OpId, double, double>> device_ops_;  // Starts and ends of ops, if the device annotates them
  std::vector<Operator> operators_;
  std::vector<double> waits_;  // Ends of waits for messages
  std::unordered_map<std::int64_t, double> launches_;
  std::vector<Kernel> kernels_;
  std::map<std::int64_t, RankTrace> own_;  // By thread
};

using Gzip = std::unique_ptr<gzFile_s, decltype(&gzclose)>;

/// Opens a file, which need not be compressed.
Gzip open_gzip(const std::string& path) {
  Gzip file(gzopen(path.c_str(), "rb"), gzclose);
  if (file) gzbuffer(file.get(), 1 << 20);
  return file;
}

/// Reads at most `most` bytes. Returns false if the file cannot be read or decompressed.
bool read_some(gzFile file, std::string& text, std::size_t most) {
  constexpr std::size_t kBlock = 1 << 24;
  int got = 1;
  while (got > 0 && text.size() < most) {
    const std::size_t size = text.size();
    text.resize(std::min(most, size + kBlock));
    got = gzread(file, text.data() + size, static_cast<unsigned>(text.size() - size));
    text.resize(size + static_cast<std::size_t>(std::max(got, 0)));
  }
  // gzread() reports errors of the compressed data as an end.
  int error = Z_OK;
  gzerror(file, &error);
  return error == Z_OK || text.size() == most;
}

}  // namespace

bool is_trace_file(const std::string& path) {
  if (!path.ends_with(".json") && !path.ends_with(".json.gz")) return false;
  const Gzip file = open_gzip(path);
  std::string text;
  if (!file || !read_some(file.get(), text, 1 << 16)) return false;
  return text.find("\"traceEvents\"") != text.npos || text.find("\"schemaVersion\"") != text.npos ||
         text.find("\"distributedInfo\"") != text.npos;
}

std::vector<RankTrace> read_trace_text(std::string text, const std::string& source) {
  if (text.size() > kMaxTraceBytes) throw ConfigError(source + ": more than 4 GiB; profile fewer steps");
  text.reserve(text.size() + simdjson::SIMDJSON_PADDING);
  return TraceReader(text, text.capacity(), source).read();
}

std::vector<RankTrace> read_trace_file(const std::string& path) {
  const Gzip file = open_gzip(path);
  std::string text;
  if (std::error_code error; !path.ends_with(".gz")) {
    const auto bytes = std::filesystem::file_size(path, error);
    if (!error && bytes < kMaxTraceBytes) text.reserve(bytes + (1 << 24) + simdjson::SIMDJSON_PADDING);
  }
  if (!file) throw ConfigError(path + ": cannot be read");
  if (!read_some(file.get(), text, kMaxTraceBytes + 1))
    throw ConfigError(path + ": cannot be decompressed; is the file cut off?");
  return read_trace_text(std::move(text), path);
}

}  // namespace chimera

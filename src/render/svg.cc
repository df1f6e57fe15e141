// SvgLayout knows where everything is, SvgLegend what occurs in the panel and how it looks, and SvgPicture draws. The
// height of the picture is stated in its first element but depends on the lines of the legend, so the legend is drawn
// twice: first into a text that nobody reads.

#include "render/svg.h"

#include <algorithm>
#include <array>
#include <set>

#include "core/reject.h"
#include "render/chart.h"
#include "render/colors.h"
#include "render/encoding.h"
#include "render/panel.h"
#include "render/svg_text.h"
#include "simulate/summary.h"

namespace chimera {
namespace {

constexpr double kLeft = 72;  // Width of worker names
constexpr double kTop = 48;   // Title and axis
constexpr double kRight = 16;
constexpr double kOpHeight = 22;
constexpr double kAllReduceHeight = 7;
constexpr double kMemoryHeight = 14;
constexpr double kRowGap = 5;
constexpr double kTextLeft = 8;  // Left of title, legend and sums
constexpr double kLegendLine = 20;
constexpr double kMinOpWidth = 14;    // On average, if several pictures have one axis
constexpr double kLetterWidth = 6.3;  // Mean width of a letter in labels

bool takes_time(const TimedUpdate& update) { return update.end > update.start; }

/// Class of an op in the style sheet.
std::string class_of(const Schedule& schedule, OpKind kind, std::size_t replica, std::size_t shade) {
  const std::string name = fmt::format("{}{}", letter(kind), replica);
  return num_shades(schedule.slices) > 1 ? fmt::format("{}-{}", name, shade) : name;
}

std::string memory_text(const Panel& panel, double amount) {
  return panel.memory_in_bytes ? bytes_text(amount) : fmt::format("{:g} stage units", amount);
}

std::string sums_of(const Panel& panel) {
  const Totals& totals = panel.totals;
  std::string text = fmt::format("makespan {:.6g}", panel.timeline.ops_end);
  if (totals.makespan_with_all_reduce)
    text += fmt::format(", with all-reduce {:.6g}", *totals.makespan_with_all_reduce);
  text += fmt::format(", bubble ratio {:.4f}, weight copies {:g}, peak units {:g}, messages {} ({}), all-reduce {}",
                      panel.timeline.bubble_ratio, totals.weight_copies, totals.peak_units, totals.messages,
                      message_volume_text(totals), all_reduce_volume_text(totals));
  return text;
}

/// Where the parts of a picture are: rows of workers, each with its ops, and lanes for all-reduces and memory if the
/// panel has some.
class SvgLayout {
 public:
  double axis_end;
  double scale;  // Pixels per unit of time
  double all_reduce_height = 0;
  double memory_height = 0;
  double most_memory = 0;

  SvgLayout(const Panel& panel, const std::optional<SvgAxis>& axis)
      : axis_end(axis ? axis->length : panel.timeline.makespan), panel_(panel) {
    scale = axis && axis->length > 0 ? (axis->width - kLeft - kRight) / axis->length : chosen_scale();
    const auto has_any = [](const auto& entries) { return !entries.empty(); };
    if (std::ranges::any_of(panel.explanation.all_reduces, has_any)) all_reduce_height = kAllReduceHeight;
    // One scale for all workers, so that their heights can be compared.
    for (const auto& points : panel.explanation.memory)
      for (const MemoryPoint& point : points) most_memory = std::max(most_memory, point.amount);
    if (most_memory > 0) memory_height = kMemoryHeight;
  }

  [[nodiscard]] double x(double time) const { return kLeft + time * scale; }
  [[nodiscard]] double y(std::size_t worker) const {
    // A lane that one worker needs is there for all, so that rows are equally high.
    return kTop + static_cast<double>(worker) * (kOpHeight + all_reduce_height + memory_height + kRowGap);
  }

  /// Part of an op's row: half for each op of a pair that runs together.
  struct Lane {
    double top = 0;
    double height = kOpHeight;
  };
  [[nodiscard]] Lane lane_of(std::size_t worker, std::size_t position) const {
    const auto& ops = panel_.schedule.workers[worker];
    const WorkerTimeline& timeline = panel_.timeline.workers[worker];
    // Ops that overlap share the row: the first of a pair above, the second below.
    if (runs_with_next(ops, timeline, position)) return {0, kOpHeight / 2};
    if (position > 0 && runs_with_next(ops, timeline, position - 1)) return {kOpHeight / 2, kOpHeight / 2};
    return {};
  }

 private:
  // Bounds keep the picture small if one op is very short.
  /// Pixels per unit of time: the shortest op fits the longest label, within bounds.
  [[nodiscard]] double chosen_scale() const {
    double shortest = panel_.timeline.makespan;
    std::size_t letters = 3;
    for (std::size_t w = 0; w < panel_.schedule.workers.size(); ++w) {
      for (std::size_t i = 0; i < panel_.schedule.workers[w].size(); ++i) {
        const TimedOp& time = panel_.timeline.workers[w].ops[i];
        if (time.end > time.start) shortest = std::min(shortest, time.end - time.start);
        letters = std::max(letters, to_text(panel_.schedule.workers[w][i], panel_.schedule.slices).size());
      }
    }
    if (!(panel_.timeline.makespan > 0)) return 1;
    const double wanted = (static_cast<double>(letters) * kLetterWidth + 9) / shortest * panel_.timeline.makespan;
    // Limits of the chart's width in pixels.
    return std::clamp(wanted, 480.0, 16000.0) / panel_.timeline.makespan;
  }

  const Panel& panel_;
};

/// The styles of what occurs in a panel, and their legend.
class SvgLegend {
 public:
  SvgLegend(const Panel& panel, const SvgLayout& layout) : panel_(panel), layout_(layout) {
    for (const auto& ops : panel.schedule.workers)
      for (const Op& op : ops) kinds_.insert(op.kind);
    for (const auto& bubbles : panel.explanation.bubbles)
      for (const Bubble& bubble : bubbles) causes_.insert(bubble.cause);
  }

  void write_styles(SvgText& out) const {
    out.put(
        ".op {{ text-anchor: middle; fill: #000 }}\n"
        ".worker {{ text-anchor: end; fill: #555 }}\n.tick {{ text-anchor: middle; fill: #555 }}\n"
        ".note {{ fill: #555 }}\n.paper {{ fill: #fff }}\n.memory {{ fill: #8a8a8a }}\n"
        ".all-reduce {{ fill: {} }}\n.update {{ fill: {} }}\n.critical {{ fill: none; stroke: #000; stroke-width: 2 "
        "}}\n"
        ".rule {{ stroke: #999; fill: none }}\n.bound {{ stroke: #1b1b1b; stroke-dasharray: 3 3 }}\n",
        to_hex(kAllReduceColor), to_hex(kUpdateColor));
    if (has_pairs(panel_.schedule))
      out.put(
          ".pair {{ fill: none; stroke: #000; stroke-width: 1.2; stroke-dasharray: 4 2 }}\n"
          ".half {{ font-size: 9px }}\n");
    std::vector<std::pair<std::string, Color>> hatched;
    for (const OpKind kind : kinds_) {
      for (std::size_t r = 0; r < panel_.schedule.placement.num_replicas(); ++r) {
        const ReplicaId replica(static_cast<std::int64_t>(r));
        const std::size_t shades = num_shades(panel_.schedule.slices);
        for (std::size_t shade = 0; shade < shades; ++shade) {
          const Color color = color_of(kind, replica, panel_.schedule.placement.num_replicas(), shade, shades);
          const std::string name = class_of(panel_.schedule, kind, r, shade);
          const bool lines = is_hatched(replica, panel_.schedule.placement.num_replicas());
          // A pattern has the name of its class.
          if (lines) hatched.emplace_back(name, color);
          out.put(".{} {{ fill: {} }}\n", name, lines ? fmt::format("url(#{})", name) : to_hex(color));
        }
      }
    }
    for (const IdleCause cause : causes_) out.put(".{0} {{ fill: url(#{0}) }}\n", to_text(cause));
    out.put("</style>\n<defs>\n");
    for (const auto& [name, color] : hatched) write_pattern(out, name, color, kReplicaTile, "#0000003a");
    for (const IdleCause cause : causes_)
      write_pattern(out, to_text(cause), style_of(cause).light, style_of(cause).tile, "#777");
    out.put("</defs>\n");
  }

  /// Width of the legend on one line.
  [[nodiscard]] double width() const {
    double width = 0;
    for (const auto& [name, text] : entries()) width += width_of(text);
    return width;
  }

  /// Draws lines of at most `width` pixels from `top` on, and returns the end of the last line.
  double draw(SvgText& out, double top, double width) const {
    double left = kTextLeft;
    for (const auto& [name, text] : entries()) {
      if (left > kTextLeft && left + width_of(text) > width) {
        left = kTextLeft;
        top += kLegendLine;
      }
      out.put("<path class=\"{}\" d=\"M{} {}h22v12h-22z\"/><text class=\"note\" x=\"{}\" y=\"{}\">{}</text>\n", name,
              pixels(left), pixels(top - 10), pixels(left + 26), pixels(top), text);
      left += width_of(text);
    }
    return top;
  }

 private:
  static void write_pattern(SvgText& out, const std::string& name, Color ground, const char* tile, const char* line) {
    out.put(
        "<pattern id=\"{}\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\"><path fill=\"{}\" "
        "d=\"M0 0h8v8h-8z\"/><path stroke=\"{}\" d=\"{}\"/></pattern>\n",
        name, to_hex(ground), line, tile);
  }

  /// Class and text.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> entries() const {
    constexpr std::array<const char*, kOpKinds> kKindNames = {"F forward", "B backward", "I input gradient",
                                                              "W weight gradient"};
    std::vector<std::pair<std::string, std::string>> entries;
    for (const OpKind kind : kinds_)
      entries.emplace_back(class_of(panel_.schedule, kind, 0, 0), kKindNames[static_cast<std::size_t>(kind)]);
    if (panel_.schedule.placement.num_replicas() > 1 && !kinds_.empty()) {
      for (std::size_t r = 0; r < panel_.schedule.placement.num_replicas(); ++r) {
        // The first kind of op stands for all kinds: each replica has its shade and hatch in every kind.
        entries.emplace_back(class_of(panel_.schedule, *kinds_.begin(), r, 0), replica_name(panel_.schedule, r));
      }
    }
    if (const std::size_t shades = num_shades(panel_.schedule.slices); shades > 1 && !kinds_.empty())
      entries.emplace_back(class_of(panel_.schedule, *kinds_.begin(), 0, shades - 1), "later slices are paler");
    if (has_pairs(panel_.schedule)) entries.emplace_back("pair", "two ops of a pair");
    if (layout_.all_reduce_height > 0) entries.emplace_back("all-reduce", "all-reduce");
    if (has_updates()) entries.emplace_back("update", "optimizer step");
    for (const IdleCause cause : causes_) entries.emplace_back(to_text(cause), fmt::format("idle: {}", to_text(cause)));
    if (!panel_.explanation.critical_path.empty()) entries.emplace_back("critical", "critical path");
    if (layout_.memory_height > 0)
      entries.emplace_back("memory", fmt::format("memory, full height {}", memory_text(panel_, layout_.most_memory)));
    return entries;
  }

  [[nodiscard]] static double width_of(const std::string& legend_text) {
    return 26 + static_cast<double>(legend_text.size()) * kLetterWidth + 14;
  }

  [[nodiscard]] bool has_updates() const {
    return std::ranges::any_of(panel_.timeline.workers, [](const WorkerTimeline& worker) {
      return std::ranges::any_of(worker.updates, takes_time);
    });
  }

  const Panel& panel_;
  const SvgLayout& layout_;
  std::set<OpKind> kinds_;
  std::set<IdleCause> causes_;
};

// Elements are written in drawing order: idle time, ops on it, then pairs, updates, lanes below, and on top the
// critical path. Colors are classes of one style sheet, which keeps 200,000 boxes small.
class SvgPicture {
 public:
  SvgPicture(const Panel& panel, const std::optional<SvgAxis>& axis)
      : panel_(panel), axis_(axis), layout_(panel, axis), legend_(panel, layout_) {}

  std::string draw() {
    const std::string sums = sums_of(panel_);
    const double legend_width = std::max(legend_.width(), static_cast<double>(sums.size()) * kLetterWidth);
    const double width = axis_ ? axis_->width : std::max(layout_.x(panel_.timeline.makespan), legend_width) + kRight;
    const double legend_top = layout_.y(num_workers()) + 16;
    // Drawn for the end of its last line alone.
    SvgText unused;
    const double height = legend_.draw(unused, legend_top, width) + 30;
    out_.begin(width, height, panel_.title);
    legend_.write_styles(out_);
    out_.put("<rect class=\"paper\" width=\"{}\" height=\"{}\"/>\n", pixels(width), pixels(height));
    out_.put("<text class=\"title\" x=\"{}\" y=\"18\">{}</text>\n", kTextLeft, escape_markup(panel_.title));
    axis();
    for (std::size_t w = 0; w < num_workers(); ++w) row(w);
    critical_path();
    end_line();
    legend_.draw(out_, legend_top, width);
    out_.put("<text class=\"note\" x=\"{}\" y=\"{}\">{}</text>\n", kTextLeft, pixels(height - 8), sums);
    return out_.end();
  }

 private:
  [[nodiscard]] std::size_t num_workers() const { return panel_.schedule.workers.size(); }
  [[nodiscard]] const Op& op_at(const Place& place) const {
    return panel_.schedule.workers[place.worker][place.position];
  }
  [[nodiscard]] std::string label_of(const Op& op) const { return to_text(op, panel_.schedule.slices); }

  void axis() {
    constexpr double kPixels = 80;  // Between two numbers, at least
    for (const double time : ticks(0, layout_.axis_end, layout_.axis_end * layout_.scale / kPixels)) {
      if (time > layout_.axis_end) break;
      out_.put("<text class=\"tick\" x=\"{0}\" y=\"36\">{1:.6g}</text><path class=\"rule\" d=\"M{0} 40v4\"/>\n",
               pixels(layout_.x(time)), time);
    }
  }

  /// `label` is an element of SVG, or empty.
  void box(const std::string& name, const TimedOp& time, double top, double height, const std::string& title,
           const std::string& label = "") {
    // A gap of 0.75 pixels keeps boxes of the same color apart.
    out_.put("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}</title></rect>{}\n", name,
             pixels(layout_.x(time.start)), pixels(top),
             pixels(std::max(0.0, (time.end - time.start) * layout_.scale - 0.75)), pixels(height), title, label);
  }

  void row(std::size_t worker) {
    const double top = layout_.y(worker);
    out_.put("<text class=\"worker\" x=\"{}\" y=\"{}\">worker {}</text>\n", pixels(kLeft - 8), pixels(top + 15),
             worker);
    if (worker < panel_.explanation.bubbles.size())
      for (const Bubble& bubble : panel_.explanation.bubbles[worker])
        box(to_text(bubble.cause), {bubble.start, bubble.end}, top, kOpHeight, describe(bubble));
    if (panel_.timeline.workers[worker].lost)
      out_.put("<text class=\"note\" x=\"{}\" y=\"{}\">lost</text>\n", pixels(kLeft), pixels(top + 15));
    const auto& ops = panel_.schedule.workers[worker];
    for (std::size_t i = 0; i < ops.size(); ++i) op(worker, i, top);
    // After all ops: the box of the next op would cover a part of the outline.
    for (std::size_t i = 0; i + 1 < ops.size(); ++i)
      if (ops[i].paired) pair(worker, i, top);
    for (const TimedUpdate& update : panel_.timeline.workers[worker].updates) {
      if (!takes_time(update)) continue;
      box("update", {update.start, update.end}, top, kOpHeight,
          fmt::format("optimizer step, {:.6g} to {:.6g}", update.start, update.end));
    }
    if (layout_.all_reduce_height > 0) all_reduces(worker, top + kOpHeight);
    if (layout_.memory_height > 0) memory(worker, top + kOpHeight + layout_.all_reduce_height);
  }

  void pair(std::size_t worker, std::size_t first, double top) {
    const TimedOp& one = panel_.timeline.workers[worker].ops[first];
    const TimedOp& other = panel_.timeline.workers[worker].ops[first + 1];
    out_.put("<path class=\"pair\" d=\"M{0} {1}h{2}v{3}H{0}z\"/>\n", pixels(layout_.x(one.start)), pixels(top),
             pixels(std::max(0.0, (std::max(one.end, other.end) - one.start) * layout_.scale - 0.75)),
             pixels(kOpHeight));
  }

  void op(std::size_t worker, std::size_t position, double row_top) {
    const Op& op = panel_.schedule.workers[worker][position];
    const TimedOp& time = panel_.timeline.workers[worker].ops[position];
    const SvgLayout::Lane lane = layout_.lane_of(worker, position);
    const std::string label = label_of(op);
    const std::int64_t slices = panel_.schedule.slices;
    const std::string slice = slices > 1 ? fmt::format(", slice {}", op.slice) : "";
    const double width = (time.end - time.start) * layout_.scale;
    std::string element;
    // A box has its full label, or only the micro-batch, or nothing, depending on the room.
    for (const std::string& text : {label, std::to_string(op.micro_batch.value())}) {
      if (static_cast<double>(text.size()) * kLetterWidth + 3 > width) continue;
      const bool half = lane.height < kOpHeight;
      // A text stands on its baseline, which is below the middle by about a third of its size.
      element = fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\">{}</text>", half ? "op half" : "op",
                            pixels(layout_.x(time.start) + width / 2),
                            pixels(row_top + lane.top + lane.height / 2 + (half ? 3.5 : 4)), text);
      break;
    }
    box(class_of(panel_.schedule, op.kind, op.replica.index(), shade_of(op.slice, slices)), time, row_top + lane.top,
        lane.height,
        fmt::format("{}: stage {}, micro-batch {}{}, replica {}, {:.6g} to {:.6g}", label, op.stage.value(),
                    op.micro_batch.value(), slice, op.replica.value(), time.start, time.end),
        element);
  }

  [[nodiscard]] std::string describe(const Bubble& bubble) const {
    return fmt::format("idle: {}{}, {:.6g} to {:.6g}", to_text(bubble.cause),
                       bubble.waits_for ? fmt::format(", waits for {} on worker {}", label_of(op_at(*bubble.waits_for)),
                                                      bubble.waits_for->worker)
                                        : "",
                       bubble.start, bubble.end);
  }

  void all_reduces(std::size_t worker, double top) {
    for (const TimedAllReduce& sum : panel_.explanation.all_reduces[worker]) {
      box("all-reduce", {sum.start, sum.end}, top + 1, kAllReduceHeight - 1,
          fmt::format("all-reduce of stage {}, {:.6g} to {:.6g}", sum.group.value(), sum.start, sum.end));
    }
  }

  void memory(std::size_t worker, double top) {
    const auto& points = panel_.explanation.memory[worker];
    if (points.empty()) return;
    const auto height = [&](double amount) { return pixels(top + kMemoryHeight * (1 - amount / layout_.most_memory)); };
    // Memory changes in steps: across to the time of a change, then up or down to the new amount.
    out_.put("<path class=\"memory\" d=\"M{} {}", pixels(layout_.x(points.front().time)), pixels(top + kMemoryHeight));
    for (const MemoryPoint& point : points) out_.put("H{}V{}", pixels(layout_.x(point.time)), height(point.amount));
    out_.put("H{}V{}z\"><title>memory, at most {}</title></path>\n", pixels(layout_.x(panel_.timeline.makespan)),
             pixels(top + kMemoryHeight), memory_text(panel_, peak_memory(panel_.explanation, worker)));
  }

  void critical_path() {
    for (const Place& place : panel_.explanation.critical_path) {
      const TimedOp& time = panel_.timeline.workers[place.worker].ops[place.position];
      const SvgLayout::Lane lane = layout_.lane_of(place.worker, place.position);
      // Inside the box: a line on its edge would cover a part of the neighbors.
      out_.put("<path class=\"critical\" d=\"M{} {}h{}v{}H{}z\"/>\n", pixels(layout_.x(time.start) + 0.5),
               pixels(layout_.y(place.worker) + lane.top + 1),
               pixels(std::max(0.0, (time.end - time.start) * layout_.scale - 1.75)), pixels(lane.height - 2),
               pixels(layout_.x(time.start) + 0.5));
    }
  }

  void end_line() {
    const double bottom = layout_.y(num_workers()) - kRowGap;
    out_.put("<path class=\"rule\" d=\"M{} {}V{}\"/>\n", pixels(layout_.x(panel_.timeline.makespan)), kTop - 6,
             pixels(bottom));
    // At an optimal schedule, both lines would be one.
    if (panel_.timeline.lower_bound < panel_.timeline.makespan)
      out_.put("<path class=\"bound\" d=\"M{} {}V{}\"><title>lower bound {:.6g}</title></path>\n",
               pixels(layout_.x(panel_.timeline.lower_bound)), kTop - 6, pixels(bottom), panel_.timeline.lower_bound);
  }

  const Panel& panel_;
  std::optional<SvgAxis> axis_;
  SvgLayout layout_;
  SvgLegend legend_;
  SvgText out_;
};

}  // namespace

SvgAxis common_axis(const std::vector<Panel>& panels, double width) {
  SvgAxis axis{.width = width};
  for (const Panel& panel : panels) {
    axis.length = std::max(axis.length, panel.timeline.makespan);
    for (const auto& ops : panel.schedule.workers) {
      // The worker with most ops decides, whatever their durations: labels must fit on average only.
      axis.width = std::max(axis.width, kLeft + kRight + static_cast<double>(ops.size()) * kMinOpWidth);
    }
  }
  return axis;
}

std::string to_svg(const Panel& panel, const std::optional<SvgAxis>& axis) {
  const std::int64_t ops = num_ops(panel.schedule);
  if (ops > kMaxSvgOps)
    reject("SVG: {} ops are more than the {} that a picture holds; use fewer stages or micro-batches, or --format html",
           ops, kMaxSvgOps);
  return SvgPicture(panel, axis).draw();
}

}  // namespace chimera

#include "paper/paper_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "generate/registry.h"
#include "paper/grouped_bars.h"
#include "paper/paper_scale.h"
#include "paper/paper_tables.h"
#include "plan/machine.h"
#include "render/svg.h"
#include "simulate/simulate.h"
#include "telemetry/html_page.h"

namespace chimera {
namespace {

/// A value of the paper and ours.
struct PaperValue {
  std::string figure;
  std::string what;
  double paper = 0;
  double ours = 0;
};

struct Figure {
  std::string name;  // `figure-3`; also the file name
  std::string caption;
  std::string svg;
  std::vector<PaperValue> values;
};

/// A schedule drawn in the paper. Times are in units of a forward.
struct Drawing {
  const char* figure;
  const char* caption;
  const char* schedule;
  PipelineShape shape;
  double backward;
  double makespan;  // in the paper
};

std::vector<Drawing> drawings() {
  const auto shape = [](std::int64_t stages, std::int64_t count, std::int64_t pipelines, ScaleMethod scale) {
    PipelineShape made{stages, count, pipelines};
    made.scale = scale;
    return made;
  };
  const ScaleMethod direct = ScaleMethod::Direct;
  return {{"figure-2-gpipe", "GPipe, D = N = 4, backward twice as long", "gpipe", shape(4, 4, 2, direct), 2, 21},
          {"figure-2-dapple", "DAPPLE (1F1B), D = N = 4", "1f1b", shape(4, 4, 2, direct), 2, 21},
          {"figure-2-chimera", "Chimera, D = N = 4", "chimera", shape(4, 4, 2, direct), 2, 16},
          {"figure-3", "Chimera with forwards as long as backwards", "chimera", shape(4, 4, 2, direct), 1, 10},
          {"figure-7b", "N = 2D by direct concatenation", "chimera", shape(4, 8, 2, direct), 2, 30},
          {"figure-7d", "N = 2D by forward doubling", "chimera", shape(4, 8, 2, ScaleMethod::Doubling), 2, 27},
          {"figure-8", "Four pipelines, D = N = 8, forwards as long as backwards", "chimera", shape(8, 8, 4, direct), 1,
           18}};
}

Figure drawn(const Drawing& drawing) {
  const Schedule schedule = find_generator(drawing.schedule).generate(drawing.shape);
  const StageCosts unit{.forward = 1,
                        .backward = drawing.backward,
                        .input_gradient = drawing.backward / 2,
                        .weight_gradient = drawing.backward / 2};
  const CostModel costs = CostModel::uniform(schedule, unit, 0);
  const Timeline timeline = simulate(schedule, costs);
  return {drawing.figure,
          drawing.caption,
          to_svg(panel_of(schedule, timeline, costs)),
          {{drawing.figure, "makespan", drawing.makespan, timeline.makespan}}};
}

/// Draws a picture for each configuration of figure 9, with a group of bars per schedule.
std::vector<Figure> memory_figures(const MachineProfile& machine) {
  const MemoryFit fit = fit_figure_9(machine);
  std::vector<Figure> figures;
  for (const MemoryRow& row : figure_9()) {
    const std::string place =
        fmt::format("{} W{} D{} B{}", row.model, row.data_parallel, row.stages, row.micro_batch_size);
    std::string name = "figure-9-" + place;
    std::ranges::transform(name, name.begin(),
                           [](unsigned char letter) { return letter == ' ' ? '-' : std::tolower(letter); });
    Figure figure{
        name,
        fmt::format("{}: memory of the worker with the most, 32 nodes, mini-batch 512. Ours is fitted on "
                    "Chimera's three maxima of BERT-48 alone; OOM: out of memory on the paper's {:g} GB, where "
                    "ours says what would be needed.",
                    place, kCapacity),
        "",
        {}};
    GroupedBars bars{.title = place + ": memory of the fullest worker",
                     .y_label = "GB",
                     .series = {"paper, measured", "ours, predicted"},
                     .groups = {},
                     .absent = "OOM",
                     .size = {760, 380}};
    for (const auto& [schedule, cell] : row.cells) {
      const double ours = predict_memory(machine, row, schedule, fit).most;
      bars.groups.push_back({schedule, {cell ? std::optional(cell->most) : std::nullopt, ours}});
      if (cell) figure.values.push_back({"figure-9", fmt::format("{}, {}, GB", place, schedule), cell->most, ours});
    }
    figure.svg = to_svg(bars);
    figures.push_back(std::move(figure));
  }
  return figures;
}

Figure throughput_figure(const MachineProfile& machine) {
  Figure figure{"figure-13",
                "BERT-48 on 32 nodes: what the paper measured, what its model says, and what our simulator says, with "
                "the shipped profile.",
                "",
                {}};
  GroupedBars bars{.title = "BERT-48, 32 nodes, mini-batch 512",
                   .y_label = "sequences a second",
                   .series = {"paper, measured", "paper's model", "our simulator"},
                   .groups = {},
                   .size = {760, 380}};
  const std::vector<Prediction> ours = predict_figure_13(machine);
  for (std::size_t r = 0; r < figure_13().size(); ++r) {
    const ThroughputRow& row = figure_13()[r];
    const std::string place = fmt::format("W{} D{} B{}", row.data_parallel, row.stages, row.micro_batch_size);
    const double predicted = ours[r].sequences_per_second;
    bars.groups.push_back({place, {row.measured, row.paper_model, predicted}});
    figure.values.push_back({"figure-13", place + ", sequences/s", row.measured, predicted});
  }
  figure.svg = to_svg(bars);
  return figure;
}

/// Draws GPT-2-64 on hundreds of workers. Only two ratios of the paper's measurements are known, from its abstract.
Figure scaling_figure(const std::string& machine) {
  Figure figure{
      "scaling",
      "GPT-2-64 by simulation, each schedule at its own best configuration, with as many sequences a step as there are "
      "workers. Beside the paper: how many times another schedule's throughput Chimera (f = 1) has on 2,048 workers.",
      "",
      {}};
  LineChart chart{.title = "GPT-2-64: sequences a second over workers",
                  .x_label = "workers",
                  .y_label = "sequences a second",
                  .series = {},
                  .from_zero = true,
                  .size = {760, 420}};
  std::map<std::string, double> at_paper_scale;  // by schedule
  for (const ScaleLine& line : scale_lines()) {
    Series series{.name = line.name, .points = {}, .style = CurveStyle::Marks};
    for (const std::int64_t workers : {kPaperRatioWorkers / 4, kPaperRatioWorkers / 2, kPaperRatioWorkers}) {
      const auto found = best_at_scale({.machine = machine}, line, workers);
      if (!found) continue;
      const double throughput = found->second.prediction.sequences_per_second;
      series.points.emplace_back(static_cast<double>(workers), throughput);
      if (workers == kPaperRatioWorkers) at_paper_scale.emplace(line.schedule, throughput);
    }
    chart.series.push_back(std::move(series));
  }
  for (const auto& [schedule, ratio] : paper_ratios()) {
    const double ours = at_paper_scale.at("chimera") / at_paper_scale.at(schedule);
    figure.values.push_back({figure.name, "Chimera over " + schedule, ratio, ours});
  }
  figure.svg = to_svg(chart);
  return figure;
}

std::string values_table(const std::vector<PaperValue>& values) {
  std::vector<std::vector<std::string>> rows;
  for (const PaperValue& value : values) {
    rows.push_back({value.what, fmt::format("{:.4g}", value.paper), fmt::format("{:.4g}", value.ours),
                    fmt::format("{:+.1f} %", 100 * (value.ours / value.paper - 1))});
  }
  return html_table({"", "paper", "ours", "difference"}, rows);
}

}  // namespace

void write_paper_figures(const std::string& folder, const std::string& machine) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw ConfigError(fmt::format("--figures {}: cannot be created ({})", folder, error.message()));
  const MachineProfile profile = read_machine(machine);
  std::vector<Figure> figures;
  for (const Drawing& drawing : drawings()) figures.push_back(drawn(drawing));
  for (Figure& figure : memory_figures(profile)) figures.push_back(std::move(figure));
  figures.push_back(throughput_figure(profile));
  figures.push_back(scaling_figure(machine));
  std::string csv = "figure,what,paper,ours\n";
  std::vector<Section> sections;
  for (const Figure& figure : figures) {
    write_whole(fmt::format("{}/{}.svg", folder, figure.name), figure.svg);
    sections.push_back({figure.name, fmt::format("<p>{}</p>\n<div class=\"picture\">{}</div>\n{}", figure.caption,
                                                 figure.svg, values_table(figure.values))});
    for (const PaperValue& value : figure.values) {
      csv += fmt::format("{},\"{}\",{:.10g},{:.10g}\n", value.figure, value.what, value.paper, value.ours);
    }
  }
  write_whole(folder + "/figures.csv", csv);
  write_whole(folder + "/index.html",
              html_page("Figures of the Chimera paper, drawn anew",
                        "Li and Hoefler, SC'21: the values of its figures beside those of this program", sections));
}

}  // namespace chimera

#include <memory>

#include "commands.h"
#include "core/mapped.h"
#include "flags/outputs.h"
#include "telemetry/comparison.h"

namespace chimera::apps {
namespace {

struct CompareArguments {
  std::vector<std::string> runs;
  Format format = Format::Text;
  std::string output;
};

std::string print_comparison(const CompareArguments& options) {
  const std::vector<RunHistory> runs = mapped(options.runs, read_run);
  // All runs are checked first, so that a page is written for all or for none.
  for (const RunHistory& run : runs) (void)summarize_run(run);  // throws if a run has no step
  switch (options.format) {
    case Format::Json: return comparison_json(runs);
    case Format::Html: return comparison_page(runs);
    case Format::Svg: return comparison_svg(runs);
    default: return comparison_text(runs);
  }
}

}  // namespace

void add_compare(CLI::App& program, const Invocation&, int&) {
  auto* command = program.add_subcommand("compare", "Compare runs: results, configurations and curves");
  command->footer(
      "Examples:\n"
      "  chimera compare run other\n"
      "  chimera compare a.jsonl b.jsonl c.jsonl --format html --output page.html\n"
      "  chimera compare run other --format svg --output loss.svg\n"
      "  chimera compare run other --format json\n"
      "\nA run is a folder with metrics.jsonl, or a metrics file. The configuration of a run is in its newest "
      "checkpoint beside the metrics. Medians omit the first step. `times the first` is the throughput relative to the "
      "first run.\n"
      "\nMore: docs/metrics.md");
  auto options = std::make_shared<CompareArguments>();
  command->add_option("RUN", options->runs, "folders of runs, or metrics files")->required();
  add_format_and_output(*command, options->format, {Format::Text, Format::Json, Format::Svg, Format::Html},
                        options->output);
  command->callback([options] { write_output(options->output, print_comparison(*options), options->format); });
}

}  // namespace chimera::apps

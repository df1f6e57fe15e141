// `chimera search` improves schedules, on two kinds of problems: the one that flags describe, and with --record one
// that a file holds together with the best schedule known for it. Only the second has a yes or no as its exit code.

#include <unistd.h>

#include "answers/record.h"
#include "answers/search_answer.h"
#include "commands.h"
#include "core/console.h"
#include "core/files.h"
#include "core/reject.h"
#include "core/terminal.h"
#include "flags/files.h"
#include "flags/flag_door.h"
#include "flags/outputs.h"
#include "flags/values.h"
#include "help.h"
#include "program.h"
#include "schedule/schedule_csv.h"
#include "schedule/schedule_json.h"

namespace chimera::apps {
namespace {

struct SearchArguments : RequestArguments<SearchRequest> {
  std::string record;  // name or file
};

/// Writes the schedule to the file of --output, and returns the text for standard output.
std::string report_search(const SearchArguments& options, const SearchAnswer& found) {
  print_notes(found.notes);
  const std::string& path = options.output;
  const Schedule& schedule = found.result.schedule;
  // The file is written first: a closed pipe then loses only the report.
  if (!path.empty()) write_output(path, path.ends_with(".csv") ? to_csv(schedule) : to_json(schedule));
  return options.format == Format::Json ? search_json(found.result, found.placement)
                                        : search_text(found, {.columns = terminal_columns(STDOUT_FILENO)});
}

std::string print_search(SearchArguments& options) {
  SearchRequest& request = options.request;
  request.start.shape = request.shape;
  constexpr double kSecondsBetween = 5;  // progress lines
  const auto progress = [next = kSecondsBetween](const SearchProgress& now) mutable {
    if (now.seconds < next) return;
    next = now.seconds + kSecondsBetween;
    messages().write(fmt::format("search: {:.0f} s, makespan {:.6g} by {}, lower bound {:.6g}\n", now.seconds,
                                 now.makespan, now.origin, now.lower_bound));
  };
  return report_search(options, answer(request, progress));
}

/// Refuses flags that would change the problem of a record.
void require_only_search_flags(const CLI::App& command) {
  const std::vector<std::string> allowed = {"--record", "--seconds", "--iterations", "--seed",
                                            "--format", "--output",  "--overwrite"};
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || std::ranges::count(allowed, name) > 0) continue;
    reject("search: --record has its own problem; leave out {}", name);
  }
}

/// Searches from the record's schedule and all generated ones. Returns the exit code: 0 if the result beats the record.
int try_record(const CLI::App& command, const SearchArguments& options) {
  require_only_search_flags(command);
  const std::string file = record_file(options.record);
  const Record record = record_from_json(read_whole(file), file);
  SearchOptions chosen = options_of(options.request, {});
  // A quarter of the time would go to lower memory limits, which no record asks for.
  chosen.wants_front = false;
  const SearchResult result = search(record.problem, {record.schedule}, chosen);
  // Makespans are sums of doubles in another order, so that equal ones may differ in the last bits.
  const bool beats = result.makespan < record.makespan * (1 - kRounding);
  std::string text = report_search(options, {result, record.problem.costs, record.placement, {record.placement}, {}});
  if (options.format == Format::Text) {
    const std::string verdict = beats ? "The search beats the record."
                                : record.makespan <= result.lower_bound * (1 + kRounding)
                                    ? "Nobody can beat the record: it equals the bound."
                                    : "The search does not beat the record.";
    text = fmt::format("{}: makespan {:.6g}, lower bound {:.6g}\n{}{}\n", record.name, record.makespan,
                       record.lower_bound, text, verdict);
  }
  write_output("", text);
  return beats ? 0 : 1;
}

}  // namespace

void add_search(CLI::App& program, const Invocation&, int& exit_code) {
  auto* command = program.add_subcommand("search", "Search for a fast schedule under a memory limit");
  command->footer(
      "Examples:\n"
      "  chimera search --stages 8 --micro-batches 16 --forward 1 --input-gradient 1.3 --weight-gradient 0.7 "
      "--max-in-flight 9\n"
      "  chimera search --stages 4 --micro-batches 8 --placement wave --waves 2 --iterations 100000 --seed 1\n"
      "  chimera search --stages 4 --micro-batches 4 --output found.json\n"
      "  chimera search mine.json --latency 0.1\n"
      "  chimera search --record gpt-d8-n32 --seconds 60\n"
      "\nLocal search improves the best generated and list-scheduled schedules; small problems are solved to proven "
      "optimality. The gap is makespan / lower bound - 1. With --iterations and without --seconds the result depends "
      "only on --seed.\n"
      "\nMore: docs/search.md");
  auto options = std::make_shared<SearchArguments>();
  SearchRequest& request = options->request;
  command->add_option("NAME", request.start.name,
                      "schedule to improve on its own placement: a name, or a JSON or CSV file "
                      "(default: the best placement)");
  request.start.load = read_schedule;
  request.costs.refuses_unused = true;
  add_flags(*command, request);
  command->add_option(
      "--record", options->record,
      "try to beat a record instead: a name in benchmarks/records, or a file; exit code 1 if not beaten");
  add_format(*command, options->format, {Format::Text, Format::Json});
  add_output_checks(
      *command, {add_path(*command, "--output", options->output,
                          "also write the best schedule to this JSON or CSV file, which other commands take as NAME")});
  set_common_flags(*command, {"--stages", "--micro-batches", "--placement", "--forward", "--backward",
                              "--input-gradient", "--weight-gradient", "--latency", "--costs", "--max-in-flight",
                              "--seconds", "--iterations", "--seed", "--format", "--output"});
  command->callback([options, command, &exit_code] {
    if (!options->record.empty())
      exit_code = try_record(*command, *options);
    else
      write_output("", print_search(*options));
  });
}

}  // namespace chimera::apps

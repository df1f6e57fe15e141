// Ops per second of the scheduling half: generate, check, simulate, and prove the lowered program.

#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <string>
#include <vector>

#include "bench/machine_line.h"
#include "check/check_program.h"
#include "check/check_schedule.h"
#include "core/error.h"
#include "generate/registry.h"
#include "passes/lower.h"
#include "simulate/simulate.h"

namespace chimera::benchmarks {
namespace {

double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double peak_gib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / (1024.0 * 1024.0);
}

/// CPU seconds of each phase.
struct Seconds {
  double generate = 0;
  double check = 0;
  double simulate = 0;
  double prove = 0;  // lower and check the program, with both disciplines; 0 if not requested
};

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(what);
}

struct Measurement {
  std::int64_t ops = 0;
  Seconds seconds;
};

Measurement measure(const std::string& name, std::int64_t size, bool prove) {
  Measurement result;
  const auto timed = [](double& seconds, const auto& work) {
    const double start = cpu_seconds();
    work();
    seconds += cpu_seconds() - start;
  };
  Schedule schedule;
  timed(result.seconds.generate, [&] { schedule = find_generator(name).generate({size, size}); });
  result.ops = num_ops(schedule);
  timed(result.seconds.check, [&] { require(check(schedule).empty(), name + " is no schedule"); });
  timed(result.seconds.simulate, [&] {
    const Timeline timeline = simulate(schedule, CostModel::uniform(schedule, {.forward = 1, .backward = 2}));
    require(timeline.makespan >= timeline.lower_bound, name + " is faster than its bound");
  });
  if (!prove) return result;
  timed(result.seconds.prove, [&] {
    for (const auto discipline : {ChannelDiscipline::PerDirection, ChannelDiscipline::SerialPair}) {
      require(check(lower(schedule, {.discipline = discipline}), discipline).empty(), name + " could deadlock");
    }
  });
  return result;
}

void print_row(const std::string& name, std::int64_t size, const Measurement& m) {
  const auto rate = [&](double seconds) {
    return seconds > 0 ? fmt::format("{:.1f}", static_cast<double>(m.ops) / seconds / 1e6) : std::string("-");
  };
  const Seconds& s = m.seconds;
  fmt::print("{:<10} {:>5} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9.2f}\n", name, size, m.ops, rate(s.generate),
             rate(s.check), rate(s.simulate), rate(s.prove), rate(s.generate + s.simulate),
             rate(s.generate + s.check + s.simulate), peak_gib());
  std::fflush(stdout);
}

int run(const std::vector<std::int64_t>& sizes, std::int64_t most_proven) {
  fmt::print("Scheduling, millions of ops a second of CPU time on one core, D = N\n{}\n", machine_line());
  fmt::print("{:<10} {:>5} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "schedule", "D", "ops", "generate",
             "check", "simulate", "prove", "gen+sim", "chain", "peak GiB");
  for (const std::int64_t size : sizes) {
    Seconds sum;
    for (const std::string name : {"chimera", "1f1b"}) {
      const Measurement m = measure(name, size, size <= most_proven);
      print_row(name, size, m);
      sum.generate += m.seconds.generate;
      sum.check += m.seconds.check;
      sum.simulate += m.seconds.simulate;
      sum.prove += m.seconds.prove;
    }
    fmt::print("both at {}: chain {:.2f} s, with the proof of both programs {}\n", size,
               sum.generate + sum.check + sum.simulate,
               sum.prove > 0 ? fmt::format("{:.2f} s", sum.generate + sum.check + sum.simulate + sum.prove)
                             : std::string("not measured"));
  }
  return 0;
}

}  // namespace
}  // namespace chimera::benchmarks

int main(int argc, char** argv) {
  CLI::App app("Ops a second of the scheduling half");
  std::vector<std::int64_t> sizes = {256, 2048};
  std::int64_t most_proven = 2048;
  app.add_option("--sizes", sizes, "D = N (default 256 2048)");
  app.add_option("--most-proven", most_proven, "largest size at which programs are proven too (default 2048)");
  CLI11_PARSE(app, argc, argv);
  try {
    return chimera::benchmarks::run(sizes, most_proven);
  } catch (const std::exception& error) {
    std::fputs((std::string("scheduling: ") + error.what() + "\n").c_str(), stderr);
    return 1;
  }
}

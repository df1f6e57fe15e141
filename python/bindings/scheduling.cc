// The Python module _scheduling: the playground's requests and answers in JSON, and the partition of layers.

#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "answers/playground.h"
#include "core/json.h"
#include "launch/local/place.h"
#include "launch/local/rendezvous.h"
#include "long_call.h"
#include "plan/balance.h"
#include "render/html.h"
#include "render/perfetto.h"
#include "render/svg.h"
#include "schedule/schedule_json.h"
#include "simulate/costs_json.h"
#include "traces/diagnosis.h"

namespace nb = nanobind;

namespace {

std::string answer(std::string request, const std::optional<nb::callable>& progress) {
  return chimera::run_interruptibly(
      [request = std::move(request)](const chimera::Report& report) {
        return chimera::playground::answer(request, report);
      },
      progress);
}

/// `numbers`: the fields of LayerLoad in order.
chimera::LayerLoad load_of(const std::vector<double>& numbers) {
  return {numbers.at(0), numbers.at(1), numbers.at(2), numbers.at(3), numbers.at(4), numbers.at(5), numbers.at(6)};
}

/// Returns the balanced partition as JSON, `{}` if nothing fits.
std::string cut(const chimera::Schedule& schedule, const chimera::ModelLoads& loads,
                const chimera::BalanceOptions& options) {
  const auto found = chimera::balance(schedule, loads, options);
  if (!found) return "{}";
  return chimera::json_text(
      nlohmann::json{{"layers", found->layers},
                     {"slowest", found->slowest},
                     {"least", found->least},
                     {"costs", costs_to_json(stage_costs(loads, found->layers, options.recompute))}});
}

std::string balanced(std::string schedule, const std::vector<std::vector<double>>& layers, double boundary,
                     double memory, bool recompute) {
  chimera::ModelLoads loads;
  for (const std::vector<double>& layer : layers) loads.blocks.push_back(load_of(layer));
  loads.boundary = boundary;
  chimera::BalanceOptions options;
  options.recompute = recompute;
  if (memory > 0) options.memory = memory;
  return chimera::run_interruptibly(
      [=, schedule = std::move(schedule)](const chimera::Report&) {
        return cut(chimera::schedule_from_json(schedule, "schedule"), loads, options);
      },
      std::nullopt);
}

/// Returns the diagnosis of traces as JSON, or a picture of their median step.
std::string diagnosed(std::vector<std::string> paths, std::int64_t first, std::int64_t last, double search_seconds,
                      std::string format) {
  return chimera::run_interruptibly(
      [=, paths = std::move(paths), format = std::move(format)](const chimera::Report&) {
        const auto diagnosis = chimera::diagnose_trace(chimera::read_traces(paths, {first, last}), search_seconds);
        if (format == "diagnosis") return chimera::json_text(to_json(diagnosis));
        const auto panels = panels_of(diagnosis);
        const chimera::Panel& panel = panels.front();
        if (format == "svg") return to_svg(panel);
        if (format == "html") return to_html(panels);
        if (format == "perfetto") return to_perfetto(panel.schedule, panel.timeline, panel.explanation);
        return to_text(diagnosis);
      },
      std::nullopt);
}

std::optional<std::array<int, 4>> place_of(const chimera::Variables& variables) {
  const auto place = chimera::find_place(variables);
  if (!place) return std::nullopt;
  return std::array{place->rank, place->world_size, place->local_rank, place->local_size};
}

std::tuple<std::string, std::string, int> meeting_of(const chimera::Variables& variables) {
  const auto at = chimera::rendezvous_point(chimera::find_place(variables).value(), variables);
  return {at.file, at.host, at.port};
}

}  // namespace

NB_MODULE(_scheduling, module) {
  module.doc() = "The compiled scheduling half: requests in JSON, answers in JSON (docs/playground.md).";
  module.def("balance", &balanced, nb::arg("schedule"), nb::arg("layers"), nb::arg("boundary"), nb::arg("memory"),
             nb::arg("recompute"),
             "Returns the partition of layers that balances the schedule's workers as JSON, {} if none fits in the "
             "memory (0: unlimited). Each layer: seconds of F, I, W; bytes of weights, of gradients and optimizer "
             "state, of activations, and of the activations that W needs.");
  module.def("diagnose", &diagnosed, nb::arg("paths"), nb::arg("first"), nb::arg("last"), nb::arg("search_seconds"),
             nb::arg("format"),
             "Returns the diagnosis of traces as JSON (format diagnosis), or a picture: svg, html, perfetto, text.");
  module.def(
      "answer", &answer, nb::arg("request"), nb::arg("progress") = nb::none(),
      nb::sig("def answer(request: str, progress: collections.abc.Callable[[str], object] | None = None) -> str"),
      "Returns the answer to a request as JSON, {\"error\": \"one line\"} if it is refused. Long requests call "
      "`progress` with JSON from time to time. Its exceptions and Ctrl-C end the request.");
  module.def("place_of", &place_of, nb::arg("variables"),
             "Returns rank and number of processes in the job of a launcher, and both on this host; None without one.");
  module.def("meeting_of", &meeting_of, nb::arg("variables"),
             "Returns the file where the ranks of such a job meet, or if it is empty, a server's host and port.");
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&chimera::await_canceled));
}

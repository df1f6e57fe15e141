#include "answers/playground.h"

#include <exception>
#include <new>
#include <vector>

#include "answers/answers.h"
#include "core/nearest.h"

namespace chimera::playground {
namespace {

Json answer_to(const JsonValue& request, const Progress& progress) {
  const std::string what = request.text("do");
  if (what == "catalog") return catalog();
  if (what == "simulate") return simulated(request);
  if (what == "export") return exported(request);
  if (what == "read") return read_as_it_is(request);
  if (what == "check") return checked(request);
  if (what == "search") return searched(request, progress);
  if (what == "model") return modelled(request);
  if (what == "plan") return planned(request);
  const std::vector<std::string> known = {"catalog", "simulate", "export", "read", "check", "search", "model", "plan"};
  request.field("do").fail(unknown_name("request", what, known));
}

std::string one_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

std::string answer(std::string_view request, const Progress& progress) {
  try {
    const nlohmann::json json = parse_json(std::string(request), "request");
    return one_line(answer_to(JsonValue(json, "request"), progress));
  } catch (const std::bad_alloc&) {
    return one_line({{"error", "out of memory; use fewer stages or micro-batches"}});
  } catch (const std::exception& error) {
    return one_line({{"error", error.what()}});
  }
}

}  // namespace chimera::playground

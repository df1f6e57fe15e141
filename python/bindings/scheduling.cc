// The scheduling half in Python: the door that the playground's page has, requests and answers in JSON.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <exception>
#include <optional>
#include <string>

#include "playground/playground.h"

namespace nb = nanobind;

namespace {

/// Calls Python's progress function, and lets signals (Ctrl-C) end a long request. What either raises is kept, as
/// answer() would take it for a refusal.
class PythonProgress {
 public:
  explicit PythonProgress(std::optional<nb::callable> function) : function_(std::move(function)) {}

  void operator()(const std::string& now) {
    const nb::gil_scoped_acquire locked;
    try {
      if (PyErr_CheckSignals() != 0) nb::raise_python_error();
      if (function_) (*function_)(now);
    } catch (...) {
      raised_ = std::current_exception();
      throw;
    }
  }

  void raise_again() const {
    if (raised_) std::rethrow_exception(raised_);
  }

 private:
  std::optional<nb::callable> function_;
  std::exception_ptr raised_;
};

std::string answer(const std::string& request, std::optional<nb::callable> progress) {
  PythonProgress reports(std::move(progress));
  std::string answered;
  {
    const nb::gil_scoped_release unlocked;
    answered = chimera::playground::answer(request, [&](const std::string& now) { reports(now); });
  }
  reports.raise_again();
  return answered;
}

}  // namespace

NB_MODULE(_scheduling, module) {
  module.doc() = "The compiled scheduling half: requests in JSON, answers in JSON (docs/playground.md).";
  module.def(
      "answer", &answer, nb::arg("request"), nb::arg("progress") = nb::none(),
      nb::sig("def answer(request: str, progress: collections.abc.Callable[[str], object] | None = None) -> str"),
      "The answer to a request, both in JSON; a refused one gets {\"error\": \"one line\"}. `progress` is called "
      "now and then by requests that take long, with JSON; what it raises ends the request.");
}

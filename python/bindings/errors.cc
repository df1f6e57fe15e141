#include "errors.h"

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "checkpoint/manifest.h"
#include "core/error.h"
#include "engine/fit.h"

namespace py = pybind11;

namespace chimera {
namespace {

/// Replaces flags by arguments: `--micro-batch-size` by `micro_batch_size`.
std::string without_flags(std::string message) {
  const auto is_of_name = [](char c) { return (c >= 'a' && c <= 'z') || c == '-'; };
  for (auto at = message.find("--"); at != std::string::npos; at = message.find("--", at + 1)) {
    const bool begins_word = at == 0 || message[at - 1] == ' ' || message[at - 1] == '(';
    if (!begins_word || at + 2 >= message.size() || !is_of_name(message[at + 2])) continue;
    message.erase(at, 2);
    for (auto c = at; c < message.size() && is_of_name(message[c]); ++c) {
      if (message[c] == '-') message[c] = '_';
    }
  }
  return message;
}

std::string with_python_names(std::string message) {
  using Words = std::pair<std::string_view, std::string_view>;
  for (const auto& [here, there] :
       {Words{"FitOptions::", ""}, {"Loss::count", "count"}, {"--learning-rate", "learning rate"}}) {
    for (auto at = message.find(here); at != std::string::npos; at = message.find(here, at + there.size()))
      message.replace(at, here.size(), there);
  }
  return without_flags(std::move(message));
}

struct Kinds {
  py::object error;
  py::object config;
  py::object rejected;
  py::object schedule;
  py::object peer_lost;
  py::object checkpoint;
};

/// Never destroyed, because exceptions may be raised until the process ends.
Kinds& kinds() {
  static auto* const all = new Kinds;
  return *all;
}

/// Keeps bytes that are not UTF-8, as Python's own file names do.
void raise(const py::object& kind, const std::exception& error) {
  PyErr_SetObject(kind.ptr(), text_with_any_bytes(with_python_names(error.what())).ptr());
}

void translate(std::exception_ptr thrown) {
  try {
    std::rethrow_exception(std::move(thrown));
  } catch (const NoTargetsError& error) {
    raise(kinds().rejected, error);
  } catch (const ConfigError& error) {
    raise(kinds().config, error);
  } catch (const ScheduleError& error) {
    raise(kinds().schedule, error);
  } catch (const PeerLostError& error) {
    raise(kinds().peer_lost, error);
  } catch (const CheckpointError& error) {
    raise(kinds().checkpoint, error);
  } catch (const Error& error) {
    raise(kinds().error, error);
  }
}

}  // namespace

py::str text_with_any_bytes(const std::string& text) {
  const auto size = static_cast<Py_ssize_t>(text.size());
  auto decoded = py::reinterpret_steal<py::str>(PyUnicode_DecodeUTF8(text.data(), size, "surrogateescape"));
  if (!decoded) throw py::error_already_set();
  return decoded;
}

void bind_errors(py::module_& module) {
  const auto add = [&](const char* name, const py::object& base, const char* text) {
    const std::string full = "chimerapipe." + std::string(name);
    const auto made =
        py::reinterpret_steal<py::object>(PyErr_NewExceptionWithDoc(full.c_str(), text, base.ptr(), nullptr));
    module.attr(name) = made;
    return made;
  };
  kinds().error = add("Error", py::reinterpret_borrow<py::object>(PyExc_Exception), "An error that ends a run.");
  kinds().config = add("ConfigError", kinds().error, "Impossible arguments: one line that states what would be right.");
  kinds().rejected = add("RefusedData", kinds().config, "Data that all ranks refused; the pipeline can continue.");
  kinds().schedule = add("ScheduleError", kinds().error, "An invalid schedule.");
  kinds().peer_lost = add("PeerLostError", kinds().error, "Another rank failed; its error is the cause.");
  kinds().checkpoint = add("CheckpointError", kinds().error, "A checkpoint that cannot be written, or is damaged.");
  py::register_exception_translator(&translate);
}

}  // namespace chimera

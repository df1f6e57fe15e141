#include "errors.h"

#include <exception>
#include <map>
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

/// The exceptions by name. Never destroyed, because exceptions may be raised until the process ends.
std::map<std::string_view, py::object>& kinds() {
  static auto* const all = new std::map<std::string_view, py::object>;
  return *all;
}

/// Keeps bytes that are not UTF-8, as Python's own file names do.
void raise(std::string_view kind, const std::exception& error) {
  PyErr_SetObject(kinds().at(kind).ptr(), text_with_any_bytes(with_python_names(error.what())).ptr());
}

void translate(std::exception_ptr thrown) {
  try {
    std::rethrow_exception(std::move(thrown));
  } catch (const NoTargetsError& error) {
    raise("RefusedData", error);
  } catch (const ConfigError& error) {
    raise("ConfigError", error);
  } catch (const ScheduleError& error) {
    raise("ScheduleError", error);
  } catch (const PeerLostError& error) {
    raise("PeerLostError", error);
  } catch (const CheckpointError& error) {
    raise("CheckpointError", error);
  } catch (const Error& error) {
    raise("Error", error);
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
  const auto add = [&](const char* name, const py::handle& base, const char* text) {
    const std::string full = "chimerapipe." + std::string(name);
    auto* const made = PyErr_NewExceptionWithDoc(full.c_str(), text, base.ptr(), nullptr);
    module.attr(name) = kinds()[name] = py::reinterpret_steal<py::object>(made);
    return kinds()[name];
  };
  const py::object error = add("Error", PyExc_Exception, "An error that ends a run.");
  const py::object config =
      add("ConfigError", error, "Impossible arguments: one line that states what would be right.");
  add("RefusedData", config, "Data that all ranks refused; the pipeline can continue.");
  add("ScheduleError", error, "An invalid schedule.");
  add("PeerLostError", error, "Another rank failed; its error is the cause.");
  add("CheckpointError", error, "A checkpoint that cannot be written, or is damaged.");
  py::register_exception_translator(&translate);
}

}  // namespace chimera

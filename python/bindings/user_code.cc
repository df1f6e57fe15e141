#include "user_code.h"

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>

#include <exception>

#include "core/error.h"

namespace py = pybind11;

namespace chimera {
namespace {

/// Calls Python with the GIL. Python exceptions become UserCodeError.
template <class Call>
auto in_python(const Call& call) {
  const py::gil_scoped_acquire locked;
  try {
    return call();
  } catch (py::error_already_set& error) {
    std::string line = error.what();
    line = line.substr(0, line.find('\n'));
    throw UserCodeError(line, std::current_exception());
  }
}

/// A Python object that any thread may destroy.
class Held {
 public:
  explicit Held(py::object object)
      : object_(new py::object(std::move(object)), [](py::object* held) {
          const py::gil_scoped_acquire locked;
          delete held;
        }) {}
  [[nodiscard]] const py::object& get() const { return *object_; }

 private:
  std::shared_ptr<py::object> object_;
};

/// A layer of the user: named parameters and a Python function from tensor to tensor.
class PythonModule : public torch::nn::Module {
 public:
  explicit PythonModule(const PythonLayer& layer) : torch::nn::Module(layer.kind), call_(layer.call) {
    for (const auto& [name, tensor] : layer.parameters) add(*this, name, tensor);
  }

  at::Tensor forward(const at::Tensor& input) {
    return in_python([&] { return call_.get()(input).cast<at::Tensor>(); });
  }

 private:
  /// Adds `a.b` as parameter `b` of submodule `a`, because LibTorch allows no dots in names.
  static void add(torch::nn::Module& module, const std::string& name, const at::Tensor& tensor) {
    const auto dot = name.find('.');
    if (dot == std::string::npos) {
      module.register_parameter(name, tensor, tensor.requires_grad());
      return;
    }
    const std::string first = name.substr(0, dot);
    const auto children = module.named_children();
    const auto* child = children.find(first);
    const auto inner = child ? *child : module.register_module(first, std::make_shared<torch::nn::Module>());
    add(*inner, name.substr(dot + 1), tensor);
  }

  Held call_;
};

}  // namespace

void raise_in_python() {
  try {
    throw;
  } catch (const UserCodeError& error) {
    std::rethrow_exception(error.cause());
  } catch (python_error& error) {  // From a Python node in a backward
    error.restore();
    throw py::error_already_set();
  } catch (const c10::Error& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what_without_backtrace());
    throw py::error_already_set();
  }
}

Layer made_layer(const PythonLayer& layer) { return Layer(std::make_shared<PythonModule>(layer)); }

std::function<void(std::int64_t)> stage_function(const py::object& function) {
  return [held = Held(function)](std::int64_t stage) { in_python([&] { held.get()(stage); }); };
}

Loss python_loss(const py::object& sum, const py::object& count) {
  const auto counted = [count = Held(count)](const at::Tensor& target) {
    return in_python([&] { return count.get()(target).cast<std::int64_t>(); });
  };
  return {.sum = [sum = Held(sum), counted](const at::Tensor& output, const at::Tensor& target) -> LossSum {
            const at::Tensor value = in_python([&] { return sum.get()(output, target).cast<at::Tensor>(); });
            return {value, counted(target)};
          },
          .count = counted};
}

}  // namespace chimera

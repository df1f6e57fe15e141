#include "user_code.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>
#include <torch/library.h>

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

constexpr auto kWatchKey = c10::DispatchKey::TESTING_ONLY_GenericMode;  // No operator of torch has a kernel for it

/// Scope of a call of a layer or a loss. Tells its Python object when torch draws from a default generator for the
/// first time, and the end of a call that drew. Operators that draw nothing pass it by.
class DrawWatch {
 public:
  explicit DrawWatch(const py::object& owner) : owner_(owner), before_(std::exchange(current_, this)) {}
  ~DrawWatch() {
    current_ = before_;
    if (!has_drawn_) return;
    const py::gil_scoped_acquire locked;
    owner_.attr("end_draws")();
  }
  DrawWatch(const DrawWatch&) = delete;
  DrawWatch& operator=(const DrawWatch&) = delete;

  static void note() {
    if (current_ == nullptr || std::exchange(current_->has_drawn_, true)) return;
    end();
    const py::gil_scoped_acquire locked;
    current_->owner_.attr("begin_draws")();
  }

  /// Makes further draws of the call pass by.
  static void end() { c10::impl::tls_set_dispatch_key_included(kWatchKey, false); }

 private:
  static inline thread_local DrawWatch* current_ = nullptr;
  const py::object& owner_;
  DrawWatch* before_;
  bool has_drawn_ = false;
  c10::impl::IncludeDispatchKeyGuard included_{kWatchKey};
};

bool draws_by_default(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  const std::size_t count = schema.arguments().size();
  for (std::size_t a = 0; a < count; ++a) {
    const std::string& name = schema.arguments()[a].name();
    const c10::IValue& value = torch::jit::peek(stack, a, count);
    if (name == "generator") return value.isNone();
    if ((name == "p" || name == "dropout" || name == "dropout_p") && value.isDouble()) return value.toDouble() > 0;
  }
  return false;
}

void call_watched(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  if (draws_by_default(op.schema(), *stack)) DrawWatch::note();
  const c10::impl::ExcludeDispatchKeyGuard below(kWatchKey);
  op.callBoxed(stack);
}

/// A layer of the user: named parameters and a Python function from tensor to tensor.
class PythonModule : public torch::nn::Module {
 public:
  explicit PythonModule(const PythonLayer& layer) : torch::nn::Module(layer.kind), call_(layer.call) {
    for (const auto& [name, tensor] : layer.parameters) add(*this, name, tensor);
  }

  at::Tensor forward(const at::Tensor& input) {
    const DrawWatch watch(call_.get());
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

void watch_draws() {
  static torch::Library others(torch::Library::IMPL, "_", kWatchKey, __FILE__, __LINE__);
  static torch::Library watched(torch::Library::IMPL, "aten", kWatchKey, __FILE__, __LINE__);
  others.fallback(torch::CppFunction::makeFallthrough());
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (op && name.getNamespace() == "aten" && op->hasTag(at::Tag::nondeterministic_seeded) &&
        !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
      watched.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&call_watched>());
    }
  }
}

void note_draw() { DrawWatch::note(); }
void end_watch() { DrawWatch::end(); }

Layer made_layer(const PythonLayer& layer) { return Layer(std::make_shared<PythonModule>(layer)); }

std::function<void(std::int64_t)> stage_function(const py::object& function) {
  return [held = Held(function)](std::int64_t stage) { in_python([&] { held.get()(stage); }); };
}

std::function<double(double)> number_function(const py::object& function) {
  return
      [held = Held(function)](double number) { return in_python([&] { return held.get()(number).cast<double>(); }); };
}

Loss python_loss(const py::object& sum, const py::object& count) {
  const auto counted = [count = Held(count)](const at::Tensor& target) {
    return in_python([&] { return count.get()(target).cast<std::int64_t>(); });
  };
  return {.sum = [sum = Held(sum), counted](const at::Tensor& output, const at::Tensor& target) -> LossSum {
            const DrawWatch watch(sum.get());
            const at::Tensor value = in_python([&] { return sum.get()(output, target).cast<at::Tensor>(); });
            return {value, counted(target)};
          },
          .count = counted};
}

}  // namespace chimera

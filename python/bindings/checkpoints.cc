#include "checkpoints.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <pybind11/stl/filesystem.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/commit.h"
#include "checkpoint/manifest.h"
#include "checkpoint/shard.h"
#include "core/cgroup.h"
#include "core/json.h"
#include "errors.h"
#include "model/element_types.h"

namespace py = pybind11;

namespace chimera {
namespace {

using NamedParts = std::vector<std::pair<std::string, at::Tensor>>;

/// Writes a shard of the rank, unless it has no tensors.
void write_tensors(ShardKind kind, const std::string& unfinished, int rank, int ranks, const NamedParts& tensors,
                   std::vector<FileEntry>& files) {
  if (tensors.empty()) return;
  std::vector<at::Tensor> rows;  // Keeps the data that `shard` refers to
  std::vector<ShardTensor> shard;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor& row = rows.emplace_back(tensor.detach().cpu().contiguous());
    TensorEntry entry{.name = name, .type = element_type(row.scalar_type()), .shape = row.sizes().vec()};
    shard.push_back({std::move(entry), {static_cast<const std::byte*>(row.const_data_ptr()), row.nbytes()}});
  }
  files.push_back(write_shard(real_disk(), unfinished, shard_name(kind, rank, ranks), shard));
}

void write_part(const std::filesystem::path& folder, std::int64_t step, int rank, int ranks, const NamedParts& weights,
                const NamedParts& state) {
  const std::string unfinished = open_unfinished(real_disk(), folder.string(), step);
  std::vector<FileEntry> files;
  write_tensors(ShardKind::Weights, unfinished, rank, ranks, weights, files);
  write_tensors(ShardKind::OptimizerState, unfinished, rank, ranks, state, files);
  mark_rank_written(real_disk(), unfinished, rank, files);
}

void commit_parts(const std::filesystem::path& folder, std::int64_t step, int ranks, const std::string& run) {
  commit(real_disk(), folder.string(), step, ranks, {.run = read_ordered_json(run), .files = {}});
}

/// The types of tensors in checkpoints. Python stores other types as bytes.
constexpr std::array kStoredTypes{at::kDouble, at::kFloat, at::kBFloat16, at::kHalf,
                                  at::kLong,   at::kInt,   at::kByte,     at::kBool};

at::ScalarType scalar_type_of(ElementType type, const std::string& name) {
  for (const at::ScalarType candidate : kStoredTypes) {
    if (element_type(candidate) == type) return candidate;
  }
  throw CheckpointError(fmt::format("{} has an element type that is not supported here", name));
}

/// A valid checkpoint, open for reading.
class OpenCheckpoint {
 public:
  /// `path`: a checkpoint, or a folder whose newest valid checkpoint is opened. `verify`: compare the hashes of all
  /// bytes.
  OpenCheckpoint(const std::filesystem::path& path, bool verify) : OpenCheckpoint(found(path.string(), verify)) {}

  [[nodiscard]] const std::string& path() const { return checkpoint_.path; }
  [[nodiscard]] std::int64_t step() const { return checkpoint_.manifest.step; }
  [[nodiscard]] std::string run() const { return json_text(checkpoint_.manifest.run); }
  [[nodiscard]] const std::vector<std::string>& rejected() const { return refused_; }
  [[nodiscard]] std::vector<std::string> names() const { return tensors_.names(); }

  [[nodiscard]] at::Tensor read(const std::string& name) const {
    const auto found = tensors_.find(name);
    if (!found) throw CheckpointError(fmt::format("{} has no tensor {}", path(), name));
    at::Tensor values = at::empty(found->tensor.shape, scalar_type_of(found->tensor.type, name));
    found->file->read(found->tensor, 0, {static_cast<std::byte*>(values.mutable_data_ptr()), values.nbytes()});
    return values;
  }

 private:
  explicit OpenCheckpoint(NewestCheckpoint newest)
      : checkpoint_(std::move(*newest.checkpoint)),
        refused_(std::move(newest.rejected)),
        tensors_(checkpoint_.path, checkpoint_.manifest) {}

  static NewestCheckpoint found(const std::string& path, bool verify) {
    if (verify) return find_checkpoint(path, available_cores());
    return {open_checkpoint(path, /*threads=*/0), {}};
  }

  Checkpoint checkpoint_;
  std::vector<std::string> refused_;
  CheckpointTensors tensors_;
};

}  // namespace

void bind_checkpoints(py::module_& module) {
  const py::call_guard<py::gil_scoped_release> unlocked;
  module.def("write_part", &write_part, py::arg("folder"), py::arg("step"), py::arg("rank"), py::arg("ranks"),
             py::arg("weights"), py::arg("state"), unlocked);
  module.def("commit", &commit_parts, py::arg("folder"), py::arg("step"), py::arg("ranks"), py::arg("run"), unlocked);
  module.def(
      "abandon",
      [](const std::filesystem::path& folder, std::int64_t step) { abandon(real_disk(), folder.string(), step); },
      py::arg("folder"), py::arg("step"), unlocked);
  module.def(
      "remove_superfluous",
      [](const std::filesystem::path& folder, std::int64_t newest, std::int64_t keep) {
        remove_expired(real_disk(), folder.string(), newest, {.last = keep, .every = 0});
      },
      py::arg("folder"), py::arg("newest"), py::arg("keep"), unlocked);
  py::class_<OpenCheckpoint>(module, "OpenCheckpoint")
      .def(py::init<const std::filesystem::path&, bool>(), py::arg("path"), py::arg("verify"), unlocked)
      .def_property_readonly("path", [](const OpenCheckpoint& open) { return text_with_any_bytes(open.path()); })
      .def_property_readonly("step", &OpenCheckpoint::step)
      .def_property_readonly("run", &OpenCheckpoint::run)
      .def_property_readonly("refused",
                             [](const OpenCheckpoint& open) {
                               py::list lines;
                               for (const std::string& line : open.rejected()) lines.append(text_with_any_bytes(line));
                               return lines;
                             })
      .def("names", &OpenCheckpoint::names)
      .def("read", &OpenCheckpoint::read, py::arg("name"));
}

}  // namespace chimera

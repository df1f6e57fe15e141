#include "engine/initial_messages.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace chimera {
namespace {

constexpr std::size_t kMostDimensions = 16;

/// A shape as numbers that all_sum carries from its owner to all: type, dimensions, sizes.
std::vector<double> to_numbers(const TensorShape& shape, const std::string& name) {
  if (shape.sizes.size() > kMostDimensions) {
    throw ConfigError(fmt::format("{} gives a tensor of {} dimensions; at most {} travel", name, shape.sizes.size(),
                                  kMostDimensions));
  }
  std::vector<double> numbers(kMostDimensions + 2, 0);
  numbers[0] = static_cast<double>(shape.dtype);
  numbers[1] = static_cast<double>(shape.sizes.size());
  std::copy(shape.sizes.begin(), shape.sizes.end(), numbers.begin() + 2);
  return numbers;
}

TensorShape from_numbers(const std::vector<double>& numbers) {
  TensorShape shape;
  shape.dtype = static_cast<at::ScalarType>(numbers[0]);
  const auto dimensions = static_cast<std::ptrdiff_t>(numbers[1]);
  shape.sizes.assign(numbers.begin() + 2, numbers.begin() + 2 + dimensions);
  return shape;
}

/// The micro-batch that shapes are found with.
MicroBatch first_micro_batch(const FitRun& run) {
  const Batch batch = run.data({.step = 0, .first = 0, .count = run.micro_batch_size()});
  MicroBatch result;
  result.tokens = batch.input;
  result.targets = batch.target;
  result.dropout.seed = run.options.seed;
  return result;
}

}  // namespace

void share_initial_values(const FitRun& run, RankId rank, const std::map<StageId, ModuleStage*>& stages,
                          Transport& transport) {
  const at::NoGradGuard no_graph;
  std::vector<std::unique_ptr<Pending>> sends;
  std::vector<std::pair<at::Tensor, std::unique_ptr<Pending>>> receives;
  const auto groups = run.rank_groups();
  for (const auto& [id, stage] : stages) {
    for (const auto& [name, value] : stage->values()) {
      if (rank != run.owner(id)) {
        const TensorSpec spec{value.sizes().vec(), value.scalar_type()};
        receives.emplace_back(value, transport.post_receive(run.owner(id), spec, {}));
        continue;
      }
      for (const RankId other : groups[id.index()]) {
        // A copy, as the value is about to be trained and a thread may read later.
        if (other != rank) sends.push_back(transport.start_send(other, value.detach().contiguous().clone(), {}));
      }
    }
  }
  for (auto& [value, pending] : receives) value.copy_(pending->wait());
  for (auto& pending : sends) pending->wait();
}

std::vector<std::string> gather_parameter_names(const FitRun& run, RankId rank,
                                                const std::map<StageId, ModuleStage*>& stages, Transport& transport) {
  // Texts travel as numbers, which is all that every transport sums: first their lengths, then their letters.
  std::vector<std::string> texts(static_cast<std::size_t>(run.schedule.stages));
  std::vector<double> lengths(texts.size(), 0);
  for (const auto& [id, stage] : stages) {
    if (rank != run.owner(id)) continue;
    for (const Parameter& parameter : stage->parameters()) texts[id.index()] += parameter.name + '\n';
    lengths[id.index()] = static_cast<double>(texts[id.index()].size());
  }
  transport.all_sum(lengths);
  std::vector<double> letters(static_cast<std::size_t>(std::accumulate(lengths.begin(), lengths.end(), 0.0)), 0);
  auto place = letters.begin();
  for (std::size_t s = 0; s < texts.size(); ++s) {
    std::ranges::transform(texts[s], place, [](char letter) { return static_cast<unsigned char>(letter); });
    place += static_cast<std::ptrdiff_t>(lengths[s]);
  }
  transport.all_sum(letters);
  std::vector<std::string> names(1);
  for (const double letter : letters) {
    if (letter == '\n') {
      names.emplace_back();
    } else {
      names.back() += static_cast<char>(static_cast<unsigned char>(letter));
    }
  }
  names.pop_back();
  std::ranges::sort(names);
  return names;
}

std::vector<TensorSpec> find_boundaries(const FitRun& run, RankId rank, const std::map<StageId, ModuleStage*>& stages,
                                        Transport& transport) {
  std::vector<TensorSpec> boundaries;
  for (std::int64_t s = 0; s < run.schedule.stages; ++s) {
    const StageId id(s);
    std::vector<double> numbers(kMostDimensions + 2, 0);
    if (rank == run.owner(id)) {
      const bool reads_data = s == 0 || s + 1 == run.schedule.stages;
      ModuleStage& stage = *stages.at(id);
      const at::Device device = stage.gradients().device();
      const at::Tensor input =
          s == 0 ? at::Tensor() : at::zeros(boundaries.back().sizes, at::device(device).dtype(boundaries.back().dtype));
      numbers = to_numbers(stage.output_shape(input, reads_data ? first_micro_batch(run) : MicroBatch()), stage.name());
    }
    transport.all_sum(numbers);
    const TensorShape shape = from_numbers(numbers);
    boundaries.push_back({shape.sizes, shape.dtype});
    if (const auto found = stages.find(id); found != stages.end()) found->second->expect_output(shape);
  }
  boundaries.pop_back();
  return boundaries;
}

}  // namespace chimera

#include "plan/candidate.h"

#include <fmt/format.h>

#include "generate/registry.h"

namespace chimera {

std::string in_words(const Candidate& candidate) {
  const PipelineShape& shape = candidate.shape;
  std::string text = candidate.schedule;
  const Generator& generator = find_generator(candidate.schedule);
  if (takes(generator, "--pipelines") && shape.pipelines != 2) text += fmt::format(" 2f {}", shape.pipelines);
  if (takes(generator, "--chunks")) text += fmt::format(" v {}", shape.chunks);
  if (takes(generator, "--waves")) text += fmt::format(" w {}", shape.waves);
  if (takes(generator, "--scale") && shape.micro_batches > shape.stages) text += " " + to_text(shape.scale);
  text += fmt::format("  W {} x D {}, {} micro-batches of {}", candidate.data_parallel, shape.stages,
                      shape.micro_batches, candidate.micro_batch_size);
  if (candidate.partition.rule != PartitionRule::Even) text += ", stages of " + to_text(candidate.partition);
  return text;
}

std::int64_t stages_a_worker(const std::string& schedule, const PipelineShape& shape) {
  if (schedule == "interleaved-1f1b") return shape.chunks;
  if (schedule == "zb-v" || schedule == "dualpipev") return 2;
  if (schedule == "hanayo") return 2 * shape.waves;
  return 1;
}

}  // namespace chimera

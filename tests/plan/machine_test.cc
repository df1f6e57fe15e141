#include "plan/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json.h"
#include "plan/cluster_profile.h"
#include "plan/machines.h"
#include "support/message_of.h"

namespace chimera {
namespace {

using nlohmann::json;

std::string refusal(const json& machine) {
  return testing::message_of([&] { (void)machine_from_json(json_text(machine), "here.json"); }, "read");
}

/// Error message if the entry at `path` has another value.
std::string refusal_with(const std::string& path, const json& value) {
  json machine = read_json(to_json(round_machine()));
  machine[json::json_pointer(path)] = value;
  return refusal(machine);
}

std::string refusal_without(const std::string& object, const std::string& field) {
  json machine = read_json(to_json(round_machine()));
  machine.at(json::json_pointer(object)).erase(field);
  return refusal(machine);
}

TEST(MachineTest, ReadsWhatItWrites) {
  MachineProfile machine = round_machine();
  machine.message_copy = {1e-5, 2e-10};
  machine.node_message_copy = {3e-5, 4e-10};
  machine.contention = {0.1, 0.2, 0.3, 0.4};
  machine.point_to_point.between_nodes.burst = 16000;
  machine.op_sum = {2e-6, 5e-11};
  machine.layers.push_back(machine.layers.back());
  machine.layers.back().tensor_parallel = 2;
  EXPECT_EQ(machine_from_json(to_json(machine), "here.json"), machine);
}

TEST(MachineTest, ReadsBackLlama) {
  MachineProfile machine = round_machine();
  for (const char* name : {"qwen3-0.6b", "llama-3.2-1b", "mistral-7b"}) {
    LayerTimes layer = round_layer(LayerKind::Block, name);
    layer.model.head_size = head_size_of(layer.model);
    layer.model.attention_bias = AttentionBias::QueryKeyValue;
    layer.model.feed_forward_bias = true;
    machine.layers.push_back(layer);
  }
  EXPECT_EQ(machine_from_json(to_json(machine), "here.json"), machine);
}

TEST(MachineTest, MatrixProductsOfWorkersNeedCores) {
  MachineProfile machine = round_machine();  // two cores
  EXPECT_EQ(matrix_peak(machine, DataType::Float32, 1, 1), 100);
  EXPECT_EQ(matrix_peak(machine, DataType::Float64, 2, 1), 100);
  EXPECT_EQ(matrix_peak(machine, DataType::Float32, 8, 1), 200);
  EXPECT_EQ(matrix_peak(machine, DataType::Float32, 1, 2), 200);
  machine.threads = 2;
  EXPECT_EQ(matrix_peak(machine, DataType::Float32, 8, 1), 100) << "one worker was all of the machine";
  machine.cores = 0;
  EXPECT_EQ(matrix_peak(machine, DataType::Float32, 8, 1), 800) << "a device each";
  EXPECT_EQ(matrix_peak(machine, DataType::BFloat16, 8, 1), 0) << "not known";
}

TEST(MachineTest, NamesMissingFields) {
  EXPECT_EQ(refusal_without("", "cores"), "here.json: top level: field 'cores' is missing");
  EXPECT_EQ(refusal_without("/layers/1/times/2", "forward"),
            "here.json: layers[1].times[2]: field 'forward' is missing");
  EXPECT_EQ(refusal_without("/all_reduce/between_nodes", "beta"),
            "here.json: all_reduce.between_nodes: field 'beta' is missing");
}

TEST(MachineTest, NamesNegativeAndNonNumericFields) {
  EXPECT_EQ(refusal_with("/layers/0/times/1/weight_gradient", -1),
            "here.json: layers[0].times[1].weight_gradient: expected a finite number of 0 or more, found -1");
  EXPECT_EQ(refusal_with("/point_to_point/within_node/alpha", "fast"),
            "here.json: point_to_point.within_node.alpha: expected a number, found string");
  EXPECT_EQ(refusal_with("/memory_bytes", nullptr), "here.json: memory_bytes: expected a number, found null");
  EXPECT_EQ(refusal_with("/matrix_flops/float32", 0), "here.json: matrix_flops.float32: expected a number above 0");
  EXPECT_EQ(refusal_with("/threads", 0), "here.json: threads: expected a whole number of at least 1, found 0");
  EXPECT_EQ(refusal_with("/cores", 1.5), "here.json: cores: expected a whole number of at most 1000000000, found 1.5");
  EXPECT_EQ(refusal_with("/sources/0", 7), "here.json: sources[0]: expected a text, found number");
}

TEST(MachineTest, SuggestsTheNearestNameForUnknownNames) {
  EXPECT_EQ(refusal_with("/core", 2),
            "here.json: top level: unknown field 'core'; did you mean 'cores'? "
            "Also begin with it: core_imbalance, core_sharing");
  EXPECT_EQ(refusal_with("/layers/2/kind", "heads"),
            "here.json: layers[2].kind: unknown kind 'heads'; did you mean 'head'?");
  EXPECT_EQ(refusal_with("/layers/0/dtype", "float23"),
            "here.json: layers[0].dtype: unknown dtype 'float23'; did you mean 'float32'?");
  EXPECT_EQ(refusal_with("/layers/0/model/layers", 8),
            "here.json: layers[0].model: unknown field 'layers'; known: name, family, hidden, heads, feed_forward, "
            "vocabulary, positions, tied, norm_epsilon");
  EXPECT_EQ(refusal_with("/format", "chimera-schedule"), "here.json: format: expected 'chimera-machine'");
}

TEST(MachineTest, RefusesInvalidLayers) {
  EXPECT_EQ(refusal_with("/layers", json::array()), "here.json: layers: expected at least one layer");
  EXPECT_EQ(refusal_with("/layers/0/times", json::array()),
            "here.json: layers[0].times: expected at least one micro-batch size");
  EXPECT_EQ(refusal_with("/layers/0/times/2/micro_batch_size", 2),
            "here.json: layers[0].times: micro-batch size 2 follows 2; expected ascending sizes");
  EXPECT_EQ(refusal_with("/layers/0/sequence", 4096),
            "here.json: layers[0].sequence: 4096 tokens are more than the model's 1024 positions");
  EXPECT_EQ(refusal_with("/layers/1/model/heads", 5),
            "here.json: layers[1].model: model 'gpt2-mini': 5 heads do not divide the hidden size 224; choose heads "
            "that do");
}

TEST(MachineTest, RefusesInvalidJson) {
  EXPECT_THROW((void)machine_from_json("{\"name\": ", "here.json"), ConfigError);
  EXPECT_THROW((void)machine_from_json("[]", "here.json"), ConfigError);
  EXPECT_THROW((void)read_machine("/nowhere/here.json"), ConfigError);
  EXPECT_THROW((void)read_machine("/"), ConfigError);
}

TEST(MachineTest, RefusesImpossibleMachines) {
  EXPECT_EQ(refusal_with("/layers/0/times/0/forward", 1e308),
            "here.json: layers[0].times[0].forward: expected a number of at most 1e+09, found 1e+308");
  EXPECT_EQ(refusal_with("/memory_bytes", 1e300),
            "here.json: memory_bytes: expected a number of at most 1e+18, found 1e+300");
  EXPECT_EQ(refusal_with("/point_to_point/within_node/beta", 1e10),
            "here.json: point_to_point.within_node.beta: expected a number of at most 1e+09, found 1e+10");
}

TEST(MachineTest, RefusesADuplicateField) {
  std::string text = to_json(round_machine());
  const std::string field = "\"kind\": \"block\",";
  text.insert(text.find(field), field);
  EXPECT_THAT(
      testing::message_of([&] { (void)machine_from_json(text, "here.json"); }, "accepted"),
      ::testing::MatchesRegex("here.json: layers\\[[0-9]\\].kind: the field is given twice; leave one of them out"));
}

/// A number that profiles may leave out: its place in the file and in the machine.
struct OptionalNumber {
  const char* place;
  double (*of)(const MachineProfile& machine);
};

constexpr OptionalNumber kOptionalNumbers[] = {
    {"/kernels/activation_scale", [](const MachineProfile& machine) { return machine.activation_scale; }},
    {"/kernels/score_bytes", [](const MachineProfile& machine) { return machine.score_bytes; }},
    {"/memory_bandwidth", [](const MachineProfile& machine) { return machine.memory_bandwidth; }},
    {"/kernels/score_traffic", [](const MachineProfile& machine) { return machine.score_traffic; }},
    {"/sum_rank_loss", [](const MachineProfile& machine) { return machine.sum_rank_loss; }},
    {"/scale_loss", [](const MachineProfile& machine) { return machine.scale_loss; }},
    {"/host_bandwidth", [](const MachineProfile& machine) { return machine.host_bandwidth; }},
    {"/contention/ops_by_sums", [](const MachineProfile& machine) { return machine.contention.ops_by_sums; }},
    {"/contention/sums_by_ops", [](const MachineProfile& machine) { return machine.contention.sums_by_ops; }},
    {"/contention/transfers", [](const MachineProfile& machine) { return machine.contention.transfers; }},
    {"/contention/sums_overlap", [](const MachineProfile& machine) { return machine.contention.sums_overlap; }},
    {"/contention/node_transfers", [](const MachineProfile& machine) { return machine.contention.node_transfers; }},
    {"/contention/ops_by_receives", [](const MachineProfile& machine) { return machine.contention.ops_by_receives; }},
    {"/contention/idle_gain", [](const MachineProfile& machine) { return machine.contention.idle_gain; }},
    {"/busy_delay", [](const MachineProfile& machine) { return machine.busy_delay; }},
    {"/core_imbalance", [](const MachineProfile& machine) { return machine.core_imbalance; }},
    {"/core_sharing", [](const MachineProfile& machine) { return machine.core_sharing; }}};

TEST(MachineTest, OptionalNumbersHaveDefaults) {
  json machine = read_json(to_json(round_machine()));
  json without = machine;
  for (const char* optional : {"kernels", "contention", "memory_bandwidth", "sum_rank_loss", "scale_loss",
                               "host_bandwidth", "busy_delay", "core_imbalance", "core_sharing"})
    without.erase(optional);
  EXPECT_EQ(machine_from_json(json_text(without), "here.json"), round_machine());
  without["kernels"] = {{"activation_scale", 1}, {"score_bytes", 0}};
  without["contention"] = {{"ops_by_sums", 0}, {"sums_by_ops", 0}, {"transfers", 0}};
  EXPECT_EQ(machine_from_json(json_text(without), "here.json"), round_machine());
  for (const auto& [place, of] : kOptionalNumbers) {
    machine[json::json_pointer(place)] = 0.125;
    const MachineProfile read = machine_from_json(json_text(machine), "here.json");
    EXPECT_EQ(of(read), 0.125) << place;
    EXPECT_EQ(machine_from_json(to_json(read), "here.json"), read) << place;
    std::string name = place + 1;
    std::ranges::replace(name, '/', '.');
    EXPECT_EQ(refusal_with(place, -1), "here.json: " + name + ": expected a finite number of 0 or more, found -1");
  }
  EXPECT_EQ(refusal_with("/kernels/score_traffic", 33),
            "here.json: kernels.score_traffic: needs memory_bandwidth, in bytes per second");
}

TEST(MachineTest, MergedMachinesHaveMeansOfOptionalNumbers) {
  MachineProfile machine = round_machine();
  machine.contention.idle_gain = 0.125;
  machine.host_bandwidth = 5e10;
  MachineProfile other = machine;
  other.contention.idle_gain = 0;
  EXPECT_EQ(merge_machines({machine, other}).contention.idle_gain, 0.0625);
  EXPECT_EQ(merge_machines({machine, other}).host_bandwidth, 5e10);
}

TEST(MachineTest, NamesWhatIsReserved) {
  json machine = read_json(to_json(round_machine()));
  EXPECT_FALSE(machine.contains("reserved"));
  EXPECT_EQ(round_machine().reserved.all(), 0);
  machine["reserved"] = {{"context", 1 << 30}, {"communicators", 2e9}, {"margin", 3e9}};
  const MachineProfile read = machine_from_json(json_text(machine), "here.json");
  EXPECT_EQ(read.reserved, (ReservedBytes{.context = 1 << 30, .communicators = 2e9, .margin = 3e9}));
  EXPECT_EQ(machine_from_json(to_json(read), "here.json"), read);
  EXPECT_EQ(to_text(read.reserved), "1.00 GiB for the CUDA context, 1.86 GiB for NCCL, 2.79 GiB in reserve");
}

TEST(MachineTest, SumsOverManyWorkersSlowDownAsProfiled) {
  MachineProfile machine = round_machine();
  EXPECT_EQ(sum_seconds(machine, {5, 6}, 1, 100), 0);
  EXPECT_DOUBLE_EQ(sum_seconds(machine, {5, 6}, 4, 100), 2 * 2 * 5 + 1.5 * 6 * 100);
  machine.sum_rank_loss = 0.5;
  EXPECT_DOUBLE_EQ(sum_seconds(machine, {5, 6}, 2, 100), 2 * 5 + 6 * 100) << "as measured between two";
  EXPECT_DOUBLE_EQ(sum_seconds(machine, {5, 6}, 8, 100), 2 * 3 * 5 + 1.75 * 6 * (1 + 0.5 * 2) * 100);
}

TEST(MachineTest, RecomputationTakesAForwardByDefault) {
  json machine = read_json(to_json(round_machine()));
  machine["layers"][1]["times"][0].erase("recompute");
  const MachineProfile other = machine_from_json(json_text(machine), "here.json");
  EXPECT_EQ(other.layers[1].times[0].recompute, other.layers[1].times[0].forward);
  EXPECT_EQ(other.layers[1].times[1].recompute, 3);
}

TEST(MachineTest, OptionalSpreadIsZero) {
  json machine = read_json(to_json(round_machine()));
  machine["layers"][0]["times"][0].erase("spread");
  EXPECT_EQ(machine_from_json(json_text(machine), "here.json").layers[0].times[0].spread, 0);
}

}  // namespace
}  // namespace chimera

// Each field of a request means the same on the command line and in JSON, in which the playground and Python ask.

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "answers/check_answer.h"
#include "answers/model_answer.h"
#include "answers/plan_request.h"
#include "answers/schedule_answer.h"
#include "answers/search_answer.h"
#include "answers/simulate_answer.h"
#include "answers/sweep_answer.h"
#include "core/json.h"
#include "support/paths.h"
#include "support/program.h"
#include "support/scratch.h"

namespace chimera::testing {
namespace {

using nlohmann::json;

/// Lists the fields of a request by flag.
class FieldList : public Door {
 public:
  struct Entry {
    json::json_pointer path;
    bool is_switch = false;
    bool is_document = false;
  };
  std::map<std::string, Entry> fields;

  void text(const Field& field, const Take& /*take*/) override {
    if (!field.meaning.empty()) fields[field.flag_name()] = {path_ / field.name, field.type.empty()};
  }
  void document(const Field& field, Document& /*document*/) override {
    fields[field.flag_name()] = {path_ / field.name, false, true};
  }
  void object(const char* name, const std::function<void(Door&)>& visit) override {
    path_ /= name;
    visit(*this);
    path_.pop_back();
  }

 private:
  json::json_pointer path_;
};

/// A value of each field, with the fields without which it has no effect.
const std::map<std::string, std::string> kSamples = {
    {"--stages", "--stages 2"},
    {"--micro-batches", "--micro-batches 8"},
    {"--pipelines", "--pipelines 4"},
    {"--chunks", "--chunks 2 --layers 8"},
    {"--waves", "NAME=hanayo --waves 2"},
    {"--scale", "--micro-batches 8 --scale doubling"},
    {"--order", "NAME=chimera-zb --order deepest"},
    {"--slices", "NAME=1f1b --slices 2"},
    {"--pairs", "--pairs neighbors"},
    {"--pair-time", "--pairs neighbors --pair-time 0.8"},
    {"--without", "--without 1"},
    {"--slow", "--slow 1:2"},
    {"--extra-copies", "--without 1 --extra-copies 1"},
    {"--effort", "--slow 1:2 --effort 1000"},
    {"--forward", "--forward 1.5"},
    {"--backward", "--backward 2.25"},
    {"--input-gradient", "--input-gradient 1.3 --weight-gradient 0.7"},
    {"--weight-gradient", "--input-gradient 0.7 --weight-gradient 1.3"},
    {"--latency", "--latency 0.1"},
    {"--attention", "NAME=1f1b --slices 2 --attention 0.5"},
    {"--slice-lengths", "NAME=1f1b --slices 2 --slice-lengths 3,1"},
    {"--stage-factors", "--stage-factors 1,2,1,1"},
    {"--all-reduce", "--all-reduce 3"},
    {"--weights", "--weights 1e9"},
    {"--activations", "--activations 1e8"},
    {"--costs", "--costs costs.json"},
    {"--links", "--links links.json"},
    {"--sync", "--all-reduce 3 --sync post"},
    {"--data-parallel", "--all-reduce 3 --without 1 --data-parallel 2 --workers 8"},
    {"--blocking-sends", "--latency 0.5 --blocking-sends"},
    {"--steps", "--steps 2"},
    {"--permute-micro-batches", "--costs unequal.json --permute-micro-batches"},
    {"--cores", "--cores 2"},
    {"--contention", "--all-reduce 3 --contention 1 2 0.5"},
    {"--max-in-flight", "--max-in-flight 8"},
    {"--memory", "--memory 100 --activation-bytes 2 --weight-bytes 3"},
    {"--activation-bytes", "--memory 100 --activation-bytes 3 --weight-bytes 2"},
    {"--weight-bytes", "--memory 100 --activation-bytes 1 --weight-bytes 5"},
    {"--strict-order", "--strict-order"},
    {"--placement", "--placement linear"},
    {"--whole-backward", "--whole-backward"},
    {"--seconds", "--seconds 10"},
    {"--iterations", "--iterations 300"},
    {"--seed", "--seed 7"},
    {"--schedules", "--schedules 1f1b,gpipe"},
    {"--schedule", "--schedule chimera"},
    {"--layers", "--layers 16"},
    {"--hidden", "--hidden 128"},
    {"--heads", "--heads 4"},
    {"--key-value-heads", "--model llama-tiny --key-value-heads 4"},
    {"--vocabulary", "--vocabulary 1000"},
    {"--tied", "--tied true"},
    {"--dropout", "--dropout 0.1"},
    {"--with-dropout", "--with-dropout"},
    {"--micro-batch-size", "--micro-batch-size 2"},
    {"--sequence", "--sequence 64"},
    {"--dtype", "--dtype bf16"},
    {"--optimizer", "--optimizer sgd"},
    {"--partition", "--partition even"},
    {"--recompute", "--recompute full"},
    {"--memory-bytes", "--recompute auto --memory-bytes 1e7"},
    {"--model", "--model gpt2-tiny"},
    {"--workers", "--workers 8"},
    {"--mini-batch", "--mini-batch 16"},
    {"--shard-optimizer", "--shard-optimizer"},
    {"--rule", "--rule paper"},
    {"--replica-layout", "--replica-layout far"},
    {"--network", "--network 10Gb/s"},
    {"--kernels", "--kernels fused --machine h100-80gb"},
    {"--tensor-parallel", "--tensor-parallel 1,2"},
    {"--offload", "--offload full"},
    {"--top", "--top 2"},
    {"--pareto", "--pareto"},
};

struct Case {
  const char* command;
  json request;      // the fields that are not on the command line
  std::string base;  // further flags of both
  std::function<json(const json& answer)> result;
  std::set<std::string> refused = {};  // flags that the command has for other values of its fields
};

/// Reads output of the program: JSON, or an object per line.
json output_in(const Case& test, const std::string& text) {
  if (std::string(test.command) != "sweep") return read_json(text);
  json rows = json::array();
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) rows.push_back(read_json(line));
  return rows;
}

json asked(const json& request) { return read_json(output_of("playground --answer -", json_text(request) + "\n")); }

class DoorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    json stage = {{"forward", 1}, {"input_gradient", 1.5}, {"weight_gradient", 0.5}};
    std::ofstream(scratch_.path("costs.json"))
        << json_text(json{{"latency", 0.25}, {"stages", std::vector<json>(4, stage)}});
    std::ofstream(scratch_.path("unequal.json")) << json_text(
        json{{"latency", 0}, {"stages", std::vector<json>(4, stage)}, {"micro_batches", {2, 0.5, 0.5, 1}}});
    const std::vector<std::vector<double>> alphas(4, std::vector<double>(4, 0.3));
    std::ofstream(scratch_.path("links.json")) << json_text(json{{"alphas", alphas}});
  }

  /// Asks for the sample through both doors.
  void expect_equal(const Case& test, const std::map<std::string, FieldList::Entry>& fields, std::string sample) {
    std::map<std::string, Words> given;
    std::string name = "chimera";
    std::string flag;
    for (const std::string& word : Words("--stages 4 --micro-batches 4 " + test.base + " " + sample)) {
      if (word.starts_with("NAME=")) {
        name = word.substr(5);
      } else if (word.starts_with("--")) {
        given[flag = word] = {};
      } else {
        given[flag].push_back(word);
      }
    }
    Words words = {test.command};
    json request = test.request;
    const bool is_sweep = words.front() == "sweep";
    if (words.front() == "model") {
      words.emplace_back("gpt2-tiny");
      request["model"] = words.back();
    } else if (words.front() == "simulate" || words.front() == "schedule" || words.front() == "check") {
      words.push_back(name);
      request["schedule"]["name"] = name;
    } else if (is_sweep && !given.contains("--schedules")) {
      given["--schedules"] = {name};
    }
    for (auto& [option, values] : given) {
      if (!fields.contains(option)) continue;
      const FieldList::Entry& field = fields.at(option);
      json value = values.empty() ? json(true) : json(values.front());
      if (values.size() > 1) value = values;
      if (option == "--machine") {
        value = read_file(source_path("/machines/" + values.front() + ".json"));
      } else if (field.is_document) {
        value = read_file(scratch_.path(values.front()));
        values.front() = scratch_.path(values.front());
      } else if (values.size() == 1 && json::accept(values.front())) {
        value = read_json(values.front());  // numbers
      }
      request[field.path] = value;
      words.push_back(option);
      words += values;
    }
    words += "--format json";
    const ProgramResult result = run_program(words);
    const json answer = asked(request);
    if (test.refused.contains(flag)) {
      EXPECT_EQ(result.exit_code, 2);
      EXPECT_TRUE(answer.contains("error")) << sample;
      return;
    }
    EXPECT_LE(result.exit_code, 1) << sample << result.messages;
    ASSERT_FALSE(answer.contains("error")) << test.command << " " << sample << answer;
    json output = output_in(test, result.output);
    if (std::string(test.command) == "search") output = test.result(output);
    EXPECT_EQ(output, test.result(answer)) << test.command << " " << sample;
  }

  template <class Request>
  void expect_all_equal(const Case& test) {
    FieldList list;
    Request request;
    request.visit(list);
    expect_equal(test, list.fields, "");
    for (const auto& [flag, field] : list.fields) {
      if (flag == "--with" || flag == "--machine") continue;  // not with --format json; in all requests
      ASSERT_TRUE(kSamples.contains(flag)) << flag << ": give a sample of the new field";
      expect_equal(test, list.fields, kSamples.at(flag));
    }
  }

 private:
  const Scratch scratch_;
};

std::function<json(const json&)> field(const std::string& name) {
  return [name](const json& answer) { return answer[name]; };
}
json text_of(const json& answer) { return read_json(answer.at("text").get<std::string>()); }

TEST_F(DoorsTest, OfSimulateAreEqual) {
  expect_all_equal<SimulateRequest>({"simulate", {{"do", "export"}, {"format", "timeline"}}, "", text_of});
}

TEST_F(DoorsTest, OfScheduleAreEqual) {
  expect_all_equal<DrawRequest>({"schedule", {{"do", "export"}, {"format", "json"}}, "", text_of});
}

TEST_F(DoorsTest, DrawTheSameSchedulesBesideTheFirst) {
  const json schedule = {{"name", "chimera"}, {"stages", 4}, {"micro_batches", 8}};
  const json answer = asked({{"do", "export"}, {"format", "figure-text"}, {"schedule", schedule}, {"with", {"1f1b"}}});
  EXPECT_EQ(answer.at("text"), run_program("schedule chimera --stages 4 --micro-batches 8 --with 1f1b").output);
}

TEST_F(DoorsTest, OfCheckAreEqual) {
  expect_all_equal<CheckRequest>({"check", {{"do", "check"}}, "", field("report")});
}

TEST_F(DoorsTest, OfSweepAreEqual) { expect_all_equal<SweepRequest>({"sweep", {{"do", "sweep"}}, "", field("rows")}); }

TEST_F(DoorsTest, OfSearchAreEqual) {
  const auto without_schedule = [](json answer) {
    for (const char* field : {"schedule", "placement", "notes"}) answer.erase(field);
    return answer;
  };
  expect_all_equal<SearchRequest>(
      {"search", {{"do", "search"}}, "--iterations 20", without_schedule, {"--scale", "--order"}});
}

TEST_F(DoorsTest, OfModelAreEqual) {
  expect_all_equal<ModelRequest>(
      {"model", {{"do", "model"}}, "--schedule chimera", field("model"), {"--waves", "--order", "--key-value-heads"}});
}

TEST_F(DoorsTest, OfPlanAreEqual) {
  expect_all_equal<PlanRequest>({"plan",
                                 {{"do", "plan"}},
                                 "--model gpt2-tiny --machine p100-aries --workers 4 --mini-batch 8 --memory 4 --top 2",
                                 field("report"),
                                 {"--rule"}});
}

}  // namespace
}  // namespace chimera::testing

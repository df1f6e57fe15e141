#include "telemetry/configuration.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/error.h"
#include "checkpoint/manifest.h"

namespace chimera {
namespace {

void add(const std::string& name, const nlohmann::ordered_json& value, Configuration& configuration) {
  if (value.is_object()) {
    for (const auto& [field, inner] : value.items())
      add(name.empty() ? field : name + "." + field, inner, configuration);
  } else if (!value.is_null()) {
    configuration.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  }
}

}  // namespace

Configuration flattened(const nlohmann::ordered_json& record) {
  Configuration configuration;
  add("", record, configuration);
  return configuration;
}

Configuration configuration_of(const std::string& folder) {
  const auto steps = listed_steps(folder);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    try {
      nlohmann::ordered_json record = read_manifest(checkpoint_path(folder, *step)).run;
      if (record.is_object()) record.erase("progress");  // of the step, not of the run
      return flattened(record);
    } catch (const Error&) {
      continue;  // `chimera checkpoint verify` says what is wrong with it
    }
  }
  return {};
}

std::string value_of(const Configuration& configuration, const std::string& field, const std::string& otherwise) {
  const auto found = std::ranges::find(configuration, field, &std::pair<std::string, std::string>::first);
  return found == configuration.end() ? otherwise : found->second;
}

}  // namespace chimera

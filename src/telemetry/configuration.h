#pragma once
// What a run was started with, as its checkpoints say it: names with a dot between section and field, and values as
// text.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace chimera {

/// `layout.schedule` and `chimera`, in the order of the record.
using Configuration = std::vector<std::pair<std::string, std::string>>;

/// The fields of a record in JSON, nested ones with dots between their names.
[[nodiscard]] Configuration flattened(const nlohmann::ordered_json& record);

/// The configuration of the newest checkpoint in a folder; empty where none can be read.
[[nodiscard]] Configuration configuration_of(const std::string& folder);

/// A field's value, or `otherwise`.
[[nodiscard]] std::string value_of(const Configuration& configuration, const std::string& field,
                                   const std::string& otherwise = "");

}  // namespace chimera

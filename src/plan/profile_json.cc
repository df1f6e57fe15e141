#include "plan/profile_json.h"

namespace chimera {

LinkTimes read_link(const JsonValue& value) {
  value.expect_object({"alpha", "beta", "burst"});
  LinkTimes times{value.number("alpha", kMostSeconds), value.number("beta", kMostSeconds)};
  if (value.has("burst")) times.burst = value.number("burst", kMostBytes);
  return times;
}

nlohmann::ordered_json link_json(const LinkTimes& times) {
  nlohmann::ordered_json json = {{"alpha", times.alpha}, {"beta", times.beta}};
  if (times.burst > 0) json["burst"] = times.burst;
  return json;
}

}  // namespace chimera

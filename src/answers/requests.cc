#include "answers/requests.h"

#include "answers/json_door.h"

namespace chimera::playground {

ScheduleRequest requested_schedule(const JsonValue& value) {
  auto request = read_request<ScheduleRequest>(value, {});
  request.most_ops = kMaxPlaygroundOps;
  return request;
}

}  // namespace chimera::playground

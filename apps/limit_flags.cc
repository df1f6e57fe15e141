#include "limit_flags.h"

#include <fmt/format.h>

#include "core/error.h"
#include "help.h"
#include "options.h"

namespace chimera::apps {

void LimitFlags::add_to(CLI::App& app, const std::string& consequence) {
  begin_group(app, heading::kLimits);
  const std::string end = consequence.empty() ? "" : "; " + consequence;
  in_flight_option_ = add_number(app, "--max-in-flight", in_flight_,
                                 "maximum activations of a worker, in stage units: one full micro-batch on the whole "
                                 "share of a worker is one unit" +
                                     end);
  memory_option_ = add_number(app, "--memory", memory_.bytes,
                              "maximum bytes of a worker; needs --activation-bytes and --weight-bytes" + end);
  bytes_options_ = {
      add_number(app, "--activation-bytes", memory_.activation_bytes, "bytes of one stage unit of activations"),
      add_number(app, "--weight-bytes", memory_.weight_bytes,
                 "bytes of the weights of one worker's share, with gradients and optimizer state if they count; each "
                 "replica and each stashed version counts again")};
}

Limits LimitFlags::limits() const {
  Limits limits;
  if (in_flight_option_->count() > 0) limits.in_flight = in_flight_;
  if (memory_option_->count() > 0) limits.memory = memory_;
  for (const CLI::Option* option : bytes_options_) {
    if ((option->count() > 0) == limits.memory.has_value()) continue;
    throw ConfigError("--memory, --activation-bytes and --weight-bytes come together");
  }
  return limits;
}

std::string LimitFlags::in_words() const {
  std::string text;
  if (in_flight_option_->count() > 0) text += fmt::format("--max-in-flight {:g}", in_flight_);
  if (memory_option_->count() > 0) text += fmt::format("{}--memory {:g}", text.empty() ? "" : ", ", memory_.bytes);
  return text;
}

}  // namespace chimera::apps

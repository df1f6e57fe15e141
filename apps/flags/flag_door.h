#pragma once

// Reads a request, the struct of a command's inputs (answers/door.h), from the command line: each field is a flag, and
// a field that is absent from the command line keeps its value. The request must stay where it is, because the flags
// write into it.

#include <CLI/CLI.hpp>

#include "answers/door.h"

namespace chimera::apps {

/// Adds a flag to a command for each field that a request visits.
class FlagDoor : public Door {
 public:
  /// Borrows the command, which must outlive the parsing.
  explicit FlagDoor(CLI::App& app) : app_(app) {}

  void group(const char* heading) override;
  void text(const Field& field, const Take& take) override;
  void document(const Field& field, Document& document) override;
  void object(const char* /*name*/, const std::function<void(Door&)>& visit) override { visit(*this); }

 private:
  CLI::App& app_;
};

/// Adds the flags of a request. The parsing writes into `request`, which must outlive it.
template <class Request>
void add_flags(CLI::App& app, Request& request) {
  FlagDoor door(app);
  request.visit(door);
}

}  // namespace chimera::apps

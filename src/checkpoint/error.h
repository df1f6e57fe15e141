#pragma once
// What is wrong with a checkpoint.

#include "core/error.h"

namespace chimera {

/// A checkpoint that cannot be written, or whose bytes are not those that were written; names the file, and the field
/// or the bytes.
class CheckpointError : public Error {
 public:
  using Error::Error;
};

}  // namespace chimera

#include "generate/zb_h1.h"

#include "generate/zero_bubble.h"

namespace chimera {

Schedule zb_h1(const PipelineShape& shape) { return zero_bubble("zb-h1", shape, 1); }

}  // namespace chimera

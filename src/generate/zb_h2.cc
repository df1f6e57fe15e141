#include "generate/zb_h2.h"

#include "generate/zero_bubble.h"

namespace chimera {

Schedule zb_h2(const PipelineShape& shape) { return zero_bubble("zb-h2", shape, 2); }

}  // namespace chimera

#include "generate/registry.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/nearest.h"
#include "generate/chimera.h"
#include "generate/chimera_zb.h"
#include "generate/dualpipe.h"
#include "generate/dualpipev.h"
#include "generate/gems.h"
#include "generate/gpipe.h"
#include "generate/hanayo.h"
#include "generate/interleaved_one_f_one_b.h"
#include "generate/one_f_one_b.h"
#include "generate/pipedream.h"
#include "generate/pipedream_two_bw.h"
#include "generate/zb_h1.h"
#include "generate/zb_h2.h"
#include "generate/zb_v.h"

namespace chimera {

std::span<const Generator> generators() {
  static const std::array all = {
      Generator{"gpipe", gpipe, "any D, N", "(N+D-1)(F+B)", "N", "Huang et al., NeurIPS'19"},
      Generator{"1f1b", one_f_one_b, "any D, N", "(N+D-1)(F+B)", "min(D-s, N)", "Fan et al., PPoPP'21 (DAPPLE)"},
      Generator{"interleaved-1f1b",
                interleaved_one_f_one_b,
                "N < D or a multiple of N div D",
                "N(F+B) + (D-1)(F+B)/v at D | N",
                "D+(D-1)/v stages",
                "Narayanan et al., SC'21 (Megatron-LM)",
                {"--chunks"}},
      Generator{"gems", gems, "any D, N", "N(D B + F) + (D-1)F", "1", "Jain et al., SC'20"},
      Generator{"chimera",
                chimera,
                "D even, any N, f divides D/2",
                "D F + (D+D/f-2) B at N = D",
                "D/2+1 .. D",
                "Li and Hoefler, SC'21",
                {"--pipelines", "--scale"}},
      Generator{"zb-h1", zb_h1, "any D, N", "inner bubble (D-1)(F+I-W), N >= D", "min(D, N)", "Qi et al., ICLR'24"},
      Generator{"zb-h2", zb_h2, "any D, N", "inner bubble (D-1)(F+I-2W), N >= 2D-1", "min(2D-1, N)",
                "Qi et al., ICLR'24"},
      Generator{"zb-v", zb_v, "any D, N", "N(F+I+W)+(D-1)max(I/2, I-W)", "2D halves", "Qi et al., NeurIPS'24"},
      Generator{"dualpipe", dualpipe, "D even, N even, N >= 2D", "bubble (D/2-1)(F+I-W)", "D+1",
                "DeepSeek-AI, DeepSeek-V3 technical report, 2024"},
      Generator{"dualpipev", dualpipev, "N >= 2D", "bubble (D-1)(F+I-W)/2", "2D+1 halves",
                "DeepSeek-AI, DualPipe, 2025"},
      Generator{"hanayo",
                hanayo,
                "any D, N, w",
                "ratio ~(2D-2)/(3wD+D-1), N=D",
                "2wD chunks",
                "Liu et al., SC'23",
                {"--waves"}},
      Generator{"chimera-zb",
                chimera_zb,
                "D even, any N, f divides D/2",
                "N(F+I+W)+(D/2f-1)F, F=I=W, D|N",
                "D (any N: D+1)",
                "ours",
                {"--pipelines"}},
      Generator{"pipedream", pipedream, "any D, N", "(N+D-1)(F+B), no flush", "min(D-s, N)",
                "Narayanan et al., SOSP'19"},
      Generator{"pipedream-2bw", pipedream_two_bw, "N >= D", "(N+D-1)(F+B), no flush", "D-s",
                "Narayanan et al., ICML'21"},
  };
  return all;
}

bool takes(const Generator& generator, const std::string& flag) {
  return std::find(generator.flags.begin(), generator.flags.end(), flag) != generator.flags.end();
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Generator& generator : generators()) names.push_back(generator.name);
  return names;
}

const Generator& find_generator(const std::string& name) {
  for (const Generator& generator : generators()) {
    if (generator.name == name) return generator;
  }
  throw ConfigError(unknown_name("schedule", name, schedule_names()));
}

}  // namespace chimera

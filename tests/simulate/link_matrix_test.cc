#include "simulate/costs_json.h"

#include <gtest/gtest.h>

#include "support/message_of.h"

namespace chimera {
namespace {

using Rows = std::vector<std::vector<double>>;

std::string matrix_refusal(const std::string& text) {
  return testing::message_of([&] { (void)links_from_text(text, "links"); }, "read");
}

TEST(LinkMatrixTest, ReadsJson) {
  const LinkMatrix links = links_from_text(R"( {"alphas": [[0, 1], [2, 0]], "betas": [[0, 3], [4, 0]]})", "links");
  EXPECT_EQ(links.alphas, (Rows{{0, 1}, {2, 0}}));
  EXPECT_EQ(links.betas, (Rows{{0, 3}, {4, 0}}));
  EXPECT_FALSE(links_from_text(R"({"alphas": [[0, 1], [2, 0]]})", "links").needs_bytes());
}

TEST(LinkMatrixTest, ReadsCsv) {
  const LinkMatrix links = links_from_text("from,to,alpha,beta\r\n1,0,2,4e-9\n\n0,1,1,3\n", "links");
  EXPECT_EQ(links.alphas, (Rows{{0, 1}, {2, 0}}));
  EXPECT_EQ(links.betas, (Rows{{0, 3}, {4e-9, 0}}));
  EXPECT_FALSE(links_from_text("from,to,alpha\n1,0,2\n0,1,1\n", "links").needs_bytes());
  EXPECT_EQ(links_from_text("\xEF\xBB\xBF"
                            "from,to,alpha\n1,0,2\n0,1,1\n",
                            "links")
                .alphas[1][0],
            2)
      << "as Excel writes it";
}

TEST(LinkMatrixTest, RefusesInvalidMatrices) {
  const std::string head = "from,to,alpha,beta\n";
  EXPECT_EQ(matrix_refusal("0,1,2,3\n"),
            "links: line 1: expected the line 'from,to,alpha,beta' or 'from,to,alpha', or a JSON object");
  EXPECT_EQ(matrix_refusal(head + "0,1,2\n"), "links: line 2: 3 cells; expected 4");
  EXPECT_EQ(matrix_refusal(head + "0,1,2,-3\n"), "links: line 2: '-3' is not a finite number of 0 or more");
  EXPECT_EQ(matrix_refusal(head + "0,1,nan,3\n"), "links: line 2: 'nan' is not a finite number of 0 or more");
  EXPECT_EQ(matrix_refusal(head + "0,x,2,3\n"), "links: line 2: 'x' is not a worker; expected 0 to 4095");
  EXPECT_EQ(matrix_refusal(head + "0,1000000,2,3\n"), "links: line 2: '1000000' is not a worker; expected 0 to 4095");
  EXPECT_EQ(matrix_refusal(head + "1,1,2,3\n"), "links: line 2: worker 1 has no link to itself");
  EXPECT_EQ(matrix_refusal(head + "0,1,2,3\n"), "links: no line for the link from worker 1 to 0");
  EXPECT_EQ(matrix_refusal(head + "0,1,2,3\n0,1,2,3\n"), "links: two lines for the link from worker 0 to 1");
  EXPECT_EQ(matrix_refusal(R"({"betas": [[0]]})"), "links: top level: field 'alphas' is missing");
  EXPECT_EQ(matrix_refusal(R"({"alphas": [[0, 1], [1, 0]], "betas": [[0, 1]]})"),
            "links: betas: 1 rows, but alphas has 2");
}

}  // namespace
}  // namespace chimera

// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/slurm.h"

#include <gtest/gtest.h>

#include <optional>

namespace lockstep::comm {
namespace {

TEST(FirstSlurmHostTest, Forms) {
  EXPECT_EQ(FirstSlurmHost("node1"), "node1");
  EXPECT_EQ(FirstSlurmHost("login1,node[1-2]"), "login1");
  EXPECT_EQ(FirstSlurmHost("node[003-005,9],login1"), "node003");
  EXPECT_EQ(FirstSlurmHost("node[7,9-11]"), "node7");
  EXPECT_EQ(FirstSlurmHost("node[12].cluster"), "node12.cluster");
  EXPECT_EQ(FirstSlurmHost("rack[1-2]node[4,6],x"), "rack1node4");
  EXPECT_EQ(FirstSlurmHost(""), std::nullopt);
  EXPECT_EQ(FirstSlurmHost(",node1"), std::nullopt);
  EXPECT_EQ(FirstSlurmHost("node[1-2"), std::nullopt);
  EXPECT_EQ(FirstSlurmHost("node[]"), std::nullopt);
  EXPECT_EQ(FirstSlurmHost("node1]"), std::nullopt);
}

TEST(SlurmTasksOnNodeTest, Forms) {
  for (const int node : {0, 1, 2}) EXPECT_EQ(SlurmTasksOnNode("2(x3),1", node), 2);
  EXPECT_EQ(SlurmTasksOnNode("2(x3),1", 3), 1);
  EXPECT_EQ(SlurmTasksOnNode("2(x3),1", 4), std::nullopt);
  EXPECT_EQ(SlurmTasksOnNode("4", 17), 4);
  EXPECT_EQ(SlurmTasksOnNode("4,5(x2)", 0), 4);
  EXPECT_EQ(SlurmTasksOnNode("4,5(x2)", 2), 5);
  for (const char* bad : {"", "0", "-1", "x", "2(x", "2(x0)", "2(x3", "(x3)", "2,,1", "2(3)"}) {
    EXPECT_EQ(SlurmTasksOnNode(bad, 1), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace lockstep::comm

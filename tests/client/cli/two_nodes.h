// A communicator over two nodes, as ringd describes it to ringctl.
#ifndef RINGD_TESTS_CLIENT_CLI_TWO_NODES_H_
#define RINGD_TESTS_CLIENT_CLI_TWO_NODES_H_

#include <string>

#include "proto/rpc/admin.pb.h"

namespace ringd::cli {

inline v1::Member Rank(int rank, int node, const char* state) {
  v1::Member member;
  member.set_rank(rank);
  member.set_local_rank(rank % 2);
  member.set_pid(4000 + rank);
  member.set_host("node-" + std::to_string(node));
  member.set_node_index(node);
  member.set_state(state);
  return member;
}

// A running job of two ranks on each of two nodes.
inline v1::CommunicatorsReply TwoNodes() {
  v1::CommunicatorsReply reply;
  reply.set_schema_version(1);
  v1::Communicator* communicator = reply.add_communicators();
  communicator->set_communicator(1);
  communicator->set_job_id("run-1");
  communicator->set_name("world");
  communicator->set_state("running");
  communicator->set_size(4);
  communicator->set_node_count(2);
  communicator->set_coordinator("node-0");
  communicator->set_backend("ucx");
  communicator->set_tensors(1234);
  communicator->set_operations(56);
  communicator->set_bytes_reduced(3 << 20);
  communicator->set_bytes_reduced_per_second(1.5 * (1 << 30));
  communicator->set_operations_per_second(12);
  communicator->set_busy_share(0.37);
  for (int rank = 0; rank < 4; ++rank) {
    *communicator->add_members() = Rank(rank, rank / 2, "running");
  }
  v1::Link* link = communicator->add_links();
  link->set_node_index(1);
  link->set_host("node-1");
  link->set_transports("tcp/lo");
  link->set_connections(3);
  link->set_bulk_connections(2);
  link->set_connections_reason("one was refused");
  return reply;
}

}  // namespace ringd::cli

#endif  // RINGD_TESTS_CLIENT_CLI_TWO_NODES_H_

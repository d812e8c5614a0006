// The bytes exchanged on ringd's Unix socket before gRPC takes over.
//
//   trainer                                          ringd
//   AttachRequest ─────────────────────────────────▶ SO_PEERCRED, is the user admitted?
//                 ◀───────────────────────────────── AttachReply (+ descriptors if accepted)
//   gRPC on the descriptor kGrpcFd; this connection stays open as the lifeline:
//                 ◀───────────────────────────────── NoticeHeader + text, any number of times
//
// A connection that begins with "PRI " instead is plain gRPC (ringctl, health probes).
// All integers are of the machine's byte order: both ends are on one machine.
#ifndef RINGD_PROTO_ATTACH_HANDSHAKE_H_
#define RINGD_PROTO_ATTACH_HANDSHAKE_H_

#include <cstdint>

namespace ringd {

inline constexpr std::uint32_t kAttachMagic = 0x44474e52;  // "RNGD" in memory
inline constexpr char kGrpcPreface[4] = {'P', 'R', 'I', ' '};
inline constexpr std::uint32_t kAttachVersion = 1;

struct AttachRequest {
  std::uint32_t magic;    // kAttachMagic
  std::uint32_t version;  // kAttachVersion of the client
  std::uint64_t reserved[3];
};
static_assert(sizeof(AttachRequest) == 32);

// The order of descriptors in an accepting reply.
enum AttachFd : int {
  kSessionSegmentFd = 0,  // memfd, sealed: SessionHeader and what follows it
  kArenaFd = 1,           // memfd, sealed: tensors
  kEngineEventFd = 2,     // eventfd: the client writes 1 when engine_sleeps is set
  kGrpcFd = 3,            // connected stream socket that speaks gRPC
  kAttachFdCount = 4,
};

// Follows the request. If `status` is not 0, `text` says why and the connection is closed.
struct AttachReply {
  std::uint32_t magic;    // kAttachMagic
  std::uint32_t version;  // kAttachVersion of ringd
  std::int32_t status;    // an absl::StatusCode
  std::uint32_t session;
  std::uint64_t segment_bytes;
  std::uint64_t arena_bytes;
  // 32 hexadecimal digits, sent with every gRPC call as metadata kSessionTokenKey: binds the call
  // to this session.
  char token[32];
  std::uint32_t text_length;
  char text[956];
};
static_assert(sizeof(AttachReply) == 1024);

inline constexpr char kSessionTokenKey[] = "ringd-session-token";

// What ringd tells a trainer unasked.
enum class NoticeKind : std::uint32_t {
  kWarning = 1,       // a stall: the text names who is waited for; the client's log shows it
  kFailure = 2,       // the session's job has failed; the text is the root cause
  kSessionEnded = 3,  // ringd ends this session; the text says why
  // Communicators with one node, before Join or CreateCommunicator is answered: memory that the
  // ranks share. The text is the structure named below, and one descriptor comes with it.
  kJobSegment = 4,   // JobSegmentNotice; memfd, sealed: JobSegmentHeader and what follows it
  kMemberArena = 5,  // MemberArenaNotice; memfd, sealed: another rank's arena
  // Jobs over several nodes that have a rank exchange, before Join is answered
  // (JoinReply::rank_exchange_connections).
  kRankExchange = 6,  // RankExchangeNotice; memfd, sealed: RankExchangeHeader and what follows it
  kRankExchangeConnection =
      7,  // RankExchangeConnectionNotice; a connected socket, or the node's eventfd
  // 8 was another's once: it stays free.
  // Before OpenDevice is answered.
  kDeviceSlab = 9,  // DeviceSlabNotice; device memory, as cuMemExportToShareableHandle has it
  // Likewise, where this process is to launch: no text; a connected socket, by which it hears what
  // (proto/rpc/device_launch.proto).
  kDeviceLaunch = 10,
};

struct JobSegmentNotice {
  std::uint64_t segment_bytes;
  std::uint32_t member_count;
  std::uint32_t member;        // the receiver's place among them
  std::uint32_t communicator;  // its number within the job; 0: all ranks
  std::uint32_t reserved;
};
static_assert(sizeof(JobSegmentNotice) == 24);

struct MemberArenaNotice {
  std::uint64_t arena_bytes;
  std::uint32_t member;        // whose
  std::uint32_t communicator;  // in which it has this place
};
static_assert(sizeof(MemberArenaNotice) == 16);

struct RankExchangeNotice {
  std::uint64_t segment_bytes;
  std::uint32_t member;  // the receiver's place among the node's ranks
  std::uint32_t reserved;
};
static_assert(sizeof(RankExchangeNotice) == 16);

struct RankExchangeConnectionNotice {
  std::uint32_t node;  // whose; the own one: the eventfd that wakes the driver
  std::uint32_t reserved;
};
static_assert(sizeof(RankExchangeConnectionNotice) == 8);

struct DeviceSlabNotice {
  std::uint64_t slab_bytes;  // with the timeline (backends/cuda/timeline.h)
  std::uint64_t reserved;
};
static_assert(sizeof(DeviceSlabNotice) == 16);

struct NoticeHeader {
  std::uint32_t kind;         // a NoticeKind; unknown kinds are skipped
  std::uint32_t text_length;  // bytes that follow, at most kMaxNoticeBytes
};
static_assert(sizeof(NoticeHeader) == 8);

inline constexpr std::uint32_t kMaxNoticeBytes = 16 * 1024;

}  // namespace ringd

#endif  // RINGD_PROTO_ATTACH_HANDSHAKE_H_

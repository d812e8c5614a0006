/* libringd: the C interface through which a trainer uses the ringd of its node.
 *
 * A process opens one context, which takes one rank of one job; registers tensors; submits them,
 * each submission giving an operation; waits for operations. Buffers are host memory, or lie in the
 * memory of the GPU that the context has opened (ringd_device_open).
 *
 * Thread safety: every function may be called from any thread at any time, except that ringd_close
 *   must be the last call on its context. Operations may be submitted in any order on different
 *   ranks; they are matched by tensor name (or by order: ringd_submit_in_order).
 * Blocking: only functions that say so block; each has a deadline. None holds a lock while it
 *   sleeps.
 * Errors: functions return a ringd_status; 0 is success, the other values are those of gRPC and
 *   absl::StatusCode. ringd_last_error() then gives this thread's explanation in words, naming
 *   rank, pid, host and tensor where they matter. A failed call changes nothing unless it says
 *   otherwise.
 * After fork(): the child must not use the context. While its parent had one open it can't open one
 *   of its own either, because gRPC does not survive a fork; RINGD_FAILED_PRECONDITION says so.
 *   Fork first, or spawn.
 * Versions: RINGD_API_VERSION grows when something is added, and nothing is taken away or changed
 *   within one major version. Structures begin with struct_size, to be set to sizeof by the caller,
 *   and only grow, at their end. A program built with an older header works: the fields that it
 *   lacks count as 0. A library ignores fields that are newer than itself, and sets them to 0 in
 *   what it fills in: compare ringd_api_version(). Zero a structure before its fields are set: a
 *   ringd_tensor of before 1.4 has padding where there is a field now, so a program of that time
 *   that left garbage there has to be built anew.
 */
#ifndef RINGD_CLIENT_RINGD_H_
#define RINGD_CLIENT_RINGD_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define RINGD_EXPORT __attribute__((visibility("default")))
#else
#define RINGD_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define RINGD_API_VERSION_MAJOR 1
#define RINGD_API_VERSION_MINOR 5
#define RINGD_API_VERSION ((RINGD_API_VERSION_MAJOR << 16) | RINGD_API_VERSION_MINOR)

typedef int32_t ringd_status;
enum {
  RINGD_OK = 0,
  RINGD_CANCELLED = 1,         /* the context was closed while the operation was in flight */
  RINGD_INVALID_ARGUMENT = 3,  /* wrong input, or ranks that disagree; the job goes on */
  RINGD_DEADLINE_EXCEEDED = 4, /* a wait or the start took too long */
  RINGD_NOT_FOUND = 5,         /* no such registration, operation, or no ringd at the socket */
  RINGD_ALREADY_EXISTS = 6,    /* another process holds this rank */
  RINGD_PERMISSION_DENIED = 7, /* this user may not attach */
  RINGD_RESOURCE_EXHAUSTED =
      8, /* arena or ring full; the message names the limit and its setting */
  RINGD_FAILED_PRECONDITION = 9, /* versions differ; not joined; ringd is draining */
  RINGD_ABORTED = 10,            /* the job has failed: the message is its root cause */
  RINGD_INTERNAL = 13,
  RINGD_UNAVAILABLE = 14,    /* ringd can't be reached, or has died */
  RINGD_UNAUTHENTICATED = 16 /* the job secret is wrong */
};

/* Numbers as in proto/types. */
enum {
  RINGD_UINT8 = 0,
  RINGD_INT8 = 1,
  RINGD_UINT16 = 2,
  RINGD_INT16 = 3,
  RINGD_UINT32 = 4,
  RINGD_INT32 = 5,
  RINGD_UINT64 = 6,
  RINGD_INT64 = 7,
  RINGD_FLOAT16 = 8,
  RINGD_BFLOAT16 = 9,
  RINGD_FLOAT32 = 10,
  RINGD_FLOAT64 = 11,
  RINGD_BOOL = 12,
  RINGD_FLOAT8_E4M3 = 13,
  RINGD_FLOAT8_E5M2 = 14
};
/* What the operators of an all-reduce mean. The result has the same bits on all ranks.
 *
 * integers     Sum and product wrap modulo 2^bits. An average is that sum, divided exactly and
 *              rounded down (-1 / 2 gives -1); factors other than 1 are applied in float64,
 *              truncated toward zero and clamped to the type's range.
 * bool         Sum and max are "or", product and min are "and"; there is no average.
 * floats       IEEE arithmetic, rounded to nearest even; subnormals are kept. A sum's last bits
 *              depend on the order in which the nodes' parts meet, and so on size, plan and number
 *              of nodes; float64 and float32 are combined in their own precision, narrower ones in
 *              float32 within a node, and rounded to their own type once for each node.
 * overflow     gives infinity in float64, float32, float16 and bfloat16. In the float8 types a
 *              finite result too large becomes the largest finite value, 448 or 57344 (as CUDA's
 *              conversions do); infinity stays infinity in float8_e5m2, and is NaN in float8_e4m3,
 *              which has none. An average of finite numbers of float16 or float8 is finite: it is
 *              divided before anything is rounded to the type.
 * NaN          in any rank's element gives NaN, also in min and max.
 *
 * Tensors that NCCL reduces (ringd_device.h) are as it has them: min and max may leave out a NaN,
 * float8_e5m2 may saturate where it would be infinite, and an average of float16 and bfloat16 is
 * multiplied by 1 / ranks in that type. */
enum { RINGD_SUM = 0, RINGD_AVERAGE = 1, RINGD_MIN = 2, RINGD_MAX = 3, RINGD_PRODUCT = 4 };
enum { RINGD_ALLREDUCE = 0, RINGD_BROADCAST = 1, RINGD_BARRIER = 2 };
/* Since 1.5. Where a tensor lies. */
enum { RINGD_HOST_MEMORY = 0, RINGD_DEVICE_MEMORY = 1 };
/* Since 1.5. Which operations of a communicator's ranks belong together. */
enum { RINGD_BY_NAME = 0, RINGD_BY_ORDER = 1 };

typedef struct ringd_context ringd_context;
/* Since 1.4. Some of the job's ranks, among which tensors are combined: a number that is equal on
 * all of them. */
typedef uint32_t ringd_communicator;
#define RINGD_ALL_RANKS 0 /* since 1.4: the communicator that every job has */
typedef uint32_t ringd_registration;
/* Never reused within a context, but for RINGD_DONE. 0 is no operation. */
typedef uint64_t ringd_operation;
/* Since 1.2. Stands for every operation that had ended well when the call that began it returned:
 * tests and waits succeed at once, as often as one likes. */
#define RINGD_DONE UINT64_MAX

/* Fields left 0 or NULL, and texts left empty but for the secret, come from the environment, then
 * from defaults. */
typedef struct {
  size_t struct_size;
  const char* socket; /* RINGD_SOCKET; default /run/ringd/ringd.sock */
  /* RINGD_JOB_ID; else the launcher's name for this run, or MASTER_ADDR and MASTER_PORT; else
   * "default", with a warning if there are several ranks */
  const char* job_id;
  /* rank < 0 or size 0: all four places from the launcher's environment: torchrun (RANK,
   * WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE), Slurm, Open MPI, PMI; without any, one rank alone.
   * Such a rank works without a ringd too, unless a socket is named. */
  int32_t rank;
  int32_t size;
  int32_t local_rank;
  int32_t local_size;
  const char*
      rendezvous;     /* RINGD_RENDEZVOUS; else MASTER_ADDR with RINGD_PEER_PORT (default 7117) */
  const char* secret; /* RINGD_JOB_SECRET if NULL; empty: none */
  uint32_t start_timeout_ms; /* RINGD_START_TIMEOUT (seconds); default: the daemon's */
  /* RINGD_OPERATION_TIMEOUT (seconds); default, and 0: the daemon's, which has none unless set */
  uint32_t operation_timeout_ms;
  /* RINGD_FUSION: "learned", "pinned", "off", or a size such as "64MiB", up to which buckets are
   * filled; the same on all ranks. Default: the daemon's. */
  const char* fusion;
  /* Called with each warning (a stall, for instance) from a thread of the library, or in a call
   * that opens the context or a GPU or registers a tensor on it; must not call the library back.
   * NULL: warnings go to standard error, one line each, prefixed "ringd: ". */
  void (*on_warning)(void* user_data, const char* text);
  void* user_data;
  /* Since 1.2. RINGD_WEIGHT; default 1. 1 to 100, the same on all ranks: while several jobs want
   * the line to one node, each gets a share of it in proportion to its weight. ringd's setting
   * max_weight limits it. */
  uint32_t weight;
  /* Since 1.5. Called about every 0.1 s by a thread that waits for other ranks in ringd_open or
   * ringd_communicator_create, or for room in a call that submits; must not call the library. Not
   * 0: RINGD_CANCELLED ends the wait, and nothing has been submitted. */
  int32_t (*is_interrupted)(void* user_data);
} ringd_options;

typedef struct {
  size_t struct_size;
  int32_t rank;
  int32_t size;
  int32_t local_rank;
  int32_t local_size;
  int32_t cross_rank; /* this node's place among the nodes that have this local rank */
  int32_t cross_size;
  int32_t node_count;
  int32_t node_index;
  int32_t homogeneous; /* 1 if every node has equally many ranks */
  uint32_t generation;
  char node_name[64];
  char daemon_version[32]; /* empty: one rank alone, without a ringd */
} ringd_place;

typedef struct {
  size_t struct_size;
  const char* name; /* 1 to 512 bytes of UTF-8; the same on all ranks */
  int32_t kind;
  int32_t data_type;
  int32_t op;           /* allreduce only */
  int32_t dimensions;   /* 0 to 32 */
  const int64_t* shape; /* dimensions entries, each >= 0 */
  double prescale;      /* 0 counts as 1 */
  double postscale;     /* 0 counts as 1 */
  int32_t root_rank;    /* broadcast only; of the job, also on another communicator */
  /* Since 1.4. RINGD_ALL_RANKS, or one that this rank has created. Equal names on different
   * communicators are different tensors. An average is that of the communicator's ranks. */
  ringd_communicator communicator;
  /* Since 1.5. RINGD_DEVICE_MEMORY: in memory of a GPU, to be submitted by ringd_submit_on_stream.
   * The same on all ranks. */
  int32_t memory;
  uint32_t unused; /* not read */
} ringd_tensor;

/* Since 1.4. */
typedef struct {
  size_t struct_size;
  const char* name;     /* 1 to 128 bytes of UTF-8, the same on all its ranks */
  const int32_t* ranks; /* of the job, in the communicator's order; the same on all its ranks */
  size_t count;         /* 1 to all */
  uint32_t timeout_ms;  /* for all of them to call; 0: as the start timeout */
  uint32_t unused;      /* not read: padding until 1.5 */
  /* Since 1.5. RINGD_BY_NAME, or RINGD_BY_ORDER: see ringd_submit_in_order. The same on all. */
  int32_t matching;
  uint32_t unused2; /* not read */
} ringd_communicator_options;

/* Since 1.4. */
typedef struct {
  size_t struct_size;
  int32_t rank; /* this rank's place in the communicator's order */
  int32_t size;
  int32_t node_count;
  int32_t node_index; /* this node's place among its nodes */
} ringd_communicator_place;

/* RINGD_API_VERSION of the library that is running (compare it with the header's), and its
 * release. */
RINGD_EXPORT uint32_t ringd_api_version(void);
RINGD_EXPORT const char* ringd_version(void);

/* What went wrong in this thread's last failed call. Valid until its next call; never NULL. */
RINGD_EXPORT const char* ringd_last_error(void);
/* "RINGD_ABORTED" and so on; never NULL. */
RINGD_EXPORT const char* ringd_status_name(ringd_status status);

/* Attaches to ringd and takes a place in the job. Blocks until all ranks have joined, at most the
 * start timeout. `options` may be NULL. */
RINGD_EXPORT ringd_status ringd_open(const ringd_options* options, ringd_context** context);
/* Leaves the job and frees everything, arena memory included, and the slab when copies from it have
 * run. Blocks 2 s at most. NULL is allowed. */
RINGD_EXPORT void ringd_close(ringd_context* context);
/* Since 1.1. The first half of ringd_close, for when other threads may still be in calls, or arena
 * memory is still to be read: leaves the job; calls under way return and later ones fail, both with
 * RINGD_CANCELLED; arena memory stays until ringd_close. Other ranks of this node which submit
 * later what this one had submitted go on with it, so leave an arena tensor that was in flight as
 * it is: they may still read it, and write their result there. In a job over several nodes calls
 * under way return when ringd has answered, which it does at once unless it hangs: they wait for
 * that as long as this call, which blocks 2 s at most. */
RINGD_EXPORT ringd_status ringd_leave(ringd_context* context);
/* Since 1.1. As ringd_leave, but for a rank that has failed: all other ranks of the job are told,
 * as if this process had died. */
RINGD_EXPORT ringd_status ringd_abandon(ringd_context* context);
/* Since 1.5. As ringd_abandon, and tells the other ranks why: they hear this process's rank and
 * pid, and `text`, which says what has become of it, as "ended by an uncaught exception: ...".
 * Line ends in it become spaces, and of more than 512 bytes the first are taken. NULL or empty: as
 * ringd_abandon. */
RINGD_EXPORT ringd_status ringd_abandon_because(ringd_context* context, const char* text);
RINGD_EXPORT ringd_status ringd_get_place(ringd_context* context, ringd_place* place);

/* Arena memory: shared with ringd, so that tensors in it are reduced where they are, without a
 * copy. Zeroed, aligned to 64 bytes. RINGD_RESOURCE_EXHAUSTED: the arena is full; the message names
 * limit and setting. */
RINGD_EXPORT ringd_status ringd_arena_alloc(ringd_context* context, size_t bytes, void** address);
/* Must not be in use by an operation. NULL is allowed. */
RINGD_EXPORT void ringd_arena_free(ringd_context* context, void* address);
/* 1 if the whole range lies in the arena. */
RINGD_EXPORT int32_t ringd_arena_contains(ringd_context* context, const void* address,
                                          size_t bytes);

/* Since 1.4. Makes a communicator of some ranks of the job, the caller among them. All of these
 * call it, with one name and the same list, from any thread; it blocks until all have, for
 * timeout_ms (an hour at most) after the last call that has come, and returns the same number on
 * all. Communicators may overlap, and the ranks may create them in any order from different
 * threads; from one thread each, in the same order. What one waits for holds up no other. Two of
 * one name may be there at once if they have no rank in common.
 *   RINGD_INVALID_ARGUMENT: a rank is none of the job's, stands there twice, or is missing; or
 *     another rank gave another list or matching by this name: the message has both.
 *   RINGD_ALREADY_EXISTS: one of these ranks has one of this name. RINGD_DEADLINE_EXCEEDED: the
 *     message names the ranks that have not called. RINGD_RESOURCE_EXHAUSTED: the job has 1,024.
 *     RINGD_ABORTED: the job has failed, or one of the ranks has left it. RINGD_CANCELLED: by
 *     is_interrupted; the others may get the communicator nevertheless, and this rank if it calls
 *     again. */
RINGD_EXPORT ringd_status ringd_communicator_create(ringd_context* context,
                                                    const ringd_communicator_options* options,
                                                    ringd_communicator* communicator);
/* Since 1.4. This rank needs it no more. A call to ringd, which waits for no other rank; the
 * communicator ends when all its ranks have called. The rank's registrations for it go with it, and
 * no thread may be in a call with one of them.
 * RINGD_FAILED_PRECONDITION: an operation on it has not been waited for (the message names the
 * tensor), or it is RINGD_ALL_RANKS. RINGD_NOT_FOUND: this rank has no such communicator, or no
 * more. */
RINGD_EXPORT ringd_status ringd_communicator_destroy(ringd_context* context,
                                                     ringd_communicator communicator);
/* Since 1.4. Does not block. RINGD_NOT_FOUND: this rank has no such communicator. */
RINGD_EXPORT ringd_status ringd_get_communicator_place(ringd_context* context,
                                                       ringd_communicator communicator,
                                                       ringd_communicator_place* place);

/* Describes `count` tensors at once (a call to ringd, about 0.1 ms). Describing a tensor again in
 * the same way gives the same number, without a call. */
RINGD_EXPORT ringd_status ringd_register(ringd_context* context, const ringd_tensor* tensors,
                                         size_t count, ringd_registration* registrations);

/* Since 1.3. Gives descriptions back that do not come again, so that they count no more: a context
 * may have 65,536 at a time, and ringd limits a user's in bytes. A call to ringd, as
 * ringd_register. The numbers are invalid afterwards, for all who have got them, also if the call
 * to ringd fails; submitting one is RINGD_NOT_FOUND. A tensor may be described again later. No
 * other thread may be in a call with one of them, or describe one of these tensors.
 * RINGD_FAILED_PRECONDITION: an operation of one has not been waited for. RINGD_NOT_FOUND: there is
 * no such number, or no more. RINGD_INVALID_ARGUMENT: one stands there twice. These name the
 * number, and change nothing. */
RINGD_EXPORT ringd_status ringd_unregister(ringd_context* context,
                                           const ringd_registration* registrations, size_t count);

/* Hands a tensor to ringd and returns at once, unless there is no room: then waits for it, while
 * the job lives. There is room for submission_ring_capacity operations of a rank; where all ranks
 * are on one node, for four of a name, which the other ranks must have submitted, too, and for
 * 1,024 on a communicator of a part of the ranks. `source` and `destination` hold the tensor's
 * elements, contiguous, and stay the caller's to keep unchanged (source) and untouched
 * (destination) until the operation has been seen to end; they may be equal, not otherwise overlap.
 * That holds for memory of any kind: outside the arena, too, the node's other ranks may read
 * `source` until then. After a failure `destination`, and a `source` that is the same, may hold
 * parts of the result. Broadcast reads `source` on the root only. Barrier takes NULL. */
RINGD_EXPORT ringd_status ringd_submit(ringd_context* context, ringd_registration registration,
                                       const void* source, void* destination,
                                       ringd_operation* operation);
/* The same, but RINGD_RESOURCE_EXHAUSTED instead of waiting for room. */
RINGD_EXPORT ringd_status ringd_try_submit(ringd_context* context, ringd_registration registration,
                                           const void* source, void* destination,
                                           ringd_operation* operation);

/* Since 1.2. As ringd_submit, for an operation that the caller waits for next. In a job over
 * several nodes the ranks carry a small all-reduce or barrier out themselves inside this call,
 * where all of them use it: then it blocks until all ranks have come, `destination` holds the
 * result and *operation is RINGD_DONE. If somebody does not come for about 100 ms, and in all other
 * cases, it is ringd_submit; so ranks may use either function for the same tensor, which only costs
 * time. After 0.3 s it returns in any case but for want of room, also where a rank that was stopped
 * keeps the others from knowing: the tensor's next submission waits until they know. Either way
 * *operation is to be waited for. If the context ends meanwhile, the call fails with the reason. */
RINGD_EXPORT ringd_status ringd_submit_awaited(ringd_context* context,
                                               ringd_registration registration, const void* source,
                                               void* destination, ringd_operation* operation);

/* Sets *done to 1 if the operation has ended; does not consume it, does not copy its result, does
 * not block. */
RINGD_EXPORT ringd_status ringd_test(ringd_context* context, ringd_operation operation,
                                     int32_t* done);
/* Blocks until the operation has ended and consumes it: afterwards the result is in `destination`,
 * or the returned status says how it failed. timeout_ms < 0: no limit of its own (it still ends
 * when the job fails or ringd dies). RINGD_DEADLINE_EXCEEDED with the operation still in flight:
 * wait again. */
RINGD_EXPORT ringd_status ringd_wait(ringd_context* context, ringd_operation operation,
                                     int64_t timeout_ms);
/* Since 1.2. As ringd_wait for each of `count` operations, in one call: for a step of hundreds of
 * tensors that is much cheaper. Blocks until all have ended. Each that has ended well becomes
 * RINGD_DONE in `operations`, as soon as that is seen; RINGD_DONE among them is left alone. When
 * all have ended, those that have failed become 0, and the status and the words are those of the
 * first of them in the order of the array. RINGD_DEADLINE_EXCEEDED: some are still in flight, and
 * nothing has been lost; call again with the same array. */
RINGD_EXPORT ringd_status ringd_wait_all(ringd_context* context, ringd_operation* operations,
                                         size_t count, int64_t timeout_ms);

/* Since 1.2. A round trip through ringd's engine and back, without a tensor: shows that ringd
 * answers, and how long it takes. RINGD_DEADLINE_EXCEEDED: it has not answered in time. */
RINGD_EXPORT ringd_status ringd_ping(ringd_context* context, int64_t timeout_ms);

#ifdef __cplusplus
} /* extern "C" */
#endif

#include "client/ringd_device.h" /* since 1.5 */
#include "client/ringd_order.h"  /* since 1.5 */

#endif /* RINGD_CLIENT_RINGD_H_ */

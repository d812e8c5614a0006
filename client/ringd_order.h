/* Operations that are matched by order: a part of ringd.h, which includes this. Since 1.5. */
#ifndef RINGD_CLIENT_RINGD_ORDER_H_
#define RINGD_CLIENT_RINGD_ORDER_H_

#include "client/ringd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Since 1.5. An operation of a communicator that matches by order. */
typedef struct {
  size_t struct_size;
  int32_t kind;
  int32_t data_type; /* a barrier has none */
  int32_t op;        /* allreduce only */
  int32_t root_rank; /* broadcast only; of the job, one of the communicator's */
  uint64_t count;    /* elements; a barrier has 0 */
  double prescale;   /* allreduce only, as ringd_tensor's; 0 counts as 1 */
  double postscale;
} ringd_collective;

/* Since 1.5. As ringd_submit, on a communicator created with RINGD_BY_ORDER: the n-th operation of
 * each of its ranks, counted from 0 in the order of these calls, is one with the n-th of all
 * others. Nothing is registered, named or negotiated. A refused call does not count. If two threads
 * call at once their order is open: use one thread for each communicator, or a lock. Host memory
 * only: tensors on a GPU go by name.
 * The ranks' n-th operations must agree in all of `collective`. If they do not, the n-th ends on
 * all ranks as soon as all have submitted it: the wait gives RINGD_INVALID_ARGUMENT, and a text
 * that says what the ranks have submitted. Later ones go on. At a time 64 are under way;
 * further ones queue, and where its ranks are on one node a call waits for room behind 256.
 *   RINGD_INVALID_ARGUMENT: a field is wrong, or the root is none of its ranks.
 *   RINGD_FAILED_PRECONDITION: the communicator matches by name. RINGD_NOT_FOUND: there is none. */
RINGD_EXPORT ringd_status ringd_submit_in_order(ringd_context* context,
                                                ringd_communicator communicator,
                                                const ringd_collective* collective,
                                                const void* source, void* destination,
                                                ringd_operation* operation);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RINGD_CLIENT_RINGD_ORDER_H_ */

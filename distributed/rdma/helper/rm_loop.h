// The helper's side: a thread that takes requests from the rings to the device,
// and completions from the device to the rings.
#ifndef RMH_LOOP_H
#define RMH_LOOP_H

#include "rm_ring.h"

struct rmh_loop;

// rmh_loop_new makes a loop; socket wakes it, and the end of the socket ends the
// loop. spin is how long it polls without result before its thread yields, ns.
struct rmh_loop *rmh_loop_new(struct rmh_bell *bell, int socket, int64_t spin);
void rmh_loop_free(struct rmh_loop *l);

// rmh_loop_run works until rmh_loop_stop or the end of the socket.
void rmh_loop_run(struct rmh_loop *l);
void rmh_loop_stop(struct rmh_loop *l);

// The following may be called while it runs; the loop then waits between two
// passes. They return 0, or ENOMEM.
int rmh_loop_add_cq(struct rmh_loop *l, struct rmv_cq *cq, struct rmh_ring *ring, uint64_t size);
int rmh_loop_add_qp(struct rmh_loop *l, struct rmv_qp *qp, struct rmv_cq *send_cq, struct rmv_cq *recv_cq,
                    struct rmh_ring *ring, uint64_t size);
// rmh_loop_add_mr: requests name the region by lkey and by addresses from `there`,
// as the server has mapped it; the device knows it at `here`.
int rmh_loop_add_mr(struct rmh_loop *l, uint32_t lkey, uint64_t there, uint8_t *here, uint64_t bytes);
// After a removal the loop no longer touches the object.
void rmh_loop_remove_cq(struct rmh_loop *l, struct rmv_cq *cq);
void rmh_loop_remove_qp(struct rmh_loop *l, struct rmv_qp *qp);
void rmh_loop_remove_mr(struct rmh_loop *l, uint32_t lkey);
// rmh_loop_settle passes all requests in a queue pair's ring to the device.
void rmh_loop_settle(struct rmh_loop *l, struct rmv_qp *qp);

#endif

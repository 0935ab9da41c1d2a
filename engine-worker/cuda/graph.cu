#include "cu_priv.cuh"

/* Batches with a key are recorded as a CUDA graph when they come for the second time: the first time may still allocate. */

static struct cu_graph *find(struct cu *c, uint64_t key)
{
    struct cu_graph *oldest = &c->graphs[0];
    for (int i = 0; i < CU_GRAPHS; i++) {
        if (c->graphs[i].key == key)
            return &c->graphs[i];
        if (c->graphs[i].used < oldest->used)
            oldest = &c->graphs[i];
    }
    if (oldest->exec)
        cudaGraphExecDestroy(oldest->exec);
    *oldest = {};
    return oldest;
}

bool cu_begin(struct be *b, uint64_t key)
{
    struct cu *c = cu_of(b);
    c->left = NULL; /* what a record leaves out must not depend on what came before it */
    if (key == 0 || c->failed != cudaSuccess)
        return false;
    struct cu_graph *g = find(c, key);
    g->used = ++c->stamp;
    if (g->exec)
        return cu_ok(c, cudaGraphLaunch(g->exec, c->stream), "a recorded step");
    if (g->key == key)
        c->recording =
            cu_ok(c, cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal), "recording a step");
    g->key = key;
    return false;
}

void cu_end(struct be *b, uint64_t key)
{
    struct cu *c = cu_of(b);
    cudaGraph_t graph = NULL;
    if (!c->recording)
        return;
    c->recording = false;
    cudaError_t e = cudaStreamEndCapture(c->stream, &graph);
    struct cu_graph *g = find(c, key);
    if (cu_ok(c, e, "recording a step") &&
        cu_ok(c, cudaGraphInstantiate(&g->exec, graph, 0), "making a step of what was recorded"))
        cu_ok(c, cudaGraphLaunch(g->exec, c->stream), "a recorded step");
    if (graph)
        cudaGraphDestroy(graph);
}

void cu_graphs_free(struct cu *c)
{
    for (struct cu_graph &g : c->graphs)
        if (g.exec)
            cudaGraphExecDestroy(g.exec);
}

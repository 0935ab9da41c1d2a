/* Stands in for CUDA's header of the same name (emu.h): the part of it that the kernels and the backend use. The device's memory is this
 * process's, its one stream does everything at once, and a recorded graph is a list of what to do. */
#ifndef EMU_CUDA_RUNTIME_H
#define EMU_CUDA_RUNTIME_H

#include "emu.h"

#include <functional>
#include <math.h>
#include <string.h>
#include <tuple>

/* ---- the language ---- */

#define __global__
#define __device__
#define __host__
#define __shared__      static /* blocks come one after another */
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
static inline float2 make_float2(float x, float y)
{
    return {x, y};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}
static inline uint2 make_uint2(unsigned x, unsigned y)
{
    return {x, y};
}
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

static inline void __syncthreads()
{
    emu_block_barrier();
}
static inline void __syncwarp()
{
    emu_warp_barrier();
}

/* Lane `from` of what each lane says; from: of the caller. */
template <typename T> static inline T emu_exchange(T v, unsigned from)
{
    static_assert(sizeof(T) <= 4 * EMU_WORDS, "what a lane may say");
    T got;
    auto said = emu_said();
    memcpy(said[threadIdx.x % 32], &v, sizeof v);
    emu_warp_barrier();
    memcpy(&got, said[from], sizeof got);
    emu_warp_barrier();
    return got;
}
template <typename T> static inline T __shfl_xor_sync(unsigned, T v, int mask)
{
    return emu_exchange(v, threadIdx.x % 32 ^ (unsigned)mask);
}
template <typename T> static inline T __shfl_up_sync(unsigned, T v, unsigned by)
{
    unsigned lane = threadIdx.x % 32;
    return emu_exchange(v, lane < by ? lane : lane - by);
}
template <typename T> static inline T __shfl_sync(unsigned, T v, int from)
{
    return emu_exchange(v, (unsigned)from % 32);
}
static inline int __any_sync(unsigned, int v)
{
    int any = v != 0;
    for (int by = 16; by > 0; by >>= 1)
        any |= __shfl_xor_sync(~0u, any, by);
    return any;
}

template <typename T> static inline T __ldg(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldcg(const T *p)
{
    return *p;
}
template <typename T> static inline T atomicAdd(T *p, T v)
{
    T old = *p;
    *p += v;
    return old;
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned how)
{
    uint64_t all = (uint64_t)b << 32 | a;
    unsigned out = 0;
    for (unsigned i = 0; i < 4; i++)
        out |= (unsigned)(all >> 8 * (how >> 4 * i & 7) & 255) << 8 * i;
    return out;
}
static inline int __popc(unsigned v)
{
    return __builtin_popcount(v);
}
static inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 4; i++)
        c += (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
    return c;
}
static inline float __uint_as_float(unsigned v)
{
    float f;
    memcpy(&f, &v, sizeof f);
    return f;
}
static inline unsigned __float_as_uint(float v)
{
    unsigned bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}
static inline float __fdividef(float a, float b)
{
    return a / b;
}
static inline int __float2int_rn(float v)
{
    return (int)nearbyintf(v);
}
static inline float rsqrtf(float v)
{
    return 1 / sqrtf(v);
}
template <typename T> static inline T min(T a, T b)
{
    return b < a ? b : a;
}
template <typename T> static inline T max(T a, T b)
{
    return a < b ? b : a;
}
static inline int64_t min(int64_t a, int b)
{
    return min<int64_t>(a, b);
}

/* c += a b for the tensor cores' 16 x 16 times 16 x 8 (mma.cuh has the lanes' shares). half: its value as a float. */
template <typename F>
static inline void emu_mma(float *c, const uint32_t *a, uint32_t b0, uint32_t b1, F half)
{
    const uint32_t words[6] = {a[0], a[1], a[2], a[3], b0, b1};
    unsigned lane = threadIdx.x % 32, g = lane / 4, i = lane % 4;
    auto said = (float(*)[EMU_WORDS])emu_said();
    for (unsigned k = 0; k < 12; k++)
        said[lane][k] = half((uint16_t)(words[k / 2] >> 16 * (k % 2)));
    emu_warp_barrier();
    for (unsigned at = 0; at < 4; at++) { /* values 2 at, 2 at + 1, and those 8 on */
        const float *left = said[4 * g + at], *right0 = said[8 * i + at] + 8,
                    *right1 = said[8 * i + 4 + at] + 8;
        for (unsigned k = 0; k < 4; k++) {
            unsigned upper = k < 2 ? k : k + 2;
            c[0] += left[upper] * right0[k];
            c[1] += left[upper] * right1[k];
            c[2] += left[upper + 2] * right0[k];
            c[3] += left[upper + 2] * right1[k];
        }
    }
    emu_warp_barrier();
}

/* The same for 16 x 8 times 8 x 8 floats; what a tensor core does not look at must be zero. */
static inline void emu_mma_tf32(float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    const uint32_t words[6] = {a[0], a[1], a[2], a[3], b0, b1};
    unsigned lane = threadIdx.x % 32, g = lane / 4, i = lane % 4;
    auto said = (float(*)[EMU_WORDS])emu_said();
    for (unsigned k = 0; k < 6; k++)
        said[lane][k] = words[k] & 0x1fff ? NAN : __uint_as_float(words[k]);
    emu_warp_barrier();
    for (unsigned k = 0; k < 8; k++) { /* column of a, row of b */
        const float *left = said[4 * g + k % 4] + k / 4 * 2, *right = said[8 * i + k % 4] + 4 + k / 4,
                    *next = said[8 * i + 4 + k % 4] + 4 + k / 4;
        c[0] += left[0] * *right;
        c[1] += left[0] * *next;
        c[2] += left[1] * *right;
        c[3] += left[1] * *next;
    }
    emu_warp_barrier();
}

/* A thread's sums of 64 x columns products over 16 values (warpgroup.cuh), at once, where the hardware takes its time. */
template <typename F>
static inline void emu_warpgroup(float *c, bool add, int columns, const uint4 *left, unsigned left_stride,
                                 const uint4 *right, unsigned right_stride, F half)
{
    unsigned lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
    auto values = [&](float *to, const uint4 *at, unsigned stride) {
        for (unsigned k = 0; k < 16; k++)
            to[k] = half(((const uint16_t *)(at + k / 8 * stride))[k % 8]);
    };
    float a[2][16], b[16];
    values(a[0], left + row, left_stride);
    values(a[1], left + row + 8, left_stride);
    for (int j = 0; !add && j < columns / 2; j++)
        c[j] = 0;
    for (int j = 0; j < columns / 4; j++) {
        values(b, right + j / 2 * 8 + lane % 4 * 2 + j % 2, right_stride);
        for (unsigned k = 0; k < 16; k++) {
            c[j / 2 * 4 + j % 2] += a[0][k] * b[k];
            c[j / 2 * 4 + j % 2 + 2] += a[1][k] * b[k];
        }
    }
}

/* Four 8 x 8 matrices of halves; lane i gives the address of row i % 8 of matrix i / 8. */
static inline void emu_matrices(uint32_t *to, const void *from, bool transposed)
{
    unsigned lane = threadIdx.x % 32, row = lane / 4, col = lane % 4 * 2;
    auto said = emu_said();
    memcpy(said[lane], &from, sizeof from);
    emu_warp_barrier();
    for (unsigned m = 0; m < 4; m++) {
        uint16_t v[2];
        for (unsigned k = 0; k < 2; k++) {
            const uint16_t *at;
            memcpy(&at, said[8 * m + (transposed ? col + k : row)], sizeof at);
            v[k] = at[transposed ? row : col + k];
        }
        to[m] = v[0] | (uint32_t)v[1] << 16;
    }
    emu_warp_barrier();
}

/* ---- the runtime ---- */

enum cudaError_t {
    cudaSuccess,
    cudaErrorInvalidValue,
    cudaErrorMemoryAllocation,
};
typedef struct emu_stream *cudaStream_t;
typedef std::function<void()> emu_work;
typedef struct emu_graph *cudaGraph_t, *cudaGraphExec_t;
enum { cudaStreamNonBlocking, cudaStreamCaptureModeThreadLocal, cudaHostRegisterPortable };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum { cudaFuncAttributeMaxDynamicSharedMemorySize };
enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerBlockOptin, cudaDevAttrMaxSharedMemoryPerMultiprocessor };
enum { cudaLaunchAttributeProgrammaticStreamSerialization };

struct cudaDeviceProp {
    char name[256];
    struct {
        char bytes[16];
    } uuid;
    int major, minor, multiProcessorCount;
    size_t totalGlobalMem;
};
struct cudaLaunchAttribute {
    int id;
    struct {
        int programmaticStreamSerializationAllowed;
    } val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};

const char *cudaGetErrorString(cudaError_t e);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total);
cudaError_t cudaDeviceGetAttribute(int *out, cudaDeviceAttr what, int device);
cudaError_t cudaMalloc(void **out, size_t bytes);
cudaError_t cudaFree(void *p);
/* Does it, or records it while a step is recorded. */
cudaError_t emu_do(cudaStream_t s, emu_work work);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamBeginCapture(cudaStream_t s, int mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t g, cudaStream_t s);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t g);
cudaError_t cudaGraphDestroy(cudaGraph_t g);

template <typename T> static inline cudaError_t cudaMalloc(T **out, size_t bytes)
{
    return cudaMalloc((void **)out, bytes);
}
static inline cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}
static inline cudaError_t cudaGetLastError()
{
    return cudaSuccess;
}
static inline cudaError_t cudaSetDevice(int)
{
    return cudaSuccess;
}
static inline cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return cudaSuccess;
}
static inline cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    return cudaMalloc(out, bytes);
}
static inline cudaError_t cudaFreeHost(void *p)
{
    return cudaFree(p);
}
static inline cudaError_t cudaHostRegister(void *, size_t, unsigned)
{
    return cudaSuccess;
}
static inline cudaError_t cudaHostUnregister(void *)
{
    return cudaSuccess;
}
static inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind,
                                          cudaStream_t s)
{
    return emu_do(s, [=] { memmove(to, from, n); });
}
static inline cudaError_t cudaMemsetAsync(void *to, int v, size_t n, cudaStream_t s)
{
    return emu_do(s, [=] { memset(to, v, n); });
}
static inline cudaError_t cudaMemset(void *to, int v, size_t n)
{
    memset(to, v, n);
    return cudaSuccess;
}
template <typename K> static inline cudaError_t cudaFuncSetAttribute(K, int, int bytes)
{
    int most = 0;
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
    return bytes <= most ? cudaSuccess : cudaErrorInvalidValue;
}
template <typename... P, typename... A>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *cfg, void (*kernel)(P...), A... args)
{
    const cudaLaunchConfig_t c = *cfg;
    std::tuple<P...> all(args...);
    if (c.gridDim.y > 65535 || c.gridDim.z > 65535 || c.blockDim.x * c.blockDim.y * c.blockDim.z > 1024 ||
        c.gridDim.x == 0 || c.gridDim.y == 0)
        return cudaErrorInvalidValue;
    return emu_do(c.stream, [=]() mutable {
        auto once = [&] { std::apply(kernel, all); };
        emu_launch(
            {c.gridDim.x, c.gridDim.y, c.gridDim.z}, {c.blockDim.x, c.blockDim.y, c.blockDim.z},
            c.dynamicSmemBytes, [](void *f) { (*(decltype(once) *)f)(); }, &once);
    });
}

#endif

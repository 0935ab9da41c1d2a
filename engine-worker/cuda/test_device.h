/* What the tests of the CUDA operations share: a GPU's backend beside the CPU's, values on the device, random weights. Everything
 * fails the test where it cannot do what it says. */
#ifndef TEST_DEVICE_H
#define TEST_DEVICE_H

#include "cu.h"
#include "test_util.h"

#define RESERVED  4096 /* values of a row */
#define MOST_ROWS 512

extern struct be *gpu, *cpu; /* of device_tests */

/* Runs n tests with both backends made. Exit code of the program: 77 without a GPU, after saying so. */
int device_tests(const char *name, const struct CMUnitTest *tests, size_t n);
void must(int rc, const struct vt_err *err);

/* The device's memory is the caller's, be_release gives it back; that of this process is freed. */
void *device_bytes(size_t n);
void *to_device(const void *host, size_t n);
float *floats_to_device(const float *x, int64_t n);
float *poisoned(int64_t n); /* NaN until something is written */
float *from_device(const float *p, int64_t n);
float *copy_of(const float *x, int64_t n); /* in this process */
/* [n_out] rows of the type, whose scales are small positive numbers. */
uint8_t *random_weight(uint32_t type, int64_t n_in, int64_t n_out);

/* Random values and a random weight on the device. */
float *device_floats(int64_t n, double by);
struct be_weight device_weight(uint32_t type, int64_t n_in, int64_t n_out);

/* The norm of got - want is at most `bound` of that of want; NaN fails. */
void near(const char *what, const float *got, const float *want, int64_t n, double bound);
/* The same for a device's array, which is released then, and want, which is freed. */
void settle(const char *what, float *device, float *want, int64_t n, double bound);

#endif

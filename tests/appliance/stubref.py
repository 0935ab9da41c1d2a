"""What the stub engine generates: token(seed, position), as engine-worker/stub/opts.c says it."""

M = (1 << 64) - 1


def mix(x):
    x = (x + 0x9e3779b97f4a7c15) & M
    x = ((x ^ x >> 30) * 0xbf58476d1ce4e5b9) & M
    x = ((x ^ x >> 27) * 0x94d049bb133111eb) & M
    return x ^ x >> 31


def token(seed, pos, lo=33, hi=126):
    return lo + mix((mix(seed & M) + pos) & M) % (hi - lo + 1)


def ref(seed, n, lo=33, hi=126):
    return [token(seed, i, lo, hi) for i in range(n)]

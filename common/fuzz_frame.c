/* Whatever vt_frame_open accepts must survive every getter, and packing it again must give the same bytes. */
#include "frame.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(const msgpack_object *o, volatile uint64_t *sum)
{
    switch (o->type) {
    case MSGPACK_OBJECT_MAP:
        for (uint32_t i = 0; i < o->via.map.size; i++) {
            walk(&o->via.map.ptr[i].key, sum);
            walk(&o->via.map.ptr[i].val, sum);
        }
        break;
    case MSGPACK_OBJECT_ARRAY:
        for (uint32_t i = 0; i < o->via.array.size; i++)
            walk(&o->via.array.ptr[i], sum);
        break;
    case MSGPACK_OBJECT_STR:
    case MSGPACK_OBJECT_BIN:
        for (uint32_t i = 0; i < o->via.bin.size; i++)
            *sum += (uint8_t)o->via.bin.ptr[i];
        break;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
    case MSGPACK_OBJECT_FLOAT64: *sum += o->via.u64; break;
    default: abort(); /* no other kind passes the scan */
    }
}

static void use(const struct vt_frame *f)
{
    volatile uint64_t sum = 0;
    char text[32];
    size_t n;
    for (unsigned k = 1; k < 128; k++) {
        sum += vt_frame_u64(f, k, 1) + (uint64_t)vt_frame_i64(f, k, 1);
        sum += (uint64_t)vt_frame_str(f, k, text, sizeof text)[0];
        sum += vt_frame_bin(f, k, &n) != NULL;
        sum += vt_array_u64(vt_frame_array(f, k), 0, 0);
        sum += (uint64_t)vt_array_str(vt_frame_array(f, k), 1, text, sizeof text)[0];
        sum += vt_map_get(vt_frame_map(f, k), 1) != NULL;
        sum += vt_map_get_str(vt_frame_map(f, k), "a") != NULL;
    }
    walk(&f->unpacked.data, &sum);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vt_frame f;
    struct vt_err err;
    msgpack_sbuffer sb;
    msgpack_packer pk;
    uint8_t *copy = malloc(size > 0 ? size : 1); /* so that the sanitizer sees its end */
    memcpy(copy, data, size);
    if (vt_frame_open(&f, copy, size, 1 << 20, &err) == 0) {
        use(&f);
        msgpack_sbuffer_init(&sb);
        msgpack_packer_init(&pk, &sb, msgpack_sbuffer_write);
        msgpack_pack_object(&pk, f.unpacked.data);
        if (sb.size != size || memcmp(sb.data, copy, size) != 0)
            abort();
        msgpack_sbuffer_destroy(&sb);
        vt_frame_close(&f);
    }
    free(copy);
    return 0;
}

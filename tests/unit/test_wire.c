/* Frames: what is written can be read back, and nothing that is malformed is accepted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "wire.h"

static void put(struct buffer *b, uint32_t id, const char *const *strings, unsigned n) {
    size_t frame = wire_begin(b, id);
    for (unsigned i = 0; i < n; i++)
        wire_add_text(b, frame, strings[i]);
    assert_int_equal(wire_end(b, frame), 0);
}

static void round_trip(void **state) {
    (void)state;
    cleanup_buffer struct buffer b = {0};
    put(&b, 7, (const char *const[]){"op", "", "argument"}, 3);
    put(&b, 8, (const char *const[]){"next"}, 1);
    struct frame f;
    int64_t n = wire_decode(b.data, b.len, &f);
    assert_true(n > 0);
    assert_int_equal(f.id, 7);
    assert_int_equal(f.count, 3);
    assert_true(slice_is(f.strings[0], "op"));
    assert_int_equal(f.strings[1].len, 0);
    assert_true(slice_is(f.strings[2], "argument"));
    frame_free(&f);
    buffer_consume(&b, (size_t)n);
    assert_int_equal(wire_decode(b.data, b.len, &f), (int64_t)b.len);
    assert_int_equal(f.id, 8);
    frame_free(&f);
}

static void every_prefix_is_incomplete(void **state) {
    (void)state;
    cleanup_buffer struct buffer b = {0};
    put(&b, 1, (const char *const[]){"op", "argument"}, 2);
    for (size_t len = 0; len < b.len; len++) {
        struct frame f;
        assert_int_equal(wire_decode(b.data, len, &f), 0);
    }
}

static void malformed(void **state) {
    (void)state;
    cleanup_buffer struct buffer b = {0};
    struct frame f;
    put(&b, 1, (const char *const[]){"op", "argument"}, 2);
    b.data[10] = 100; /* the first string's length: beyond the frame */
    assert_int_equal(wire_decode(b.data, b.len, &f), -EPROTO);
    b.data[10] = 1; /* too short: bytes are left over */
    assert_int_equal(wire_decode(b.data, b.len, &f), -EPROTO);
    b.data[10] = 2;
    b.data[8] = 3; /* one more string than there is */
    assert_int_equal(wire_decode(b.data, b.len, &f), -EPROTO);
    b.data[8] = 0; /* no operation */
    assert_int_equal(wire_decode(b.data, b.len, &f), -EPROTO);
    memset(b.data, 0xff, 4); /* a frame of 4 GiB */
    assert_int_equal(wire_decode(b.data, b.len, &f), -EPROTO);
    memset(b.data, 0, 4); /* one shorter than its own head */
    assert_int_equal(wire_decode(b.data, b.len, &f), -EPROTO);
}

static void limits(void **state) {
    (void)state;
    cleanup_buffer struct buffer b = {0};
    size_t frame = wire_begin(&b, 1);
    for (unsigned i = 0; i <= WIRE_MAX_STRINGS; i++)
        wire_add_text(&b, frame, "");
    assert_int_equal(wire_end(&b, frame), -EMSGSIZE);
    assert_int_equal(b.len, 0);
    static char big[WIRE_MAX_FRAME];
    frame = wire_begin(&b, 1);
    wire_add(&b, frame, big, sizeof(big));
    assert_int_equal(wire_end(&b, frame), -EMSGSIZE);
    assert_int_equal(b.len, 0);
}

static void slices(void **state) {
    (void)state;
    assert_false(slice_is((struct slice){"abc", 2}, "abc"));
    assert_true(slice_is((struct slice){"abc", 2}, "ab"));
    assert_null(slice_dup((struct slice){"a\0b", 3}));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip), cmocka_unit_test(every_prefix_is_incomplete),
        cmocka_unit_test(malformed),  cmocka_unit_test(limits),
        cmocka_unit_test(slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

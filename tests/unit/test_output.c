/* Escaping: no byte that a terminal acts on gets through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "output.h"

static void check(const char *bytes, size_t len, const char *expected) {
    cleanup_buffer struct buffer b = {0};
    output_escape(&b, (struct slice){bytes, len});
    buffer_add(&b, "", 1);
    assert_string_equal(b.data, expected);
}

#define CHECK(bytes, expected) check(bytes, sizeof(bytes) - 1, expected)

static void escapes(void **state) {
    (void)state;
    CHECK("plain \t text\n", "plain \t text\n");
    CHECK("\033[2J", "\\x1b[2J");
    CHECK("a\rPASS", "a\\x0dPASS");
    CHECK("\x7f\b\a", "\\x7f\\x08\\x07");
    CHECK("a\0b", "a\\x00b");
    CHECK("\xc2\x9b"
          "2J",
          "\\xc2\\x9b2J"); /* CSI as one C1 control */
    CHECK("\xc3\xa9", "\xc3\xa9");
    CHECK("\xc3\xa9\xff", "\\xc3\\xa9\\xff"); /* not UTF-8: nothing of it is trusted */
}

static void every_byte(void **state) {
    (void)state;
    for (int c = 0; c < 256; c++) {
        char byte = (char)c;
        cleanup_buffer struct buffer b = {0};
        output_escape(&b, (struct slice){&byte, 1});
        for (size_t i = 0; i < b.len; i++) {
            unsigned char out = (unsigned char)b.data[i];
            assert_true(out == '\n' || out == '\t' || (out >= 0x20 && out < 0x7f));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(escapes), cmocka_unit_test(every_byte)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

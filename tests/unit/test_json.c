/* Writing JSON: always valid, whatever the bytes; bodies in Incus's shapes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "json.h"

static void check_string(const char *bytes, size_t len, const char *expected) {
    cleanup_buffer struct buffer b = {0};
    json_string(&b, (struct slice){bytes, len});
    buffer_add(&b, "", 1);
    assert_string_equal(b.data, expected);
}

#define CHECK_STRING(bytes, expected) check_string(bytes, sizeof(bytes) - 1, expected)

static void strings(void **state) {
    (void)state;
    CHECK_STRING("plain", "\"plain\"");
    CHECK_STRING("a\"b\\c", "\"a\\\"b\\\\c\"");
    CHECK_STRING("\n\033\x7f", "\"\\u000a\\u001b\\u007f\"");
    CHECK_STRING("a\0b", "\"a\\u0000b\"");
    CHECK_STRING("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
                 "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
    CHECK_STRING("\xff", "\"\\ufffd\"");
    CHECK_STRING("\xc0\xaf", "\"\\ufffd\\ufffd\"");            /* overlong */
    CHECK_STRING("\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""); /* a surrogate */
    CHECK_STRING("\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\"");
    CHECK_STRING("\xe2\x82", "\"\\ufffd\\ufffd\""); /* cut off */
}

static void check_body(const char *const *words, unsigned n, const char *always,
                       const char *expected) {
    struct slice strings[64];
    for (unsigned i = 0; i < n; i++)
        strings[i] = (struct slice){words[i], strlen(words[i])};
    cleanup_buffer struct buffer b = {0};
    json_body(&b, (struct quads){strings, n}, always);
    buffer_add(&b, "", 1);
    assert_string_equal(b.data, expected);
}

static void bodies(void **state) {
    (void)state;
    check_body(NULL, 0, "config,egress", "\"config\":{},\"egress\":[]");
    const char *const network[] = {"top",      "",     "description", "d", "config",   "",
                                   "ipv4.nat", "true", "config",      "",  "dns.mode", "none"};
    check_body(network, 12, "config",
               "\"description\":\"d\",\"config\":{\"ipv4.nat\":\"true\",\"dns.mode\":\"none\"}");
    const char *const profile[] = {"devices", "eth0", "type",    "nic",  "devices", "root",
                                   "type",    "disk", "devices", "eth0", "network", "n"};
    check_body(profile, 12, "",
               "\"devices\":{\"eth0\":{\"type\":\"nic\",\"network\":\"n\"},"
               "\"root\":{\"type\":\"disk\"}}");
    const char *const acl[] = {"egress",      "1",    "action", "drop", "egress", "1",
                               "destination", "10/8", "egress", "2",    "action", "allow"};
    check_body(acl, 12, "ingress",
               "\"egress\":[{\"action\":\"drop\",\"destination\":\"10/8\"},"
               "{\"action\":\"allow\"}],\"ingress\":[]");
    const char *const profiles[] = {"profiles", "", "", "a", "profiles", "", "", "b"};
    check_body(profiles, 8, "", "\"profiles\":[\"a\",\"b\"]");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(strings), cmocka_unit_test(bodies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

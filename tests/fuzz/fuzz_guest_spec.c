/*
 * Fuzzes the guest program's argument parser: the input's lines are the arguments. Whatever it
 * accepts must keep within the documented bounds, since nothing checks them later.
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
 *         tests/fuzz/fuzz_guest_spec.c engine/guest/spec.c engine/guest/line.c -o fuzz
 *     ./fuzz -max_total_time=60
 */
#define _GNU_SOURCE
#include "../../engine/guest/spec.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool what) {
    if (!what)
        abort();
}

static void check_spec(const struct spec *s, unsigned stages) {
    bool attempt = s->proto <= SPEC_FRAME;

    require(s->ms >= 1 && s->ms <= SPEC_MAX_MS);
    require(s->send_len <= SPEC_MAX_BYTES && (s->send_len == 0 || s->send));
    require(s->recv <= SPEC_MAX_BYTES);
    require(s->ttl >= 0 && s->ttl <= 255);
    require(s->stage < stages);
    require((s->port == 0) == (s->proto == SPEC_ICMP || s->proto == SPEC_FRAME));
    require(s->proto != SPEC_FRAME || (s->link[0] && s->send_len >= 14));
    require(s->proto != SPEC_LISTEN || (s->link[0] != '\0') == s->has_mark);
    require((s->token[0] == '\0') == attempt);
    require(s->proto == SPEC_LISTEN || s->proto == SPEC_FRAME || s->to.family == AF_INET ||
            s->to.family == AF_INET6);
    require(!attempt || s->from.family == AF_UNSPEC || s->from.family == s->to.family);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = strndup((const char *)data, size);
    char *args[64];
    char *rest = text;
    char *arg;
    char why[256];
    int count = 0;
    struct plan plan;

    while (count < 64 && (arg = strsep(&rest, "\n")))
        args[count++] = arg;
    if (plan_parse(&plan, count, args, why, sizeof(why)) == 0)
        for (size_t i = 0; i < plan.count; i++)
            check_spec(&plan.specs[i], plan.stages);
    plan_clear(&plan);
    free(text);
    return 0;
}

/* exec: any command on the host, for those who were given `host.exec`. docs/exec.md. */
#include "job.h"
#include "ops.h"

#include <stdlib.h>

/* exec MS GRACE CAP ARG... */
void op_exec(struct request *r) {
    int64_t ms = 0, grace = 0, cap = 0;
    if (!arg_number(r, 0, 1, 3600000, &ms) || !arg_number(r, 1, 0, 60000, &grace) ||
        !arg_number(r, 2, 0, 3 << 20, &cap))
        return;
    unsigned n = r->argc - 3;
    char **argv = calloc(n + 1, sizeof(*argv));
    if (!argv)
        abort();
    for (unsigned i = 0; i < n; i++)
        argv[i] = arg_text(r, i + 3);
    job_make_folder();
    job_start(r,
              &(struct supervise_spec){.argv = argv,
                                       .envp = job_environment(),
                                       .deadline_ms = (unsigned)ms,
                                       .grace_ms = (unsigned)grace,
                                       .cap = (size_t)cap},
              job_reply);
    for (unsigned i = 0; i < n; i++)
        free(argv[i]);
    free(argv);
}

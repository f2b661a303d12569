/* What the run is at, on stderr: a line that lives on a terminal, elsewhere a line whenever nothing
 * was said for four seconds. The broker knows it by itself: which probes run, and which request has
 * been waited for longest. Called by the loop; a script asks for it. */
#pragma once

/* From here on. */
void progress_on(void);
/* Now and then, from the loop. */
void progress_tick(void);

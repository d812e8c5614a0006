/* What fails in an exit handler of the main thread, on which calls have failed before, is told as
 * ever. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ringd.h"

/* Each of another length, beyond what a string holds in itself. */
static void FailAt(const char* folder) {
  char socket[256];
  ringd_context* context = NULL;
  ringd_options options;
  snprintf(socket, sizeof(socket), "/tmp/%s/ringd.sock", folder);
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.socket = socket;
  if (ringd_open(&options, &context) == RINGD_OK || strstr(ringd_last_error(), socket) == NULL) {
    fprintf(stderr, "%s: %s\n", socket, ringd_last_error());
    _exit(1);
  }
}

static void OnExit(void) {
  int i;
  for (i = 0; i < 3; ++i) {
    FailAt("a-folder-that-is-not-there-and-has-quite-a-long-name-so-that-it-takes-more-memory");
    FailAt("no-folder");
  }
}

int main(void) {
  if (atexit(OnExit) != 0) return 1;
  FailAt("no-such-folder");
  return 0;
}

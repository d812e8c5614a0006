/* A C11 program against libringd.so: the header is C, the library links by itself, and its version
 * is the header's. */
#include <stdio.h>
#include <string.h>

#include "client/ringd.h"

static int failures = 0;

static void Check(int condition, const char* what) {
  if (condition) return;
  fprintf(stderr, "failed: %s\n", what);
  ++failures;
}

int main(void) {
  ringd_context* context = NULL;
  ringd_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.socket = "/tmp/ringd-nowhere.sock";
  Check(ringd_api_version() == RINGD_API_VERSION, "the library's version is the header's");
  Check(strlen(ringd_version()) > 0, "the library has a release");
  Check(strcmp(ringd_status_name(RINGD_ABORTED), "RINGD_ABORTED") == 0, "codes have names");
  Check(strcmp(ringd_status_name(999), "RINGD_UNKNOWN") == 0, "unknown codes have one too");
  Check(strcmp(ringd_last_error(), "") == 0, "no error at first");
  Check(ringd_open(&options, &context) == RINGD_NOT_FOUND, "no ringd there");
  Check(context == NULL, "a failed open leaves the pointer alone");
  Check(strstr(ringd_last_error(), "/tmp/ringd-nowhere.sock") != NULL,
        "the error names the socket");
  ringd_close(NULL);
  return failures == 0 ? 0 : 1;
}
